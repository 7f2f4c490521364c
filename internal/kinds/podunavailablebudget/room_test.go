package podunavailablebudget_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// PUB-064 (part): the loss of a zone lets thousands of pods go that are out of service. That leaves room for pods in service, of
// which the budget allows some to go.
func TestManyPodsOutOfServiceLeaveRoomForOthers(t *testing.T) {
	rules := build.Rules(build.MaxUnavailable(new(intstr.FromInt32(4990))), build.Counted(5000, 10, 2000))
	ledger := podunavailablebudget.NewLedger(rules, build.AllGates, build.Now)
	limits := podunavailablebudget.NewLimits(func(*corev1.Pod) ([]*podunavailablebudget.Rules, error) {
		return []*podunavailablebudget.Rules{rules}, nil
	}, build.AllGates, build.Now)
	for i := range 3000 {
		lost := build.Pod(fmt.Sprint("lost", i), build.NotReady)
		if d := ledger.Book(lost, policyv1beta1.Delete); !d.Allowed {
			t.Fatalf("a pod that is out of service: %+v", d)
		}
		if why := limits.Take(lost, policyv1beta1.Delete); why != "" {
			t.Fatalf("a pod that is out of service, in a plan: %s", why)
		}
	}
	if d := ledger.Book(build.Pod("p"), policyv1beta1.Evict); !d.Allowed {
		t.Errorf("a pod in service: got %+v, want it allowed", d)
	}
	if why := limits.Take(build.Pod("p"), policyv1beta1.Delete); why != "" {
		t.Errorf("a pod in service, in a plan: got %q, want it allowed", why)
	}
}
