// Package rbac_test holds the shipped roles to what the specification allows.
package rbac_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

type role struct {
	Kind     string                           `json:"kind"`
	Metadata struct{ Name, Namespace string } `json:"metadata"`
	Rules    []rbacv1.PolicyRule              `json:"rules"`
}

func roles(t *testing.T) map[string]role {
	t.Helper()
	all := generatedRoles(t)
	maps.DeleteFunc(all, func(name string, _ role) bool { return strings.HasPrefix(name, "kruise-daemon-") }) // config/daemon has tests for these
	return all
}

func generatedRoles(t *testing.T) map[string]role {
	t.Helper()
	data, err := os.ReadFile("role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]role{}
	for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var r role
		if err := yaml.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		all[r.Metadata.Name] = r
	}
	return all
}

const ofDistributions = "kruise-manager-resourcedistribution-role"

// RD-021 (part), OPS-082 (part): the shipped manifests grant nothing that only ResourceDistributions need;
// what grants it is not among them. The policy that holds the manager to its copies is, see
// TestPolicyOfTheManager.
func TestRightsOfDistributions(t *testing.T) {
	data, err := os.ReadFile("../resource-distribution/rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var object struct {
			Kind    string
			RoleRef rbacv1.RoleRef
		}
		if err := yaml.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, object.Kind+" "+object.RoleRef.Name)
	}
	if diff := cmp.Diff([]string{"ClusterRoleBinding " + ofDistributions}, kinds); diff != "" {
		t.Error(diff)
	}
	for _, file := range []string{"kustomization.yaml", "bindings.yaml", "../default/kustomization.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil || bytes.Contains(data, []byte("distribution")) {
			t.Error(file, err)
		}
	}
	got := map[string]string{}
	for _, rule := range roles(t)[ofDistributions].Rules {
		for _, resource := range rule.Resources {
			got[resource] = strings.Join(rule.Verbs, " ")
		}
	}
	const copies = "create delete get list patch watch"
	if diff := cmp.Diff(map[string]string{"secrets": copies, "configmaps": copies, "namespaces": "get list watch", "resourcedistributions": "get list watch",
		"resourcedistributions/status": "patch", "resourcedistributions/finalizers": "update"}, got); diff != "" {
		t.Error(diff)
	}
}

// ofManager are the rules of all that the manager may do in the whole cluster, but for certificates: of
// kruise-manager-role, and of the roles that a chart leaves out where their gates are off.
func ofManager(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for name, r := range roles(t) {
		// That of ResourceDistributions is bound by who switches their gate on (RD-021).
		if strings.HasPrefix(name, "kruise-manager-") && name != ofDistributions {
			rules = append(rules, r.Rules...)
		}
	}
	return rules
}

// OPS-080, OPS-082, SS-281: no Secret outside the install namespace, ConfigMaps only for launch barriers,
// nothing by wildcard; what the upkeep of certificates writes is named.
func TestRightsAreNarrow(t *testing.T) {
	all := roles(t)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"kruise-certs-role", "kruise-leader-election-role", "kruise-manager-budget-role", "kruise-manager-image-pull-role",
		"kruise-manager-nodes-role", "kruise-manager-resourcedistribution-role", "kruise-manager-role", "kruise-manager-sidecarterminator-role", "kruise-manager-storage-role", "kruise-manager-workloadspread-role",
		"kruise-metrics-role", "kruise-pull-secrets-role", "kruise-webhook-role"}, names); diff != "" {
		t.Error(diff)
	}
	for name, r := range all {
		for _, rule := range r.Rules {
			if slices.Contains(append(append(rule.Resources, rule.Verbs...), rule.APIGroups...), "*") {
				t.Errorf("%s: %+v", name, rule)
			}
			secrets := slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "configmaps")
			if name == "kruise-pull-secrets-role" { // IMG-200: the namespace of copies
				if r.Metadata.Namespace != "kruise-daemon-config" || !slices.Equal(rule.Resources, []string{"secrets"}) {
					t.Errorf("%s: %+v", name, rule)
				}
				continue
			}
			if name == "kruise-manager-image-pull-role" && slices.Contains(rule.Resources, "secrets") && slices.Equal(rule.Verbs, []string{"get"}) {
				continue // IMG-200: sources of copies, by the names in jobs; nothing lists secrets
			}
			if name == "kruise-manager-resourcedistribution-role" && secrets {
				continue // RD-021: bound with the gate alone, and held to copies by a policy
			}
			if name == "kruise-manager-role" && slices.Equal(rule.Resources, []string{"configmaps"}) && slices.Equal(rule.Verbs, []string{"create", "get", "list", "patch", "watch"}) {
				continue // ND-136, ND-145: launch barriers, in the namespaces of pods; rights know no labels
			}
			if secrets && (r.Kind != "Role" || len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, []string{"create"})) {
				t.Errorf("%s: %+v", name, rule)
			}
			if name == "kruise-certs-role" && (len(rule.ResourceNames) == 0 || slices.Contains(rule.Verbs, "update") || slices.Contains(rule.Verbs, "delete")) {
				t.Errorf("%s: %+v", name, rule)
			}
		}
	}
}

