package uniteddeployment

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// ago is a time before noon.
func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

const webPods = `template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: i}]}}`

// asked is a UnitedDeployment of the kind with that strategy and these subsets, at rest at its revision.
func asked(t *testing.T, kind Kind, replicas int32, subsets ...appsv1beta1.Subset) *Snapshot {
	t.Helper()
	u := &appsv1beta1.UnitedDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Generation: 7}}
	if err := yaml.Unmarshal(fmt.Appendf(nil, `{%s: {metadata: {labels: {app: web, team: x}, annotations: {note: text}}, spec: {%s}}}`, string(kind), webPods), &u.Spec.Template); err != nil {
		t.Fatal(err)
	}
	u.Spec.Replicas, u.Spec.Selector = &replicas, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	u.Spec.Topology.Subsets = subsets
	s := &Snapshot{United: u, Pods: map[types.UID][]*corev1.Pod{}, Now: noon}
	first := Make(*s)
	if first.NewRevision == nil {
		t.Fatalf("new revision the first time: got nil, want a value\n%v", first)
	}
	stored := first.NewRevision.DeepCopy()
	stored.UID = "r1"
	s.Revisions = []*appsv1.ControllerRevision{stored}
	u.Status.CurrentRevision = stored.Name
	return s
}

func plain(names ...string) (subsets []appsv1beta1.Subset) {
	for _, name := range names {
		subsets = append(subsets, appsv1beta1.Subset{Name: name})
	}
	return subsets
}

func (s *Snapshot) adaptive(reserve bool) *Snapshot {
	s.United.Spec.Topology.ScheduleStrategy = appsv1beta1.UnitedDeploymentScheduleStrategy{Type: "Adaptive",
		Adaptive: &appsv1beta1.AdaptiveUnitedDeploymentStrategy{ReserveUnschedulablePods: reserve}}
	return s
}

// condition gives a subset condition Schedulable in the status.
func (s *Snapshot) condition(name string, status corev1.ConditionStatus, since time.Duration) *Snapshot {
	s.United.Status.SubsetStatuses = append(s.United.Status.SubsetStatuses, appsv1beta1.UnitedDeploymentSubsetStatus{Name: name,
		Conditions: []appsv1beta1.UnitedDeploymentSubsetCondition{{Type: "Schedulable", Status: status, Reason: "reschedule", LastTransitionTime: ago(since)}}})
	return s
}

// child adds a child of a subset, with ready pods and others, changed.
func (s *Snapshot) child(kind Kind, name string, ready int, others []*corev1.Pod, change ...func(*Child)) *Child {
	total := int32(ready + len(others))
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web-" + name, UID: types.UID("c-" + name), Generation: 1, CreationTimestamp: ago(time.Hour),
		Labels:          map[string]string{"app": "web", SubsetName: name, RevisionHash: s.Revisions[0].Name},
		OwnerReferences: []metav1.OwnerReference{OwnerReference(s.United)}}
	objects := map[Kind]metav1.Object{StatefulSet: &appsv1.StatefulSet{ObjectMeta: meta}, AdvancedStatefulSet: &appsv1beta1.StatefulSet{ObjectMeta: meta},
		CloneSet: &appsv1beta1.CloneSet{ObjectMeta: meta}, Deployment: &appsv1.Deployment{ObjectMeta: meta}}
	c := ChildOf(objects[kind])
	c.Replicas, c.Total, c.Ready, c.Observed = total, total, int32(ready), true
	pods := slices.Clone(others)
	for i := range ready {
		pods = append(pods, s.pod(fmt.Sprintf("web-%s-%d", name, i), time.Hour, running(time.Hour)))
	}
	s.Pods[c.Object.GetUID()] = pods
	for _, f := range change {
		f(c)
	}
	s.Children = append(s.Children, c)
	return c
}

// pod is one of the revision, created so long ago.
func (s *Snapshot) pod(name string, age time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: ago(age),
		Labels: map[string]string{RevisionHash: s.Revisions[0].Name}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func running(since time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(since)}}
	}
}

func stuck(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
}

func broken(pod *corev1.Pod) { pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning }

func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func (p *Plan) next() (next []int32) {
	for i := range p.Subsets {
		next = append(next, p.Subsets[i].Wanted.Replicas)
	}
	return next
}

