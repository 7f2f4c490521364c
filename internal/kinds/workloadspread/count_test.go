package workloadspread

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

func TestCount(t *testing.T) {
	pod := func(name string) Seen {
		return Seen{Name: name, Version: "v1", Subset: "a", Active: true, Created: workloadspreadtest.Clock}
	}
	with := func(p Seen, change func(*Seen)) Seen { change(&p); return p }
	gone := func(p *Seen) { p.Active = false }
	pods := func(n int) []Seen {
		var all []Seen
		for i := range n {
			all = append(all, pod(string(rune('a'+i))))
		}
		return all
	}
	one := func(missing, replicas int32, creating, deleting workloadspreadtest.Times) []appsv1beta1.WorkloadSpreadSubsetStatus {
		return []appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("a", replicas, missing, creating, deleting)}
	}
	quota := func(q int32) []SubsetQuota { return []SubsetQuota{{"a", q}} }
	for name, test := range map[string]struct {
		quotas  []SubsetQuota
		before  []appsv1beta1.WorkloadSpreadSubsetStatus
		version string
		pods    []Seen
		want    Counted
	}{
		"WS-150 nothing there":           {quotas: quota(3), want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-150 active pods take places": {quotas: quota(3), pods: pods(2), want: Counted{Subsets: one(1, 2, nil, nil)}},
		"WS-150 as many as there may be": {quotas: quota(3), pods: pods(3), want: Counted{Subsets: one(0, 3, nil, nil)}},
		"WS-150 never below zero":        {quotas: quota(3), pods: pods(5), want: Counted{Subsets: one(0, 5, nil, nil)}},
		"WS-150 a quota of zero":         {quotas: quota(0), pods: pods(1), want: Counted{Subsets: one(0, 1, nil, nil)}},
		"WS-150 unlimited stays so": {quotas: quota(Unlimited), pods: pods(5),
			before: one(7, 0, workloadspreadtest.Times{"x": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(-1, 5, workloadspreadtest.Times{"x": workloadspreadtest.At(0)}, nil),
				Next: workloadspreadtest.At(30).Add(moment)}},
		"WS-201 finished and ending pods": {quotas: quota(3), pods: []Seen{pod("a"), with(pod("b"), gone)},
			want: Counted{Subsets: one(2, 1, nil, nil)}},
		"WS-150 what comes takes places": {quotas: quota(3), pods: pods(1),
			before: one(0, 0, workloadspreadtest.Times{"x": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(1, 1, workloadspreadtest.Times{"x": workloadspreadtest.At(0)}, nil),
				Next: workloadspreadtest.At(30).Add(moment)}},
		"WS-150 what goes frees places": {quotas: quota(3), pods: pods(3),
			before: one(0, 3, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}),
			want: Counted{Subsets: one(1, 3, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}),
				Next: workloadspreadtest.At(15).Add(moment)}},
		"WS-150 not in an over-full subset": {quotas: quota(3), pods: pods(5),
			before: one(0, 5, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}),
			want: Counted{Subsets: one(0, 5, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}),
				Next: workloadspreadtest.At(15).Add(moment)}},
		"WS-150 more going than there is room": {quotas: quota(1), pods: pods(1),
			before: one(0, 1, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}),
			want: Counted{Subsets: one(1, 1, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}),
				Next: workloadspreadtest.At(15).Add(moment)}},
		"WS-151 seen by name": {quotas: quota(3), pods: pods(1), before: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(2, 1, nil, nil)}},
		"WS-151 seen by id": {quotas: quota(3), pods: []Seen{with(pod("a"), func(p *Seen) { p.Booking = "id" })},
			before: one(2, 0, workloadspreadtest.Times{"id": workloadspreadtest.At(0)}, nil), want: Counted{Subsets: one(2, 1, nil, nil)}},
		"WS-150 a young pod with an id of its own, too": {quotas: quota(3), pods: []Seen{with(pod("a"),
			func(p *Seen) { p.Booking = "id" })}, before: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
				Next: workloadspreadtest.At(30).Add(moment)}},
		"WS-151 the id goes before the name": {quotas: quota(3), pods: []Seen{with(pod("a"), func(p *Seen) { p.Booking = "id" }),
			pod("id")}, before: one(2, 0, workloadspreadtest.Times{"id": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(1, 2, nil, nil)}},
		"WS-151 seen though at its end": {quotas: quota(3), pods: []Seen{with(pod("a"), gone)}, before: one(2, 0,
			workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil), want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-151 an old pod of that name at its end": {quotas: quota(3), pods: []Seen{with(pod("a"), func(p *Seen) {
			p.Active,
				p.Created = false, workloadspreadtest.At(-31).Time
		})}, before: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
				Next: workloadspreadtest.At(30).Add(moment)}},
		"WS-150 a pod that is made again has one place with the earlier one": {quotas: quota(3), pods: []Seen{pod("b"), with(pod("a"),
			func(p *Seen) { p.Created = workloadspreadtest.At(-31).Time })},
			before: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(1, 1, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
				Next: workloadspreadtest.At(30).Add(moment)}},
		"WS-152 an earlier pod that never went": {quotas: quota(3), pods: []Seen{with(pod("a"),
			func(p *Seen) { p.Created = workloadspreadtest.At(-90).Time })},
			before: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(-31)}, nil),
			want:   Counted{Subsets: one(2, 1, nil, nil), Lost: []LostBooking{{"a", "a", false}}}},
		"WS-151 an earlier pod of another subset": {quotas: quota(3), pods: []Seen{with(pod("a"), func(p *Seen) { p.Subset = "b" })},
			before: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
				Next: workloadspreadtest.At(30).Add(moment)}},
		"WS-151 WS-197 seen in another version": {quotas: quota(3), version: "v1", pods: []Seen{with(pod("a"),
			func(p *Seen) { p.Version = "v2" })}, before: one(2, 0, workloadspreadtest.Times{"a": workloadspreadtest.At(0)}, nil),
			want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-152 waited for 30 s": {quotas: quota(3), before: one(2, 0, workloadspreadtest.Times{"x": workloadspreadtest.At(-30)}, nil),
			want: Counted{Subsets: one(2, 0, workloadspreadtest.Times{"x": workloadspreadtest.At(-30)}, nil),
				Next: workloadspreadtest.At(0).Add(moment)}},
		"WS-152 and not longer": {quotas: quota(3), before: one(2, 0,
			workloadspreadtest.Times{"y": workloadspreadtest.At(-31), "x": workloadspreadtest.At(-40)}, nil),
			want: Counted{Subsets: one(3, 0, nil, nil), Lost: []LostBooking{{"a", "x", false}, {"a", "y", false}}}},
		"WS-153 waited for 15 s": {quotas: quota(3), pods: pods(1),
			before: one(2, 0, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(-15)}),
			want: Counted{Subsets: one(3, 1, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(-15)}),
				Next: workloadspreadtest.At(0).Add(moment)}},
		"WS-153 and not longer": {quotas: quota(3), pods: pods(1),
			before: one(2, 0, nil, workloadspreadtest.Times{"a": workloadspreadtest.At(-16)}),
			want:   Counted{Subsets: one(2, 1, nil, nil), Lost: []LostBooking{{"a", "a", true}}}},
		"WS-153 a pod that went is not missed": {quotas: quota(3), pods: []Seen{with(pod("a"), gone)}, before: one(2, 0, nil,
			workloadspreadtest.Times{"a": workloadspreadtest.At(-16), "b": workloadspreadtest.At(-16)}),
			want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-080 a version has places of its own": {quotas: quota(3), version: "v2", pods: pods(3),
			want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-154 all versions together": {quotas: quota(3), version: AllVersions, pods: []Seen{pod("a"), with(pod("b"),
			func(p *Seen) { p.Version = "v2" })},
			want: Counted{Subsets: one(1, 2, nil, nil)}},
		"WS-156 in the order of the spec, found by name": {quotas: []SubsetQuota{{"b", 1}, {"new", 2}, {"a", 3}},
			before: []appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("a", 0, 0,
				workloadspreadtest.Times{"x": workloadspreadtest.At(0)}, nil), workloadspreadtest.Counted("removed", 1, 0,
				workloadspreadtest.Times{"z": workloadspreadtest.At(-40)}, nil),
				workloadspreadtest.Counted("b", 0, 0, workloadspreadtest.Times{"y": workloadspreadtest.At(-10)}, nil)},
			want: Counted{Subsets: []appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("b", 0, 0,
				workloadspreadtest.Times{"y": workloadspreadtest.At(-10)}, nil),
				workloadspreadtest.Counted("new", 0, 2, nil, nil),
				workloadspreadtest.Counted("a", 0, 2, workloadspreadtest.Times{"x": workloadspreadtest.At(0)}, nil)},
				Next: workloadspreadtest.At(20).Add(moment)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Count(test.quotas, test.before, test.version, test.pods, workloadspreadtest.Clock),
				cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A pod that was created and deleted before the cache shows it takes no place while the cache catches up:
