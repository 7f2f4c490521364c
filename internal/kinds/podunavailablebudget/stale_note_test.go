package podunavailablebudget_test

import (
	"testing"

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