func (p *Plan) schedulable(i int) string {
	c := p.Subsets[i].condition
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func (p *Plan) find(of appsv1beta1.UnitedDeploymentConditionType) string {
	for _, c := range p.Status.Conditions {
		if c.Type == of {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// UD-004: while the object is terminating nothing is done.
func TestNothingIsDoneWhileTerminating(t *testing.T) {
	s := asked(t, CloneSet, 3, plain("a")...)
	s.United.DeletionTimestamp = new(ago(0))
	p := Make(*s)
	if !p.Going {
		t.Errorf("going: got false, want true\n%v", p)
	}
	if len(p.Subsets)+len(p.Deletes) > 0 {
		t.Errorf("number of subsets and deleted: got %d, want 0\n%v", len(p.Subsets)+len(p.Deletes), p)
	}
	if p.NewRevision != nil {
		t.Errorf("new revision: got %v, want nil\n%v", p.NewRevision, p)
	}
}

// UD-061, UD-062, UD-063, UD-065, UD-066: which children are kept, created, adopted, released, deleted and
// left alone.
func TestChildrenOfSubsets(t *testing.T) {
	s := asked(t, CloneSet, 4, plain("a", "b", "c", "d")...)
	s.child(CloneSet, "a", 1, nil)
	younger := s.child(CloneSet, "a", 2, nil, func(c *Child) {
		c.Object.SetName("younger")
		c.Object.SetUID("younger")
		c.Object.SetCreationTimestamp(ago(time.Minute))
	})
	s.Pods["younger"] = []*corev1.Pod{s.pod("x", time.Hour)}
	other := s.child(Deployment, "b", 1, nil, func(c *Child) { c.Object.SetUID("other-kind") })
	left := s.child(CloneSet, "gone", 5, nil)
	nameless := s.child(CloneSet, "x", 1, nil, func(c *Child) { c.Subset = "" })
	unmatched := s.child(CloneSet, "c", 1, nil, func(c *Child) { c.Object.SetLabels(map[string]string{SubsetName: "c"}) })
	orphan := *s.child(CloneSet, "d", 1, nil)
	beside := *s.child(CloneSet, "a", 1, nil)
	s.Children = s.Children[:len(s.Children)-2]
	s.Orphans = []*Child{&orphan, &beside}
	p := Make(*s)
	var actions []string
	for i := range p.Subsets {
		actions = append(actions, string(p.Subsets[i].Action))
	}
	if got := strings.Join(actions, " "); got != "keep create create adopt" {
		t.Errorf("actions: got %q, want %q\n%v", got, "keep create create adopt", p)
	} else if p.Subsets[0].Child.Object.GetName() != "web-a" {
		t.Errorf("name of the child of the first subset: got %q, want %q\n%s\n%v", p.Subsets[0].Child.Object.GetName(), "web-a", got, p)
	}
	has := func(list []Removal, c *Child) bool {
		return slices.ContainsFunc(list, func(r Removal) bool { return r.Child == c })
	}
	if !has(p.Deletes, other) {
		t.Errorf("the other child is deleted: got false, want true\n%v", p)
	}
	if !has(p.Deletes, left) {
		t.Errorf("the child that is left is deleted: got false, want true\n%v", p)
	}
	if has(p.Deletes, nameless) {
		t.Errorf("the child without a name is deleted: got true, want false\n%v", p)
	}
	if has(p.Deletes, unmatched) {
		t.Errorf("the child that does not match is deleted: got true, want false\n%v", p)
	}
	if !has(p.Release, unmatched) {
		t.Errorf("the child that does not match is released: got false, want true\n%v", p)
	}
	if len(p.Release) != 1 {
		t.Errorf("number released: got %d, want 1\n%v", len(p.Release), p)
	}
	if !has(p.Deletes, younger) { // the older one does its work: one replica is wanted, and ready
		t.Error("the younger one is left")
	}
	s.Children[0].Ready = 0
	if has(Make(*s).Deletes, younger) {
		t.Error("the younger one is deleted before the older is ready")
	}
	s.Pods["younger"], younger.Total = nil, 0
	if !has(Make(*s).Deletes, younger) {
		t.Error("an empty younger one is left")
	}
	if !slices.ContainsFunc(p.Notes, func(n Note) bool { return n.Type == corev1.EventTypeWarning && n.Reason == EventWithoutSubset }) {
		t.Error("nobody hears of a child without the label")
	}
}

// A child that is being deleted is waited for, and one of a kind that is not served is not replaced.
func TestWaitingForChildren(t *testing.T) {
	s := asked(t, CloneSet, 4, plain("a", "b")...)
	s.child(CloneSet, "a", 1, nil, func(c *Child) { c.Object.SetDeletionTimestamp(new(ago(0))) })
	s.child(Deployment, "b", 1, nil)
	s.Absent = []Kind{CloneSet}
	p := Make(*s)
	if p.Subsets[0].Action != Hold {
		t.Errorf("action of the first subset: got %q, want %q\n%v", p.Subsets[0].Action, Hold, p)
	} else if p.Subsets[1].Action != Hold {
		t.Errorf("action of the second subset: got %q, want %q\n%v", p.Subsets[1].Action, Hold, p)
	} else if len(p.Deletes) > 0 {
		t.Errorf("deleted: got %v, want none\n%v", p.Deletes, p)
	}
}

// What cannot be acted on changes no child, and is told: names that are labels of none, or twice, and
// templates that are none (UD-141 (part)).
func TestWhatCannotBeActedOnChangesNoChild(t *testing.T) {
	for name, spoil := range map[string]func(*appsv1beta1.UnitedDeployment){
		"name":       func(u *appsv1beta1.UnitedDeployment) { u.Spec.Topology.Subsets[0].Name = "-" },
		"twice":      func(u *appsv1beta1.UnitedDeployment) { u.Spec.Topology.Subsets[0].Name = "b" },
		"selector":   func(u *appsv1beta1.UnitedDeployment) { u.Spec.Selector = nil },
		"everything": func(u *appsv1beta1.UnitedDeployment) { u.Spec.Selector = &metav1.LabelSelector{} },
		"template":   func(u *appsv1beta1.UnitedDeployment) { u.Spec.Template = appsv1beta1.SubsetTemplate{} },
		"undecodable": func(u *appsv1beta1.UnitedDeployment) {
			_ = json.Unmarshal([]byte(`{"cloneSetTemplate":{"spec":{"replicas":"x"}}}`), &u.Spec.Template)
		},
	} {
		s := asked(t, CloneSet, 4, plain("a", "b")...)
		s.child(CloneSet, "a", 1, nil)
		s.child(Deployment, "c", 1, nil)
		spoil(s.United)
		p := Make(*s)
		if p.Finish(Outcome{}, noon); p.Fault == nil || len(p.Deletes)+len(p.Subsets)+len(p.Release) > 0 || p.find(appsv1beta1.SubsetUpdated) != "False Error" ||
			p.Status.ObservedGeneration != 7 || !strings.Contains(p.String(), p.Reason()) || !p.Waiting() {
			t.Errorf("%s: got %+v, want a fault that is told, and nothing done", name, p)
		}
	}
}

// UD-084, UD-090 (part), UD-173 (part): numbers that do not fit change no child; both sums are told, as event
// and condition, and it is tried again.
func TestNumbersThatDoNotFit(t *testing.T) {
	s := asked(t, CloneSet, 4, given("2", "3")...)
	s.child(CloneSet, "a", 1, nil, func(c *Child) { c.Revision = "old" })
	s.child(CloneSet, "gone", 1, nil)
	p := Make(*s)
	p.Finish(Outcome{}, noon)
	if got := fmt.Sprint(p.next()); got != "[1 0]" {
		t.Errorf("next replicas: got %q, want %q\n%v", got, "[1 0]", p)
	} else if p.Subsets[0].Action != Update {
		t.Errorf("action of the first subset: got %q, want %q\n%v", p.Subsets[0].Action, Update, p)
	} else if p.Subsets[1].Action != Hold {
		t.Errorf("action of the second subset: got %q, want %q\n%v", p.Subsets[1].Action, Hold, p)
	} else if len(p.Deletes) > 0 {
		t.Errorf("deleted: got %v, want none\n%v", p.Deletes, p)
	} else if p.After != time.Minute {
		t.Errorf("time to the next pass: got %v, want %v\n%v", p.After, time.Minute, p)
	}
	if got := p.find(appsv1beta1.SubsetUpdated); got != "False Error" {
		t.Errorf("condition about updated subsets: got %q, want %q\n%+v", got, "False Error", p.Notes)
	} else if len(p.Notes) != 1 {
		t.Errorf("number of notes: got %d, want 1\n%+v", len(p.Notes), p.Notes)
	} else if p.Notes[0].Reason != "FailedSpecifySubsetReplicas" {
		t.Errorf("reason of the first note: got %q, want %q\n%+v", p.Notes[0].Reason, "FailedSpecifySubsetReplicas", p.Notes)
	} else if !strings.Contains(p.Notes[0].Message, "5") {
		t.Errorf("message of the first note: got %q, want it to contain %q\n%+v", p.Notes[0].Message, "5", p.Notes)
	} else if !strings.Contains(p.Notes[0].Message, "4") {
		t.Errorf("message of the first note: got %q, want it to contain %q\n%+v", p.Notes[0].Message, "4", p.Notes)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == appsv1beta1.SubsetUpdated && c.Message != p.Notes[0].Message {
			t.Errorf("message: got %q, want %q", c.Message, p.Notes[0].Message)
		}
	}
}

// UD-071, UD-174 (part): each difference for which a child is updated, and none for which it is not.
func TestReasonsToUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		kind   Kind
		change func(*Child)
		want   Action
	}{
		"nothing":                     {CloneSet, func(*Child) {}, Keep},
		"revision":                    {CloneSet, func(c *Child) { c.Revision = "x" }, Update},
		"replicas":                    {CloneSet, func(c *Child) { c.Replicas = 5 }, Update},
		"partition":                   {CloneSet, func(c *Child) { c.Partition = new(int32(1)) }, Update},
		"a partition of Deployments":  {Deployment, func(c *Child) { c.Partition = new(int32(1)) }, Keep},
		"a partition with OnDelete":   {StatefulSet, func(c *Child) { c.OnDelete, c.Partition = true, new(int32(1)) }, Keep},
		"patch":                       {CloneSet, func(c *Child) { c.Patch = "{}" }, Update},
		"pods of another revision":    {CloneSet, func(c *Child) { c.Total = 3 }, Verify},
		"a partition of StatefulSets": {AdvancedStatefulSet, func(c *Child) { c.Partition = new(int32(1)) }, Update},
	} {
		s := asked(t, tt.kind, 2, plain("a")...)
		s.child(tt.kind, "a", 2, nil, tt.change)
		if got := Make(*s).Subsets[0]; got.Action != tt.want {
			t.Errorf("%s: action: got %q, want %q\n%v", name, got.Action, tt.want, got.String())
		}
	}
}

// UD-100 (part), UD-101, UD-102: the partition is at most the replicas, and makes no revision; with OnDelete
// the status tells how many pods are old.
func TestThePartitionIsAtMostTheReplicas(t *testing.T) {
	s := asked(t, StatefulSet, 3, plain("a")...)
	s.United.Spec.UpdateStrategy.ManualUpdate = &appsv1beta1.ManualUpdate{Partitions: map[string]int32{"a": 9}}
	c := s.child(StatefulSet, "a", 2, []*corev1.Pod{s.pod("web-a-2", time.Hour, running(time.Hour), labelled(RevisionHash, "old"))}, func(c *Child) { c.Partition = new(int32(3)) })
	if p := Make(*s); p.Subsets[0].Wanted.Partition != 3 {
		t.Errorf("wanted partition of the first subset: got %d, want 3\n%v", p.Subsets[0].Wanted.Partition, p)
	} else if p.Status.SubsetStatuses[0].Partition != 3 {
		t.Errorf("partition of the first subset: got %d, want 3\n%v", p.Status.SubsetStatuses[0].Partition, p)
	} else if p.NewRevision != nil {
		t.Errorf("new revision: got %v, want nil\n%v", p.NewRevision, p)
	} else if len(p.Restart) > 0 {
		t.Errorf("restarted: got %v, want none\n%v", p.Restart, p)
	}
	c.OnDelete = true
	if p := Make(*s); p.Status.SubsetStatuses[0].Partition != 1 {
		t.Errorf("partition of the first subset: got %d, want 1\n%+v", p.Status.SubsetStatuses[0].Partition, p.Status)
	}
}

// UD-072: broken pods of an older revision that the partition lets go are deleted, of native StatefulSets
// alone.
func TestBrokenPodsOfStatefulSets(t *testing.T) {
	for name, tt := range map[string]struct {
		kind   Kind
		change func(*Child)
		want   string
	}{
		"native":        {StatefulSet, func(*Child) {}, "web-a-2"},
		"from another":  {StatefulSet, func(c *Child) { c.Start = 1 }, ""},
		"OnDelete":      {StatefulSet, func(c *Child) { c.OnDelete = true }, ""},
		"not seen yet":  {StatefulSet, func(c *Child) { c.Observed = false }, ""},
		"not up to now": {StatefulSet, func(c *Child) { c.Revision = "old" }, ""},
		"advanced":      {AdvancedStatefulSet, func(*Child) {}, ""},
	} {
		s := asked(t, tt.kind, 4, plain("a")...)
		s.United.Spec.UpdateStrategy.ManualUpdate = &appsv1beta1.ManualUpdate{Partitions: map[string]int32{"a": 2}}
		old := labelled(RevisionHash, "old")
		s.child(tt.kind, "a", 0, []*corev1.Pod{s.pod("web-a-1", time.Hour, broken, old), s.pod("web-a-2", time.Hour, broken, old),
			s.pod("web-a-3", time.Hour, broken), s.pod("web-a-4", time.Hour, running(time.Hour), old)},
			func(c *Child) { c.Partition = new(int32(2)) }, tt.change)
		var got []string
		for _, pod := range Make(*s).Restart {
			got = append(got, pod.Name)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %q", name, strings.Join(got, " "), tt.want)
		}
	}
}

// UD-014 (part), UD-095, UD-096, UD-097, UD-099, UD-128, UD-143, UD-168 (part): conditions of plain adaptive
// subsets, what they are given, and when to look again.
func TestAdaptiveSubsetsGetWhatCanBeScheduled(t *testing.T) {
	minute := time.Minute
	tests := []struct {
		name              string
		age               time.Duration // of pods that find no node
		pending           int
		status            corev1.ConditionStatus
		since             time.Duration
		next, schedulable string
		after             time.Duration
		first             bool
	}{
		{"well", 0, 0, "", 0, "[5 5]", "", 0, false},
		{"not for long", 10 * time.Second, 2, "", 0, "[5 5]", "", 20*time.Second + moment, false},
		{"stuck", minute, 2, "", 0, "[3 7]", "False reschedule", 5*minute + moment, true},
		{"stuck and known: not refreshed", minute, 2, "False", 2 * minute, "[3 7]", "False reschedule", 3*minute + moment, false},
		{"passed over", 0, 0, "False", 2 * minute, "[5 5]", "False reschedule", 3*minute + moment, false},
		{"recovered", 0, 0, "False", 5 * minute, "[5 5]", "True recover", 0, true},
		{"stuck again after the window", minute, 2, "False", 6 * minute, "[3 7]", "False reschedule", 5*minute + moment, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			five := intstr.FromInt32(5)
			s := asked(t, Deployment, 10, appsv1beta1.Subset{Name: "a", MaxReplicas: &five}, appsv1beta1.Subset{Name: "b"}).adaptive(false)
			var pods []*corev1.Pod
			for i := range tt.pending {
				pods = append(pods, s.pod(fmt.Sprint("p", i), tt.age, stuck))
			}
			s.child(Deployment, "a", 5-tt.pending, pods)
			s.child(Deployment, "b", 5, nil)
			if tt.status != "" {
				s.condition("a", tt.status, tt.since)
			}
			p := Make(*s)
			if tt.next == "[3 7]" { // scaled up: looked at again when that should have come
				tt.after = 30 * time.Second
			}
			if got := fmt.Sprint(p.next()); got != tt.next {
				t.Errorf("next replicas: got %q, want %q; %v %s after %s first %t\n%s", got, tt.next, p.next(), p.schedulable(0), p.After, p.First, p)
			}
			if got := p.schedulable(0); got != tt.schedulable {
				t.Errorf("condition of the first subset: got %q, want %q; %v %s after %s first %t\n%s", got, tt.schedulable, p.next(), p.schedulable(0), p.After,
					p.First, p)
			}
			if p.After != tt.after {
				t.Errorf("time to the next pass: got %v, want %v; %v %s after %s first %t\n%s", p.After, tt.after, p.next(), p.schedulable(0), p.After, p.First, p)
			}
			if p.First != tt.first {
				t.Errorf("first: got %t, want %t; %v %s after %s first %t\n%s", p.First, tt.first, p.next(), p.schedulable(0), p.After, p.First, p)
			}
			if got := p.schedulable(1); got != "" {
				t.Errorf("condition of the second subset: got %q, want %q; %v %s after %s first %t\n%s", got, "", p.next(), p.schedulable(0), p.After, p.First, p)
			}
			s.United.Spec.Topology.ScheduleStrategy.Type = ""
			if p := Make(*s); p.schedulable(0) != "" || len(p.Status.SubsetStatuses[0].Conditions) > 0 {
				t.Error("UD-143: a condition without a reason")
			}
		})
	}
}

// UD-111, UD-112, UD-113, UD-114, UD-115, UD-168: which pods are reserved, and which are patched for that.
func TestReservedPodsAreCountedAndLabelled(t *testing.T) {
	minute := time.Minute
	yes, no := labelled(ReservedPod, "true"), labelled(ReservedPod, "false")
	old := labelled(RevisionHash, "old")
	for name, tt := range map[string]struct {
		changes         []func(*corev1.Pod)
		marked, stalled bool
		reserved        int
		patched         string
		after           time.Duration
	}{
		"new and well":                   {[]func(*corev1.Pod){running(0)}, false, false, 0, "false", 0},
		"labelled":                       {[]func(*corev1.Pod){running(0), no}, false, false, 0, "", 0},
		"without a node":                 {[]func(*corev1.Pod){stuck, no}, false, false, 1, "true", 0},
		"of a marked subset":             {[]func(*corev1.Pod){running(0)}, true, false, 1, "true", 5*minute + moment},
		"reserved, not long ready":       {[]func(*corev1.Pod){running(minute), yes}, true, false, 1, "", 4*minute + moment},
		"reserved, not ready":            {[]func(*corev1.Pod){broken, yes}, true, false, 1, "", 0},
		"healthy":                        {[]func(*corev1.Pod){running(6 * minute), yes}, true, false, 0, "false", 0},
		"healthy for long, not labelled": {[]func(*corev1.Pod){running(6 * minute)}, true, false, 0, "false", 0},
		"healthy of an older revision":   {[]func(*corev1.Pod){running(6 * minute), yes, old}, true, false, 1, "", 0},
		"older, not ready, stalled":      {[]func(*corev1.Pod){broken, no, old}, false, true, 1, "true", 0},
		"older, ready, stalled":          {[]func(*corev1.Pod){running(minute), no, old}, false, true, 0, "", 0},
		"older, not ready, not stalled":  {[]func(*corev1.Pod){broken, no, old}, false, false, 0, "", 0},
		"of the revision, broken":        {[]func(*corev1.Pod){broken, no}, false, true, 0, "", 0},
		"on its way out":                 {[]func(*corev1.Pod){stuck, func(p *corev1.Pod) { p.DeletionTimestamp = new(ago(0)) }}, false, false, 0, "", 0},
		"at its end":                     {[]func(*corev1.Pod){stuck, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }}, false, false, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := asked(t, CloneSet, 1, plain("a")...).adaptive(true)
			if tt.marked {
				s.condition("a", corev1.ConditionFalse, minute)
			}
			if tt.stalled {
				s.United.Status.CurrentRevision = "older"
				s.United.Status.Conditions = []appsv1beta1.UnitedDeploymentCondition{{Type: appsv1beta1.UnitedDeploymentUpdated, Status: corev1.ConditionFalse, LastTransitionTime: ago(minute)}}
			}
			s.child(CloneSet, "a", 0, []*corev1.Pod{s.pod("p", time.Hour, tt.changes...)})
			p := Make(*s)
			patched := ""
			for _, m := range p.Marks {
				patched += fmt.Sprint(m.Reserved)
			}
			if p.Subsets[0].Reserved != tt.reserved {
				t.Errorf("first subset is reserved: got %d, want %d\n%s", p.Subsets[0].Reserved, tt.reserved, p)
			}
			if patched != tt.patched {
				t.Errorf("patched: got %q, want %q\n%s", patched, tt.patched, p)
			}
			if tt.after != 0 && p.After != tt.after {
				t.Errorf("time to the next pass: got %v, want %v\n%s", p.After, tt.after, p)
			}
		})
	}
}

