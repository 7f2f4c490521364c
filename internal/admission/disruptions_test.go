package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/afloat-project/afloat/internal/reconcile/booking"
)

// decided gives the same decision to all requests.
type decided podunavailablebudget.Decision

func (d decided) Book(context.Context, podunavailablebudgetcontroller.Request) (podunavailablebudgetcontroller.Answer, error) {
	return podunavailablebudgetcontroller.Answer{Decision: podunavailablebudget.Decision(d)}, nil
}

func (d decided) Covering(context.Context, *corev1.Pod) (*policyv1beta1.PodUnavailableBudget, error) {
	return nil, nil
}

// PUB-088, PUB-094: what is not allowed is refused to whoever asks, with 403, and evictions with 429; these
// say when to come again while the budget is being counted, and only then. TestTheOrderOfTheDecision shows
// when that is. Whoever asks may do what is allowed.
func TestDisruptionsThatAreNotAllowedAreRefused(t *testing.T) {
	const old, changed = `{"metadata":{"name":"p","namespace":"d","uid":"of-p"}}`, `{"metadata":{"name":"p","namespace":"d","uid":"of-p"},"spec":{"x":1}}`
	for _, user := range []authenticationv1.UserInfo{{Username: "alice"}, {Username: "admin", Groups: []string{"system:masters"}},
		{Username: "system:serviceaccount:kube-system:generic-garbage-collector"}, {Username: "system:serviceaccount:kube-system:replicaset-controller"},
		{Username: "system:kube-controller-manager"}, {Username: "system:node:n", Groups: []string{"system:nodes"}},
		{Username: "system:serviceaccount:kruise-system:kruise-manager"}} {
		for _, decision := range []podunavailablebudget.Decision{{Allowed: true}, {Reason: "no more"}, {Reason: "not counted yet", Pending: true}} {
			told := 0
			budgets := &pod.Budgets{Guard: decided(decision), Passed: func(*pod.Disruption, string) { t.Error("passed") }, Cached: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(),
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
					t.Errorf("%s, %s: got %+v, told %d times, want it allowed and not told", user.Username, by.Operation,
						answer, told)
				case decision.Allowed:
				case answer.Allowed || answer.Result.Code != code || answer.Result.Message != decision.Reason || told != 1 ||
					(answer.Result.Details != nil && answer.Result.Details.RetryAfterSeconds != seconds) || seconds > 0 && answer.Result.Details == nil:
					t.Errorf("%s, %s: told %d times, want 1; got %+v %+v, want code %d, %q, to retry after %d s",
						user.Username, by.Operation, told, answer.Result, answer.Result.Details, code, decision.Reason, seconds)
				}
			}
		}
	}
}

// fails decides nothing, for a reason.
type fails struct {
	decided
	err error
}

func (f fails) Book(_ context.Context, request podunavailablebudgetcontroller.Request) (podunavailablebudgetcontroller.Answer, error) {
	if request.DryRun { // what is asked before an eviction is booked
		return podunavailablebudgetcontroller.Answer{}, nil
	}
	return podunavailablebudgetcontroller.Answer{}, f.err
}

// PUB-092 (part): an eviction that is not booked in time, as many at once are not, is told to come later, so
// that a drain does not abort. Any other failure stays one, and so does that of another operation.
func TestDisruptionsThatAreNotBookedInTime(t *testing.T) {
	const old = `{"metadata":{"name":"p","namespace":"d","uid":"of-p"}}`
	for _, tt := range []struct {
		by   admissionapi.AdmissionRequest
		err  error
		code int32
	}{
		{admissionapi.AdmissionRequest{Operation: admissionapi.Create, SubResource: "eviction", Object: runtime.RawExtension{Raw: []byte(old)}}, booking.ErrNotBooked, http.StatusTooManyRequests},
		{admissionapi.AdmissionRequest{Operation: admissionapi.Create, SubResource: "eviction", Object: runtime.RawExtension{Raw: []byte(old)}}, booking.ErrBusy, http.StatusTooManyRequests},
		{admissionapi.AdmissionRequest{Operation: admissionapi.Create, SubResource: "eviction", Object: runtime.RawExtension{Raw: []byte(old)}}, errors.New("no rights"), http.StatusInternalServerError},
		{admissionapi.AdmissionRequest{Operation: admissionapi.Delete, OldObject: runtime.RawExtension{Raw: []byte(old)}}, booking.ErrNotBooked, http.StatusInternalServerError},
	} {
		budgets := &pod.Budgets{Guard: fails{err: fmt.Errorf("PodUnavailableBudget web: %w", tt.err)}, Tell: func(*pod.Disruption, string) {},
			Cached: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()}
		tt.by.Name, tt.by.Namespace = "p", "d"
		answer := validatePod(pod.NewDisruptions(budgets.Check()), &podReader{}, func(string) bool { return true })(t.Context(),
			admission.Request{AdmissionRequest: tt.by})
		later := answer.Result.Details != nil && answer.Result.Details.RetryAfterSeconds > 0
		if answer.Allowed || answer.Result.Code != tt.code || later != (tt.code == http.StatusTooManyRequests) {
			t.Errorf("%s %s, %v: got %+v, want code %d", tt.by.Operation, tt.by.SubResource, tt.err, answer.Result, tt.code)
		}
	}
}

