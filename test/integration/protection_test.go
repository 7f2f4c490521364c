//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/test/story"
)

const protection = "policy.kruise.io/delete-protection"

// protectable returns an object of each kind, by kind, in a namespace that is made for it. Workloads want two
// replicas, the StatefulSet those that it has by default.
func protectable(t *testing.T, name string) map[string]*unstructured.Unstructured {
	t.Helper()
	made(t, `{apiVersion: v1, kind: Namespace, metadata: {name: `+name+`}}`)
	const pods = `replicas: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}`
	all := map[string]*unstructured.Unstructured{}
	for _, text := range []string{
		`{apiVersion: apps/v1, kind: Deployment, spec: {` + pods + `}}`,
		`{apiVersion: apps/v1, kind: ReplicaSet, spec: {` + pods + `}}`,
		`{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: s, ` + strings.TrimPrefix(pods, "replicas: 2, ") + `}}`,
		`{apiVersion: v1, kind: Service, spec: {ports: [{port: 80}]}}`,
		`{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}`,
		`{apiVersion: v1, kind: Namespace, metadata: {name: ` + name + `-itself}}`,
		definition(name),
	} {
		object := document(t, text)
		if object.GetName() == "" {
			object.SetName(name)
			object.SetNamespace(name)
		}
		all[object.GetKind()] = object
	}
	return all
}

// definition is one of kind Game, in a group of its own.
func definition(name string) string {
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: games.%[1]s.example.com},
		spec: {group: %[1]s.example.com, scope: Namespaced, names: {kind: Game, plural: games, singular: game}, versions: [
			{name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}},
			{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, name)
}

// label patches the label of protection; an empty value removes it.
func label(t *testing.T, object client.Object, value string) {
	t.Helper()
	text := "null"
	if value != "" {
		text = `"` + value + `"`
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+protection+`":`+text+`}}}`))
	if err := kube.Patch(t.Context(), object, patch); err != nil {
		t.Fatal(err)
	}
}

// keptBy requires that the deletion of an object is refused for a reason.
func keptBy(t *testing.T, object client.Object, reason string) {
	t.Helper()
	if err := kube.Delete(t.Context(), object); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), reason) {
		t.Errorf("deletion of %s: got %v, want it forbidden with %q", object.GetName(), err, reason)
	}
}

// goes requires that an object can be deleted.
func goes(t *testing.T, object client.Object, options ...client.DeleteOption) {
	t.Helper()
	if err := kube.Delete(t.Context(), object, options...); err != nil {
		t.Errorf("deletion of %s %s: %v", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
	}
}

// DP-001 (part), DP-011, DP-020 (part): objects of all kinds are kept by Always, in dry runs too, until the
// label goes or has another value; the protection log and events tell who was refused.
func TestProtectedKindsAreKeptUntilTheLabelGoes(t *testing.T) {
	for kind, object := range protectable(t, "protected-kinds") {
		object.SetLabels(map[string]string{protection: "Always"})
		object.SetFinalizers([]string{"example.com/held"}) // it is not consulted
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		keptBy(t, object, kind+" ")
		keptBy(t, object, protection+"=Always: remove the label before deleting it")
		if err := kube.Delete(t.Context(), object, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s, dry run: %v", kind, err)
		}
		if object.GetNamespace() != "" {
			hasEvent(t, object, "DeletionRefused", "User "+adminName(t)+" was refused: "+kind+" protected-kinds/protected-kinds is protected")
		}
		label(t, object, "never")
		goes(t, object, client.DryRunAll)
		label(t, object, "Always")
		keptBy(t, object, "Always")
		label(t, object, "")
		goes(t, object)
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || object.GetDeletionTimestamp() == nil {
			t.Fatalf("the %s is not being deleted: %v", kind, err)
		}
		label(t, object, "Always") // DP-010: what terminates is not protected any more
		goes(t, object)
		if err := kube.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Errorf("taking the finalizers away: %v", err)
		}
		if lines := logged(t, kind, object.GetName()); len(lines) < 2 || lines[0]["UserAgent"] != adminName(t) {
			t.Errorf("the log has %v, want 2 lines at least, of user %s", lines, adminName(t))
		}
	}
}

// adminName is the user as whom the tests speak.
func adminName(t *testing.T) string {
	t.Helper()
	review := document(t, `{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview}`)
	if err := kube.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(review.Object, "status", "userInfo", "username")
	return name
}