// UD-117, UD-118, UD-119, UD-122, UD-126: conditions and numbers of subsets with reservation.
func TestReservingSubsetsHaveConditionsAndNumbers(t *testing.T) {
	yes, no := labelled(ReservedPod, "true"), labelled(ReservedPod, "false")
	// On first creation there is no condition.
	s := asked(t, CloneSet, 3, plain("a", "b")...).adaptive(true)
	if p := Make(*s); fmt.Sprint(p.next()) != "[3 0]" || p.schedulable(0)+p.schedulable(1) != "" {
		t.Errorf("on first creation: got %s, want 3 and 0 replicas and no conditions", p)
	}
	// With reserved pods it is False, and there are substitutes; without True.
	s.child(CloneSet, "a", 0, []*corev1.Pod{s.pod("1", time.Hour, stuck, yes), s.pod("2", time.Hour, stuck, yes), s.pod("3", time.Hour, stuck, yes)})
	s.child(CloneSet, "b", 0, nil)
	p := Make(*s)
	if fmt.Sprint(p.next()) != "[3 3]" || p.schedulable(0) != "False reschedule" || p.schedulable(1) != "True reschedule" || !p.First {
		t.Errorf("with reserved pods: got %s, want 3 and 3 replicas, the first False, the second True", p)
	}
	if p.Status.ReservedPods != 3 {
		t.Errorf("UD-125: reserved pods: got %d, want 3\n%+v", p.Status.ReservedPods, p.Status)
	} else if p.Status.SubsetStatuses[0].ReservedPods != 3 {
		t.Errorf("UD-125: reserved pods of the first subset: got %d, want 3\n%+v", p.Status.SubsetStatuses[0].ReservedPods, p.Status)
	} else if p.Status.Replicas != 0 {
		t.Errorf("UD-125: replicas: got %d, want 0\n%+v", p.Status.Replicas, p.Status)
	} else if p.Status.LabelSelector != "app=web,apps.kruise.io/united-deployment-reserved-pod=false" {
		t.Errorf("UD-125: label selector: got %q, want %q\n%+v", p.Status.LabelSelector,
			"app=web,apps.kruise.io/united-deployment-reserved-pod=false", p.Status)
	}
	// UD-126: turned off, labels stay and the numbers are those of the other mode.
	s.adaptive(false)
	if p := Make(*s); len(p.Marks) > 0 || fmt.Sprint(p.next()) != "[0 3]" || p.Status.LabelSelector != "app=web" {
		t.Errorf("turned off: got %s, want no marks and 0 and 3 replicas", p)
	}
	// A marked subset stays so until all its pods exist, and these count as reserved meanwhile.
	s = asked(t, CloneSet, 3, plain("a", "b")...).adaptive(true).condition("a", corev1.ConditionFalse, time.Minute)
	s.child(CloneSet, "a", 0, []*corev1.Pod{s.pod("1", time.Hour, running(time.Hour), no)}, func(c *Child) { c.Replicas = 3 })
	s.child(CloneSet, "b", 2, nil)
	if p := Make(*s); fmt.Sprint(p.next()) != "[3 2]" || p.schedulable(0) != "False reschedule" {
		t.Errorf("a marked subset without all its pods: got %s, want 3 and 2 replicas, and it False", p)
	}
	// A subset that has recovered and gets more is marked anew.
	s = asked(t, CloneSet, 3, plain("a", "b")...).adaptive(true).condition("a", corev1.ConditionFalse, time.Minute)
	s.child(CloneSet, "a", 0, []*corev1.Pod{s.pod("1", time.Hour, running(time.Hour), no)})
	s.child(CloneSet, "b", 2, nil)
	if p := Make(*s); fmt.Sprint(p.next()) != "[3 2]" || p.schedulable(0) != "False reschedule" {
		t.Errorf("a subset that has recovered: got %s, want 3 and 2 replicas, and it False", p)
	}
	// A subset that is added later begins as marked, and its first pods are no reason to take others.
	s = asked(t, CloneSet, 3, plain("new", "b")...).adaptive(true).condition("b", corev1.ConditionTrue, time.Minute)
	s.child(CloneSet, "b", 3, nil)
	if p := Make(*s); fmt.Sprint(p.next()) != "[3 3]" || p.schedulable(0) != "False created" || !p.First {
		t.Errorf("a subset that is added: got %s, want 3 and 3 replicas, and it False", p)
	}
}