// OPS-050, OPS-080: with certificates of somebody else the same objects may be read, and nothing may be
// written.
func TestRightsWithExternalCertificates(t *testing.T) {
	data, err := os.ReadFile("../external-certs/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct {
		Patches []struct {
			Target struct{ Kind, Name string }
			Patch  string
		}
	}
	if err := yaml.Unmarshal(data, &overlay); err != nil {
		t.Fatal(err)
	}
	shipped, replaced := roles(t), 0
	for _, patch := range overlay.Patches {
		if !strings.HasSuffix(patch.Target.Kind, "Role") {
			continue
		}
		replaced++
		var replacement role
		before, err := json.Marshal(shipped[patch.Target.Name])
		if err != nil {
			t.Fatal(err)
		}
		operations, err := yaml.YAMLToJSON([]byte(patch.Patch))
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := jsonpatch.DecodePatch(operations)
		if err != nil {
			t.Fatal(err)
		}
		after, err := decoded.Apply(before)
		if err == nil {
			err = json.Unmarshal(after, &replacement)
		}
		if err != nil || replacement.Kind != patch.Target.Kind {
			t.Errorf("%s: %v", patch.Target.Name, err)
		}
		rules := replacement.Rules
		if diff := cmp.Diff(named(shipped[patch.Target.Name].Rules), named(rules)); diff != "" {
			t.Errorf("%s (-shipped +external):\n%s", patch.Target.Name, diff)
		}
		for _, rule := range rules {
			if !slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
				t.Errorf("%s: %v", patch.Target.Name, rule.Verbs)
			}
		}
	}
	if replaced != 2 {
		t.Errorf("%d roles are replaced", replaced)
	}
}

