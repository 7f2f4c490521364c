package podunavailablebudget_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

func workload(name string, replicas, pods int32) podunavailablebudget.Workload {
	of := podunavailablebudget.Reference{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Name: name}
	w := podunavailablebudget.Workload{Reference: of, Pods: pods}
	if replicas != unknown {
		w.Replicas = &replicas
	}
	return w
}

// unknown: nobody says how many pods the workload shall have.
const unknown = -99

// TestTheStatusHasTheNumbersOfTheSpecification shows the numbers of a budget (PUB-036 (part), PUB-038,
// PUB-040 (part), PUB-041 (part), PUB-042 (part), PUB-052, PUB-053, PUB-054, PUB-110 (part),
// PUB-111 (part)).
func TestTheStatusHasTheNumbersOfTheSpecification(t *testing.T) {
	type numbers struct {
		Total, Desired, Current, Allowed int32
		NoPods                           bool
		Unknown                          []string
		Failed                           bool
	}
	of := func(workloads ...podunavailablebudget.Workload) []podunavailablebudget.Workload { return workloads }
	pods := build.Pods
	max30 := build.MaxUnavailable(new(intstr.FromString("30%")))
	min2, total := build.MinAvailable(new(intstr.FromInt32(2))), build.Total
	target := build.Target("apps/v1", "Deployment", "a")
	var marked []*corev1.Pod
	for i := range 10 {
		marked = append(marked, build.Pod(fmt.Sprint("marked-", i), build.Labelled(pub.SpecifiedDelete, "true")))
	}
	mixed := append(pods(2), build.Pod("x", build.NotReady),
		build.Pod("y", build.Labelled(pub.UnavailablePodPrefix+"a", "")),
		build.Pod("z", build.Noted(pub.InPlaceUpdateState, ran("1")+"}")),
		build.Pod("v", build.Terminating),
		build.Pod("w", build.Phase(corev1.PodFailed)))
	for name, tt := range map[string]struct {
		options   []option
		pods      []*corev1.Pod
		workloads []podunavailablebudget.Workload
		bare      int
		want      numbers
	}{
		"example: surplus may go": {[]option{max30}, pods(12), of(workload("a", 10, 12)), 0,
			numbers{Total: 10, Desired: 7, Current: 12, Allowed: 5}},
		"PUB-D8: all are marked for deletion, and 3 surge pods": {[]option{max30}, append(marked, pods(3)...), of(workload("a", 10, 13)), 0,
			numbers{Total: 10, Desired: 7, Current: 13, Allowed: 6}},
		"example: 15 by override": {[]option{max30, total(15)}, pods(10), of(workload("a", 10, 10)), 0,
			numbers{Total: 15, Desired: 10, Current: 10}},
		"example: the only one": {[]option{max30}, pods(1), of(workload("a", 1, 1)), 0,
			numbers{Total: 1, Current: 1, Allowed: 1}},
		"what is in service counts": {[]option{max30}, mixed, of(workload("a", 5, 5)), 0, numbers{Total: 5, Desired: 3, Current: 2}},
		"fewer than are needed":     {nil, pods(1), of(workload("a", 5, 1)), 0, numbers{Total: 5, Desired: 4, Current: 1}},
		"several workloads": {nil, pods(7), of(workload("a", 3, 3), workload("b", 4, 4)), 0,
			numbers{Total: 7, Desired: 6, Current: 7, Allowed: 1}},
		"workloads of as many as go in": {nil, pods(1), of(workload("a", 1<<31-1, 1), workload("b", 1<<31-1, 0)), 0,
			numbers{Total: 1<<31 - 1, Desired: 1<<31 - 2, Current: 1}},
		"pods of nobody add nothing": {nil, pods(5), of(workload("a", 3, 3)), 2,
			numbers{Total: 3, Desired: 2, Current: 5, Allowed: 3}},
		"of a target": {[]option{target}, pods(3), of(workload("a", 4, 3)), 0,
			numbers{Total: 4, Desired: 3, Current: 3}},
		"the override wins": {[]option{target, total(3)}, pods(3), of(workload("a", 4, 3)), 0,
			numbers{Total: 3, Desired: 2, Current: 3, Allowed: 1}},
		"by annotation": {[]option{build.Annotated(pub.BudgetTotalReplicas, "3")}, pods(3), of(workload("a", 4, 3)), 0,
			numbers{Total: 3, Desired: 2, Current: 3, Allowed: 1}},
		"an annotation that is no number": {[]option{build.Annotated(pub.BudgetTotalReplicas, "all")}, pods(3), of(workload("a", 4, 3)),
			0, numbers{Total: 4, Desired: 3, Current: 3}},
		"unknown replicas": {nil, pods(5), of(workload("a", unknown, 3), workload("b", 2, 2)), 0,
			numbers{Total: 5, Desired: 4, Current: 5, Allowed: 1, Unknown: []string{"Deployment a"}}},
		"unknown, and overridden": {[]option{total(5)}, pods(3), of(workload("a", unknown, 3)), 0,
			numbers{Total: 5, Desired: 4, Current: 3}},
		"a negative number": {nil, pods(3), of(workload("a", -1, 0), workload("b", 3, 3)), 0,
			numbers{Total: 3, Desired: 2, Current: 3, Allowed: 1}},
		"the workload is gone": {[]option{min2}, pods(2), nil, 0, numbers{Current: 2, Allowed: 2}},
		"its target is gone":   {[]option{min2, target}, nil, nil, 0, numbers{NoPods: true}},
		"it is scaled to 0":    {[]option{min2}, pods(2), of(workload("a", 0, 2)), 0, numbers{Current: 2, Allowed: 2}},
		"gone, and overridden": {[]option{min2, total(2)}, pods(2), nil, 0, numbers{Total: 2, Desired: 2, Current: 2}},
		"one of two is gone": {[]option{min2}, pods(3), of(workload("a", 0, 1), workload("b", 2, 2)), 0,
			numbers{Total: 2, Desired: 2, Current: 3, Allowed: 1}},
		"gone, but for pods of none": {[]option{min2}, pods(3), nil, 2, numbers{Desired: 2, Current: 3, Allowed: 1}},
		"an integer above the total": {[]option{min2}, pods(1), of(workload("a", 1, 1)), 0, numbers{Total: 1, Desired: 2, Current: 1}},
		"ended pods alone":           {nil, mixed[5:], of(workload("a", 3, 0)), 0, numbers{Total: 3, Desired: 2, NoPods: true}},
		"one that is not ready":      {nil, mixed[2:3], of(workload("a", 3, 1)), 0, numbers{Total: 3, Desired: 2}},
		"a percentage that cannot be": {[]option{build.MaxUnavailable(new(intstr.FromString("some")))}, pods(3), of(workload("a", 3, 3)), 0,
			numbers{Total: 3, Desired: 3, Current: 3, Failed: true}},
		"ignored and unprotected pods are counted": {[]option{build.Ignores("app", "web")}, append(pods(2),
			build.Pod("x", build.Noted(pub.NoProtect, "true"))),
			of(workload("a", 3, 3)), 0, numbers{Total: 3, Desired: 2, Current: 3, Allowed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			budget := build.Budget(tt.options...)
			plan := podunavailablebudget.Make(podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget), Pods: tt.pods,
				Workloads: tt.workloads,
				Bare:      tt.bare, Now: build.Now})
			s := plan.Status
			got := numbers{s.TotalReplicas, s.DesiredAvailable, s.CurrentAvailable, s.UnavailableAllowed, plan.NoPods, plan.Unknown,
				plan.Error != ""}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.ObservedGeneration != budget.Generation {
				t.Errorf("observed generation: got %d, want %d", s.ObservedGeneration, budget.Generation)
			}
			if plan.After != 0 {
				t.Errorf("time to the next pass: got %v, want 0", plan.After)
			}
		})
	}
}

