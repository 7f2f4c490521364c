package workloadspread

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

func TestCount(t *testing.T) {
	pod := func(name string) Seen {
		return Seen{Name: name, Version: "v1", Subset: "a", Active: true, Created: clock}
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
	one := func(missing, replicas int32, creating, deleting times) []appsv1beta1.WorkloadSpreadSubsetStatus {
		return []appsv1beta1.WorkloadSpreadSubsetStatus{subsetStatus("a", replicas, missing, creating, deleting)}
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
		"WS-150 unlimited stays so": {quotas: quota(Unlimited), pods: pods(5), before: one(7, 0, times{"x": at(0)}, nil),
			want: Counted{Subsets: one(-1, 5, times{"x": at(0)}, nil), Next: at(30).Add(moment)}},
		"WS-201 finished and ending pods": {quotas: quota(3), pods: []Seen{pod("a"), with(pod("b"), gone)},
			want: Counted{Subsets: one(2, 1, nil, nil)}},
		"WS-150 what comes takes places": {quotas: quota(3), pods: pods(1), before: one(0, 0, times{"x": at(0)}, nil),
			want: Counted{Subsets: one(1, 1, times{"x": at(0)}, nil), Next: at(30).Add(moment)}},
		"WS-150 what goes frees places": {quotas: quota(3), pods: pods(3), before: one(0, 3, nil, times{"a": at(0)}),
			want: Counted{Subsets: one(1, 3, nil, times{"a": at(0)}), Next: at(15).Add(moment)}},
		"WS-150 not in an over-full subset": {quotas: quota(3), pods: pods(5), before: one(0, 5, nil, times{"a": at(0)}),
			want: Counted{Subsets: one(0, 5, nil, times{"a": at(0)}), Next: at(15).Add(moment)}},
		"WS-150 more going than there is room": {quotas: quota(1), pods: pods(1), before: one(0, 1, nil, times{"a": at(0)}),
			want: Counted{Subsets: one(1, 1, nil, times{"a": at(0)}), Next: at(15).Add(moment)}},
		"WS-151 seen by name": {quotas: quota(3), pods: pods(1), before: one(2, 0, times{"a": at(0)}, nil),
			want: Counted{Subsets: one(2, 1, nil, nil)}},
		"WS-151 seen by id": {quotas: quota(3), pods: []Seen{with(pod("a"), func(p *Seen) { p.Booking = "id" })},
			before: one(2, 0, times{"id": at(0)}, nil), want: Counted{Subsets: one(2, 1, nil, nil)}},
		"WS-150 a young pod with an id of its own, too": {quotas: quota(3), pods: []Seen{with(pod("a"),
			func(p *Seen) { p.Booking = "id" })}, before: one(2, 0, times{"a": at(0)}, nil),
			want: Counted{Subsets: one(2, 0, times{"a": at(0)}, nil), Next: at(30).Add(moment)}},
		"WS-151 the id goes before the name": {quotas: quota(3), pods: []Seen{with(pod("a"), func(p *Seen) { p.Booking = "id" }),
			pod("id")}, before: one(2, 0, times{"id": at(0)}, nil),
			want: Counted{Subsets: one(1, 2, nil, nil)}},
		"WS-151 seen though at its end": {quotas: quota(3), pods: []Seen{with(pod("a"), gone)}, before: one(2, 0,
			times{"a": at(0)}, nil), want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-151 an old pod of that name at its end": {quotas: quota(3), pods: []Seen{with(pod("a"), func(p *Seen) {
			p.Active,
				p.Created = false, at(-31).Time
		})}, before: one(2, 0, times{"a": at(0)}, nil), want: Counted{Subsets: one(2, 0, times{"a": at(0)}, nil), Next: at(30).Add(moment)}},
		"WS-150 a pod that is made again has one place with the earlier one": {quotas: quota(3), pods: []Seen{pod("b"), with(pod("a"),
			func(p *Seen) { p.Created = at(-31).Time })}, before: one(2, 0, times{"a": at(0)}, nil),
			want: Counted{Subsets: one(1, 1, times{"a": at(0)}, nil), Next: at(30).Add(moment)}},
		"WS-152 an earlier pod that never went": {quotas: quota(3), pods: []Seen{with(pod("a"),
			func(p *Seen) { p.Created = at(-90).Time })}, before: one(2, 0, times{"a": at(-31)}, nil),
			want: Counted{Subsets: one(2, 1, nil, nil), Lost: []LostBooking{{"a", "a", false}}}},
		"WS-151 an earlier pod of another subset": {quotas: quota(3), pods: []Seen{with(pod("a"), func(p *Seen) { p.Subset = "b" })},
			before: one(2, 0, times{"a": at(0)}, nil), want: Counted{Subsets: one(2, 0, times{"a": at(0)}, nil), Next: at(30).Add(moment)}},
		"WS-151 WS-197 seen in another version": {quotas: quota(3), version: "v1", pods: []Seen{with(pod("a"),
			func(p *Seen) { p.Version = "v2" })}, before: one(2, 0, times{"a": at(0)}, nil), want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-152 waited for 30 s": {quotas: quota(3), before: one(2, 0, times{"x": at(-30)}, nil),
			want: Counted{Subsets: one(2, 0, times{"x": at(-30)}, nil), Next: at(0).Add(moment)}},
		"WS-152 and not longer": {quotas: quota(3), before: one(2, 0, times{"y": at(-31), "x": at(-40)}, nil),
			want: Counted{Subsets: one(3, 0, nil, nil), Lost: []LostBooking{{"a", "x", false}, {"a", "y", false}}}},
		"WS-153 waited for 15 s": {quotas: quota(3), pods: pods(1), before: one(2, 0, nil, times{"a": at(-15)}),
			want: Counted{Subsets: one(3, 1, nil, times{"a": at(-15)}), Next: at(0).Add(moment)}},
		"WS-153 and not longer": {quotas: quota(3), pods: pods(1), before: one(2, 0, nil, times{"a": at(-16)}),
			want: Counted{Subsets: one(2, 1, nil, nil), Lost: []LostBooking{{"a", "a", true}}}},
		"WS-153 a pod that went is not missed": {quotas: quota(3), pods: []Seen{with(pod("a"), gone)}, before: one(2, 0, nil,
			times{"a": at(-16), "b": at(-16)}), want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-080 a version has places of its own": {quotas: quota(3), version: "v2", pods: pods(3),
			want: Counted{Subsets: one(3, 0, nil, nil)}},
		"WS-154 all versions together": {quotas: quota(3), version: AllVersions, pods: []Seen{pod("a"), with(pod("b"),
			func(p *Seen) { p.Version = "v2" })},
			want: Counted{Subsets: one(1, 2, nil, nil)}},
		"WS-156 in the order of the spec, found by name": {quotas: []SubsetQuota{{"b", 1}, {"new", 2}, {"a", 3}},
			before: []appsv1beta1.WorkloadSpreadSubsetStatus{subsetStatus("a", 0, 0, times{"x": at(0)}, nil), subsetStatus("removed", 1, 0,
				times{"z": at(-40)}, nil), subsetStatus("b", 0, 0, times{"y": at(-10)}, nil)},
			want: Counted{Subsets: []appsv1beta1.WorkloadSpreadSubsetStatus{subsetStatus("b", 0, 0, times{"y": at(-10)}, nil),
				subsetStatus("new", 0, 2, nil, nil), subsetStatus("a", 0, 2, times{"x": at(0)}, nil)},
				Next: at(20).Add(moment)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Count(test.quotas, test.before, test.version, test.pods, clock),
				cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A pod that was created and deleted before the cache shows it takes no place while the cache catches up: neither before it shows
// the pod, nor while it shows the pod and not yet that it went (WS-103, WS-150). Else pods that come then would find no place,
// though there are some.
func TestAPodThatWentBeforeItWasSeenTakesNoPlace(t *testing.T) {
	list := []appsv1beta1.WorkloadSpreadSubsetStatus{subsetStatus("a", 0, 1, times{"p": at(-3)}, times{"p": at(-2)})}
	seen := Seen{Name: "p", Version: "v1", Subset: "a", Active: true, Created: at(-3).Time, Booking: "id-of-p"}
	for i, step := range []struct {
		pods            []Seen
		coming, going   int
		replicas, after int32
	}{{nil, 1, 1, 0, 0}, {nil, 1, 1, 0, 1}, {[]Seen{seen}, 0, 1, 1, 2}, {nil, 0, 0, 0, 3}} {
		counted := Count([]SubsetQuota{{"a", 1}}, list, "v1", step.pods, clock.Add(time.Duration(step.after)*time.Second))
		list = counted.Subsets
		if s := list[0]; s.MissingReplicas != 1 || s.Replicas != step.replicas || len(s.CreatingPods) != step.coming ||
			len(s.DeletingPods) != step.going || len(counted.Lost) != 0 {
			t.Errorf("step %d: %+v, lost %v", i, s, counted.Lost)
		}
	}
	// One that is never shown is not remembered for ever.
	list = []appsv1beta1.WorkloadSpreadSubsetStatus{subsetStatus("a", 0, 1, times{"p": at(-17)}, times{"p": at(-16)})}
	if s := Count([]SubsetQuota{{"a", 1}}, list, "v1", nil, clock).Subsets[0]; s.MissingReplicas != 1 ||
		len(s.CreatingPods)+len(s.DeletingPods) != 0 {
		t.Errorf("%+v", s)
	}
}

// Conditions of a list are kept by counting.
func TestCountKeepsConditions(t *testing.T) {
	before := subsetStatus("a", 0, 0, nil, nil)
	before.Conditions = []metav1.Condition{{Type: "Schedulable", Status: "False"}}
	got := Count([]SubsetQuota{{"a", 1}}, []appsv1beta1.WorkloadSpreadSubsetStatus{before}, AllVersions, nil, clock)
	if diff := cmp.Diff(before.Conditions, got.Subsets[0].Conditions); diff != "" {
		t.Error(diff)
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
			got, err := Quotas([]appsv1beta1.WorkloadSpreadSubset{makeSubset("a", test.most)}, 10)
			if test.invalid != (err != nil) || !test.invalid && got[0] != (SubsetQuota{"a", test.want}) {
				t.Error(got, err)
			}
		})
	}
}

func TestSeenOf(t *testing.T) {
	got := SeenOf(makePod("p", booked("a", "id"), phase("Failed")), "v1", "b")
	want := Seen{Name: "p", Version: "v1", Subset: "b", Booking: "id", Created: clock.Add(-time.Hour)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