// OPS-051: the annotation for the injector is on both configurations and on every CRD.
func TestInjectorIsToldOfAllObjects(t *testing.T) {
	data, err := os.ReadFile("../external-certs/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := "{kind: MutatingWebhookConfiguration|ValidatingWebhookConfiguration|CustomResourceDefinition}\n  patch: |\n" +
		"    - {op: add, path: /metadata/annotations/cert-manager.io~1inject-ca-from,"
	if !strings.Contains(string(data), want) {
		t.Errorf("%s", data)
	}
}

// OPS-080: every role of the manager is bound to it, in its own scope, and nobody else is.
func TestRolesAreBound(t *testing.T) {
	data, err := os.ReadFile("bindings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]string{}
	for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var b rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
		if err := yaml.UnmarshalStrict(text, &b); err != nil {
			t.Fatal(err)
		}
		if len(b.Subjects) != 1 || b.Subjects[0].Name != "kruise-manager" || b.Subjects[0].Kind != "ServiceAccount" || b.Kind != b.RoleRef.Kind+"Binding" {
			t.Errorf("%+v", b)
		}
		bound[b.RoleRef.Name] = b.RoleRef.Kind
	}
	want := map[string]string{}
	for name, r := range roles(t) {
		if name != "kruise-metrics-role" && name != ofDistributions { // bound where --metrics-secure is set (OPS-094), and with a gate (RD-021)
			want[name] = r.Kind
		}
	}
	if diff := cmp.Diff(want, bound); diff != "" {
		t.Error(diff)
	}
}

// OPS-084, ND-072, EJ-071: who may view or edit workloads may so with the kinds of users, and nobody may
// write a status, or what node daemons act on: a probe or an image of a node is as good as exec into its
// pods.
func TestWhoMayEditWorkloadsMayEditOurKinds(t *testing.T) {
	data, err := os.ReadFile("aggregated.yaml")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]string{} // kinds of users, and their scope
	definitions, err := filepath.Glob("../crd/bases/*.yaml")
	if err != nil || len(definitions) == 0 {
		t.Fatal(definitions, err)
	}
	for _, file := range definitions {
		var definition apiextensionsv1.CustomResourceDefinition
		data, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(data, &definition)
		}
		if err != nil {
			t.Fatal(err)
		}
		plural := definition.Spec.Names.Plural
		if plural == "resourcedistributions" { // who may view may not see Secrets, and these have some
			missing["edit "+plural] = "admin"
			continue
		}
		if plural != "nodeimages" && plural != "nodepodprobes" {
			missing["view "+plural] = "all"
			// EJ-071: who creates EphemeralJobs runs code in pods that are there, as with
			// pods/ephemeralcontainers, which "edit" does not have.
			if definition.Spec.Scope == apiextensionsv1.NamespaceScoped && plural != "ephemeraljobs" {
				missing["edit "+plural] = "namespaced"
			}
		}
	}
	for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var r rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(text, &r); err != nil {
			t.Fatal(err)
		}
		edits := false
		for _, rule := range r.Rules {
			writes := slices.Contains(rule.Verbs, "update")
			edits = edits || writes
			if !slices.Contains(rule.Verbs, "get") {
				t.Errorf("%s: %+v", r.Name, rule)
			}
			for _, resource := range rule.Resources {
				delete(missing, map[bool]string{false: "view ", true: "edit "}[writes]+resource)
				if writes && (strings.HasSuffix(resource, "/status") || strings.HasPrefix(resource, "ephemeraljobs")) || strings.HasPrefix(resource, "nodepodprobes") || strings.HasPrefix(resource, "nodeimages") || resource == "*" {
					t.Errorf("%s: %+v", r.Name, rule)
				}
			}
		}
		aggregated := func(to string) bool { return r.Labels["rbac.authorization.k8s.io/aggregate-to-"+to] == "true" }
		if r.Name == "aggregate-kruise-admin" {
			if aggregated("view") || aggregated("edit") || !aggregated("admin") {
				t.Errorf("%s: %v", r.Name, r.Labels)
			}
			continue
		}
		if aggregated("view") == edits || aggregated("edit") != edits || aggregated("admin") != edits {
			t.Errorf("%s: %v", r.Name, r.Labels)
		}
	}
	if len(missing) > 0 {
		t.Errorf("in no role: %v", missing)
	}
}

// CRR-155, IMG-200, IPU-116: what the manager may do with the kinds of the node daemon and what they are
// about; nothing more is used.
func TestRightsForDaemonKinds(t *testing.T) {
	got := map[string][]string{}
	for _, rule := range ofManager(t) {
		for _, resource := range rule.Resources {
			got[resource] = append(got[resource], rule.Verbs...)
		}
	}
	for resource, want := range map[string]string{
		"containerrecreaterequests": "create delete get list patch watch", "containerrecreaterequests/status": "patch", "containerrecreaterequests/finalizers": "",
		"nodeimages": "create delete get list patch watch", "nodeimages/status": "patch",
		"imagepulljobs": "create delete get list patch watch", "imagepulljobs/status": "patch",
		"imagelistpulljobs": "create delete get list patch watch", "imagelistpulljobs/status": "patch",
		"pods/status": "patch", "pods/resize": "patch", "nodes": "get list watch", "secrets": "get",
	} {
		verbs := slices.Sorted(slices.Values(got[resource]))
		if diff := cmp.Diff(want, strings.Join(slices.Compact(verbs), " ")); diff != "" {
			t.Errorf("%s: %s", resource, diff)
		}
	}
}