// PUB-D8: the manual says what is guaranteed, with the numbers of the test above.
func TestTheManualSaysWhatIsGuaranteed(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kinds/podunavailablebudget.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.Join(strings.Fields(string(text)), " ")
	for _, words := range []string{"with 10 replicas, 3 surge pods and `maxUnavailable: 3`, 6 may go", "What is guaranteed is that the desired number stays"} {
		if !strings.Contains(manual, words) {
			t.Errorf("it does not say %q", words)
		}
	}
}

// TestHowLongBookingsLive shows which bookings stay, when they are looked at again, and what is told
// (PUB-053 (part), PUB-060 (part), PUB-061 (part), PUB-062 (part), PUB-063).
func TestHowLongBookingsLive(t *testing.T) {
	now := build.Now
	disrupted, unavailable := build.Disrupted, build.Unavailable
	ago := func(seconds float64) time.Time { return now.Add(-time.Duration(seconds * float64(time.Second))) }
	type outcome struct {
		Stays, Counts, NotDeleted bool
		// Overdue: the API server is asked before the pod counts again.
		Overdue bool
		After   time.Duration
	}
	here, left := build.Pod("p"), build.Pod("p", build.Terminating)
	down := build.Pod("p", build.NotReady)
	came := func(seconds float64) *corev1.Pod {
		return build.Pod("p", build.Since(ago(seconds)))
	}
	since := func(seconds float64) *corev1.Pod { // it was updated in place since then, and is done
		stamp := ago(seconds).Format(time.RFC3339)
		return build.Pod("p", build.Noted(pub.InPlaceUpdateState, strings.Replace(begun, "2026-01-01T11:55:00Z", stamp, 1)+"}"))
	}
	for name, tt := range map[string]struct {
		booking option
		pod     *corev1.Pod
		want    outcome
	}{
		"a deletion, at once":                 {disrupted("p", now), here, outcome{Stays: true, After: 20 * time.Second}},
		"a deletion, nearly over":             {disrupted("p", ago(19)), here, outcome{Stays: true, After: time.Second}},
		"a deletion that did not come":        {disrupted("p", ago(20)), here, outcome{Counts: true, NotDeleted: true, Overdue: true}},
		"nor of one that is down":             {disrupted("p", ago(20)), down, outcome{NotDeleted: true}},
		"a deletion that came":                {disrupted("p", ago(6)), left, outcome{}},
		"and is not known everywhere":         {disrupted("p", ago(4)), left, outcome{Stays: true, After: 2 * time.Second}},
		"5 s whatever part of a second it is": {disrupted("p", ago(5.9)), left, outcome{Stays: true, After: 100 * time.Millisecond}},
		"a pod that is gone":                  {disrupted("p", ago(6)), nil, outcome{}},
		"and that is not known everywhere":    {disrupted("p", ago(4)), nil, outcome{Stays: true, After: 2 * time.Second}},
		"an update, at once":                  {unavailable("p", now), here, outcome{Stays: true, After: 10 * time.Second}},
		"an update, nearly over":              {unavailable("p", ago(9)), here, outcome{Stays: true, After: time.Second}},
		"an update that is over":              {unavailable("p", ago(10)), here, outcome{Counts: true, Overdue: true}},
		"an update that took it down":         {unavailable("p", ago(10)), down, outcome{}},
		"an update that is done already":      {unavailable("p", ago(3)), since(3), outcome{Counts: true}},
		"but not at once":                     {unavailable("p", ago(2)), since(2), outcome{Stays: true, After: time.Second}},
		"an earlier one was done":             {unavailable("p", ago(2)), since(3), outcome{Stays: true, After: 8 * time.Second}},
		"a deletion of one that was updated":  {disrupted("p", ago(2)), since(1), outcome{Stays: true, After: 18 * time.Second}},
		"an update of a pod that is deleted":  {unavailable("p", ago(6)), left, outcome{}},
		"another pod of the name":             {disrupted("p", ago(3)), came(2), outcome{Counts: true}},
		"it came in the same second":          {disrupted("p", ago(3)), came(3), outcome{Stays: true, After: 17 * time.Second}},
		"another pod, long ago":               {unavailable("p", ago(30)), came(2), outcome{Counts: true}},
		"of a clock that is ahead":            {unavailable("p", ago(-3)), here, outcome{Stays: true, After: 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			budget := build.Budget(tt.booking)
			s := podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget),
				Workloads: []podunavailablebudget.Workload{workload("a", 1, 1)}, Now: now}
			if tt.pod != nil {
				s.Pods = []*corev1.Pod{tt.pod}
			}
			plan := podunavailablebudget.Make(s)
			kept := build.Budget()
			if tt.want.Stays {
				tt.booking(kept)
			}
			if diff := cmp.Diff(kept.Status.DisruptedPods, plan.Status.DisruptedPods, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("disrupted pods (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(kept.Status.UnavailablePods, plan.Status.UnavailablePods, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("unavailable pods (-want +got):\n%s", diff)
			}
			got := outcome{tt.want.Stays, plan.Status.CurrentAvailable == 1, len(plan.NotDeleted) == 1,
				len(podunavailablebudget.Overdue(&s)) == 1, plan.After}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestBookingsOfAClockThatJumped shows that a booking whose time lies further ahead than it lives counts as
// booked now, and ends as others do; by a clock that is behind the pod itself it counts as booked at its
// creation. It once counted until that time, for years if the clock had jumped so far.
func TestBookingsOfAClockThatJumped(t *testing.T) {
	now := build.Now.Add(300 * time.Millisecond)
	for life, book := range map[time.Duration]func(string, time.Time) option{20 * time.Second: build.Disrupted, 10 * time.Second: build.Unavailable} {
		for ahead, pod := range map[time.Duration]*corev1.Pod{life + time.Second: build.Pod("p"), 10 * 365 * 24 * time.Hour: build.Pod("p"),
			time.Hour: build.Pod("p", build.Since(build.Now.Add(2*time.Second)))} {
			since := build.Now
			if pod.CreationTimestamp.After(since) {
				since = pod.CreationTimestamp.Time
			}
			budget, booked := build.Budget(book("p", now.Add(ahead))), build.Budget(book("p", since))
			s := podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget), Pods: []*corev1.Pod{pod}, Now: now}
			plan := podunavailablebudget.Make(s)
			if diff := cmp.Diff(booked.Status.DisruptedPods, plan.Status.DisruptedPods, cmpopts.EquateEmpty()) +
				cmp.Diff(booked.Status.UnavailablePods, plan.Status.UnavailablePods, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%v ahead: %s", ahead, diff)
			}
			if want := min(since.Add(life).Sub(now), life); plan.After != want {
				t.Errorf("%v ahead: again after %v, not %v", ahead, plan.After, want)
			}
			budget.Status = plan.Status
			s.Rules, s.Now = podunavailablebudget.NewRules(budget), since.Add(life)
			if s := podunavailablebudget.Make(s).Status; s.CurrentAvailable != 1 {
				t.Errorf("available pods: got %d, want 1; %v ahead, after its life: %+v", s.CurrentAvailable, ahead, s)
			} else if len(s.DisruptedPods)+len(s.UnavailablePods) > 0 {
				t.Errorf("number of disrupted pods and unavailable pods: got %d, want 0; %v ahead, after its life: %+v",
					len(s.DisruptedPods)+len(s.UnavailablePods), ahead, s)
			}
		}
	}
}

// TestFiveSecondsFromTheBooking shows that a booking outlives the sight of the pod's end by what the
// specification says, in whatever part of a second it is made (PUB-061 (part), PUB-062 (part)).
func TestFiveSecondsFromTheBooking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := build.Now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)-1).Draw(t, "part")))
		by := rapid.SampledFrom([]policyv1beta1.PodUnavailableBudgetOperation{policyv1beta1.Delete, policyv1beta1.Update}).Draw(t, "by")
		budget := build.Budget(build.Counted(3, 2, 3))
		ledger := podunavailablebudget.NewLedger(podunavailablebudget.NewRules(budget), build.AllGates, at)
		ledger.Book(build.Pod("p"), by)
		budget.Status = merged(t, &budget.Status, ledger.Changes())
		later := at.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "later")))
		plan := podunavailablebudget.Make(podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget), Now: later})
		if n := len(plan.Status.DisruptedPods) + len(plan.Status.UnavailablePods); n != 1 {
			t.Fatalf("after %v: got %d bookings, want 1: %+v", later.Sub(at), n, plan.Status)
		}
		if plan.After <= 0 {
			t.Fatalf("after %v: the next pass is not planned: %+v", later.Sub(at), plan.Status)
		}
	})
}