// neither before it shows the pod, nor while it shows the pod and not yet that it went (WS-103, WS-150). Else
// pods that come then would find no place, though there are some.
func TestAPodThatWentBeforeItWasSeenTakesNoPlace(t *testing.T) {
	list := []appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("a", 0, 1,
		workloadspreadtest.Times{"p": workloadspreadtest.At(-3)}, workloadspreadtest.Times{"p": workloadspreadtest.At(-2)})}
	seen := Seen{Name: "p", Version: "v1", Subset: "a", Active: true, Created: workloadspreadtest.At(-3).Time, Booking: "id-of-p"}
	for i, step := range []struct {
		pods            []Seen
		coming, going   int
		replicas, after int32
	}{{nil, 1, 1, 0, 0}, {nil, 1, 1, 0, 1}, {[]Seen{seen}, 0, 1, 1, 2}, {nil, 0, 0, 0, 3}} {
		counted := Count([]SubsetQuota{{"a", 1}}, list, "v1", step.pods, workloadspreadtest.Clock.Add(time.Duration(step.after)*time.Second))
		list = counted.Subsets
		s := list[0]
		if s.MissingReplicas != 1 {
			t.Errorf("missing replicas: got %d, want 1; step %d: %+v, lost %v", s.MissingReplicas, i, s, counted.Lost)
		}
		if s.Replicas != step.replicas {
			t.Errorf("replicas: got %d, want %d; step %d: %+v, lost %v", s.Replicas, step.replicas, i, s, counted.Lost)
		}
		if len(s.CreatingPods) != step.coming {
			t.Errorf("number of pods being created: got %d, want %d; step %d: %+v, lost %v", len(s.CreatingPods),
				step.coming, i, s, counted.Lost)
		}
		if len(s.DeletingPods) != step.going {
			t.Errorf("number of pods being deleted: got %d, want %d; step %d: %+v, lost %v", len(s.DeletingPods),
				step.going, i, s, counted.Lost)
		}
		if len(counted.Lost) != 0 {
			t.Errorf("number lost: got %d, want 0; step %d: %+v, lost %v", len(counted.Lost), i, s, counted.Lost)
		}
	}
	// One that is never shown is not remembered for ever.
	list = []appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("a", 0, 1,
		workloadspreadtest.Times{"p": workloadspreadtest.At(-17)}, workloadspreadtest.Times{"p": workloadspreadtest.At(-16)})}
	s := Count([]SubsetQuota{{"a", 1}}, list, "v1", nil, workloadspreadtest.Clock).Subsets[0]
	if s.MissingReplicas != 1 {
		t.Errorf("missing replicas: got %d, want 1\n%+v", s.MissingReplicas, s)
	}
	if len(s.CreatingPods)+len(s.DeletingPods) != 0 {
		t.Errorf("number of pods being created and pods being deleted: got %d, want 0\n%+v",
			len(s.CreatingPods)+len(s.DeletingPods), s)
	}
}