// UD-073, UD-116: in a rolling update reserved pods do not take the budget of others; afterwards the
// template's holds again.
func TestMaxUnavailableWithReservedPods(t *testing.T) {
	yes := labelled(ReservedPod, "true")
	for _, tt := range []struct {
		kind    Kind
		own     string
		old     bool
		present intstr.IntOrString
		want    string
		action  Action
	}{
		{CloneSet, "", true, intstr.FromString("20%"), "2", Update},
		{CloneSet, "", false, intstr.FromString("20%"), "20%", Keep},
		{CloneSet, "", false, intstr.FromInt32(2), "20%", Update},
		{CloneSet, `updateStrategy: {rollingUpdate: {maxUnavailable: 2}},`, true, intstr.FromInt32(2), "3", Update},
		{Deployment, "", true, intstr.FromString("25%"), "1", Update},
		{Deployment, `strategy: {type: Recreate},`, true, intstr.FromString("25%"), "", Keep},
		{Deployment, `strategy: {rollingUpdate: {maxUnavailable: 50%}},`, true, intstr.FromString("50%"), "2", Update},
	} {
		s := asked(t, tt.kind, 2, plain("a", "b")...).adaptive(true)
		if err := yaml.Unmarshal(fmt.Appendf(nil, `{%s: {metadata: {labels: {app: web}}, spec: {%s %s}}}`, string(tt.kind), tt.own, webPods), &s.United.Spec.Template); err != nil {
			t.Fatal(err)
		}
		s.Known, s.Revisions = &Knowledge{}, nil
		s.Revisions = []*appsv1.ControllerRevision{Make(*s).NewRevision}
		label := s.Revisions[0].Name
		if tt.old {
			label = "old"
		}
		s.child(tt.kind, "a", 0, []*corev1.Pod{s.pod("1", time.Hour, stuck, yes, labelled(RevisionHash, label)), s.pod("2", time.Hour, running(time.Hour), labelled(ReservedPod, "false"))},
			func(c *Child) { c.MaxUnavailable = &tt.present })
		s.condition("a", corev1.ConditionFalse, time.Hour)
		v := Make(*s).Subsets[0]
		got := ""
		if v.Wanted.MaxUnavailable != nil {
			got = v.Wanted.MaxUnavailable.String()
		}
		if v.Action == Verify {
			v.Action = Keep
		}
		if got != tt.want {
			t.Errorf("%s %s: got %q, want %q\n%s", tt.kind, tt.own, got, tt.want, v.String())
		}
		if v.Action != tt.action {
			t.Errorf("%s %s: action: got %q, want %q\n%s", tt.kind, tt.own, v.Action, tt.action, v.String())
		}
	}
}