// TestTheCountOfAnyPods compares the numbers, bookings and reasons with a count of its own, which knows of
// each pod only how it was made (PUB-053 (part), PUB-054 (part), PUB-060 (part), PUB-063 (part)).
func TestTheCountOfAnyPods(t *testing.T) {
	now := build.Now
	rapid.Check(t, func(t *rapid.T) {
		budget := build.Budget(build.MinAvailable(new(intstr.FromInt32(int32(rapid.IntRange(0, 6).Draw(t, "min"))))))
		s := podunavailablebudget.Snapshot{Workloads: []podunavailablebudget.Workload{workload("a", 6, 6)}, Now: now}
		current, booked, why, first := int32(0), 0, 0, 0
		for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
			name := fmt.Sprint("p", i)
			state := rapid.SampledFrom([]string{"serves", "down", "leaves", "gone"}).Draw(t, "state")
			age := rapid.IntRange(0, 60).Draw(t, "age")
			pod := build.Pod(name, build.Since(now.Add(-time.Duration(age)*time.Second)))
			switch state {
			case "down":
				build.NotReady(pod)
			case "leaves":
				build.Terminating(pod)
			}
			if state != "gone" {
				s.Pods = append(s.Pods, pod)
			}
			alive := false
			if way := rapid.SampledFrom([]string{"", "DELETE", "UPDATE"}).Draw(t, "booked"); way != "" {
				since, life := rapid.IntRange(0, 30).Draw(t, "since"), 10
				book := build.Unavailable
				if way == "DELETE" {
					book, life = build.Disrupted, 20
				}
				book(name, now.Add(-time.Duration(since)*time.Second))(budget)
				former := state != "gone" && age < since
				if state == "gone" || state == "leaves" {
					life = 6
				}
				if alive = !former && since < life; alive {
					booked++
					if first == 0 || life-since < first {
						first = life - since
					}
				}
			}
			switch {
			case state == "serves" && !alive:
				current++
			case state == "serves", state == "down":
				why++
			}
		}
		s.Rules = podunavailablebudget.NewRules(budget)
		plan := podunavailablebudget.Make(s)
		got := plan.Status
		if got.CurrentAvailable != current {
			t.Fatalf("in service: got %d, want %d; %+v", got.CurrentAvailable, current, got)
		}
		if want := max(current-got.DesiredAvailable, 0); got.UnavailableAllowed != want {
			t.Fatalf("allowed: got %d, want %d; %+v", got.UnavailableAllowed, want, got)
		}
		if n := len(got.DisruptedPods) + len(got.UnavailablePods); n != booked {
			t.Fatalf("booked: got %d, want %d; %+v", n, booked, got)
		}
		if len(plan.Why) != why {
			t.Fatalf("pods that are told about: got %v, want %d", plan.Why, why)
		}
		if plan.After != time.Duration(first)*time.Second {
			t.Fatalf("again after %v, not %d s", plan.After, first)
		}
		slices.Reverse(s.Pods)
		if diff := cmp.Diff(plan, podunavailablebudget.Make(s)); diff != "" {
			t.Fatal("the order of the pods matters:", diff)
		}
		s.Rules = podunavailablebudget.NewRules(func() *policyv1beta1.PodUnavailableBudget {
			counted := budget.DeepCopy()
			counted.Status = plan.Status
			return counted
		}())
		if diff := cmp.Diff(plan.Status, podunavailablebudget.Make(s).Status); diff != "" {
			t.Fatal("counting again says something else:", diff)
		}
	})
}

