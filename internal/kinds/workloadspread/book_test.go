package workloadspread

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// outcome shows a decision: the subset, and the list that is written.
func outcome(t testing.TB, d Decision) string {
	t.Helper()
	text := "none"
	if d.Subset != nil {
		text = d.Subset.Name
	}
	for i := range d.List {
		s := &d.List[i]
		line, err := json.Marshal(map[string]any{"m": s.MissingReplicas, "r": s.Replicas, "c": workloadspreadtest.Keys(s.CreatingPods),
			"d": workloadspreadtest.Keys(s.DeletingPods)})
		if err != nil {
			t.Fatal(err)
		}
		text += " " + s.Name + strings.NewReplacer(`"`, "", `null`, "-").Replace(string(line))
	}
	return text
}

func TestCreate(t *testing.T) {
	const when = `"2026-01-01T11:59:59Z"`
	const unschedulable = `conditions: [{type: Schedulable, status: "False", reason: PodUnschedulable, message: "", lastTransitionTime: "2026-01-01T11:00:00Z"}]`
	for name, test := range map[string]struct {
		spread string
		target *Target
		pod    Creation
		want   string
		reason string
	}{
		"WS-056: one subset without limit": {`{spec: {subsets: [{name: a}]}}`, nil, Creation{Key: "p", Version: "v"},
			"a", ""},
		"WS-070, WS-076: a list that is absent is initialised": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b}]}}`, nil,
			Creation{Key: "p", Version: "v"}, "a a{c:[p],d:-,m:1,r:0} b{c:-,d:-,m:-1,r:0}", ""},
		"WS-070: an empty list, too": {`{spec: {subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: []}}}`, nil,
			Creation{Key: "p", Version: "v"},
			"a a{c:[p],d:-,m:1,r:0}", ""},
		"WS-012, WS-070: percentages are of the target": {`{spec: {subsets: [{name: a, maxReplicas: 33%}]}}`, &Target{Exists: true,
			Desired: 10}, Creation{Key: "p", Version: "v"},
			"a a{c:[p],d:-,m:3,r:0}", ""},
		"WS-070: a missing target gives 0": {`{spec: {subsets: [{name: a, maxReplicas: 33%}, {name: b, maxReplicas: 1}]}}`, &Target{},
			Creation{Key: "p", Version: "v"},
			"b a{c:-,d:-,m:0,r:0} b{c:[p],d:-,m:0,r:0}", ""},
		"WS-133: what cannot be computed counts 0": {`{spec: {subsets: [{name: a, maxReplicas: 33%}, {name: b, maxReplicas: 1}]}}`,
			&Target{Exists: true, Desired: 5, DesiredError: errors.New("no path")},
			Creation{Key: "p", Version: "v"}, "b a{c:-,d:-,m:0,r:0} b{c:[p],d:-,m:0,r:0}", ""},
		"WS-133: nor does a bad value let pods in": {`{spec: {subsets: [{name: a, maxReplicas: "x"}, {name: b}]}}`, &Target{Exists: true,
			Desired: 5}, Creation{Key: "p", Version: "v"}, "b", ""},
		"WS-074: the first with a place": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 2, missingReplicas: 0}, {name: b, replicas: 0, missingReplicas: 2}]}}}`, nil, Creation{Key: "p", Version: "v"}, "b a{c:-,d:-,m:0,r:2} b{c:[p],d:-,m:1,r:0}", ""},
		"WS-074, WS-176: not one that is not schedulable": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 2, ` + unschedulable + `}, {name: b, replicas: 0, missingReplicas: 2}]}}}`, nil, Creation{Key: "p", Version: "v"}, "b a{c:-,d:-,m:2,r:0} b{c:[p],d:-,m:1,r:0}", ""},
		"WS-176: a new version does not try again before its time": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b}]}, status: {subsetStatuses: [
			{name: a, replicas: 0, missingReplicas: 2, ` + unschedulable + `}]}}`, nil, Creation{Key: "p", Version: "v"}, "b", ""},
		"WS-075: nothing is written for one without limit": {`{spec: {subsets: [{name: a, maxReplicas: 0}, {name: b}]}}`, nil,
			Creation{Key: "p", Version: "v"}, "b", ""},
		"WS-077: no place": {`{spec: {subsets: [{name: a, maxReplicas: 1}, {name: b, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 0, creatingPods: {x: ` + when + `}}, {name: b, replicas: 1, missingReplicas: 1, ` + unschedulable + `}]}}}`, nil, Creation{Key: "p", Version: "v"}, "none",
			"no subset has a free place: a has 0 pods, 1 coming, 0 going; pods cannot be scheduled to b"},
		"WS-080, WS-084: versions do not count for each other": {`{spec: {subsets: [{name: a, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {old: [
			{name: a, replicas: 1, missingReplicas: 0}]}}}`, nil, Creation{Key: "p", Version: "v"}, "a a{c:[p],d:-,m:0,r:0}", ""},
		"WS-072: a repeated request is booked once, and later": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 2}, {name: b, replicas: 0, missingReplicas: 1, creatingPods: {p: ` + when + `}}]}}}`, nil, Creation{Key: "p", Version: "v"}, "b a{c:-,d:-,m:2,r:0} b{c:[p],d:-,m:1,r:0}", ""},
		"WS-072, WS-152: one that would expire begins anew": {`{spec: {subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 1, missingReplicas: 0, creatingPods: {p: "2026-01-01T11:59:44Z"}}]}}}`, nil, Creation{Key: "p", Version: "v"}, "a a{c:[p],d:-,m:0,r:1}", ""},
		"WS-072: the id of a booking finds it, too": {`{spec: {subsets: [{name: a, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 0, creatingPods: {id: ` + when + `}}]}}}`, nil, Creation{Key: "id", Generated: true, Version: "v"}, "a", ""},
		"WS-073: the same name returns to its subset": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 2}, {name: b, replicas: 1, missingReplicas: 1, deletingPods: {p: ` + when + `}}]}}}`, nil, Creation{Key: "p", Version: "v"},
			"b a{c:-,d:-,m:2,r:0} b{c:[p],d:-,m:0,r:0}", ""},
		"WS-073: to another one if its own is full": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 2}, {name: b, replicas: 2, missingReplicas: 0, deletingPods: {p: ` + when + `}}]}}}`, nil, Creation{Key: "p", Version: "v"},
			"a a{c:[p],d:-,m:1,r:0} b{c:-,d:-,m:0,r:1}", ""},
		"WS-073: an earlier pod that nobody has counted": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 2}, {name: b, replicas: 0, missingReplicas: 1, creatingPods: {p: ` + when + `}, deletingPods: {p: ` + when + `}}]}}}`, nil, Creation{Key: "p", Version: "v"},
			"b a{c:-,d:-,m:2,r:0} b{c:[p],d:-,m:0,r:0}", ""},
		"WS-073: and whose place is taken": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 2}, {name: b, replicas: 0, missingReplicas: 0, creatingPods: {p: ` + when + `, o: ` + when + `}, deletingPods: {p: ` + when + `}}]}}}`, nil, Creation{Key: "p", Version: "v"},
			"a a{c:[p],d:-,m:1,r:0} b{c:[o],d:-,m:0,r:0}", ""},
		"WS-071: entries come in the order of the spec, removed ones are ignored, new ones are empty": {`{metadata: {generation: 2}, spec: {subsets: [{name: new, maxReplicas: 1}, {name: a, maxReplicas: 3}]},
			status: {observedGeneration: 1, versionedSubsetStatuses: {v: [{name: a, replicas: 2, missingReplicas: 1}, {name: old, replicas: 0, missingReplicas: 9}]}}}`, nil, Creation{Key: "p", Version: "v"},
			"new new{c:[p],d:-,m:0,r:0} a{c:-,d:-,m:1,r:2}", ""},
		"WS-071: a quota that was lowered": {`{metadata: {generation: 2}, spec: {subsets: [{name: a, maxReplicas: 3}, {name: b, maxReplicas: 4}]},
			status: {observedGeneration: 1, versionedSubsetStatuses: {v: [{name: a, replicas: 3, missingReplicas: 7}, {name: b, replicas: 2, missingReplicas: 0, deletingPods: {x: ` + when + `}, creatingPods: {o: ` + when + `}}]}}}`, nil, Creation{Key: "p", Version: "v"},
			"b a{c:-,d:-,m:0,r:3} b{c:[o,p],d:[x],m:1,r:2}", ""},
		"WS-203: one that had no limit counts what is there": {`{metadata: {generation: 2}, spec: {subsets: [{name: a, maxReplicas: 3}, {name: b, maxReplicas: 1}]},
			status: {observedGeneration: 1, versionedSubsetStatuses: {v: [{name: a, replicas: 3, missingReplicas: -1}, {name: b, replicas: 0, missingReplicas: 1}]}}}`, nil, Creation{Key: "p", Version: "v"},
			"b a{c:-,d:-,m:0,r:3} b{c:[p],d:-,m:0,r:0}", ""},
		"WS-071: a limit that was dropped": {`{metadata: {generation: 2}, spec: {subsets: [{name: a}]}, status: {observedGeneration: 1, versionedSubsetStatuses: {v: [{name: a, replicas: 3, missingReplicas: 0}]}}}`,
			nil, Creation{Key: "p", Version: "v"}, "a", ""},
		"WS-012: a share follows the target before the controller has counted": {`{spec: {subsets: [{name: a, maxReplicas: 50%}]}, status: {versionedSubsetStatuses: {v: [{name: a, replicas: 5, missingReplicas: 0}]}}}`,
			&Target{Exists: true, Desired: 20}, Creation{Key: "p", Version: "v"}, "a a{c:[p],d:-,m:4,r:5}", ""},
		"WS-193: a status that makes no sense": {`{spec: {subsets: [{name: a, maxReplicas: 1}, {name: b, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 9, missingReplicas: -7}, {name: b, replicas: 0, missingReplicas: 99}]}}}`, nil, Creation{Key: "p", Version: "v"}, "b a{c:-,d:-,m:0,r:9} b{c:[p],d:-,m:1,r:0}", ""},
		"no subsets": {`{spec: {}}`, nil, Creation{Key: "p", Version: "v"}, "none", "no subset has a free place: "},
	} {
		t.Run(name, func(t *testing.T) {
			spread := workloadspreadtest.Read(t, test.spread)
			before := spread.DeepCopy()
			got := Create(spread, test.target, test.pod, workloadspreadtest.BookingTime)
			text := outcome(t, got)
			if text != test.want {
				t.Errorf("outcome: got %q, want %q; %s %q\n want %s %q", text, test.want, text, got.Reason, test.want,
					test.reason)
			}
			if got.Reason != test.reason {
				t.Errorf("reason: got %q, want %q; %s %q\n want %s %q", got.Reason, test.reason, text, got.Reason,
					test.want, test.reason)
			}
			if diff := cmp.Diff(before, spread); diff != "" { // WS-097
				t.Errorf("the object was changed: %s", diff)
			}
			for i := range got.List {
				if at, ok := got.List[i].CreatingPods[test.pod.Key]; ok && !at.Time.Equal(workloadspreadtest.BookingTime) {
					t.Errorf("booked at %s", at)
				}
			}
		})
	}
}

func TestDelete(t *testing.T) {
	const when = `"2026-01-01T11:59:59Z"`
	const list = `{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b}]}, status: {versionedSubsetStatuses: {v: [{name: a, replicas: 2, missingReplicas: 0}, {name: b, replicas: 1, missingReplicas: -1}]}}}`
	for name, test := range map[string]struct {
		spread string
		target *Target
		pod    Deletion
		want   string
	}{
		"WS-103: the place becomes free": {list, nil, Deletion{Name: "p", Version: "v", Subset: "a"},
			"a a{c:-,d:[p],m:1,r:2} b{c:-,d:-,m:-1,r:1}"},
		"WS-102: no limit":       {list, nil, Deletion{Name: "p", Version: "v", Subset: "b"}, "none"},
		"WS-102: no such subset": {list, nil, Deletion{Name: "p", Version: "v", Subset: "c"}, "none"},
		"WS-102: a StatefulSet": {`{spec: {targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, name: s}, subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 2, missingReplicas: 0}]}}}`, nil, Deletion{Name: "p", Version: "v", Subset: "a"}, "none"},
		"WS-103: a pod that was not seen yet": {`{spec: {subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 1, missingReplicas: 0, creatingPods: {id: ` + when + `}}]}}}`, nil, Deletion{Name: "p", Version: "v", Subset: "a", Booking: "id"}, "a a{c:[p],d:[p],m:1,r:1}"},
		"WS-102: booked as a creation": {`{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 2, missingReplicas: 0}, {name: b, replicas: 0, missingReplicas: 0, creatingPods: {p: ` + when + `}}]}}}`, nil, Deletion{Name: "p", Version: "v", Subset: "a"}, "none"},
		"WS-102: booked as a deletion": {`{spec: {subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 2, missingReplicas: 1, deletingPods: {p: ` + when + `}}]}}}`, nil, Deletion{Name: "p", Version: "v", Subset: "a"}, "none"},
		"WS-103: never above the quota": {`{spec: {subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 2}]}}}`, nil, Deletion{Name: "p", Version: "v", Subset: "a"}, "a a{c:-,d:[p],m:2,r:0}"},
		"WS-103: in the list of the version": {`{spec: {subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {w: [
			{name: a, replicas: 2, missingReplicas: 0}]}}}`, nil, Deletion{Name: "p", Version: "v", Subset: "a"}, "a a{c:-,d:[p],m:2,r:0}"},
		"WS-150: of an over-full subset the first deletions free nothing": {`{spec: {subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 4, missingReplicas: 0, deletingPods: {x: ` + when + `}}]}}}`, nil, Deletion{Name: "p", Version: "v", Subset: "a"}, "a a{c:-,d:[p,x],m:0,r:4}"},
		"WS-103: as many as a number can say": {`{spec: {subsets: [{name: a, maxReplicas: 2147483647}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 0, missingReplicas: 2147483647}]}}}`, nil, Deletion{Name: "p", Version: "v", Subset: "a"}, "a a{c:-,d:[p],m:2147483647,r:0}"},
		"WS-012: a share of the target": {`{spec: {subsets: [{name: a, maxReplicas: 10%}]}, status: {versionedSubsetStatuses: {v: [
			{name: a, replicas: 1, missingReplicas: 0}]}}}`, &Target{Exists: true, Desired: 10}, Deletion{Name: "p", Version: "v", Subset: "a"}, "a a{c:-,d:[p],m:1,r:1}"},
	} {
		t.Run(name, func(t *testing.T) {
			spread := workloadspreadtest.Read(t, test.spread)
			before := spread.DeepCopy()
			got := Delete(spread, test.target, test.pod, workloadspreadtest.BookingTime)
			text := outcome(t, got)
			if text != test.want {
				t.Errorf("outcome: got %q, want %q; %s %q\n want %s", text, test.want, text, got.Reason, test.want)
			}
			if (got.Reason == "") != got.Booked {
				t.Errorf("no reason: got %t, want %t; %s %q\n want %s", got.Reason == "", got.Booked, text, got.Reason,
					test.want)
			}
			if diff := cmp.Diff(before, spread); diff != "" {
				t.Errorf("the object was changed: %s", diff)
			}
		})
	}
}

// WS-060 to WS-063, WS-190: the ordinal decides, and those that the StatefulSet leaves out do not count.
func TestByOrdinal(t *testing.T) {
	const unschedulable = `conditions: [{type: Schedulable, status: "False", reason: PodUnschedulable, message: "", lastTransitionTime: "2026-01-01T11:00:00Z"}]`
	const subsets = `spec: {targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: s}, subsets: [{name: a, maxReplicas: 5}, {name: b, maxReplicas: 5}, {name: c}]}`
	three := `{` + subsets + `}`
	blocked := `{` + subsets + `, status: {subsetStatuses: [{name: a, replicas: 0, missingReplicas: 0}, {name: b, replicas: 0, missingReplicas: 0, ` + unschedulable + `}]}}`
	limited := `{spec: {subsets: [{name: a, maxReplicas: 1}, {name: b, maxReplicas: 1}]}}`
	for name, test := range map[string]struct {
		spread string
		target Target
		want   map[string]string
	}{
		"WS-062": {three, Target{}, map[string]string{"s-0": "a", "s-4": "a", "s-5": "b", "s-9": "b", "s-10": "c", "s-2147483647": "c"}},
		"WS-062: the second cannot be scheduled to": {blocked, Target{}, map[string]string{"s-4": "a", "s-5": "c"}},
		"WS-063: no ordinal":                        {three, Target{}, map[string]string{"s": "a", "s-": "a", "": "a", "s-x1": "a"}},
		"WS-061: start and reserved ordinals": {three, Target{Start: 10, Reserved: []Ordinals{{11, 12}}},
			map[string]string{"s-10": "a", "s-16": "a", "s-17": "b"}},
		"WS-060: none left": {limited, Target{}, map[string]string{"s-1": "b", "s-2": "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for pod := range test.want {
				d := ByOrdinal(workloadspreadtest.Read(t, test.spread), &test.target, pod)
				if got[pod] = outcome(t, d); d.List != nil { // WS-064
					t.Errorf("%s is booked", pod)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// WS-096: the id of a booking stands in the annotation only if there is such a booking.
func TestPlacementOfDecision(t *testing.T) {
	subset := &appsv1beta1.WorkloadSpreadSubset{Name: "a"}
	for want, test := range map[string]struct {
		d   Decision
		pod Creation
	}{
		`{"name":"ws","subset":"a"}`:            {Decision{Subset: subset, Booked: true}, Creation{Key: "p"}},
		`{"name":"ws","subset":"a","uid":"id"}`: {Decision{Subset: subset, Booked: true}, Creation{Key: "id", Generated: true}},
	} {
		if got := test.d.Placement("ws", test.pod).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	unlimited := Decision{Subset: subset}
	if got := unlimited.Placement("ws", Creation{Key: "id", Generated: true}).String(); got != `{"name":"ws","subset":"a"}` {
		t.Errorf("got %q, want %q", got, `{"name":"ws","subset":"a"}`)
	}
}

// WS-105, WS-153: a deletion that was booked and did not happen, such as an eviction that a budget of
// Kubernetes refused afterwards, frees its place for as long as it is waited for, and no longer.
func TestRefusedEvictionExpires(t *testing.T) {
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [{name: a, replicas: 1, missingReplicas: 0}]}}}`)
	d := Delete(spread, nil, Deletion{Name: "p", Version: "v", Subset: "a"}, workloadspreadtest.BookingTime)
	quotas, err := Quotas(spread.Spec.Subsets, 0)
	if err != nil {
		t.Fatal(err)
	}
	pods := []Seen{{Name: "p", Version: "v", Subset: "a", Active: true}}
	for after, want := range map[time.Duration]int32{DeletionTimeout: 1, DeletionTimeout + time.Second: 0} {
		if got := Count(quotas, d.List, "v", pods, workloadspreadtest.BookingTime.Add(after)).Subsets[0].MissingReplicas; got != want {
			t.Errorf("%s later %d are missing, want %d", after, got, want)
		}
	}
}

