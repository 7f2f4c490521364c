package controller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/platform/features"
)

func unitedDeployments(t *testing.T, server *webhooktest.APIServer) *unitedDeploymentWebhooks {
	t.Helper()
	return &unitedDeploymentWebhooks{Templates: framework.Templates{Validator: server.Validator(t), Complete: true}}
}

// united is a UnitedDeployment of a template.
func unitedJSON(version, template, more string) string {
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"UnitedDeployment","metadata":{"name":"web","namespace":"shop"},"spec":{` +
		`"replicas":4,"selector":{"matchLabels":{"app":"shop"}},"template":{` + template + `}` + more + `}}`
}

func templateOf(key string) string {
	return `"` + key + `":{"metadata":{"labels":{"app":"shop"}},"spec":{"template":` + webhooktest.GoodTemplate + `}}`
}

// The API server judges pod templates (UD-028 (part)), node selectors and tolerations (UD-030) and what
// patches make of the template (UD-041: no object, what does not apply, and what makes an invalid template
// are refused there; volumes of claim templates may be mounted), and its faults come with the others
// (UD-175 (part)), in both versions, with 422.
func TestWhatTheAPIServerSaysOfUnitedDeployments(t *testing.T) {
	server := &webhooktest.APIServer{Answer: func(template framework.Document) (int, any) {
		spec := template["spec"].(framework.Document)
		var causes []metav1.StatusCause
		invalid := func(field string) {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "template." + field, Message: "bad"})
		}
		if labels, _ := template["metadata"].(framework.Document)["annotations"].(framework.Document); labels["bad key"] != nil {
			invalid("annotations")
		}
		tolerations, _ := spec["tolerations"].([]any)
		for i, item := range tolerations {
			if item.(framework.Document)["operator"] == "Bad" {
				invalid(fmt.Sprintf("spec.tolerations[%d].operator", i))
			}
		}
		affinity, _ := spec["affinity"].(framework.Document)
		node, _ := affinity["nodeAffinity"].(framework.Document)
		if required, ok := node["requiredDuringSchedulingIgnoredDuringExecution"].(framework.Document); ok {
			terms := required["nodeSelectorTerms"].([]any)
			for i := range terms {
				for _, list := range []string{"matchExpressions", "matchFields"} {
					rules, _ := terms[i].(framework.Document)[list].([]any)
					if len(rules) > 0 && rules[0].(framework.Document)["operator"] == "Bad" {
						invalid(fmt.Sprintf("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[%d].%s[0].operator", i, list))
					}
				}
			}
		}
		volumes, containers := map[any]bool{}, spec["containers"].([]any)
		listed, _ := spec["volumes"].([]any)
		for _, item := range listed {
			volumes[item.(framework.Document)["name"]] = true
		}
		for i, item := range containers {
			mounts, _ := item.(framework.Document)["volumeMounts"].([]any)
			for j := range mounts {
				if !volumes[mounts[j].(framework.Document)["name"]] {
					invalid(fmt.Sprintf("spec.containers[%d].volumeMounts[%d].name", i, j))
				}
			}
		}
		if len(causes) > 0 {
			return webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad", causes...)(template)
		}
		return webhooktest.Accepts(template)
	}}
	w := unitedDeployments(t, server)
	mount := func(name string) string {
		return `"patch":{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"` + name + `","mountPath":"/x"}]}]}}`
	}
	subsets := func(items string) string { return `,"topology":{"subsets":[` + items + `]}` }
	const at = "spec.topology.subsets"
	for name, test := range map[string]struct {
		template, more string
		want           []string
	}{
		"nothing": {templateOf("deploymentTemplate"), "", nil},
		"UD-030": {templateOf("deploymentTemplate"), subsets(`{"name":"z"},{"name":"a","nodeSelectorTerm":{"matchExpressions":[{"key":"k","operator":"Bad"}],"matchFields":[{"key":"k","operator":"Bad"}]},"tolerations":[{"operator":"Exists"},{"operator":"Bad"}]},{"name":"b","nodeSelectorTerm":{"matchFields":[{"key":"k","operator":"Bad"}]},"tolerations":[{"operator":"Bad"}]}`),
			[]string{at + "[1].nodeSelectorTerm.matchExpressions[0].operator", at + "[1].nodeSelectorTerm.matchFields[0].operator", at + "[1].tolerations[1].operator",
				at + "[2].nodeSelectorTerm.matchFields[0].operator", at + "[2].tolerations[0].operator"}},
		"UD-028 (part)": {strings.Replace(templateOf("advancedStatefulSetTemplate"), `"labels":{"app":"shop"}},"spec":{"containers"`,
			`"labels":{"app":"shop"},"annotations":{"bad key":"x"}},"spec":{"containers"`, 1), "",
			[]string{"spec.template.advancedStatefulSetTemplate.spec.template.metadata.annotations"}},
		"UD-041": {templateOf("deploymentTemplate"), subsets(`{"name":"a",` + mount("nobody") + `},{"name":"b","patch":[]},{"name":"c","patch":{"spec":7}},{"name":"d","patch":{"metadata":{"labels":{"x":"y"}}}},{"name":"e",` + mount("nobody") + `}`),
			[]string{at + "[0].patch.spec.containers[0].volumeMounts[0].name", at + "[1].patch", at + "[2].patch", at + "[4].patch.spec.containers[0].volumeMounts[0].name"}},
		"UD-041 (part) claims": {strings.Replace(templateOf("cloneSetTemplate"), `"spec":{`, `"spec":{"volumeClaimTemplates":[{"metadata":{"name":"data"}}],`, 1),
			subsets(`{"name":"a",` + mount("data") + `},{"name":"b",` + mount("other") + `}`), []string{at + "[1].patch.spec.containers[0].volumeMounts[0].name"}},
		"with faults of other parts": {templateOf("deploymentTemplate"), `,"revisionHistoryLimit":-1` + subsets(`{"name":"A","tolerations":[{"operator":"Bad"}]}`),
			[]string{"spec.revisionHistoryLimit", at + "[0].name", at + "[0].tolerations[0].operator"}},
	} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", unitedJSON(version, test.template, test.more), "")
			found := webhooktest.Fields(got)
			slices.Sort(found)
			slices.Sort(test.want)
			if diff := cmp.Diff(test.want, found); diff != "" {
				t.Errorf("%s, %s: refused fields (-want +got):\n%s%+v", name, version, diff, got.Result)
			}
			if !got.Allowed && (got.Result.Code != 422 || got.Result.Reason != metav1.StatusReasonInvalid) {
				t.Errorf("%s, %s: refused with %+v, want code 422 and reason Invalid", name, version, got.Result)
			}
		}
	}
	// What is stored is not refused again, and an update that leaves templates and subsets asks nobody.
	stored := unitedJSON("v1beta1", templateOf("deploymentTemplate"), subsets(`{"name":"a",`+mount("nobody")+`}`))
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", strings.Replace(stored, `"name":"a",`, `"name":"a","replicas":1,`, 1), stored); !got.Allowed {
		t.Errorf("replicas of a subset with a stored fault: %+v", got.Result)
	}
	asked := len(server.Asked)
	more := strings.Replace(stored, `"replicas":4`, `"replicas":5`, 1)
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", more, stored); !got.Allowed {
		t.Errorf("more replicas with a stored fault: %+v", got.Result)
	}
	if n := len(server.Asked) - asked; n != 0 {
		t.Errorf("for more replicas the API server was asked %d times, want none", n)
	}
	metadata := strings.Replace(strings.Replace(stored, `"replicas":4`, `"replicas":-4`, 1), `"namespace"`, `"labels":{"x":"y"},"namespace"`, 1)
	less := strings.Replace(stored, `"replicas":4`, `"replicas":-4`, 1)
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", metadata, less); !got.Allowed {
		t.Errorf("metadata: %+v", got.Result)
	}
	if n := len(server.Asked) - asked; n != 0 {
		t.Errorf("for metadata the API server was asked %d times, want none", n)
	}
}

// An API server that does not answer is no fault of the object.
func TestUnitedDeploymentsWhileTheAPIServerIsSilent(t *testing.T) {
	w := unitedDeployments(t, &webhooktest.APIServer{Answer: webhooktest.Answers(503, metav1.StatusReasonServiceUnavailable, "no")})
	given := unitedJSON("v1beta1", templateOf("statefulSetTemplate"), `,"topology":{"subsets":[{"name":"a","patch":{"spec":{}},"tolerations":[{"operator":"Exists"}]}]}`)
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", given, ""); !got.Allowed {
		t.Errorf("validation: %+v", got.Result)
	} else if len(got.Warnings) != 3 {
		t.Errorf("warnings of the validation: got %q, want 3", got.Warnings)
	}
	if got := webhooktest.Review(t, admission.HandlerFunc(w.mutate), "CREATE", given, ""); !got.Allowed {
		t.Errorf("defaults: %+v", got.Result)
	} else if len(got.Warnings) != 1 {
		t.Errorf("warnings of the defaults: got %q, want one", got.Warnings)
	}
}

// Objects that cannot be read are bad requests: 400.
func TestUnreadableUnitedDeployments(t *testing.T) {
	w := unitedDeployments(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
	for _, handle := range []admission.HandlerFunc{w.validate, w.mutate} {
		for _, given := range []string{`{"apiVersion":"apps.kruise.io/v1beta1","spec":{"replicas":"x"}}`, `[]`} {
			got := webhooktest.Review(t, handle, "CREATE", given, "")
			if strings.Contains(given, "spec") && got.Allowed {
				continue // defaults do not look at all
			}
			if got.Allowed {
				t.Errorf("admitted although it cannot be read: %s", given)
			} else if got.Result.Code != http.StatusBadRequest {
				t.Errorf("%s: refused with %+v, want code 400", given, got.Result)
			}
		}
	}
}

// UD-161 (part): what v1alpha1 takes in the old form is judged in the new one.
func TestOldFormOfCloneSetsIsJudged(t *testing.T) {
	w := unitedDeployments(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
	template := strings.Replace(templateOf("cloneSetTemplate"), `"spec":{`, `"spec":{"updateStrategy":{"type":"InPlaceIfPossible","maxSurge":-1},`, 1)
	if diff := cmp.Diff([]string{"spec.template.cloneSetTemplate.spec.updateStrategy.rollingUpdate.maxSurge"},
		webhooktest.Fields(webhooktest.Review(t, admission.HandlerFunc(w.validate), admissionv1.Create, unitedJSON("v1alpha1", template, ""), ""))); diff != "" {
		t.Errorf("refused fields of the old form (-want +got):\n%s", diff)
	}
}

// UD-156: TemplateNoDefaults is off by default, and without it the templates of StatefulSets are completed;
// ResourcesDeletionProtection is on by default, which TestDeletionProtectionOfUnitedDeployments shows.
func TestGatesOfUnitedDeployments(t *testing.T) {
	for list, asks := range map[string]bool{"": true, "TemplateNoDefaults=false": true, "TemplateNoDefaults=true": false} {
		e := &framework.Environment{Gates: webhooktest.Gates(t, list)}
		server := &webhooktest.APIServer{Answer: webhooktest.Accepts}
		e.Validator = server.Validator(t)
		got := webhooktest.Review(t, UnitedDeployments(e).Mutate, "CREATE", unitedJSON("v1beta1", templateOf("statefulSetTemplate"), ""), "")
		if !got.Allowed {
			t.Errorf("%q: %+v", list, got.Result)
		}
		if asked := len(server.Asked); asked > 0 != asks {
			t.Errorf("%q: the API server was asked %d times, want it asked: %t", list, asked, asks)
		}
		if on := e.Gates.Enabled(features.ResourcesDeletionProtection); !on {
			t.Errorf("%q: protection is off", list)
		}
	}
}
