package podunavailablebudget_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// TestTheOrderOfTheDecision shows each rule that allows without booking, each refusal, and each booking, and
// which comes first (PUB-038, PUB-064, PUB-086, PUB-088 (part), PUB-089 (part)). Rule 3 stands in TestLimits.
func TestTheOrderOfTheDecision(t *testing.T) {
	now := build.Now
	counted := build.Counted
	full := counted(3, 2, 2)
	uncounted := func(b *policyv1beta1.PodUnavailableBudget) { b.Generation++ }
	crowd := func(n int) option {
		return func(b *policyv1beta1.PodUnavailableBudget) {
			for i := range n {
				book := build.Disrupted
				if i%2 == 0 {
					book = build.Unavailable
				}
				book(fmt.Sprint("other-", i), now)(b)
			}
		}
	}
	refused := func(by string) string {
		return "PodUnavailableBudget web allows 0 more " + by + ": 2 of 3 pods must stay in service, and 2 do"
	}
	const allowed, booked, noted, no, pending = "allowed: ", "booked: booked", "noted: ", "refused: ", "pending: "
	for name, tt := range map[string]struct {
		options []option
		pod     *corev1.Pod
		by      policyv1beta1.PodUnavailableBudgetOperation
		want    string
	}{
		"booked": {[]option{counted(3, 2, 3)}, build.Pod("p"), policyv1beta1.Delete, booked},
		"1 the pod is exempt, before its budget is counted": {[]option{full, uncounted}, build.Pod("p", build.Noted(pub.NoProtect,
			"true")),
			policyv1beta1.Delete, allowed + "annotation pub.kruise.io/no-protect"},
		"2 out of service already": {[]option{full, uncounted}, build.Pod("p", build.NotReady), policyv1beta1.Update,
			allowed + "not ready"},
		"2 and it may be back before it is gone": {[]option{full, uncounted}, build.Pod("p", build.NotReady), policyv1beta1.Evict,
			noted + "not ready"},
		"2 booked": {[]option{full, build.Disrupted("p", now)}, build.Pod("p", build.NotReady), policyv1beta1.Evict, allowed + "not ready"},
		"2 booked, and half over": {[]option{full, build.Disrupted("p", now.Add(-10*time.Second))}, build.Pod("p", build.NotReady),
			policyv1beta1.Evict, noted + "not ready"},
		"2 too many to be remembered": {[]option{full, crowd(2000)}, build.Pod("p", build.NotReady), policyv1beta1.Delete, allowed + "not ready"},
		"2 of a budget that does not protect from it": {[]option{full, build.Protects(policyv1beta1.Delete)},
			build.Pod("p", build.NotReady), policyv1beta1.Evict, allowed + "EVICT is not protected"},
		"2 but not where that is not known (PUB-D1)": {[]option{full}, build.Pod("p", build.Noted(pub.InPlaceUpdateState, "{")),
			policyv1beta1.Evict, no + refused("EVICT")},
		"4 ignored": {[]option{full, uncounted, build.Ignores("app", "web")}, build.Pod("p"), policyv1beta1.Update,
			allowed + "ignoredPodSelector selects the pod"},
		"4 not ignored":      {[]option{full, build.Ignores("app", "db")}, build.Pod("p"), policyv1beta1.Update, no + refused("UPDATE")},
		"5 no pod need stay": {[]option{counted(0, 0, 0)}, build.Pod("p"), policyv1beta1.Delete, allowed + "no pod need stay in service"},
		"5 but not of a budget without status": {nil, build.Pod("p"), policyv1beta1.Delete,
			pending + "PodUnavailableBudget web allows no DELETE before its pods are counted"},
		"5 nor of one that changed": {[]option{counted(0, 0, 0), uncounted}, build.Pod("p"), policyv1beta1.Delete,
			pending + "PodUnavailableBudget web allows no DELETE before its pods are counted"},
		"6 not protected": {[]option{full, uncounted, build.Protects(policyv1beta1.Evict)}, build.Pod("p"), policyv1beta1.Delete,
			allowed + "DELETE is not protected"},
		"7 booked for a deletion": {[]option{full, build.Disrupted("p", now)}, build.Pod("p"), policyv1beta1.Update,
			allowed + "booked already"},
		"7 booked for an update": {[]option{full, build.Unavailable("p", now)}, build.Pod("p"), policyv1beta1.Update,
			allowed + "booked already"},
		// The controller may be ending the booking at this moment, and must notice.
		"7 booked for an update that is over": {[]option{full, build.Unavailable("p", now.Add(-2*time.Second))},
			build.Pod("p", build.Noted(pub.InPlaceUpdateState, `{"revision":"web-2","updateTimestamp":"`+
				now.Add(-time.Second).UTC().Format(time.RFC3339)+`"}`)), policyv1beta1.Update, noted + "booked already"},
		"7 a former pod of the name was booked": {[]option{full, build.Disrupted("p", now.Add(-9*time.Second))},
			build.Pod("p", build.Since(now.Add(-8*time.Second))), policyv1beta1.Delete, no + refused("DELETE")},
		"7 nor one that came in that second": {[]option{full, build.Disrupted("p", now.Add(-9*time.Second))},
			build.Pod("p", build.Since(now.Add(-9*time.Second))), policyv1beta1.Delete, no + refused("DELETE")},
		"7 booked, when too many are": {[]option{full, crowd(1999), build.Disrupted("p", now)}, build.Pod("p"), policyv1beta1.Delete,
			allowed + "booked already"},
		"6 nor are resizes":           {[]option{full}, build.Pod("p"), policyv1beta1.Resize, allowed + "RESIZE is not protected"},
		"one too many":                {[]option{full}, build.Pod("p"), policyv1beta1.Evict, no + refused("EVICT")},
		"the last that is remembered": {[]option{counted(9999, 9998, 9999), crowd(1999)}, build.Pod("p"), policyv1beta1.Delete, booked},
		"too many to be remembered": {[]option{counted(9999, 9998, 9999), crowd(2000)}, build.Pod("p"), policyv1beta1.Delete, no +
			"PodUnavailableBudget web allows 1 more DELETE: 9998 of 9999 pods must stay in service, and 9999 do: " +
			"too many disruptions (2000) are not confirmed yet"},
	} {
		t.Run(name, func(t *testing.T) {
			budget := build.Budget(tt.options...)
			before := budget.DeepCopy()
			ledger := podunavailablebudget.NewLedger(podunavailablebudget.NewRules(budget), build.AllGates, now)
			d := ledger.Book(tt.pod, tt.by)
			kind := map[podunavailablebudget.Decision]string{{Allowed: true}: allowed, {Allowed: true, Booked: true}: "booked: ", {}: no,
				{Allowed: true, Renewed: true}: noted, {Pending: true}: pending}[podunavailablebudget.Decision{Allowed: d.Allowed, Booked: d.Booked,
				Renewed: d.Renewed, Pending: d.Pending}]
			if diff := cmp.Diff(tt.want, kind+d.Reason); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if wrote := ledger.Changes() != nil; wrote != (d.Booked || d.Renewed) {
				t.Errorf("changes: %v", ledger.Changes())
			}
			if diff := cmp.Diff(before, budget); diff != "" {
				t.Error("the budget is changed:", diff)
			}
		})
	}
}