// WS-150, WS-151: a pod that was created and deleted before the cache showed it gives its place back with the
// deletion, and not after 30 s.
func TestPodThatWasNeverSeen(t *testing.T) {
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {v: [
		{name: a, replicas: 0, missingReplicas: 0, creatingPods: {id: "2026-01-01T11:59:59Z"}}]}}}`)
	d := Delete(spread, nil, Deletion{Name: "p", Version: "v", Subset: "a", Booking: "id"}, workloadspreadtest.BookingTime)
	quotas, err := Quotas(spread.Spec.Subsets, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, pods := range map[string][]Seen{"never": nil,
		"late":  {{Name: "p", Booking: "id", Version: "v", Subset: "a", Active: true, Created: workloadspreadtest.BookingTime}},
		"ended": {{Name: "p", Booking: "id", Version: "v", Subset: "a", Created: workloadspreadtest.BookingTime}}} {
		waits := 0
		if name == "never" { // the cache may still show it before it shows that it went
			waits = 1
		}
		if got := Count(quotas, d.List, "v", pods, workloadspreadtest.BookingTime); got.Subsets[0].MissingReplicas != 1 {
			t.Errorf("%s: missing replicas of the first subset: got %d, want 1\n%+v", name,
				got.Subsets[0].MissingReplicas, got)
		} else if len(got.Subsets[0].CreatingPods) != waits {
			t.Errorf("%s: number of pods being created of the first subset: got %d, want %d\n%+v", name,
				len(got.Subsets[0].CreatingPods), waits, got)
		} else if len(got.Lost) != 0 {
			t.Errorf("%s: number lost: got %d, want 0\n%+v", name, len(got.Lost), got)
		}
	}
}