// UD-135, UD-137, UD-138, UD-139 (part), UD-140, UD-142: the status, and its conditions.
func TestTheStatusIsSummedUpWithItsConditions(t *testing.T) {
	s := asked(t, Deployment, 4, plain("a", "b")...)
	s.United.Status.SubsetStatuses = []appsv1beta1.UnitedDeploymentSubsetStatus{{Name: "gone"}}
	s.United.Status.CurrentRevision = "older"
	old := s.pod("old", time.Hour, running(time.Hour), labelled(RevisionHash, "older"))
	s.child(Deployment, "a", 1, []*corev1.Pod{old}, func(c *Child) { c.Failure = "it fails" })
	p := Make(*s)
	p.Finish(Outcome{Provisioned: 1}, noon)
	st := p.Status
	if st.Replicas != 2 {
		t.Errorf("replicas: got %d, want 2\n%+v", st.Replicas, st)
	} else if st.ReadyReplicas != 1 {
		t.Errorf("ready replicas: got %d, want 1\n%+v", st.ReadyReplicas, st)
	} else if st.UpdatedReplicas != 1 {
		t.Errorf("updated replicas: got %d, want 1\n%+v", st.UpdatedReplicas, st)
	} else if st.UpdatedReadyReplicas != 1 {
		t.Errorf("updated and ready replicas: got %d, want 1\n%+v", st.UpdatedReadyReplicas, st)
	} else if st.ObservedGeneration != 7 {
		t.Errorf("observed generation: got %d, want 7\n%+v", st.ObservedGeneration, st)
	} else if st.CurrentRevision != "older" {
		t.Errorf("current revision: got %q, want %q\n%+v", st.CurrentRevision, "older", st)
	} else if st.UpdatedRevision != s.Revisions[0].Name {
		t.Errorf("updated revision: got %q, want %q\n%+v", st.UpdatedRevision, s.Revisions[0].Name, st)
	} else if st.LabelSelector != "app=web" {
		t.Errorf("label selector: got %q, want %q\n%+v", st.LabelSelector, "app=web", st)
	}
	if len(st.SubsetStatuses) != 2 {
		t.Errorf("UD-138: number of subsets: got %d, want 2\n%+v", len(st.SubsetStatuses), st.SubsetStatuses)
	} else if st.SubsetStatuses[0].Name != "a" {
		t.Errorf("UD-138: name of the first subset: got %q, want %q\n%+v", st.SubsetStatuses[0].Name, "a", st.SubsetStatuses)
	} else if st.SubsetStatuses[0].Replicas != 2 {
		t.Errorf("UD-138: replicas of the first subset: got %d, want 2\n%+v", st.SubsetStatuses[0].Replicas, st.SubsetStatuses)
	} else if st.SubsetStatuses[0].ReadyReplicas != 1 {
		t.Errorf("UD-138: ready replicas of the first subset: got %d, want 1\n%+v", st.SubsetStatuses[0].ReadyReplicas, st.SubsetStatuses)
	} else if st.SubsetStatuses[1].Replicas != 2 {
		t.Errorf("UD-138: replicas of the second subset: got %d, want 2\n%+v", st.SubsetStatuses[1].Replicas, st.SubsetStatuses)
	}
	if got := p.find("UnitedDeploymentUpdated"); got != "False UnitedDeploymentRevisionUpdating" {
		t.Errorf("condition UnitedDeploymentUpdated: got %q, want %q\n%+v", got, "False UnitedDeploymentRevisionUpdating", st.Conditions)
	}
	if got := p.find("SubsetFailure"); got != "True Error" {
		t.Errorf("condition SubsetFailure: got %q, want %q\n%+v", got, "True Error", st.Conditions)
	}
	if got := p.find("SubsetProvisioned"); got != "True " {
		t.Errorf("condition SubsetProvisioned: got %q, want %q\n%+v", got, "True ", st.Conditions)
	}
	if got := p.find("SubsetUpdated"); got != "True " {
		t.Errorf("condition SubsetUpdated: got %q, want %q\n%+v", got, "True ", st.Conditions)
	}
	for _, c := range st.Conditions {
		if c.Type == appsv1beta1.UnitedDeploymentUpdated && !strings.Contains(c.Message, s.Revisions[0].Name) {
			t.Errorf("message: got %q, want it to contain %q", c.Message, s.Revisions[0].Name)
		}
	}
	// Later: all is updated, and nothing fails; times of what stays the same do not move.
	s.United.Status, s.Now = st, noon.Add(time.Hour)
	s.Children[0].Failure = ""
	old.Labels[RevisionHash] = s.Revisions[0].Name
	p = Make(*s)
	p.Finish(Outcome{Provision: "x", Update: "y"}, s.Now)
	if p.Status.CurrentRevision != p.Expected {
		t.Errorf("current revision: got %q, want %q\n%+v", p.Status.CurrentRevision, p.Expected, p.Status)
	}
	if got := p.find("UnitedDeploymentUpdated"); got != "True UnitedDeploymentRevisionUpdated" {
		t.Errorf("condition UnitedDeploymentUpdated: got %q, want %q\n%+v", got, "True UnitedDeploymentRevisionUpdated", p.Status)
	}
	if got := p.find("SubsetFailure"); got != "" {
		t.Errorf("condition SubsetFailure: got %q, want %q\n%+v", got, "", p.Status)
	}
	if got := p.find("SubsetProvisioned"); got != "False Error" {
		t.Errorf("condition SubsetProvisioned: got %q, want %q\n%+v", got, "False Error", p.Status)
	}
	if got := p.find("SubsetUpdated"); got != "False Error" {
		t.Errorf("condition SubsetUpdated: got %q, want %q\n%+v", got, "False Error", p.Status)
	}
	s.United.Status = p.Status
	p = Make(*s)
	p.Finish(Outcome{}, noon.Add(2*time.Hour))
	for _, c := range p.Status.Conditions {
		if c.Type == appsv1beta1.UnitedDeploymentUpdated && !c.LastTransitionTime.Equal(new(metav1.NewTime(noon.Add(time.Hour)))) {
			t.Error("the time of a condition moved")
		}
	}
}