// Conditions of a list are kept by counting.
func TestCountKeepsConditions(t *testing.T) {
	before := workloadspreadtest.Counted("a", 0, 0, nil, nil)
	before.Conditions = []metav1.Condition{{Type: "Schedulable", Status: "False"}}
	got := Count([]SubsetQuota{{"a", 1}}, []appsv1beta1.WorkloadSpreadSubsetStatus{before}, AllVersions, nil, workloadspreadtest.Clock)
	if diff := cmp.Diff(before.Conditions, got.Subsets[0].Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// WS-157: one quota that cannot be computed makes all of them an error.
func TestQuotas(t *testing.T) {
	for name, test := range map[string]struct {
		most    any
		want    int32
		invalid bool
	}{
		"number": {3, 3, false}, "percentage, rounded up": {"33%", 4, false}, "none": {nil, Unlimited, false},
		"no percentage": {"x", 0, true}, "negative": {-1, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Quotas([]appsv1beta1.WorkloadSpreadSubset{workloadspreadtest.Subset("a", test.most)}, 10)
			if test.invalid != (err != nil) {
				t.Errorf("invalid: got %t, want %t\n%v\n%v", test.invalid, err != nil, got, err)
			} else if !test.invalid && got[0] != (SubsetQuota{"a", test.want}) {
				t.Errorf("first result: got %+v, want %+v\n%v\n%v", got[0], SubsetQuota{"a", test.want}, got, err)
			}
		})
	}
}

func TestSeenOf(t *testing.T) {
	got := SeenOf(workloadspreadtest.Pod("p", workloadspreadtest.Booked("a", "id"), workloadspreadtest.Phase("Failed")), "v1", "b")
	want := Seen{Name: "p", Version: "v1", Subset: "b", Booking: "id", Created: workloadspreadtest.Clock.Add(-time.Hour)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
