package registry

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/framework"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	"github.com/afloat-project/afloat/internal/platform/features"
)

func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Whatever kind has a type is in the list, and the other way round.
func TestEveryTypeIsRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1beta1.AddToScheme(scheme), policyv1beta1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	types := maps.Clone(scheme.AllKnownTypes())
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, of := range scheme.AllKnownTypes() { // those that have no other version are stored in this one
		if kind.Version == "v1alpha1" && types[appsv1beta1.GroupVersion.WithKind(kind.Kind)] == nil {
			types[kind] = of
		}
	}
	var got, want []string
	for kind := range types {
		if _, listed := types[kind.GroupVersion().WithKind(kind.Kind+"List")]; listed && kind.Group != "" {
			want = append(want, kind.String())
		}
	}
	for i := range Kinds {
		served := Served(&Kinds[i])
		got = append(got, served[0].String())
		for _, with := range served[1:] {
			if types[with] == nil {
				t.Errorf("%s is set up with %s, which is no kind", Kinds[i].Name, with)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types and the registry differ (-types +registry):\n%s", diff)
	}
}

// A kind that owns pods is in the table of workloads, in the version that its controller reads.
// ResourceDistributions only block uninstalling, as workloads do.
func TestKindsWithPodsAreInTheTableOfWorkloads(t *testing.T) {
	for _, of := range InUse() {
		if of.Kind == "ResourceDistribution" {
			continue
		}
		kind := &Kinds[slices.IndexFunc(Kinds, func(k framework.Kind) bool { return k.Group == of.Group && k.Name == of.Kind })]
		if got, want := workloadkind.Of(of).GroupVersionKind(), kind.Stored(); got != want {
			t.Errorf("%s: the table of workloads has %q, want %q", of, got, want)
		}
	}
}

// The files that docs/develop/adding-a-kind.md names are there, for every kind where they are named after
// one, and users find its page.
func TestWhatAKindConsistsOf(t *testing.T) {
	var pages string
	files, err := filepath.Glob("../../docs/kinds/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		pages += text(t, strings.TrimPrefix(file, "../../"))
	}
	paths := regexp.MustCompile("`((?:[a-z]+/|[A-Z]+[.])[^`… ]*)`").FindAllStringSubmatch(text(t, "docs/develop/adding-a-kind.md"), -1)
	if len(paths) < 10 {
		t.Fatal(paths)
	}
	for i := range Kinds {
		kind := &Kinds[i]
		for _, path := range paths {
			if kind.Conversion == nil && strings.Contains(path[1], "_conversion") {
				continue
			}
			if !slices.Contains(kind.Versions(), "v1beta1") {
				path = []string{"", strings.ReplaceAll(path[1], "v1beta1", kind.Version)}
			}
			path := strings.NewReplacer("<kind>", strings.ToLower(kind.Name), "<kinds>", kind.Plural,
				"<group>", strings.TrimSuffix(kind.Group, ".kruise.io")).Replace(path[1])
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s: %v", kind.Name, err)
			}
		}
		if !strings.Contains(pages, "\nkind: "+kind.Name+"\n") {
			t.Errorf("no page of the manual has an example of %s", kind.Name)
		}
		if !regexp.MustCompile(`(?m)^\| \[[^]]*\b` + kind.Name + `\b`).MatchString(text(t, "docs/README.md")) {
			t.Errorf("the table of docs/README.md does not name %s", kind.Name)
		}
	}
}

// OPS-080 (part): the manager may watch every kind, publish its authority in the definitions of those that it converts, and look at
// the others that the reference converts.
func TestTheManagerMayDoWhatTheRegistryNeeds(t *testing.T) {
	watched, definitions := map[string]bool{}, map[string][]string{}
	for document := range strings.SplitSeq(text(t, "config/rbac/role.yaml"), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, group := range rule.APIGroups {
					watched[resource+"."+group] = watched[resource+"."+group] ||
						strings.HasPrefix(role.Name, "kruise-manager-") && slices.Contains(rule.Verbs, "watch")
				}
				if resource == "customresourcedefinitions" {
					verbs := strings.Join(rule.Verbs, " ")
					definitions[verbs] = append(definitions[verbs], rule.ResourceNames...)
				}
			}
		}
	}
	want := map[string][]string{}
	for i := range Kinds {
		if !watched[Kinds[i].Definition()] {
			t.Errorf("the manager may not watch %s", Kinds[i].Plural)
		}
		if Kinds[i].Conversion != nil {
			want["get list patch watch"] = append(want["get list patch watch"], Kinds[i].Definition())
		}
	}
	slices.Sort(want["get list patch watch"])
	if diff := cmp.Diff(want, definitions); diff != "" {
		t.Errorf("rights on definitions (-registry +role.yaml):\n%s", diff)
	}
}