// UD-130, UD-131, UD-132, UD-134, UD-102, UD-170, UD-136 (part): revisions.
func TestRevisions(t *testing.T) {
	for _, kind := range Kinds {
		s := asked(t, kind, 2, plain("a")...)
		first := s.Revisions[0]
		var data struct {
			Spec struct {
				Template map[string]any `json:"template"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(first.Data.Raw, &data); err != nil {
			t.Errorf("reading the revision: unexpected error: %v\n%s", err, first.Data.Raw)
		} else if data.Spec.Template["$patch"] != "replace" {
			t.Errorf("%s: the mark that the template is replaced: got %v, want %q\n%s", err, data.Spec.Template["$patch"], "replace", first.Data.Raw)
		} else if data.Spec.Template[string(kind)] == nil {
			t.Errorf("%s: template of the kind: got nil, want a value\n%s", err, first.Data.Raw)
		}
		if first.Labels["team"] != "x" {
			t.Errorf("label team the first time: got %q, want %q\n%+v", first.Labels["team"], "x", first)
		}
		if first.Labels["controller.kubernetes.io/hash"] == "" {
			t.Errorf("label controller.kubernetes.io/hash the first time: got nothing, want some text\n%+v", first)
		}
		if got := OwnerOf(first); got != "u" {
			t.Errorf("owner of the first: got %q, want %q\n%+v", got, "u", first)
		}
		if !strings.HasPrefix(first.Name, "web-") {
			t.Errorf("name the first time: got %q, want it to begin with %q\n%+v", first.Name, "web-", first)
		}
		if first.Namespace != "shop" {
			t.Errorf("namespace the first time: got %q, want %q\n%+v", first.Namespace, "shop", first)
		}
		if first.Revision != 1 {
			t.Errorf("revision the first time: got %d, want 1\n%+v", first.Revision, first)
		}
		if p := Make(*s); p.NewRevision != nil {
			t.Errorf("UD-132: the newest is used again: new revision: got %v, want nil", p.NewRevision)
		} else if p.Renumber != nil {
			t.Errorf("UD-132: the newest is used again: renumbered revision: got %v, want nil", p.Renumber)
		} else if p.Expected != first.Name {
			t.Errorf("UD-132: the newest is used again: expected: got %q, want %q", p.Expected, first.Name)
		}
		s.United.Spec.Topology.Subsets = append(s.United.Spec.Topology.Subsets, appsv1beta1.Subset{Name: "b", Patch: runtime.RawExtension{Raw: []byte(`{"spec":{}}`)}})
		s.United.Spec.Replicas, s.United.Generation = new(int32(9)), 8
		s.United.Spec.UpdateStrategy.ManualUpdate = &appsv1beta1.ManualUpdate{Partitions: map[string]int32{"a": 1}}
		if p := Make(*s); p.NewRevision != nil {
			t.Error("UD-131: a revision of what is no template")
		}
		newer := first.DeepCopy()
		newer.Name, newer.UID, newer.Revision = "web-newer", "r2", 4
		newer.Data.Raw = []byte(strings.Replace(string(first.Data.Raw), `"image":"i"`, `"image":"j"`, 1))
		s.Revisions = append(s.Revisions, newer)
		if p := Make(*s); p.Renumber == nil {
			t.Error("UD-132: a rollback: renumbered revision: got nil, want a value")
		} else if p.Renumber.Name != first.Name {
			t.Errorf("UD-132: a rollback: name of the renumbered revision: got %q, want %q", p.Renumber.Name, first.Name)
		} else if p.Number != 5 {
			t.Errorf("UD-132: a rollback: number: got %d, want 5", p.Number)
		} else if p.NewRevision != nil {
			t.Errorf("UD-132: a rollback: new revision: got %v, want nil", p.NewRevision)
		}
		other := first.DeepCopy()
		other.Data.Raw = []byte(strings.Replace(string(first.Data.Raw), `"image":"i"`, `"image":"k"`, 1))
		s.Revisions = []*appsv1.ControllerRevision{other}
		if p := Make(*s); p.NewRevision == nil {
			t.Error("UD-132: a collision: new revision: got nil, want a value")
		} else if p.NewRevision.Name == first.Name {
			t.Errorf("UD-132: a collision: name of the new revision: got %q, want another value", p.NewRevision.Name)
		} else if p.Status.CollisionCount == nil {
			t.Error("UD-132: a collision: collision count: got nil, want a value")
		} else if *p.Status.CollisionCount != 1 {
			t.Errorf("UD-132: a collision: collision count: got %d, want 1", *p.Status.CollisionCount)
		} else if p.NewRevision.Revision != 2 {
			t.Errorf("UD-132: a collision: revision of the new revision: got %d, want 2", p.NewRevision.Revision)
		}
	}
	s := asked(t, CloneSet, 2, plain("a")...)
	s.United.Spec.RevisionHistoryLimit = new(int32(1))
	s.Revisions[0].Revision = 9
	for i := range 4 {
		r := s.Revisions[0].DeepCopy()
		r.Name, r.UID, r.Revision = fmt.Sprint("old-", i), types.UID(fmt.Sprint(i)), int64(i+1)
		r.Data.Raw = []byte(strings.Replace(string(r.Data.Raw), `"image":"i"`, fmt.Sprintf(`"image":"%d"`, i), 1))
		s.Revisions = append(s.Revisions, r)
	}
	s.United.Status.CurrentRevision = "old-0"
	s.child(CloneSet, "a", 0, []*corev1.Pod{s.pod("p", time.Hour, labelled(RevisionHash, "old-0"))})
	var gone []string
	for _, r := range Make(*s).History {
		gone = append(gone, r.Name)
	}
	if strings.Join(gone, " ") != "old-1 old-2" {
		t.Errorf("UD-134: %v", gone)
	}
	s.United.Spec.RevisionHistoryLimit = nil
	if p := Make(*s); len(p.History) > 0 {
		t.Error("UD-015: absent is 10")
	}
}

// UD-133, UD-161 (part): what the reference wrote is recognised by content: other order, nulls and empty
// objects, quantities, the old form.
func TestRevisionsOfTheReference(t *testing.T) {
	for name, tt := range map[string]struct{ template, stored string }{
		"statefulset": {`{statefulSetTemplate: {metadata: {labels: {a: b}}, spec: {serviceName: s, template: {spec: {containers: [{name: c, resources: {limits: {cpu: 1000m}}}]}}}}}`,
			`{"statefulSetTemplate":{"metadata":{"creationTimestamp":null,"labels":{"a":"b"}},"spec":{"selector":null,"serviceName":"s","updateStrategy":{},"template":{"metadata":{"creationTimestamp":null},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}}}}}`},
		"cloneset": {`{cloneSetTemplate: {metadata: {labels: {a: b}}, spec: {template: {spec: {containers: [{name: c}]}}, volumeClaimTemplates: [{metadata: {name: v}, spec: {resources: {requests: {storage: 1024Mi}}}}]}}}`,
			`{"cloneSetTemplate":{"metadata":{"creationTimestamp":null,"labels":{"a":"b"}},"spec":{"template":{"metadata":{"creationTimestamp":null},"spec":{"containers":[{"name":"c","resources":{}}]}},"updateStrategy":{},"scaleStrategy":{},"selector":null,"volumeClaimTemplates":[{"metadata":{"name":"v","creationTimestamp":null},"spec":{"resources":{"requests":{"storage":"1Gi"}}},"status":{}}]}}}`},
		"old form": {`{cloneSetTemplate: {spec: {updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}, scaleStrategy: {enablePVCReuse: true}, template: {}}}}`,
			`{"cloneSetTemplate":{"spec":{"updateStrategy":{"type":"InPlaceIfPossible","maxUnavailable":2},"template":{}}}}`},
	} {
		text, err := yaml.YAMLToJSON([]byte(tt.template))
		if err != nil {
			t.Fatal(err)
		}
		data, err := Data(text)
		if err != nil {
			t.Fatal(err)
		}
		stored := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{UID: "r"}, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":` + strings.TrimSuffix(tt.stored, "}") + `,"$patch":"replace"}}}`)}}
		known := &Knowledge{}
		if first := known.Same(stored, data); !first || !known.Same(stored, data) {
			template, _ := revision.Template(stored.Data.Raw)
			normal, err := Data(template)
			t.Errorf("%s: not recognised: %v\n%s\n%s", name, err, data, normal)
		}
	}
}

