package controller

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
)

// podStateDocument is a PersistentPodState of a StatefulSet, with its spec besides.
func podStateDocument(version, target, rest string) string {
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"PersistentPodState","metadata":{"name":"a","namespace":"shop"},"spec":{"targetRef":` +
		`{"apiVersion":"apps/v1","kind":"StatefulSet","name":"` + target + `"},` + rest + `}}`
}

// PPS-025, PPS-026 (part), PPS-028, PPS-029: both versions are judged, by the names of v1beta1 and with code
// 400; faults that the stored object has are not refused again, also those that only v1alpha1 takes; there is
// no webhook for deletions.
func TestPersistentPodStatesAreJudged(t *testing.T) {
	there := &appsv1beta1.PersistentPodState{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first"}}
	there.Spec.TargetRef = appsv1beta1.PersistentPodStateTarget{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "taken"}
	scheme := runtime.NewScheme()
	if err := appsv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	e := &framework.Environment{Cache: fake.NewClientBuilder().WithScheme(scheme).WithObjects(there).Build()}
	Listing.Set(e, &workloadspreadcontroller.Listed{})
	webhooks := PersistentPodStates(e)
	if webhooks.Mutate != nil {
		t.Error("PPS-010, PPS-029: there are defaults")
	}
	if webhooks.Protects != framework.Unprotected {
		t.Error("PPS-010, PPS-029: deletions are checked")
	}
	const good, alphaKeys = `"requiredPersistentTopology":{"keys":["zone"]}`, `"requiredPersistentTopology":{"nodeTopologyKeys":["zone"]}`
	const sometimes = `,"persistentPodStateRetentionPolicy":"Sometimes"`
	const negative = `"preferredPersistentTopology":[{"weight":-1,"preference":{"nodeTopologyKeys":["zone"]}}]`
	for name, c := range map[string]struct {
		object, old, text string
	}{
		"taken":                                 {object: podStateDocument("v1beta1", "web", good)},
		"taken in v1alpha1":                     {object: podStateDocument("v1alpha1", "web", alphaKeys)},
		"keys by the name of the other":         {object: podStateDocument("v1beta1", "web", alphaKeys), text: "spec.requiredPersistentTopology.keys: "},
		"a fault in v1alpha1":                   {object: podStateDocument("v1alpha1", "web", `"requiredPersistentTopology":{"nodeTopologyKeys":["a b"]}`), text: "spec.requiredPersistentTopology.keys[0]"},
		"a policy that v1alpha1 takes":          {object: podStateDocument("v1alpha1", "web", alphaKeys+sometimes), text: "spec.persistentPodStateRetentionPolicy"},
		"a weight that v1alpha1 takes":          {object: podStateDocument("v1alpha1", "web", negative), text: "spec.preferredPersistentTopology[0].weight"},
		"of a workload that has one":            {object: podStateDocument("v1beta1", "taken", good), text: "PersistentPodState first"},
		"undecodable":                           {object: `{"apiVersion":"apps.kruise.io/v1beta1","spec":{"targetRef":7}}`, text: "<document>"},
		"faults that were there":                {object: podStateDocument("v1alpha1", "web", negative+sometimes), old: podStateDocument("v1alpha1", "web", negative+`,"persistentPodAnnotations":[]`+sometimes)},
		"a fault beside one that was there":     {object: podStateDocument("v1alpha1", "web", negative+sometimes), old: podStateDocument("v1alpha1", "web", negative), text: "RetentionPolicy"},
		"the target changes, with an old fault": {object: podStateDocument("v1alpha1", "db", negative), old: podStateDocument("v1alpha1", "web", negative), text: "spec.targetRef"},
		"metadata only":                         {object: podStateDocument("v1beta1", "taken", `"x":1`), old: podStateDocument("v1beta1", "taken", `"x":1`)},
		"one that is being deleted":             {object: podStateDocument("v1beta1", "taken", `"x":1`), old: `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "a", Namespace: "shop",
				Object: runtime.RawExtension{Raw: []byte(c.object)}}}
			if c.old != "" {
				request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(c.old)
			}
			answer := webhooks.Validate(t.Context(), request)
			if want := c.text == ""; answer.Allowed != want {
				t.Errorf("allowed %t, want %t: %+v", answer.Allowed, want, answer.Result)
			} else if !want && answer.Result.Code != http.StatusBadRequest {
				t.Errorf("refused with %+v, want code 400", answer.Result)
			} else if !want && !strings.Contains(answer.Result.Message, c.text) {
				t.Errorf("refused with %q, want %q in it", answer.Result.Message, c.text)
			}
		})
	}
}

// PPS-090 (part): fields that nobody knows keep their place beside the lists of keys, and beside those that
// have the name of the other version.
func TestFieldsOfPersistentPodStatesAreRenamed(t *testing.T) {
	for from, to := range map[string]string{
		"spec/requiredPersistentTopology/keys":                           "spec/requiredPersistentTopology/nodeTopologyKeys",
		"spec/requiredPersistentTopology/nodeTopologyKeys":               "spec/requiredPersistentTopology/keys",
		"spec/requiredPersistentTopology/more":                           "spec/requiredPersistentTopology/more",
		"spec/preferredPersistentTopology/0/preference/keys":             "spec/preferredPersistentTopology/0/preference/nodeTopologyKeys",
		"spec/preferredPersistentTopology/2/preference/more":             "spec/preferredPersistentTopology/2/preference/more",
		"spec/preferredPersistentTopology/2/keys":                        "spec/preferredPersistentTopology/2/keys",
		"status/podStates/keys":                                          "status/podStates/keys",
		"spec/preferredPersistentTopology/0/preference/nodeTopologyKeys": "spec/preferredPersistentTopology/0/preference/keys",
	} {
		if got := RenamedInPersistentPodStates(strings.Split(from, "/")); !slices.Equal(got, strings.Split(to, "/")) {
			t.Errorf("%s in the other version: got %v, want %s", from, got, to)
		}
	}
}
