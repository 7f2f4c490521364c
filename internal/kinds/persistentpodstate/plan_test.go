package persistentpodstate

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// pod is a pod on a node; how says what of it is not as usual.
func pod(name, node, how string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"ip": "1.2.3." + name, "long": strings.Repeat("x", MostValue+1)}},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	switch how {
	case "terminating":
		p.DeletionTimestamp = &metav1.Time{}
	case "not ready":
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	case "failed":
		p.Status.Phase = corev1.PodFailed
	}
	return p
}

// slots are those of a set; replicas below 0 are not known.
func slots(t *testing.T, replicas, start int32, reserved ...intstr.IntOrString) *statefulset.Slots {
	t.Helper()
	if replicas < 0 {
		return nil
	}
	spec := &appsv1beta1.StatefulSetSpec{}
	spec.Replicas, spec.Ordinals, spec.ReserveOrdinals = &replicas, &appsv1beta1.StatefulSetOrdinals{Start: start}, reserved
	s, err := statefulset.SlotsOf(spec, true)
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

// on is an entry of a node, with its labels and annotations as "key=value".
func on(node string, texts ...string) appsv1beta1.PodState {
	entry := appsv1beta1.PodState{NodeName: node}
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		to := &entry.NodeTopologyLabels
		if key == "ip" {
			to = &entry.Annotations
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
	}
	return entry
}

type entries = map[string]appsv1beta1.PodState

var nodes = map[string]map[string]string{"a": {"zone": "z1", "host": "a", "other": "x"}, "b": {"zone": "z2", "host": "b"}, "bare": {}}

// PPS-048, PPS-050, PPS-051, PPS-052, PPS-053 (part), PPS-054, PPS-055, PPS-056: which pods are remembered,
// what of them, and when that is written anew. A plan of what a plan left changes nothing.
func TestWhatIsRemembered(t *testing.T) {
	for name, test := range map[string]struct {
		old    entries
		pods   []*corev1.Pod
		change func(*appsv1beta1.PersistentPodState)
		want   entries
		plan   Plan
	}{
		"a ready pod":               {pods: []*corev1.Pod{pod("web-0", "a", "")}, want: entries{"web-0": on("a", "zone=z1", "host=a")}},
		"a pod that is not ready":   {pods: []*corev1.Pod{pod("web-0", "a", "not ready")}},
		"one without a node":        {pods: []*corev1.Pod{pod("web-0", "", "")}},
		"one that terminates":       {pods: []*corev1.Pod{pod("web-0", "a", "terminating")}},
		"one that failed elsewhere": {old: entries{"web-0": on("a", "zone=z1", "host=a")}, pods: []*corev1.Pod{pod("web-0", "b", "failed")}, want: entries{"web-0": on("a", "zone=z1", "host=a")}},
		"one that is not ready elsewhere": {old: entries{"web-0": on("a", "zone=z1", "host=a")}, pods: []*corev1.Pod{pod("web-0", "b", "not ready")},
			want: entries{"web-0": on("a", "zone=z1", "host=a")}},
		"one that is ready elsewhere": {old: entries{"web-0": on("a", "zone=z1", "host=a")}, pods: []*corev1.Pod{pod("web-0", "b", "")},
			want: entries{"web-0": on("b", "zone=z2", "host=b")}, plan: Plan{Moved: []string{"web-0"}}},
		"labels of the node changed": {old: entries{"web-0": on("a", "zone=z9", "host=a")}, pods: []*corev1.Pod{pod("web-0", "a", "")},
			want: entries{"web-0": on("a", "zone=z1", "host=a")}},
		"a node without the labels": {old: entries{"web-0": on("bare", "zone=z1")}, pods: []*corev1.Pod{pod("web-0", "bare", "")},
			want: entries{"web-0": on("bare")}, plan: Plan{Missing: []string{"host", "zone"}}},
		"a label that no node has": {pods: []*corev1.Pod{pod("web-0", "a", ""), pod("web-1", "b", "")},
			change: func(s *appsv1beta1.PersistentPodState) {
				s.Spec.RequiredPersistentTopology.Keys = []string{"zone", "old", "other"}
			},
			want: entries{"web-0": on("a", "zone=z1", "host=a", "other=x"), "web-1": on("b", "zone=z2", "host=b")}, plan: Plan{Missing: []string{"old"}}},
		"a key is taken out": {old: entries{"web-0": on("a", "zone=z1", "host=a"), "web-1": on("b", "zone=z2", "host=b")}, pods: []*corev1.Pod{pod("web-0", "a", "")},
			change: func(s *appsv1beta1.PersistentPodState) { s.Spec.RequiredPersistentTopology = nil },
			want:   entries{"web-0": on("a", "host=a"), "web-1": on("b", "zone=z2", "host=b")}},
		"annotations": {old: entries{"web-0": on("a", "zone=z1", "host=a"), "web-1": on("b", "zone=z2", "host=b", "ip=old")},
			pods: []*corev1.Pod{pod("web-0", "a", ""), pod("web-1", "b", "")},
			change: func(s *appsv1beta1.PersistentPodState) {
				s.Spec.PersistentPodAnnotations = []appsv1beta1.PersistentPodAnnotation{{Key: "ip"}, {Key: "none"}, {Key: "long"}}
			},
			want: entries{"web-0": on("a", "zone=z1", "host=a", "ip=1.2.3.web-0"), "web-1": on("b", "zone=z2", "host=b", "ip=1.2.3.web-1")}},
		"a node that cannot be read": {old: entries{"web-0": on("a", "zone=z1")}, pods: []*corev1.Pod{pod("web-0", "dark", ""), pod("web-1", "b", "")},
			want: entries{"web-0": on("a", "zone=z1"), "web-1": on("b", "zone=z2", "host=b")}, plan: Plan{Unread: []string{"dark"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Snapshot{State: state(test.change), Workload: &Workload{Slots: slots(t, 2, 0)}, Pods: test.pods, Nodes: nodes}
			s.State.Generation, s.State.Status.PodStates = 7, test.old
			p := Make(s)
			test.plan.Status = appsv1beta1.PersistentPodStateStatus{ObservedGeneration: 7, PodStates: test.want}
			compare(t, test.plan, *p)
			s.State.Status = p.Status
			again := Make(s)
			if len(again.Moved) > 0 {
				t.Errorf("the plan of what a plan left: moved the second time: got %q, want none\n%+v", again.Moved,
					again)
			}
			if got := cmp.Diff(again.Status, p.Status); got != "" {
				t.Errorf("the plan of what a plan left: difference of the status: got %q, want %q\n%+v", got, "", again)
			}
		})
	}
}

func manualSays(t *testing.T, words string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/kinds/persistentpodstate.md")
	if err != nil {
		t.Errorf("unexpected error: %v; the manual does not say %q: %v", err, words, err)
	} else if !strings.Contains(string(page), words) {
		t.Errorf("page: got %q, want it to contain %q; the manual does not say %q: %v", string(page), words, words, err)
	}
}

func compare(t *testing.T, want, got Plan) {
	t.Helper()
	for _, lists := range []*[]string{&got.Forgotten, &got.Moved, &got.Cleaned, &got.Unread, &got.Full, &got.Odd, &got.Missing} {
		if len(*lists) == 0 {
			*lists = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// PPS-016 (part), PPS-047 (part), PPS-060, PPS-061, PPS-062, PPS-063, PPS-064, PPS-065, PPS-101,
// PPS-103 (part), PPS-110: what is forgotten when a workload is scaled in or deleted, and that the manual
// says which policy is for scaling to 0 and back.
func TestWhatIsForgotten(t *testing.T) {
	all := func(names ...string) entries {
		e := entries{}
		for _, name := range names {
			e[name] = on("a", "zone=z1")
		}
		return e
	}
	deleted := func(s *appsv1beta1.PersistentPodState) {
		s.Spec.PersistentPodStateRetentionPolicy = appsv1beta1.RetainWhenDeleted
	}
	for name, test := range map[string]struct {
		workload  *Workload
		pods      []*corev1.Pod
		change    func(*appsv1beta1.PersistentPodState)
		old, want entries
		forgotten []string
		odd       []string
	}{
		"nothing":                          {workload: &Workload{Slots: slots(t, 2, 0)}, old: all("web-0", "web-1"), want: all("web-0", "web-1")},
		"scaled in, pods are gone":         {workload: &Workload{Slots: slots(t, 1, 0)}, old: all("web-0", "web-1", "web-10"), want: all("web-0"), forgotten: []string{"web-1", "web-10"}},
		"scaled in, a pod is active":       {workload: &Workload{Slots: slots(t, 1, 0)}, pods: []*corev1.Pod{pod("web-1", "a", "not ready")}, old: all("web-0", "web-1"), want: all("web-0", "web-1")},
		"scaled in, a pod terminates":      {workload: &Workload{Slots: slots(t, 1, 0)}, pods: []*corev1.Pod{pod("web-1", "a", "terminating")}, old: all("web-0", "web-1"), want: all("web-0"), forgotten: []string{"web-1"}},
		"to 0, pods are active":            {workload: &Workload{Slots: slots(t, 0, 0)}, pods: []*corev1.Pod{pod("web-0", "a", "not ready")}, old: all("web-0"), want: all("web-0")},
		"to 0":                             {workload: &Workload{Slots: slots(t, 0, 0)}, old: all("web-0"), want: entries{}, forgotten: []string{"web-0"}},
		"to 0, until it is deleted":        {change: deleted, workload: &Workload{Slots: slots(t, 0, 0)}, old: all("web-0"), want: all("web-0")},
		"ordinals from 5":                  {workload: &Workload{Slots: slots(t, 3, 5)}, old: all("web-5", "web-6", "web-7", "web-8", "web-0"), want: all("web-5", "web-6", "web-7"), forgotten: []string{"web-0", "web-8"}},
		"reserved ordinals":                {workload: &Workload{Slots: slots(t, 3, 0, intstr.FromInt32(1), intstr.FromString("3-5"))}, old: all("web-0", "web-1", "web-2", "web-3", "web-6", "web-7"), want: all("web-0", "web-2", "web-6"), forgotten: []string{"web-1", "web-3", "web-7"}},
		"names without ordinals":           {workload: &Workload{Slots: slots(t, 1, 0)}, old: all("web-x", "web-", "7", "web-99999999999"), want: all("web-x", "web-", "7", "web-99999999999"), odd: []string{"7", "web-", "web-99999999999", "web-x"}},
		"replicas that are not known":      {workload: &Workload{}, old: all("web-7"), want: all("web-7")},
		"no workload":                      {old: all("web-0", "web-1"), forgotten: []string{"web-0", "web-1"}},
		"no workload, until it is deleted": {change: deleted, old: all("web-0"), forgotten: []string{"web-0"}},
		"a workload that terminates":       {workload: &Workload{Slots: slots(t, 2, 0), Terminating: true}, pods: []*corev1.Pod{pod("web-0", "a", "")}, old: all("web-0"), forgotten: []string{"web-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Snapshot{State: state(test.change), Workload: test.workload, Pods: test.pods, Nodes: nodes}
			s.State.Status.PodStates = test.old
			p := Make(s)
			compare(t, Plan{Status: appsv1beta1.PersistentPodStateStatus{PodStates: test.want}, Forgotten: test.forgotten, Odd: test.odd}, *p)
		})
	}
	manualSays(t, "also **to 0 and back**")
}

// PPS-105 (part): with the gate and a must, an entry goes whose node was looked for in vain; not that of a
// pod that is ready elsewhere, and none of preferences alone.
func TestEntriesOfNodesThatAreGone(t *testing.T) {
	s := &Snapshot{State: state(nil), Workload: &Workload{Slots: slots(t, 3, 0)}, Nodes: nodes, Pods: []*corev1.Pod{pod("web-1", "b", ""), pod("web-0", "", "not ready")}}
	s.State.Status.PodStates = entries{"web-0": on("gone", "zone=z1"), "web-1": on("gone", "zone=z1"), "web-2": on("dark", "zone=z1")}
	if p := Make(s); len(p.Cleaned) > 0 {
		t.Errorf("without the gate: %v", p.Cleaned)
	}
	s.Gone = map[string]bool{"web-0": true, "web-1": true}
	want := Plan{Status: appsv1beta1.PersistentPodStateStatus{PodStates: entries{"web-1": on("b", "zone=z2", "host=b"), "web-2": on("dark", "zone=z1")}},
		Cleaned: []string{"web-0"}, Moved: []string{"web-1"}}
	compare(t, want, *Make(s))
	for zone, keeps := range map[string]bool{"z1": true, "z2": false} {
		if got := Keeps(map[string]string{"zone": zone}, Must(s.State, "web-0")); got != keeps {
			t.Errorf("a node in %s: %v", zone, got)
		}
	}
	s.State.Spec.RequiredPersistentTopology = nil
	if must := Must(s.State, "web-0"); must != nil {
		t.Errorf(`without a must: must of web-0: got %v, want nil`, must)
	} else if !Keeps(nil, must) {
		t.Errorf("without a must: nothing keeps it: got false, want true\n%v", must)
	}
}

// Whatever pods and annotations there are, the status stays an object that can be stored; what is remembered
// already stays, and thousands of usual pods have room.
func TestTheStatusStaysAnObject(t *testing.T) {
	s := &Snapshot{State: state(nil), Workload: &Workload{Slots: slots(t, 5000, 0)}, Nodes: nodes}
	for i := range 5000 {
		s.Pods = append(s.Pods, pod(fmt.Sprint("web-", i), "a", ""))
	}
	p := Make(s)
	if len(p.Status.PodStates) != 5000 {
		t.Errorf("number of pod states: got %d, want 5000", len(p.Status.PodStates))
	}
	if len(p.Full) > 0 {
		t.Errorf("full: got %q, want none", p.Full)
	}
	before := p.Status
	s.State.Spec.PersistentPodAnnotations = []appsv1beta1.PersistentPodAnnotation{{Key: "wide"}}
	for _, char := range []string{"\x00", "<", "\"", "\u2028"} { // which are longer as JSON
		s.State.Status = before
		for _, pod := range s.Pods {
			pod.Annotations = map[string]string{"wide": strings.Repeat(char, MostValue/len(char))}
		}
		p = Make(s)
		raw, err := jsonOf(p.Status)
		if err != nil {
			t.Errorf("%q: unexpected error: %v; %d bytes, %d left out, %v", char, err, len(raw), len(p.Full), err)
		} else if len(raw) > 1_100_000 {
			t.Errorf("%q: length of the text: got %d, want at most 1_100_000; %d bytes, %d left out, %v", char,
				len(raw), len(raw), len(p.Full), err)
		} else if len(p.Full) == 0 {
			t.Errorf("%q: full: got none, want some; %d bytes, %d left out, %v", char, len(raw), len(p.Full), err)
		} else if len(p.Status.PodStates) != 5000 {
			t.Errorf("%q: number of pod states: got %d, want 5000; %d bytes, %d left out, %v", char,
				len(p.Status.PodStates), len(raw),
				len(p.Full), err)
		}
	}
	if diff := cmp.Diff(before.PodStates["web-4999"], p.Status.PodStates["web-4999"]); diff != "" {
		t.Errorf("state of the last pod (-want +got):\n%s", diff)
	}
}