// TestGatesOfBroadcastJobs shows BJ-161: which gates matter, that they are off, and that the controller runs whatever they are.
func TestGatesOfBroadcastJobs(t *testing.T) {
	gates, err := features.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	if gates.Enabled(features.TemplateNoDefaults) || gates.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates) {
		t.Error("they are on")
	}
	kind := kindNamed(t, "BroadcastJob")
	if served := Served(kind); len(kind.Gates) > 0 || len(served) != 1 || served[0].Version != "v1beta1" || kind.Setup == nil {
		t.Errorf("%v %v", kind.Gates, served)
	}
	for _, on := range []string{"true", "false"} {
		gates, err := features.Parse("PodUnavailableBudgetDeleteGate=" + on + ",PodUnavailableBudgetUpdateGate=" + on)
		if err != nil {
			t.Fatal(err)
		}
		e := environment(t)
		e.Gates = gates
		if options, err := podunavailablebudgetcontroller.OptionsOf(e); err != nil || options.Deletes != (on == "true") {
			t.Errorf("%+v %v", options, err)
		}
	}
}

// OPS-116 (part): an installation is in use while there are objects of these kinds, whoever serves them; conversion of all definitions can be ended.
func TestKindsInUse(t *testing.T) {
	want := map[string]bool{"AdvancedCronJob": true, "BroadcastJob": true, "CloneSet": true, "DaemonSet": true, "ResourceDistribution": true,
		"StatefulSet": true, "UnitedDeployment": true}
	for _, kind := range InUse() {
		if kind.Group != appsv1beta1.GroupVersion.Group || !want[kind.Kind] {
			t.Errorf("%s", kind)
		}
		delete(want, kind.Kind)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	converted := Converted()
	for _, name := range []string{"clonesets.apps.kruise.io", "podunavailablebudgets.policy.kruise.io"} {
		if !slices.Contains(converted, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// OPS-117 (part): whatever removes an installation takes off each finalizer that only the manager does. The job
// of the chart may do that, else it fails after it has ended the managers; `make undeploy` knows the kinds and
// the finalizers.
func TestUninstallationsFreeWhatIsHeld(t *testing.T) {
	rules := text(t, "charts/kruise/templates/uninstall.yaml")
	allowed := map[string]bool{}
	for _, rule := range regexp.MustCompile(`- apiGroups: \[([a-z.]+)\]\n  resources: \[([a-z, ]+)\]\n  verbs: \[get, (?:list, )?patch\]`).
		FindAllStringSubmatch(rules, -1) {
		for resource := range strings.SplitSeq(rule[2], ", ") {
			allowed[resource+"."+rule[1]] = true
		}
	}
	script := text(t, "hack/undeploy.sh")
	_, kinds, _ := strings.Cut(script, "for kind in ")
	kinds, _, _ = strings.Cut(kinds, ";")
	removed := regexp.MustCompile(`rest=.*`).FindString(script)
	for kind, finalizer := range Held() {
		resource := strings.ToLower(kind.Kind) + "s." + kind.Group
		if !allowed[resource] {
			t.Errorf("the job of the chart may not free %s", resource)
		}
		if !slices.Contains(strings.Fields(kinds), resource) {
			t.Errorf("hack/undeploy.sh does not free %s", resource)
		}
		prefix, name, _ := strings.Cut(strings.ReplaceAll(finalizer, ".", `\.`), "/")
		if !strings.Contains(removed, prefix+"/") || !strings.Contains(removed, name) {
			t.Errorf("hack/undeploy.sh does not take off %s", finalizer)
		}
	}
}

// EJ-002: no gate guards EphemeralJobs, and node daemons may neither read them nor add containers;
// TestPodsAreInjectedInGrowingBatches shows by which subresource the manager does. EJ-019: the chart ships
// the definition. EJ-072: ten workers.
func TestEphemeralJobsNeedNothing(t *testing.T) {
	kind := Kinds[slices.IndexFunc(Kinds, func(k framework.Kind) bool { return k.Name == "EphemeralJob" })]
	if kind.Gates != nil || kind.Workers != 10 || kind.Stored().Version != "v1alpha1" || !slices.Equal(kind.Versions(), []string{"v1alpha1"}) {
		t.Errorf("%+v", kind)
	}
	for document := range strings.SplitSeq(text(t, "config/rbac/role.yaml"), "\n---\n") {
		if strings.Contains(document, "name: kruise-daemon-") && strings.Contains(document, "ephemeral") {
			t.Error(document)
		}
	}
	for _, file := range []string{"charts/kruise/files/crds/ephemeraljobs.apps.kruise.io.yaml", "config/crd/bases/apps.kruise.io_ephemeraljobs.yaml"} {
		if !strings.Contains(text(t, file), "kind: EphemeralJob\n") {
			t.Error(file)
		}
	}
}

// WS-026 (part): PersistentPodStates follow the list of kinds of WorkloadSpreads, too, once that is prepared.
func TestWorkloadSpreadsArePreparedBeforePersistentPodStates(t *testing.T) {
	at := func(name string) int {
		return slices.IndexFunc(Kinds, func(k framework.Kind) bool { return k.Name == name })
	}
	if spreads, states := at("WorkloadSpread"), at("PersistentPodState"); spreads > states {
		t.Errorf("WorkloadSpread is prepared as number %d, want it before PersistentPodState, number %d", spreads, states)
	}
}