// PUB-094 (part): preemption, taints and the garbage collection of pods pass whatever a budget says, and are
// told; everything else that the controllers of Kubernetes do is held, and so is what these do by other ways
// than a deletion. What is allowed is booked, and nothing is told.
func TestTheClusterItselfIsNotHeld(t *testing.T) {
	const account = "system:serviceaccount:kube-system:"
	marked := func(reason, status string) string {
		return `{"metadata":{"name":"p","namespace":"d","uid":"u"},"status":{"conditions":[{"type":"DisruptionTarget","status":"` + status + `","reason":"` + reason + `"}]}}`
	}
	plain := `{"metadata":{"name":"p","namespace":"d","uid":"u"}}`
	for name, tt := range map[string]struct {
		user, pod string
		passes    bool
	}{
		"preemption":                       {"system:kube-scheduler", plain, true},
		"a taint":                          {account + "taint-eviction-controller", plain, true},
		"a taint, by the node controller":  {account + "node-controller", plain, true},
		"a lost node":                      {account + "pod-garbage-collector", plain, true},
		"a taint, by the shared user":      {"system:kube-controller-manager", marked("DeletionByTaintManager", "True"), true},
		"a lost node, by the shared user":  {"system:kube-controller-manager", marked("DeletionByPodGC", "True"), true},
		"anything else of the shared user": {"system:kube-controller-manager", plain, false},
		"an eviction before, by that user": {"system:kube-controller-manager", marked("EvictionByEvictionAPI", "True"), false},
		"a mark that is off":               {"system:kube-controller-manager", marked("DeletionByPodGC", "False"), false},
		"a rollout":                        {account + "replicaset-controller", plain, false},
		"a StatefulSet":                    {account + "statefulset-controller", plain, false},
		"a DaemonSet":                      {account + "daemon-set-controller", plain, false},
		"a Job":                            {account + "job-controller", plain, false},
		"the garbage collector of owners":  {account + "generic-garbage-collector", plain, false},
		"a namespace that ends":            {account + "namespace-controller", plain, false},
		"an account of another namespace":  {"system:serviceaccount:shop:pod-garbage-collector", plain, false},
		"a user with a mark on the pod":    {"alice", marked("DeletionByPodGC", "True"), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, guard := range []decided{{Allowed: true, Booked: true}, {Reason: "no more"}, {Reason: "not counted yet", Pending: true}} {
				for _, dry := range []bool{false, true} {
					var told []string
					note := func(what string) func(*pod.Disruption, string) {
						return func(d *pod.Disruption, why string) { told = append(told, what+": "+why) }
					}
					budgets := &pod.Budgets{Guard: guard, Cached: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), Tell: note("refused"), Passed: note("passed")}
					live := &corev1.Pod{}
					if err := json.Unmarshal([]byte(tt.pod), live); err != nil {
						t.Fatal(err)
					}
					handle := validatePod(pod.NewDisruptions(budgets.Check()), fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(live).Build(),
						func(string) bool { return true })
					ask := func(request admissionapi.AdmissionRequest) bool {
						told, request.Name, request.Namespace, request.DryRun = nil, "p", "d", &dry
						request.UserInfo = authenticationv1.UserInfo{Username: tt.user}
						return handle(t.Context(), admission.Request{AdmissionRequest: request}).Allowed
					}
					raw := runtime.RawExtension{Raw: []byte(tt.pod)}
					allowed := ask(admissionapi.AdmissionRequest{Operation: admissionapi.Delete, OldObject: raw})
					want := map[bool]string{true: "passed: " + guard.Reason, false: "refused: " + guard.Reason}[tt.passes]
					if want := tt.passes || guard.Allowed; allowed != want {
						t.Errorf("%+v, dry %t: allowed %t, want %t", guard, dry, allowed, want)
					}
					if (guard.Allowed || dry) != (len(told) == 0) || len(told) > 0 && told[0] != want {
						t.Errorf("%+v, dry %t: told %q, want %q unless it is allowed or dry", guard, dry, told, want)
					}
					if ask(admissionapi.AdmissionRequest{Operation: admissionapi.Create, SubResource: "eviction", Object: runtime.RawExtension{Raw: []byte(plain)}}) != guard.Allowed {
						t.Errorf("%+v: an eviction by the cluster", guard)
					}
				}
			}
		})
	}
}