// logged returns the lines of the protection log about an object.
func logged(t *testing.T, kind, name string) (lines []map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(protectionLog, "protection.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := map[string]string{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["Kind"] == kind && fields["Name"] == name {
			lines = append(lines, fields)
		}
	}
	return lines
}

// DP-012: Cascading keeps workloads with replicas, namespaces with active pods or bound claims, and
// definitions with objects; Services and Ingresses it does not keep. DP-013: claims count. DP-016 (part):
// replicas that are left out are one, since the API server says so.
func TestCascadingKeepsWhatHasChildren(t *testing.T) {
	all := protectable(t, "cascading")
	for _, object := range all {
		object.SetLabels(map[string]string{protection: "Cascading"})
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for kind, replicas := range map[string]int{"Deployment": 2, "ReplicaSet": 2, "StatefulSet": 1} {
		keptBy(t, all[kind], fmt.Sprintf("and replicas %d>0: scale to 0 or remove the label", replicas))
		if err := kube.Patch(t.Context(), all[kind], client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))); err != nil {
			t.Fatal(err)
		}
		goes(t, all[kind])
	}
	goes(t, all["Service"])
	goes(t, all["Ingress"])

	namespace := all["Namespace"]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.GetName(), Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	claim := document(t, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: `+namespace.GetName()+`},
		spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`)
	account := document(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: `+namespace.GetName()+`}}`)
	for _, object := range []client.Object{account, claim, pod} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	keptBy(t, namespace, "and active pods 1>0: delete them or remove the label")
	pod.Status.Phase = corev1.PodSucceeded
	if err := kube.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	goes(t, namespace, client.DryRunAll) // the claim is not bound yet
	if err := kube.Status().Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`))); err != nil {
		t.Fatal(err)
	}
	keptBy(t, namespace, "and Bound pvc 1>0: delete them or remove the label")
	goes(t, claim) // a finalizer of Kubernetes holds it in Terminating
	goes(t, namespace)
	goes(t, namespace) // DP-010: it terminates

	group := all["CustomResourceDefinition"]
	game := document(t, `{apiVersion: cascading.example.com/v1, kind: Game, metadata: {name: g, namespace: cascading, finalizers: [example.com/held]}}`)
	if err := wait(func() error { return kube.Create(t.Context(), game) }); err != nil { // served in a moment
		t.Fatal(err)
	}
	keptBy(t, group, "and active CRs 1>0: delete them or remove the label")
	goes(t, game)
	goes(t, group, client.DryRunAll) // it terminates
	if err := kube.Patch(t.Context(), game, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	goes(t, group)
}

// DP-010, DP-019: of a collection, as the namespace controller deletes it, the protected objects stay.
func TestCollectionsOfProtected(t *testing.T) {
	made(t, `{apiVersion: v1, kind: Namespace, metadata: {name: collection}}`)
	object := func(name, value string) *unstructured.Unstructured {
		return made(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: collection, labels: {%s: %s}},
			spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
			name, protection, value))
	}
	object("a", "Cascading")
	kept := object("b", "Always")
	object("c", "never")
	controller := rest.CopyConfig(apiServer)
	controller.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller",
		Groups: []string{"system:masters"}}
	c, err := story.NewClient(controller)
	if err != nil {
		t.Fatal(err)
	}
	remaining := func() (names []string) {
		var list appsv1.DeploymentList
		if err := kube.List(t.Context(), &list, client.InNamespace("collection")); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names
	}
	all := func() error {
		return c.DeleteAllOf(t.Context(), &appsv1.Deployment{}, client.InNamespace("collection"))
	}
	if err := all(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Deployment collection/b is protected") {
		t.Errorf("deletion of all: got %v, want it forbidden, with the protected one", err)
	}
	if !slices.Contains(remaining(), "b") {
		t.Error("the protected one is gone")
	}
	label(t, kept, "")
	if err := all(); err != nil || len(remaining()) > 0 {
		t.Errorf("deletion of all without the label: got %v, and %q left, want neither", err, remaining())
	}
}

// DP-030, DP-031: while no manager answers, everything can be deleted that is not protected, or that
// terminates; what is protected cannot, until the label goes. In kube-system nothing is protected.
func TestProtectionWhileNoManagerAnswers(t *testing.T) {
	data, err := os.ReadFile("../../config/webhook/validating.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shipped admissionv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(data, &shipped); err != nil {
		t.Fatal(err)
	}
	unreachable := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "unreachable"}}
	for _, hook := range shipped.Webhooks {
		if slices.Contains(hook.Rules[0].Operations, admissionv1.Delete) && *hook.FailurePolicy == admissionv1.Fail {
			hook.Name = "unreachable." + hook.Name
			hook.ClientConfig = admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1" + *hook.ClientConfig.Service.Path)}
			unreachable.Webhooks = append(unreachable.Webhooks, hook)
		}
	}
	all := protectable(t, "unanswered")
	for _, object := range all {
		object.SetLabels(map[string]string{protection: "Cascading"})
		object.SetFinalizers([]string{"example.com/held"})
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	plain, kept := cloneSet("v1beta1", "plain", ""), cloneSet("v1beta1", "kept", `{metadata: {labels: {`+protection+`: Always}}}`)
	system := document(t, `{apiVersion: v1, kind: Service, metadata: {name: unanswered, namespace: kube-system, labels: {`+protection+`: Always}}, spec: {ports: [{port: 80}]}}`)
	for _, object := range []client.Object{plain, kept, system, unreachable} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = kube.Delete(context.Background(), unreachable)
		if err := wait(func() error { // until it forgets them
			unlabelled := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))
			return errors.Join(kube.Patch(context.Background(), kept, unlabelled), kube.Delete(context.Background(), kept))
		}); err != nil {
			t.Errorf("what was kept does not go: %v", err)
		}
	})
	refused := maps.Clone(all)
	refused["CloneSet"] = kept
	for kind, object := range refused {
		if err := wait(func() error { // until the API server knows the entries
			// The running manager is asked as well, and its answer may come first: but not always.
			if err := kube.Delete(t.Context(), object, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "failed calling webhook \"unreachable.") {
				return fmt.Errorf("%s: %w", kind, errors.Join(err, errors.New("not refused")))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	goes(t, system)
	goes(t, plain)
	for _, object := range all {
		label(t, object, "no")
		goes(t, object, client.DryRunAll)
		label(t, object, "")
		goes(t, object)
		label(t, object, "Always")
		goes(t, object)
		if err := kube.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Errorf("taking the finalizers away: %v", err)
		}
	}
}

// DP-021: our own definitions can be protected as well; nobody needs them to go for an uninstallation, which
// leaves them.
func TestProtectedDefinitionsOfOurs(t *testing.T) {
	ours := &unstructured.Unstructured{}
	ours.SetAPIVersion("apiextensions.k8s.io/v1")
	ours.SetKind("CustomResourceDefinition")
	ours.SetName("imagelistpulljobs.apps.kruise.io")
	label(t, ours, "Always")
	defer label(t, ours, "")
	if err := kube.Delete(t.Context(), ours, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("deletion of a definition of ours: got %v, want it forbidden", err)
	}
}

// DP-D2: who gives a Service or an Ingress the value that has no effect there is warned, once.
func TestWarningsOfProtection(t *testing.T) {
	data, err := os.ReadFile("../../config/webhook/warnings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		made(t, text)
	}
	warnings := &warned{}
	config := rest.CopyConfig(apiServer)
	config.WarningHandler = warnings
	c, err := story.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	for kind, object := range protectable(t, "warnings") {
		if kind != "Service" && kind != "Ingress" {
			continue
		}
		want := protection + "=Cascading does not protect a " + kind + ", only Always does"
		told := func() bool {
			defer func() { warnings.texts = nil }()
			return slices.ContainsFunc(warnings.texts, func(text string) bool { return strings.Contains(text, want) })
		}
		object.SetLabels(map[string]string{protection: "Cascading"})
		if err := wait(func() error { // until the policy is enforced
			if err := c.Create(t.Context(), object.DeepCopy(), client.DryRunAll); err != nil || !told() {
				return errors.Join(err, errors.New("no warning"))
			}
			return nil
		}); err != nil {
			t.Fatalf("the policy for %s is not enforced: %v", kind, err)
		}
		object.SetLabels(map[string]string{protection: "Always"})
		if err := c.Create(t.Context(), object); err != nil || told() {
			t.Errorf("%s, Always: got %v or a warning, want neither", kind, err)
		}
		patch := func(text string) bool {
			if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
				t.Errorf("patching with %s: %v", text, err)
			}
			return told()
		}
		if !patch(`{"metadata":{"labels":{"` + protection + `":"Cascading"}}}`) {
			t.Errorf("%s: there is no warning of Cascading", kind)
		}
		if patch(`{"metadata":{"labels":{"a":"b"}}}`) {
			t.Errorf("%s: there is a warning of another label", kind)
		}
		if patch(`{"metadata":{"labels":{"` + protection + `":null}}}`) {
			t.Errorf("%s: there is a warning when the protection goes", kind)
		}
	}
}

// OPS-082 (part), DP-032: the manual's examples of protection: a namespace, the right to list objects of
// definitions, which the shipped roles do not have, and another failurePolicy than Fail, with the reason for
// both, which the manager leaves as it is.
func TestManualOfProtection(t *testing.T) {
	page, err := os.ReadFile("../../docs/kinds/deletion-protection.md")
	if err != nil {
		t.Fatal(err)
	}
	roles, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := os.ReadFile("../../config/rbac/bindings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(strings.TrimPrefix(string(roles), "---\n")+"\n---\n"+string(bindings), "\n---\n") {
		if object := document(t, text); strings.HasPrefix(object.GetKind(), "Cluster") {
			made(t, text)
		}
	}
	may := func(verb, group, resource string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:kruise-system:kruise-manager",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource}}}
		if err := kube.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	if err := wait(func() error { // until the authorizer knows the roles
		if !may("list", "", "pods") || !may("list", "", "persistentvolumeclaims") {
			return errors.New("the manager may not list pods and claims")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if may("list", "kubeflow.org", "tfjobs") {
		t.Error("the shipped roles read what no gate asks for")
	}
	examples := strings.Split(string(page), "```yaml\n")[1:]
	for _, example := range examples {
		example, _, _ = strings.Cut(example, "```")
		made(t, strings.Replace(example, "  name: shop", "  name: shop-of-the-manual", 1))
	}
	if err := wait(func() error {
		if !may("list", "kubeflow.org", "tfjobs") || may("get", "kubeflow.org", "tfjobs") {
			return fmt.Errorf("the %d examples do not grant what they should", len(examples))
		}
		return nil
	}); err != nil {
		t.Errorf("rights of the manager: %v", err)
	}
	_, patch, found := strings.Cut(string(page), "kruise-validating-webhook-configuration \\\n  -p '")
	patch, _, _ = strings.Cut(patch, "'")
	hooks := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-validating-webhook-configuration"}}
	key := client.ObjectKeyFromObject(hooks)
	if err := kube.Get(t.Context(), key, hooks); err != nil {
		t.Fatal(err)
	}
	for _, hook := range hooks.Webhooks {
		if hook.ObjectSelector != nil && len(hook.ObjectSelector.MatchExpressions) > 0 && *hook.FailurePolicy != admissionv1.Fail {
			t.Errorf("%s is shipped with %s", hook.Name, *hook.FailurePolicy)
		}
	}
	if err := kube.Patch(t.Context(), hooks, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil || !found {
		t.Fatalf("the patch of the page, found %t: %v", found, err)
	}
	if !strings.Contains(string(page), "The risk is a labelled object that must go") {
		t.Error("the manual does not name the risk of Fail")
	}
	entry := func() *admissionv1.ValidatingWebhook { // the leader may add others before it
		return &hooks.Webhooks[slices.IndexFunc(hooks.Webhooks, func(h admissionv1.ValidatingWebhook) bool { return h.Name == "vnamespace.kb.io" })]
	}
	good := entry().ClientConfig.CABundle
	entry().ClientConfig.CABundle = nil
	if err := kube.Update(t.Context(), hooks); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error { // until the manager has looked at it
		if err := kube.Get(t.Context(), key, hooks); err != nil || string(entry().ClientConfig.CABundle) != string(good) {
			return errors.Join(err, errors.New("not repaired"))
		}
		return nil
	}); err != nil || *entry().FailurePolicy != admissionv1.Ignore {
		t.Errorf("the entry that was changed: got %v, policy %s, want Ignore", err, *entry().FailurePolicy)
	}
	if err := kube.Patch(t.Context(), hooks, client.RawPatch(types.StrategicMergePatchType, []byte(strings.Replace(patch, "Ignore", "Fail", 1)))); err != nil {
		t.Errorf("changing the entries back: %v", err)
	}
}
