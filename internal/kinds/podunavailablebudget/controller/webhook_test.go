package controller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

func budgetWebhooks(t *testing.T, stored ...client.Object) framework.Webhooks {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := policyv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return PodUnavailableBudgets(&framework.Environment{Cache: fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored...).Build()})
}

func budgetOf(version, metadata, spec string) string {
	return `{"apiVersion":"policy.kruise.io/` + version + `","kind":"PodUnavailableBudget","metadata":{"name":"web","namespace":"shop"` +
		metadata + `},"spec":{` + spec + `}}`
}

const someBudget = `"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"maxUnavailable":1`

// PUB-016 (part), PUB-020: with both gates off, as they are without PodWebhook, nothing is created or
// updated, in either version, and the answer names both; one of them is enough. Budgets that are being
// deleted may be updated. PUB-015: nothing is defaulted.
func TestBudgetsAreRefusedWithoutTheirGates(t *testing.T) {
	for list, on := range map[string]bool{
		"":                                     true,
		"PodUnavailableBudgetDeleteGate=false": false,
		"PodUnavailableBudgetDeleteGate=false,PodUnavailableBudgetUpdateGate=true": true,
		"PodUnavailableBudgetDeleteGate=true,PodUnavailableBudgetUpdateGate=true":  true,
		"PodWebhook=false": false,
		"PodWebhook=false,PodUnavailableBudgetDeleteGate=true,PodUnavailableBudgetUpdateGate=true": false,
	} {
		handlers := webhooktest.Handlers(t, PodUnavailableBudget, list, budgetWebhooks(t))
		handler := handlers["/validate-policy-kruise-io-podunavailablebudget"]
		if len(handlers) != 1 || handler == nil {
			t.Fatalf("PUB-015: handlers: got %v, want one of %s", handlers, "/validate-policy-kruise-io-podunavailablebudget")
		}
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			good := budgetOf(version, "", someBudget)
			for operation, old := range map[admissionv1.Operation]string{admissionv1.Create: "", admissionv1.Update: good} {
				response := webhooktest.Review(t, handler, operation, strings.Replace(good, `"maxUnavailable":1`, `"maxUnavailable":2`, 1), old)
				if response.Allowed != on {
					t.Errorf("%q, %s of %s: allowed %t, want %t: %+v", list, operation, version, response.Allowed, on,
						response.Result)
				}
				if !on && response.Result.Code != http.StatusBadRequest {
					t.Errorf("%q, %s of %s: refused with %+v, want code 400", list, operation, version, response.Result)
				}
				for _, gate := range []string{"PodUnavailableBudgetDeleteGate", "PodUnavailableBudgetUpdateGate"} {
					if !on && !strings.Contains(response.Result.Message, gate) {
						t.Errorf("%q, %s of %s: refused with %q, want %s in it", list, operation, version,
							response.Result.Message, gate)
					}
				}
			}
			leaving := budgetOf(version, `,"deletionTimestamp":"2026-01-01T00:00:00Z"`, someBudget)
			if response := webhooktest.Review(t, handler, admissionv1.Update, good, leaving); !response.Allowed {
				t.Errorf("%q, one that is deleted: %+v", list, response)
			}
		}
	}
}