// UD-014: what holds where the strategy says nothing, and is not written into the object.
func TestOptionsOfStrategies(t *testing.T) {
	u := &appsv1beta1.UnitedDeployment{}
	strategy := &u.Spec.Topology.ScheduleStrategy
	if o := options(u); o.adaptive {
		t.Error("empty is Fixed")
	}
	strategy.Type = "Adaptive"
	want := adaptive{adaptive: true, critical: 30 * time.Second, duration: 300 * time.Second}
	o := options(u)
	if o != want {
		t.Errorf("options: got %+v, want %+v", o, want)
	}
	if strategy.Adaptive != nil {
		t.Errorf("adaptive options: got %+v, want nil", strategy.Adaptive)
	}
	if strategy.Adaptive = (&appsv1beta1.AdaptiveUnitedDeploymentStrategy{}); options(u) != want || *strategy.Adaptive != (appsv1beta1.AdaptiveUnitedDeploymentStrategy{}) {
		t.Errorf("options: got %+v, want %+v, and nothing written to the strategy", options(u), want)
	}
	strategy.Adaptive = &appsv1beta1.AdaptiveUnitedDeploymentStrategy{RescheduleCriticalSeconds: new(int32(0)), UnschedulableDuration: new(int32(7)), ReserveUnschedulablePods: true}
	if o := options(u); o != (adaptive{true, true, 0, 7 * time.Second}) {
		t.Errorf("options: got %+v, want %+v", o, adaptive{true, true, 0, 7 * time.Second})
	}
	// UnitedDeployments of OpenKruise 1.7 and 1.8 keep the window that they have asked for.
	strategy.Adaptive = &appsv1beta1.AdaptiveUnitedDeploymentStrategy{UnschedulableLastSeconds: new(int32(9))}
	if o := options(u); o.duration != 9*time.Second {
		t.Errorf("duration: got %v, want %v\n%+v", o.duration, 9*time.Second, o)
	}
	strategy.Adaptive.UnschedulableDuration = new(int32(0))
	if o := options(u); o.duration != 0 {
		t.Errorf("duration: got %v, want 0\n%+v", o.duration, o)
	}
}