// TestWhereBookingsStand shows the map of each operation, that a pod stands in one alone, and which bookings
// of the same pod are renewed without charge (PUB-060; PUB-086 (part), PUB-089 (part)).
func TestWhereBookingsStand(t *testing.T) {
	now := build.Now
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	disrupted, unavailable := build.Disrupted, build.Unavailable
	nothing := func(*policyv1beta1.PodUnavailableBudget) {}
	for name, tt := range map[string]struct {
		before option
		by     policyv1beta1.PodUnavailableBudgetOperation
		after  option
	}{
		"deletion":                            {nothing, policyv1beta1.Delete, disrupted("p", now)},
		"eviction":                            {nothing, policyv1beta1.Evict, disrupted("p", now)},
		"update":                              {nothing, policyv1beta1.Update, unavailable("p", now)},
		"resize":                              {nothing, policyv1beta1.Resize, unavailable("p", now)},
		"a deletion of late":                  {disrupted("p", ago(9)), policyv1beta1.Evict, disrupted("p", ago(9))},
		"a deletion that is half over":        {disrupted("p", ago(10)), policyv1beta1.Delete, disrupted("p", now)},
		"an update of late":                   {unavailable("p", ago(4)), policyv1beta1.Resize, unavailable("p", ago(4))},
		"an update that is half over":         {unavailable("p", ago(5)), policyv1beta1.Update, unavailable("p", now)},
		"an update of what is deleted":        {disrupted("p", ago(9)), policyv1beta1.Update, disrupted("p", ago(9))},
		"an update of what was to be deleted": {disrupted("p", ago(10)), policyv1beta1.Update, disrupted("p", now)},
		"a deletion of what is updated":       {unavailable("p", ago(1)), policyv1beta1.Delete, disrupted("p", now)},
		"a deletion of what stands in both": {both(disrupted("p", ago(1)), unavailable("p", ago(1))), policyv1beta1.Delete,
			both(disrupted("p", ago(1)), unavailable("p", ago(1)))},
		"another pod of the name, by deletion": {unavailable("p", now.Add(-2*time.Hour)), policyv1beta1.Delete, disrupted("p", now)},
		"another pod of the name, by update":   {disrupted("p", now.Add(-2*time.Hour)), policyv1beta1.Update, unavailable("p", now)},
	} {
		t.Run(name, func(t *testing.T) {
			budget := build.Budget(build.Protects(policyv1beta1.BudgetOperations...),
				build.Counted(3, 2, 3), tt.before)
			was, _ := budget.Status.DisruptedPods["p"]
			also, _ := budget.Status.UnavailablePods["p"]
			pod := build.Pod("p")
			charged := !pod.CreationTimestamp.Before(&was) && !pod.CreationTimestamp.Before(&also)
			ledger := podunavailablebudget.NewLedger(podunavailablebudget.NewRules(budget), build.AllGates, now)
			d := ledger.Book(pod, tt.by)
			if !d.Allowed {
				t.Errorf("allowed: got false, want true\n%+v", d)
			}
			if d.Booked != charged {
				t.Errorf("booked: got %t, want %t\n%+v", d.Booked, charged, d)
			}
			want := build.Budget(build.Counted(3, 2, 3), tt.after).Status
			if charged {
				want.CurrentAvailable, want.UnavailableAllowed = 2, 0
			}
			switch {
			case d.Renewed:
				want.BookedPods = map[string]types.UID{"p": pod.UID + "/1"}
			case d.Booked:
				want.BookedPods = map[string]types.UID{"p": pod.UID}
			}
			if diff := cmp.Diff(want, ledger.Status(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("status of the ledger (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, merged(t, &budget.Status, ledger.Changes()), cmpopts.EquateEmpty()); diff != "" {
				t.Error("as written:", diff)
			}
		})
	}
}

// PUB-060 (part): a manager whose clock is ahead books a pod, which is deleted; the next one of its name is
// another pod, although it was created before the time of that booking. It would be evicted without charge. A
// booking that holds a pod does so whatever its time is.
func TestABookingIsOfOnePodWhateverTheClocksSay(t *testing.T) {
	ahead := build.Now.Add(30 * time.Second)
	for uid, charged := range map[types.UID]bool{"former": true, "p": false} {
		budget := build.Budget(build.Counted(3, 2, 3), build.Disrupted("p", ahead))
		budget.Status.BookedPods = map[string]types.UID{"p": uid}
		pod := build.Pod("p")
		pod.CreationTimestamp = metav1.NewTime(build.Now)
		if !charged {
			pod.CreationTimestamp = metav1.NewTime(ahead.Add(time.Minute)) // the API server's clock may be ahead, too
		}
		ledger := podunavailablebudget.NewLedger(podunavailablebudget.NewRules(budget), build.AllGates, ahead)
		d := ledger.Book(pod, policyv1beta1.Evict)
		status := ledger.Status()
		if !d.Allowed {
			t.Errorf("allowed: got false, want true; booked for %s: %+v, %v", uid, d, status.BookedPods)
		}
		if d.Booked != charged {
			t.Errorf("booked: got %t, want %t; booked for %s: %+v, %v", d.Booked, charged, uid, d, status.BookedPods)
		}
		if status.BookedPods["p"] != pod.UID {
			t.Errorf(`booked pod p: got %q, want %q; booked for %s: %+v, %v`, status.BookedPods["p"], pod.UID, uid, d,
				status.BookedPods)
		}
	}
}

func both(options ...option) option {
	return func(b *policyv1beta1.PodUnavailableBudget) {
		for _, o := range options {
			o(b)
		}
	}
}

type failing interface {
	Helper()
	Fatal(args ...any)
}

// merged is a status after a JSON merge patch, as the API server stores it.
func merged(t failing, status *policyv1beta1.PodUnavailableBudgetStatus, changes map[string]any) policyv1beta1.PodUnavailableBudgetStatus {
	t.Helper()
	after, err := build.Merged(status, changes)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// TestNoMorePodsGoThanAreAllowed books pods in any order, by whatever ways, again and again, by managers
// whose writes may be refused, and compares with who was let go: never more pods than the budget allowed when
// it was counted, each charged once, and what is written gives the status that the manager went on with
// (PUB-087 (part), PUB-089 (part)).
func TestNoMorePodsGoThanAreAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := build.Pods(rapid.IntRange(1, 8).Draw(t, "pods"))
		n, desired := int32(len(pods)), rapid.Int32Range(1, 8).Draw(t, "desired")
		allowed := max(n-desired, 0)
		stored := build.Budget(build.Protects(policyv1beta1.BudgetOperations...),
			build.MinAvailable(new(intstr.FromInt32(int32(int(desired))))), build.Counted(n, desired, n))
		now, gone := build.Now, map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "writes") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(9*time.Second)).Draw(t, "later")))
			ledger := podunavailablebudget.NewLedger(podunavailablebudget.NewRules(stored), build.AllGates, now)
			let := map[string]bool{}
			for range rapid.IntRange(1, 6).Draw(t, "requests") {
				pod := pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")]
				d := ledger.Book(pod, rapid.SampledFrom(policyv1beta1.BudgetOperations).Draw(t, "by"))
				was := gone[pod.Name] || let[pod.Name]
				room := int32(len(gone)+len(let)) < allowed
				if want := was || room; d.Allowed != want {
					t.Fatalf("%s: allowed %t, want %t: %+v; gone %v %v, allowed %d", pod.Name, d.Allowed, want, d, gone,
						let, allowed)
				}
				if want := !was && room; d.Booked != want {
					t.Fatalf("%s: booked %t, want %t: %+v; gone %v %v, allowed %d", pod.Name, d.Booked, want, d, gone, let,
						allowed)
				}
				if d.Booked {
					let[pod.Name] = true
				}
			}
			after := merged(t, &stored.Status, ledger.Changes())
			if diff := cmp.Diff(ledger.Status(), after, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal("as written:", diff)
			}
			if rapid.Bool().Draw(t, "conflict") { // nobody is let go by what is not written
				continue
			}
			stored.Status = after
			for name := range let {
				gone[name] = true
			}
			if want := n - int32(len(gone)); after.CurrentAvailable != want {
				t.Fatalf("in service: got %d, want %d; gone are %v of %d", after.CurrentAvailable, want, gone, n)
			}
			if want := max(allowed-int32(len(gone)), 0); after.UnavailableAllowed != want {
				t.Fatalf("allowed: got %d, want %d; gone are %v of %d", after.UnavailableAllowed, want, gone, n)
			}
			if on := len(after.DisruptedPods) + len(after.UnavailablePods); on != len(gone) {
				t.Fatalf("%d booked, gone are %v", on, gone)
			}
		}
	})
}