// TestAPodAndItsSuccessor shows a StatefulSet's pod that goes while the next one of its name is there
// already: a booking of the former does not hold the latter, which counts.
func TestAPodAndItsSuccessor(t *testing.T) {
	now := build.Now
	budget := build.Budget(build.Disrupted("web-0", now.Add(-3*time.Second)))
	former := build.Pod("web-0", build.Terminating)
	next := build.Pod("web-0", build.Since(now.Add(-time.Second)))
	for _, pods := range [][]*corev1.Pod{{former, next}, {next, former}} {
		plan := podunavailablebudget.Make(podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget), Pods: pods,
			Workloads: []podunavailablebudget.Workload{workload("a", 1, 1)}, Now: now})
		if plan.Status.CurrentAvailable != 1 {
			t.Errorf("available pods: got %d, want 1\n%+v", plan.Status.CurrentAvailable, plan.Status)
		}
		if len(plan.Status.DisruptedPods) > 0 {
			t.Errorf("disrupted pods: got %v, want none\n%+v", plan.Status.DisruptedPods, plan.Status)
		}
	}
}

// TestUsedBy names those who use the budget up, and how, but not all of many (PUB-141 (part)).
func TestUsedBy(t *testing.T) {
	budget := build.Budget(build.Disrupted("p0", build.Now),
		build.Unavailable("p1", build.Now))
	pods := build.Pods(7)
	for _, pod := range pods[2:6] {
		build.NotReady(pod)
	}
	plan := podunavailablebudget.Make(podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget), Pods: pods, Now: build.Now})
	want := "p0 (its deletion was admitted), p1 (its update was admitted), p2 (not ready), p3 (not ready), p4 (not ready), 1 more pod"
	if diff := cmp.Diff(want, plan.Status.UsedBy); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