// UD-136: a restart annotation in the pod template is a new revision, which each subset gets under its
// partition.
func TestARestartAnnotationIsANewRevision(t *testing.T) {
	s := asked(t, CloneSet, 4, plain("a", "b")...)
	s.child(CloneSet, "a", 2, nil)
	s.child(CloneSet, "b", 2, nil)
	s.United.Spec.UpdateStrategy.ManualUpdate = &appsv1beta1.ManualUpdate{Partitions: map[string]int32{"a": 1}}
	s.United.Spec.Template.CloneSetTemplate.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	p := Make(*s)
	if p.NewRevision == nil {
		t.Fatalf("new revision: got nil, want a value\n%v", p)
	}
	for i := range p.Subsets {
		v := &p.Subsets[i]
		doc, err := p.Template.Build(s.United, v.Subset, v.Wanted)
		pod := member(member(doc, "spec"), "template")
		if err != nil {
			t.Errorf("unexpected error: %v\n%s\n%v", err, v.String(), pod)
		} else if v.Action != Update {
			t.Errorf("action: got %q, want %q\n%v\n%s\n%v", v.Action, Update, err, v.String(), pod)
		} else if v.Wanted.Partition != int32(1-i) {
			t.Errorf("wanted partition: got %d, want %d\n%v\n%s\n%v", v.Wanted.Partition, int32(1-i), err, v.String(), pod)
		} else if v.Wanted.Revision != p.Expected {
			t.Errorf("wanted revision: got %q, want %q\n%v\n%s\n%v", v.Wanted.Revision, p.Expected, err, v.String(), pod)
		} else if got := member(member(pod, "metadata"), "annotations")["kubectl.kubernetes.io/restartedAt"]; got != "now" {
			t.Errorf("annotation kubectl.kubernetes.io/restartedAt: got %v, want %q\n%v\n%s\n%v",
				got, "now", err, v.String(), pod)
		}
	}
}

// UD-098 (part): pods that a rolling update makes anew, or that start slowly, keep their place, also while
// their subset is passed over; those that cannot be created have none.
func TestPodsThatStartKeepTheirPlace(t *testing.T) {
	five := intstr.FromInt32(5)
	refused := func(c *Child) { c.Failure = "a quota is used up" }
	for name, tt := range map[string]struct {
		// ready pods and starting ones of a and b; missing ones of a.
		a, startingA, missing, b, startingB int
		passed                              bool
		change                              func(*Child)
		want                                string
	}{
		"a rollout in the window":             {2, 2, 1, 5, 0, true, nil, "[5 5]"},
		"all of a start in the window":        {0, 5, 0, 5, 0, true, nil, "[5 5]"},
		"b starts, and a has recovered":       {0, 0, 0, 1, 9, false, nil, "[0 10]"},
		"a cannot be created in the window":   {2, 0, 3, 5, 0, true, refused, "[2 8]"},
		"a cannot be created, and is not bad": {2, 0, 3, 5, 0, false, refused, "[5 5]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := asked(t, Deployment, 10, appsv1beta1.Subset{Name: "a", MaxReplicas: &five}, appsv1beta1.Subset{Name: "b"}).adaptive(false)
			starting := func(n int) (pods []*corev1.Pod) {
				for i := range n {
					pods = append(pods, s.pod(fmt.Sprint("p", i), time.Hour, broken))
				}
				return pods
			}
			a := s.child(Deployment, "a", tt.a, starting(tt.startingA))
			if a.Replicas += int32(tt.missing); tt.change != nil {
				tt.change(a)
			}
			s.child(Deployment, "b", tt.b, starting(tt.startingB))
			if tt.passed {
				s.condition("a", corev1.ConditionFalse, time.Minute)
			}
			if p := Make(*s); fmt.Sprint(p.next()) != tt.want {
				t.Errorf("next replicas: got %v, want %s\n%s", p.next(), tt.want, p)
			}
		})
	}
}