// TestRefusal names the budget, the operation, and the numbers (PUB-092 (part)).
func TestRefusal(t *testing.T) {
	status := build.Budget(build.Counted(5, 4, 4)).Status
	want := "PodUnavailableBudget web allows 0 more EVICT: 4 of 5 pods must stay in service, and 4 do"
	if diff := cmp.Diff(want, podunavailablebudget.Refusal("web", policyv1beta1.Evict, &status)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLimits uses budgets up in the order of a plan, each by itself, and lets go what no budget covers: rule
// 3 of PUB-086 (PUB-100 (part), PUB-101 (part)).
func TestLimits(t *testing.T) {
	web := build.Rules(build.MaxUnavailable(new(intstr.FromInt32(2))), build.Counted(4, 2, 3))
	db := build.Rules(build.Named("db"), build.Counted(2, 1, 2))
	limits := podunavailablebudget.NewLimits(func(pod *corev1.Pod) ([]*podunavailablebudget.Rules, error) {
		switch pod.Labels["app"] {
		case "web":
			return []*podunavailablebudget.Rules{web}, nil
		case "db":
			return []*podunavailablebudget.Rules{db}, nil
		}
		return nil, nil
	}, build.AllGates, build.Now)
	in := func(app string) func(*corev1.Pod) { return build.Labelled("app", app) }
	const webUsed = "PodUnavailableBudget web allows 0 more UPDATE: 2 of 4 pods must stay in service, and 2 do"
	for i, tt := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{build.Pod("a"), ""},
		{build.Pod("b"), webUsed},
		{build.Pod("a"), ""}, // it goes already
		{build.Pod("c", build.NotReady), ""},
		{build.Pod("d", in("db")), ""},
		{build.Pod("e", in("db")), "PodUnavailableBudget db allows 0 more UPDATE: 1 of 2 pods must stay in service, and 1 do"},
		{build.Pod("f", in("free")), ""},
		{build.Pod("g"), webUsed},
	} {
		if diff := cmp.Diff(tt.want, limits.Take(tt.pod, policyv1beta1.Update)); diff != "" {
			t.Errorf("%d %s: refusal of the update (-want +got):\n%s", i, tt.pod.Name, diff)
		}
	}
	if status := web.Budget.Status; status.UnavailableAllowed != 1 {
		t.Errorf("a plan alone books nothing: got %d allowed, want 1", status.UnavailableAllowed)
	} else if len(status.UnavailablePods) > 0 {
		t.Errorf("a plan alone books nothing: got %v, want none", status.UnavailablePods)
	}
}