// PUB-141 (part): nobody can make the status as long as he likes.
func TestUsedByIsBounded(t *testing.T) {
	budget, pods := build.Budget(), build.Pods(6)
	for _, pod := range pods {
		pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"x","updateTimestamp":"` + strings.Repeat("x", 200_000) + `"}`}
	}
	plan := podunavailablebudget.Make(podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget), Pods: pods, Now: build.Now})
	n := len(plan.Status.UsedBy)
	if n == 0 {
		t.Errorf("number of users: got %d, want another value", n)
	}
	if n > 1000 {
		t.Errorf("number of users: got %d, want at most 1000", n)
	}
}

// PUB-052 (part): nothing need stay of what is gone, whatever protectTotalReplicas says, and nothing of a
// workload that is scaled to 0 because of pods beside it that belong to nobody. These stay as far as they are
// in service.
func TestPodsOfWhatIsGoneOrScaledToNothing(t *testing.T) {
	nobodys := func(name string, options ...func(*corev1.Pod)) *corev1.Pod {
		pod := build.Pod(name, options...)
		pod.OwnerReferences = nil
		return pod
	}
	owned := func(name string) *corev1.Pod {
		yes, pod := true, build.Pod(name)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}
		return pod
	}
	scaled := []podunavailablebudget.Workload{workload("a", 0, 2)}
	for name, tt := range map[string]struct {
		options        []option
		pods           []*corev1.Pod
		workloads      []podunavailablebudget.Workload
		bare, gone     int
		total, desired int32
	}{
		"gone, and overridden":           {[]option{build.Total(3)}, []*corev1.Pod{owned("a"), owned("b")}, nil, 0, 2, 0, 0},
		"one of two is gone":             {[]option{build.Total(3)}, []*corev1.Pod{owned("a"), owned("b")}, nil, 0, 1, 3, 2},
		"gone, beside one of nobody":     {[]option{build.Total(3)}, []*corev1.Pod{owned("a"), nobodys("b")}, nil, 1, 1, 3, 2},
		"overridden, and no pod":         {[]option{build.Total(3)}, nil, nil, 0, 0, 3, 2},
		"scaled to 0, beside one":        {nil, []*corev1.Pod{owned("a"), owned("b"), nobodys("c")}, scaled, 1, 0, 0, 1},
		"beside one that is down":        {nil, []*corev1.Pod{owned("a"), owned("b"), nobodys("c", build.NotReady)}, scaled, 1, 0, 0, 0},
		"beside three":                   {nil, []*corev1.Pod{owned("a"), nobodys("b"), nobodys("c"), nobodys("d")}, scaled, 3, 0, 0, 2},
		"nobody's alone, one is down":    {nil, []*corev1.Pod{nobodys("a"), nobodys("b", build.NotReady)}, nil, 2, 0, 0, 2},
		"scaled to 0, and nothing there": {nil, nil, scaled, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			budget := build.Budget(append([]option{build.MinAvailable(new(intstr.FromInt32(2)))}, tt.options...)...)
			s := podunavailablebudget.Make(podunavailablebudget.Snapshot{Rules: podunavailablebudget.NewRules(budget), Pods: tt.pods,
				Workloads: tt.workloads, Bare: tt.bare, Gone: tt.gone, Now: build.Now}).Status
			if s.TotalReplicas != tt.total {
				t.Errorf("total replicas: got %d, want %d; total %d, desired %d, want %d and %d", s.TotalReplicas,
					tt.total, s.TotalReplicas,
					s.DesiredAvailable, tt.total, tt.desired)
			}
			if s.DesiredAvailable != tt.desired {
				t.Errorf("pods that must be available: got %d, want %d; total %d, desired %d, want %d and %d",
					s.DesiredAvailable, tt.desired,
					s.TotalReplicas, s.DesiredAvailable, tt.total, tt.desired)
			}
		})
	}
}