// PPM-130: what the manager and the node daemon may do with probes, with nodes and with pods.
func TestRightsForProbes(t *testing.T) {
	verbs := func(rules []rbacv1.PolicyRule) map[string]string {
		got := map[string][]string{}
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				got[resource] = append(got[resource], rule.Verbs...)
			}
		}
		joined := map[string]string{}
		for resource, list := range got {
			slices.Sort(list)
			joined[resource] = strings.Join(slices.Compact(list), " ")
		}
		return joined
	}
	const read, manage = "get list watch", "create delete get list patch watch"
	manager, daemon := verbs(ofManager(t)), verbs(generatedRoles(t)["kruise-daemon-role"].Rules)
	for resource, want := range map[string][2]string{
		"podprobemarkers": {"get list patch watch", ""}, "podprobemarkers/status": {"patch", ""}, "podprobemarkers/finalizers": {"", ""},
		"nodepodprobes": {manage, read}, "nodepodprobes/status": {"", "patch"}, "nodepodprobes/finalizers": {"", ""},
		"nodes": {read, ""}, "pods": {manage, read}, "pods/status": {"patch", "patch"}, "pods/exec": {"", ""},
	} {
		if got := [2]string{manager[resource], daemon[resource]}; got != want {
			t.Errorf("%s: manager and daemon may %q, want %q", resource, got, want)
		}
	}
}

// OPS-073 (part): whatever the manager may do with definitions, it may not write their status, where the
// stored versions are.
func TestRightsOnDefinitions(t *testing.T) {
	seen := 0
	for name, r := range roles(t) {
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				if !strings.HasPrefix(resource, "customresourcedefinitions") {
					continue
				}
				seen++
				if resource != "customresourcedefinitions" || name != "kruise-certs-role" {
					t.Errorf("%s: %+v", name, rule)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no role is about definitions")
	}
}

// OPS-081, ADS-220, ASTS-355, EJ-070: all that the manager may do in the whole cluster, verb by verb. Who
// adds a right adds it here, with the reason in what uses it.
func TestRightsOfTheManager(t *testing.T) {
	const read, manage = "get list watch", "create delete get list patch watch"
	want := map[string]string{
		"pods": manage, "persistentvolumeclaims": manage, "apps/controllerrevisions": manage,
		"pods/status": "patch", "pods/resize": "patch",
		"namespaces": read, "nodes": read,
		"apps/deployments": manage, "apps/replicasets": read, "apps/statefulsets": manage, // UD-064 (part), UD-065 (part)
		"batch/jobs":                      manage, // ACJ-070 (part)
		"apps.kruise.io/advancedcronjobs": read, "apps.kruise.io/advancedcronjobs/status": "patch", "apps.kruise.io/advancedcronjobs/finalizers": "update",
		"podtemplates": "create", "configmaps": "create get list patch watch", "secrets": "get",
		"events": "create patch", "events.k8s.io/events": "create patch",
		"apps.kruise.io/clonesets": manage, "apps.kruise.io/clonesets/status": "patch", "apps.kruise.io/clonesets/finalizers": "update",
		"apps.kruise.io/sidecarsets": read, "apps.kruise.io/sidecarsets/status": "patch", "apps.kruise.io/sidecarsets/finalizers": "update",
		"policy.kruise.io/podunavailablebudgets": read, "policy.kruise.io/podunavailablebudgets/status": "get patch",
		// PUB-035 (part), PUB-040 (part), PUB-072: what controls pods, and how many pods it shall have.
		"replicationcontrollers": read, "replicationcontrollers/scale": "get", "apps/daemonsets": "get", "apps/deployments/scale": "get",
		"apps/replicasets/scale": "get", "apps/statefulsets/scale": "get", "apps.kruise.io/clonesets/scale": "get",
		"apps.kruise.io/uniteddeployments/scale": "get",
		"apps.kruise.io/statefulsets/scale":      "get",
		"policy/poddisruptionbudgets":            read, // which refuse evictions too
		"apps.kruise.io/workloadspreads":         read, "apps.kruise.io/workloadspreads/status": "get patch",
		"apps.kruise.io/persistentpodstates": manage, "apps.kruise.io/persistentpodstates/status": "patch",
		"apps.kruise.io/statefulsets":      manage,
		"apps.kruise.io/uniteddeployments": read, "apps.kruise.io/uniteddeployments/status": "patch", "apps.kruise.io/uniteddeployments/finalizers": "update",
		"apps.kruise.io/statefulsets/finalizers":  "update",
		"apps.kruise.io/statefulsets/status":      "patch",
		"apps.kruise.io/daemonsets":               read,
		"apps.kruise.io/daemonsets/finalizers":    "update",
		"apps.kruise.io/daemonsets/status":        "patch",
		"apps.kruise.io/broadcastjobs":            manage, // ACJ-070 (part), BJ-094 (part), BJ-120 (part)
		"apps.kruise.io/broadcastjobs/finalizers": "update",
		"apps.kruise.io/broadcastjobs/status":     "patch",
		"apps.kruise.io/ephemeraljobs":            "delete get list patch watch", "apps.kruise.io/ephemeraljobs/status": "patch", // EJ-070
		"pods/ephemeralcontainers":                 "patch", // EJ-070
		"storage.k8s.io/storageclasses":            "list",  // ASTS-054
		"apps.kruise.io/containerrecreaterequests": "create delete get list patch watch", "apps.kruise.io/containerrecreaterequests/status": "patch",
		"apps.kruise.io/podprobemarkers": "get list patch watch", "apps.kruise.io/podprobemarkers/status": "patch",
		"apps.kruise.io/nodepodprobes": manage,
		"apps.kruise.io/nodeimages":    manage, "apps.kruise.io/nodeimages/status": "patch",
		"apps.kruise.io/imagepulljobs": manage, "apps.kruise.io/imagepulljobs/status": "patch", "apps.kruise.io/imagepulljobs/finalizers": "update",
		"apps.kruise.io/imagelistpulljobs": manage, "apps.kruise.io/imagelistpulljobs/status": "patch", "apps.kruise.io/imagelistpulljobs/finalizers": "update",
	}
	verbs := map[string][]string{}
	for _, rule := range ofManager(t) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				name := strings.TrimPrefix(group+"/"+resource, "/")
				verbs[name] = append(verbs[name], rule.Verbs...)
			}
		}
	}
	got := map[string]string{}
	for name, list := range verbs {
		slices.Sort(list)
		got[name] = strings.Join(slices.Compact(list), " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// JST-061: the sidecar terminator patches pods and their status, reads nodes, and creates requests, which it
// does neither change nor delete; that nobody else needs, so that it stands in the role of its gate.
func TestRightsForSidecars(t *testing.T) {
	want := []rbacv1.PolicyRule{{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"containerrecreaterequests"},
		Verbs: []string{"create", "get", "list", "watch"}}}
	if diff := cmp.Diff(want, roles(t)["kruise-manager-sidecarterminator-role"].Rules); diff != "" {
		t.Error(diff)
	}
	may := func(resource, verb string) bool {
		return slices.ContainsFunc(roles(t)["kruise-manager-role"].Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, "") && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb)
		})
	}
	for resource, verbs := range map[string][]string{"pods": {"get", "list", "watch", "patch"}, "pods/status": {"patch"}, "nodes": {"get", "list", "watch"}} {
		for _, verb := range verbs {
			if !may(resource, verb) {
				t.Errorf("%s %s", verb, resource)
			}
		}
	}
}

