package podunavailablebudget_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// PUB-002 (part), PUB-087 (part): a pod that was in service when pods were counted last is booked without charge while it is
// out of service for a moment. It comes back, and its booking must not let it go beside another one that has taken the place.
func TestAPodBookedWithoutChargeGoesBesideNoOther(t *testing.T) {
	budget := build.Budget(build.Counted(3, 2, 3)) // p, q and r are in service
	ledger := podunavailablebudget.NewLedger(podunavailablebudget.NewRules(budget), build.AllGates, build.Now)
	if d := ledger.Book(build.Pod("p", build.NotReady), policyv1beta1.Evict); !d.Allowed {
		t.Fatalf("a pod that is out of service: %+v", d)
	}
	q := ledger.Book(build.Pod("q"), policyv1beta1.Evict)
	p := ledger.Book(build.Pod("p"), policyv1beta1.Evict)
	if q.Allowed && p.Allowed {
		t.Errorf("two of three pods in service may go, where two must stay:\nq: %+v\np: %+v", q, p)
	}
}

// PUB-060 (part), PUB-086 (part), PUB-087 (part): once a pod that was booked without charge is back and not counted, its booking is
// one as any other, which lets it go without charge. While it is out of service nothing is written for that.
func TestABookingWithoutChargeIsOneAsAnyOtherOnceItIsCounted(t *testing.T) {
	budget := build.Budget(build.Counted(3, 2, 2)) // q and r are in service
	out, back := build.Pod("p", build.NotReady), build.Pod("p")
	pods := []*corev1.Pod{out, build.Pod("q"), build.Pod("r")}
	ledger := podunavailablebudget.NewLedger(podunavailablebudget.NewRules(budget), build.AllGates, build.Now)
	if d := ledger.Book(out, policyv1beta1.Evict); !d.Allowed {
		t.Fatalf("a pod that is out of service: %+v", d)
	}
	changes := ledger.Changes()
	budget.Status.DisruptedPods = map[string]metav1.Time{"p": changes["disruptedPods"].(map[string]any)["p"].(metav1.Time)}
	budget.Status.BookedPods = map[string]types.UID{"p": changes["bookedPods"].(map[string]any)["p"].(types.UID)}
	snapshot := podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget), Pods: pods, Now: build.Now}
	if got, want := podunavailablebudget.Make(snapshot).Status.BookedPods, budget.Status.BookedPods; !maps.Equal(got, want) {
		t.Errorf("counted while it is out of service: got %v, want %v", got, want)
	}
	pods[0] = back
	counted := podunavailablebudget.Make(snapshot).Status
	if want := map[string]types.UID{"p": out.UID}; !maps.Equal(counted.BookedPods, want) {
		t.Errorf("counted when it is back: got %v, want %v", counted.BookedPods, want)
	}
	budget.Status.BookedPods = counted.BookedPods
	d := podunavailablebudget.NewLedger(podunavailablebudget.NewRules(budget), build.AllGates, build.Now).Book(back, policyv1beta1.Evict)
	if !d.Allowed || d.Booked {
		t.Errorf("asked about again: got %+v, want it allowed without charge", d)
	}
}