// PUB-030: all faults are told at once, with 422. A fault that the stored object has already does not refuse
// an update; a new one does.
func TestFaultsOfBudgets(t *testing.T) {
	handler := webhooktest.Handlers(t, PodUnavailableBudget, "", budgetWebhooks(t))["/validate-policy-kruise-io-podunavailablebudget"]
	for name, test := range map[string]struct {
		old, updated string
		want         []string
	}{
		"both": {"", budgetOf("v1beta1", "", `"targetRef":{"apiVersion":"apps/v1","kind":"Deployment"},"maxUnavailable":-1`),
			[]string{"spec.targetRef.name", "spec.maxUnavailable"}},
		"annotations": {"", budgetOf("v1alpha1",
			`,"annotations":{"kruise.io/pub-protect-operations":"X","pub.kruise.io/protect-total-replicas":"x"}`, someBudget),
			[]string{"metadata.annotations[kruise.io/pub-protect-operations]", "metadata.annotations[pub.kruise.io/protect-total-replicas]"}},
		"an old fault": {budgetOf("v1beta1", "", `"selector":{},"maxUnavailable":1`),
			budgetOf("v1beta1", "", `"selector":{},"maxUnavailable":2`), nil},
		"an old one and a new one": {budgetOf("v1beta1", "", `"selector":{},"maxUnavailable":1`),
			budgetOf("v1beta1", "", `"selector":{},"maxUnavailable":"x"`), []string{"spec.maxUnavailable"}},
		"what is covered changes": {budgetOf("v1alpha1", "", someBudget), budgetOf("v1alpha1", "", strings.Replace(someBudget, "web", "api", 1)),
			[]string{"spec.targetRef"}},
		"no budget": {"", `{"apiVersion":"policy.kruise.io/v1beta1","kind":"PodUnavailableBudget","spec":[]}`, []string{"<document>"}},
	} {
		t.Run(name, func(t *testing.T) {
			operation := admissionv1.Update
			if test.old == "" {
				operation = admissionv1.Create
			}
			response := webhooktest.Review(t, handler, operation, test.updated, test.old)
			var got []string
			if !response.Allowed {
				for _, cause := range response.Result.Details.Causes {
					got = append(got, cause.Field)
				}
				if response.Result.Code != http.StatusUnprocessableEntity {
					t.Errorf("refused with %+v, want code 422", response.Result)
				}
				if response.Result.Reason != metav1.StatusReasonInvalid {
					t.Errorf("refused with %+v, want reason Invalid", response.Result)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("refused fields: got %q, want %q: %+v", got, test.want, response.Result)
			}
		})
	}
}

// PUB-029 (part): a budget is compared with those of its namespace alone, and not with itself.
func TestBudgetsOfOtherNamespacesDoNotOverlap(t *testing.T) {
	of := func(namespace, name string) *policyv1beta1.PodUnavailableBudget {
		b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		b.Spec.TargetReference = &policyv1beta1.TargetReference{APIVersion: "apps/v1beta2", Kind: "Deployment", Name: "web"}
		return b
	}
	for other, want := range map[*policyv1beta1.PodUnavailableBudget]bool{of("bar", "other"): true, of("shop", "web"): true,
		of("shop", "other"): false} {
		handler := webhooktest.Handlers(t, PodUnavailableBudget, "", budgetWebhooks(t, other))["/validate-policy-kruise-io-podunavailablebudget"]
		response := webhooktest.Review(t, handler, admissionv1.Create, budgetOf("v1alpha1", "", someBudget), "")
		if response.Allowed != want {
			t.Errorf("beside %s/%s: allowed %t, want %t: %+v", other.Namespace, other.Name, response.Allowed, want,
				response.Result)
		} else if !want && !strings.Contains(response.Result.Message, "PodUnavailableBudget other ") {
			t.Errorf("beside %s/%s: refused with %q, want its name in it", other.Namespace, other.Name,
				response.Result.Message)
		}
	}
}

// PUB-142: a namespace has 1000 budgets at most: one more is refused with 403, in either version, and those
// that it has may be changed.
func TestANamespaceHasSoManyBudgets(t *testing.T) {
	for present, want := range map[int]bool{999: true, 1000: false, 1001: false} {
		var stored []client.Object
		for i := range present {
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("b", i)}}
			b.Spec.TargetReference = &policyv1beta1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: b.Name}
			stored = append(stored, b)
		}
		handler := webhooktest.Handlers(t, PodUnavailableBudget, "", budgetWebhooks(t, stored...))["/validate-policy-kruise-io-podunavailablebudget"]
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			text := budgetOf(version, "", someBudget)
			response := webhooktest.Review(t, handler, admissionv1.Create, text, "")
			if response.Allowed != want {
				t.Errorf("%s with %d: allowed %t, want %t: %+v", version, present, response.Allowed, want,
					response.Result)
			} else if !want && response.Result.Code != http.StatusForbidden {
				t.Errorf("%s with %d: refused with %+v, want code 403", version, present, response.Result)
			} else if !want && !strings.Contains(response.Result.Message, "shop has 1") {
				t.Errorf("%s with %d: refused with %q, want how many there are", version, present,
					response.Result.Message)
			}
			if response := webhooktest.Review(t, handler, admissionv1.Update, text, text); !response.Allowed {
				t.Errorf("an update of %s with %d: %+v", version, present, response)
			}
			elsewhere := strings.Replace(text, `"namespace":"shop"`, `"namespace":"bar"`, 1)
			if response := webhooktest.Review(t, handler, admissionv1.Create, elsewhere, ""); !response.Allowed && !want && !strings.Contains(response.Result.Message, "shop") {
				t.Errorf("elsewhere: %+v", response)
			}
		}
	}
}

// What a budget never allows, and which annotation decides, is told when it is written; in v1alpha1
// annotations are the ordinary way.
func TestWarningsOfBudgets(t *testing.T) {
	handler := webhooktest.Handlers(t, PodUnavailableBudget, "", budgetWebhooks(t))["/validate-policy-kruise-io-podunavailablebudget"]
	annotations := `,"annotations":{"kruise.io/pub-protect-operations":"EVICT"}`
	never := strings.Replace(someBudget, `"maxUnavailable":1`, `"minAvailable":"100%"`, 1)
	for text, want := range map[string]string{
		budgetOf("v1beta1", "", someBudget):           "[]",
		budgetOf("v1alpha1", annotations, someBudget): "[]",
		budgetOf("v1beta1", annotations, someBudget):  "kruise.io/pub-protect-operations",
		budgetOf("v1alpha1", "", never):               "100%",
	} {
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
			response := webhooktest.Review(t, handler, operation, text, text)
			if !response.Allowed {
				t.Errorf("admission of %s: %+v", text, response.Result)
			}
			if got := fmt.Sprint(response.Warnings); !strings.Contains(got, want) {
				t.Errorf("warnings for %s: got %s, want %q in them", text, got, want)
			}
		}
	}
}
