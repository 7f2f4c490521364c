package admission

import (
	"context"
	"net/http"
	"testing"

	admissionapi "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
)

// decided gives the same decision to all requests.
type decided podunavailablebudget.Decision

func (d decided) Book(context.Context, podunavailablebudgetcontroller.Request) (podunavailablebudgetcontroller.Answer, error) {
	return podunavailablebudgetcontroller.Answer{Decision: podunavailablebudget.Decision(d)}, nil
}

func (d decided) Covering(context.Context, *corev1.Pod) (*policyv1beta1.PodUnavailableBudget, error) {
	return nil, nil
}

// PUB-088, PUB-094: what is not allowed is refused to whoever asks, with 403, and evictions with 429; these say when to come again while the
// budget is being counted, and only then. TestTheOrderOfTheDecision shows when that is. Whoever asks may do what is allowed.
func TestRefusedDisruptions(t *testing.T) {
	const old, changed = `{"metadata":{"name":"p","namespace":"d","uid":"of-p"}}`, `{"metadata":{"name":"p","namespace":"d","uid":"of-p"},"spec":{"x":1}}`
	for _, user := range []authenticationv1.UserInfo{{Username: "alice"}, {Username: "admin", Groups: []string{"system:masters"}},
		{Username: "system:serviceaccount:kube-system:generic-garbage-collector"}, {Username: "system:serviceaccount:kube-system:replicaset-controller"},
		{Username: "system:kube-controller-manager"}, {Username: "system:node:n", Groups: []string{"system:nodes"}},
		{Username: "system:serviceaccount:kruise-system:kruise-manager"}} {
		for _, decision := range []podunavailablebudget.Decision{{Allowed: true}, {Reason: "no more"}, {Reason: "not counted yet", Pending: true}} {
			told := 0
			budgets := &pod.Budgets{Guard: decided(decision), Cached: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(),
				Tell: func(*pod.Disruption, string) { told++ }}
			handle := validatePod(pod.NewDisruptions(budgets.Check()), &podReader{}, func(string) bool { return true })
			for _, by := range []admissionapi.AdmissionRequest{{Operation: admissionapi.Delete, OldObject: runtime.RawExtension{Raw: []byte(old)}},
				{Operation: admissionapi.Update, OldObject: runtime.RawExtension{Raw: []byte(old)}, Object: runtime.RawExtension{Raw: []byte(changed)}},
				{Operation: admissionapi.Create, SubResource: "eviction", Object: runtime.RawExtension{Raw: []byte(old)}}} {
				by.UserInfo, by.Name, by.Namespace, told = user, "p", "d", 0
				code, seconds := int32(http.StatusForbidden), int32(0)
				if by.SubResource != "" {
					code = http.StatusTooManyRequests
				}
				if by.SubResource != "" && decision.Pending {
					seconds = 10
				}
				answer := handle(t.Context(), admission.Request{AdmissionRequest: by})
				switch {
				case decision.Allowed && (!answer.Allowed || told > 0):
					t.Errorf("%s, %s: %+v", user.Username, by.Operation, answer)
				case decision.Allowed:
				case answer.Allowed || answer.Result.Code != code || answer.Result.Message != decision.Reason || told != 1 ||
					(answer.Result.Details != nil && answer.Result.Details.RetryAfterSeconds != seconds) || seconds > 0 && answer.Result.Details == nil:
					t.Errorf("%s, %s, %+v: %+v %+v", user.Username, by.Operation, decision, answer.Result, answer.Result.Details)
				}
			}
		}
	}
}