// named returns the names of the objects in the rules.
func named(rules []rbacv1.PolicyRule) []string {
	var names []string
	for _, rule := range rules {
		names = append(names, rule.ResourceNames...)
	}
	slices.Sort(names)
	return names
}

// What is installed stands in the manual: each role and policy, each definition, and for each kind what the
// right to write it gives.
func TestTheManualNamesWhatIsInstalled(t *testing.T) {
	page := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("../../docs/operate", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	installing, rights := page("install.md"), page("rights.md")
	for _, file := range []string{"role.yaml", "aggregated.yaml", "isolation.yaml", "copies.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
			var r struct{ Metadata struct{ Name string } }
			if err := yaml.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(installing+rights, "`"+r.Metadata.Name+"`") {
				t.Errorf("neither install.md nor rights.md says what %s is", r.Metadata.Name)
			}
		}
	}
	_, gives, found := strings.Cut(rights, "\n## What a right gives\n")
	gives, _, _ = strings.Cut(gives, "\n## ")
	definitions, err := filepath.Glob("../crd/bases/*.yaml")
	if err != nil || len(definitions) == 0 || !found {
		t.Fatal(definitions, err)
	}
	for _, file := range definitions {
		var definition apiextensionsv1.CustomResourceDefinition
		data, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(data, &definition)
		}
		if err != nil {
			t.Fatal(err)
		}
		if names := definition.Spec.Names; !strings.Contains(installing, "`"+names.Plural+"`") || !strings.Contains(gives, names.Kind+"s") {
			t.Errorf("install.md does not list %s, or rights.md does not say what the right to %ss gives", names.Plural, names.Kind)
		}
	}
}
