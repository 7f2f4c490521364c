package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/simulation"
)

func settled(t *testing.T, s *simulated) {
	t.Helper()
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
}

// TestLifeOfAJob shows BJ-001, BJ-002, BJ-003, BJ-017 and BJ-018: each node gets one pod, once; the job ends
// when all have finished, or serves nodes that come later; and the object keeps what its user wrote.
func TestLifeOfAJob(t *testing.T) {
	for _, completion := range []appsv1beta1.CompletionPolicyType{appsv1beta1.CompletionAlways, appsv1beta1.CompletionNever} {
		job := makeJob(onFailure(appsv1beta1.FailurePolicyContinue), func(job *appsv1beta1.BroadcastJob) { job.Spec.CompletionPolicy.Type = completion })
		s := simulate(1, job, "n1", "n2", "n3")
		made := map[string]int{}
		s.BeforeWrite = func(w simulation.Write, _, after client.Object) {
			if w.Key.Kind == "Pod" && w.Verb == "create" {
				made[nodes.Target(after.(*corev1.Pod))]++
			}
		}
		s.ends = func(pod *corev1.Pod) corev1.PodPhase {
			if pod.Spec.NodeName == "n2" {
				return corev1.PodFailed
			}
			return corev1.PodSucceeded
		}
		before := s.job().DeepCopy()
		s.Round()
		if phase := s.job().Status.Phase; phase != "running" {
			t.Errorf("phase %s", phase)
		}
		settled(t, s)
		s.addNode("n4")
		settled(t, s)
		want, phase, conditions := map[string]int{"n1": 1, "n2": 1, "n3": 1, "n4": 1}, "running", []appsv1beta1.JobConditionType(nil)
		if completion == appsv1beta1.CompletionAlways {
			delete(want, "n4")
			phase, conditions = "completed", []appsv1beta1.JobConditionType{"Complete"}
		}
		after := s.job()
		var types []appsv1beta1.JobConditionType
		for _, c := range after.Status.Conditions {
			types = append(types, c.Type)
		}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Errorf("%s: made (-want +got):\n%s\n%+v", completion, diff, after.Status)
		}
		if string(after.Status.Phase) != phase {
			t.Errorf("%s: phase: got %q, want %q\n%+v", completion, string(after.Status.Phase), phase, after.Status)
		}
		if !cmp.Equal(conditions, types) {
			t.Errorf("%s: conditions: got %q, want %q\n%+v", completion, conditions, types, after.Status)
		}
		before.Status, before.ResourceVersion = after.Status, after.ResourceVersion
		if diff := cmp.Diff(before.ObjectMeta, after.ObjectMeta); diff != "" || string(before.Spec.Template.Raw()) != string(after.Spec.Template.Raw()) {
			t.Errorf("the object, or its template, changed (-before +after):\n%s", diff)
		}
		s.change(pause(true))
		settled(t, s)
		if got := s.job().Status.Phase; completion == appsv1beta1.CompletionNever && got != "paused" {
			t.Errorf("phase %s", got)
		}
	}
	s := simulate(1, makeJob(func(job *appsv1beta1.BroadcastJob) { // on failure, or at its deadline
		deadline := int64(30)
		job.Spec.CompletionPolicy.ActiveDeadlineSeconds = &deadline
	}), "n1")
	s.ends = func(*corev1.Pod) corev1.PodPhase { return "" }
	settled(t, s)
	if status := s.job().Status; status.Phase != "failed" {
		t.Errorf("phase: got %q, want %q\n%+v", status.Phase, "failed", status)
	} else if status.Conditions[0].Type != "Failed" {
		t.Errorf("type of the first condition: got %q, want %q\n%+v", status.Conditions[0].Type, "Failed", status)
	}
}

// TestNothingIsDoneTwice shows BJ-060: with caches that show nothing of what was written, no pod is created
// twice; a creation whose answer was lost is looked up, and nothing waits for five minutes.
func TestNothingIsDoneTwice(t *testing.T) {
	s := simulate(1, makeJob(parallelism(number(2))), "n1", "n2", "n3")
	lost := true
	s.Faults.Lose = 1
	s.Events(all)
	for range 5 {
		s.Queue.Add()
		s.Manage()
		if lost {
			s.Faults, lost = simulation.Faults{}, false
		}
		s.Pass(2 * time.Second)
	}
	n := len(s.AllPods())
	if n != 2 {
		t.Fatalf("number of pods: got %d, want 2", n)
	}
	if got := s.Undelivered(); got == 0 {
		t.Fatalf("undelivered changes: got %d, want another value", got)
	}
	for _, pod := range s.AllPods() { // an event is never delivered: the pods have gone unseen
		s.Remove(podKey(pod.Name))
	}
	s.RunFor(time.Minute)
	if got := s.job().Status.Phase; got != "completed" {
		t.Errorf("phase: got %q, want %q\n%+v", got, "completed", s.job().Status)
	}
	if got := s.job().Status.Succeeded; got != 3 {
		t.Errorf("succeeded: got %d, want 3\n%+v", got, s.job().Status)
	}
}

const all = 1 << 20

// refuse has creations of pods of a node refused, and counts the requests.
func (s *simulated) refuse(node string, err error) *[]string {
	asked := &[]string{}
	name := nodes.PodName(jobKey.Name, string(s.job().UID), node, 0)
	s.Answer = func(r *simulation.Request) error {
		if r.Verb != "create" || r.Key.Kind != "Pod" {
			return nil
		}
		*asked = append(*asked, r.Key.Name)
		if r.Key.Name == name {
			return err
		}
		return nil
	}
	return asked
}

// TestCreationsComeInGrowingBatches shows BJ-073: creations come in batches of 1, 2, 4 and so on, and no
// batch follows one with an error.
func TestCreationsComeInGrowingBatches(t *testing.T) {
	names := strings.Fields("n0 n1 n2 n3 n4 n5 n6 n7 n8 n9")
	for failing, want := range map[string]int{"n0": 1, "n1": 3, "n2": 3, "n3": 7, "n6": 7, "n7": 10} {
		s := simulate(1, makeJob(), names...)
		asked := s.refuse(failing, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no")))
		s.Manage()
		if len(*asked) != want {
			t.Errorf("%s fails: %d creations, want %d", failing, len(*asked), want)
		}
		if status := s.job().Status; int(status.Active) != want-1 { // BJ-074 (part)
			t.Errorf("%s fails: %d active", failing, status.Active)
		}
	}
}

// TestErrorsAreTriedAgain shows BJ-065: an error comes back with the back-off of the queue, and the status is
// written all the same; one node that no pod can be created for does not hold up the others.
func TestErrorsAreTriedAgain(t *testing.T) {
	s := simulate(1, makeJob(parallelism(number(1))), "n1", "n2", "n3")
	asked := s.refuse("n1", apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("not here")))
	s.Manage()
	if got := s.job().Status.Phase; got != "running" {
		t.Errorf("phase: got %q, want %q; %+v, due %s", got, "running", s.job().Status, s.Queue.Due())
	}
	if got := s.job().Status.Desired; got != 3 {
		t.Errorf("desired: got %d, want 3; %+v, due %s", got, s.job().Status, s.Queue.Due())
	}
	if s.Queue.Due().IsZero() {
		t.Errorf("nothing is due: got true, want false; %+v, due %s", s.job().Status, s.Queue.Due())
	}
	s.RunFor(time.Minute)
	status := s.job().Status
	if status.Succeeded != 2 {
		t.Errorf("succeeded: got %d, want 2\n%+v", status.Succeeded, status)
	}
	if status.Active != 0 {
		t.Errorf("active: got %d, want 0\n%+v", status.Active, status)
	}
	if status.Phase != "running" {
		t.Errorf("phase: got %q, want %q\n%+v", status.Phase, "running", status)
	}
	n := len(*asked)
	if n > 20 {
		t.Errorf("number asked: got %d, want at most 20", n)
	}
	if got := s.countEvents("FailedCreate"); got == 0 {
		t.Errorf(`number of events FailedCreate: got %d, want another value`, got)
	}
	if !strings.Contains(strings.Join(s.Recorded, "\n"), "not here") {
		t.Errorf("events: got %q, want it to contain %q", strings.Join(s.Recorded, "\n"), "not here")
	}
	s.Answer = nil
	s.RunFor(2 * time.Minute)
	if got := s.job().Status.Phase; got != "completed" {
		t.Errorf("phase: got %q, want %q\n%+v", got, "completed", s.job().Status)
	}
	s = simulate(1, makeJob(), "n1", "n2") // a deletion
	s.ends = func(*corev1.Pod) corev1.PodPhase { return "" }
	s.RunFor(time.Second)
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "delete" {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("not now"))
		}
		return nil
	}
	s.end(s.PodsOn("n1")[0].Name, corev1.PodFailed)
	s.RunFor(time.Minute)
	if status := s.job().Status; status.Phase != "failed" {
		t.Errorf("phase: got %q, want %q\n%+v", status.Phase, "failed", status)
	} else if status.Active != 1 {
		t.Errorf("active: got %d, want 1\n%+v", status.Active, status)
	} else if status.Failed != 2 {
		t.Errorf("failed: got %d, want 2\n%+v", status.Failed, status)
	}
	s.Answer = nil
	s.RunFor(20 * time.Minute) // BJ-104 (part)
	if status := s.job().Status; status.Active != 0 {
		t.Errorf("active: got %d, want 0\n%+v", status.Active, status)
	} else if status.Failed != 2 {
		t.Errorf("failed: got %d, want 2\n%+v", status.Failed, status)
	} else if got := len(s.AllPods()); got != 1 {
		t.Errorf("number of pods: got %d, want 1\n%+v", got, status)
	}
}

// TestTheEndIsWrittenFirst shows that a manager which dies after any write leaves a job that another one ends
// (BJ-100 (part), BJ-104 (part), BJ-114 (part)).
func TestTheEndIsWrittenFirst(t *testing.T) {
	for name, job := range map[string]*appsv1beta1.BroadcastJob{
		"failed":    makeJob(),
		"completed": makeJob(onFailureRestart, onFailure(appsv1beta1.FailurePolicyContinue)),
	} {
		for dies := 1; dies < 8; dies++ {
			s := simulate(1, job.DeepCopy(), "n1", "n2", "n3")
			s.ends = func(pod *corev1.Pod) corev1.PodPhase {
				switch {
				case pod.Spec.NodeName == "n1" && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > 0:
					return ""
				case pod.Spec.NodeName == "n1":
					return corev1.PodFailed
				case name == "failed":
					return ""
				}
				return corev1.PodSucceeded
			}
			writes := 0
			s.AfterWrite = func(w simulation.Write) {
				if writes++; writes == dies {
					s.Kill()
				}
			}
			s.RunFor(20 * time.Second)
			status := s.job().Status
			want := map[string]string{"failed": "failed, 3 failed, 1 pods", "completed": "completed, 1 failed, 2 pods"}[name]
			got := fmt.Sprintf("%s, %d failed, %d pods", status.Phase, status.Failed, len(s.AllPods()))
			if got != want {
				t.Errorf("got %q, want %q; %s, dies after %d: %s, want %s\n%s", got, want, name, dies, got, want, s.describe())
			}
			if status.Active != 0 {
				t.Errorf("active: got %d, want 0; %s, dies after %d: %s, want %s\n%s", status.Active, name, dies, got, want, s.describe())
			}
		}
	}
}

// TestDeadlineAndTimeToLiveFireByThemselves shows BJ-103 (part) and BJ-120: deadline and time to live fire
// although nothing happens, in another manager, too; the job goes with its pods.
func TestDeadlineAndTimeToLiveFireByThemselves(t *testing.T) {
	deadline, ttl := int64(300), int32(100)
	s := simulate(1, makeJob(func(job *appsv1beta1.BroadcastJob) {
		job.Spec.CompletionPolicy.ActiveDeadlineSeconds, job.Spec.CompletionPolicy.TTLSecondsAfterFinished = &deadline, &ttl
	}), "n1", "n2")
	s.ends = func(*corev1.Pod) corev1.PodPhase { return "" }
	s.RunFor(time.Minute)
	s.Pass(time.Minute)
	s.Start()
	s.RunFor(179 * time.Second)
	if s.job().Status.Phase != "running" {
		t.Error("too early")
	}
	s.RunFor(2 * time.Second)
	if got := s.job().Status.Phase; got != "failed" {
		t.Errorf("phase: got %q, want %q\n%+v\n%v", got, "failed", s.job().Status, s.Recorded)
	}
	if got := s.countEvents("DeadlineExceeded"); got != 1 {
		t.Errorf("number of events DeadlineExceeded: got %d, want 1\n%+v\n%v", got, s.job().Status, s.Recorded)
	}
	s.Start()
	s.RunFor(98 * time.Second)
	if s.job() == nil {
		t.Fatal("too early")
	}
	s.RunFor(3 * time.Second)
	if got := s.job(); got != nil {
		t.Errorf("the job is there: job: got %+v, want nil", got)
	} else if got := len(s.AllPods()); got > 0 {
		t.Errorf("the job is there: pods: got %d, want none", got)
	}
}

// TestADeletedJobGetsNothing shows BJ-064: a job that is being deleted gets nothing.
func TestADeletedJobGetsNothing(t *testing.T) {
	s := simulate(1, makeJob(), "n1")
	s.Change(jobKey, func(o client.Object) {
		now := metav1.NewTime(s.Now())
		o.SetDeletionTimestamp(&now)
		o.SetFinalizers([]string{"foregroundDeletion"})
	})
	settled(t, s)
	if len(s.Writes) > 0 {
		t.Errorf("writes: got %v, want none", s.Writes)
	}
}

// TestNodeEvents shows BJ-130: the node that comes, goes or changes calls the jobs for which that matters,
// and heartbeats call none.
func TestNodeEvents(t *testing.T) {
	s := simulate(1, makeJob(), "n1", "n2")
	s.ends = func(*corev1.Pod) corev1.PodPhase { return "" }
	s.RunFor(time.Second)
	cordon := func(node *corev1.Node) { node.Spec.Unschedulable = true }
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
		}
	}
	node := func(changes ...func(*corev1.Node)) *corev1.Node {
		n := s.Get(nodeKey("n1")).DeepCopyObject().(*corev1.Node)
		for _, change := range changes {
			change(n)
		}
		return n
	}
	heartbeat := func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.NewTime(s.Now())}}
		n.ResourceVersion = "99"
	}
	unfit := node(taint("k", corev1.TaintEffectNoSchedule))
	unfit.Name = "counted"
	for name, test := range map[string]struct {
		before, after *corev1.Node
		want          bool
	}{
		"comes":                           {nil, node(), true},
		"comes, and does not fit":         {nil, node(taint("k", corev1.TaintEffectNoExecute)), false},
		"goes":                            {node(), nil, true},
		"goes, and did not fit":           {node(taint("k", corev1.TaintEffectNoSchedule)), nil, false},
		"goes, with a pod on it":          {unfit, nil, true},
		"tells that it lives":             {node(), node(heartbeat), false},
		"is cordoned":                     {node(), node(cordon), true},
		"is uncordoned":                   {node(cordon), node(), true},
		"loses a taint":                   {node(taint("k", corev1.TaintEffectNoExecute)), node(), true},
		"gets another label":              {node(), node(func(n *corev1.Node) { n.Labels = nil }), false},
		"grows":                           {node(func(n *corev1.Node) { n.Status.Allocatable = nil }), node(), true},
		"is tainted though cordoned":      {node(cordon), node(cordon, taint("k", corev1.TaintEffectNoExecute)), true},
		"is tainted while it is down":     {node(taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)), node(taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), taint("k", corev1.TaintEffectNoExecute)), true},
		"gets a taint that is but a wish": {node(), node(taint("k", corev1.TaintEffectPreferNoSchedule)), false},
	} {
		s.kube.recordCounted(s.job(), []string{"counted"})
		if got := len(s.kube.jobsOfNode(context.Background(), test.before, test.after)) > 0; got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
	s.change(func(job *appsv1beta1.BroadcastJob) { job.Status.Phase = appsv1beta1.BroadcastJobCompleted })
	s.Events(all)
	if len(s.kube.jobsOfNode(context.Background(), nil, node())) > 0 {
		t.Error("a job that has ended")
	}
}

// TestSpecChangeIgnored: who changes the template of a job with pods, or of one that has ended, is told once
// (BJ-025 (part)).
func TestSpecChangeIgnored(t *testing.T) {
	s := simulate(1, makeJob(), "n1")
	change := func(image string) {
		s.change(func(job *appsv1beta1.BroadcastJob) { setTemplate(job, strings.Replace(never, "check:1", image, 1)) })
		s.RunFor(time.Minute)
	}
	s.ends = func(*corev1.Pod) corev1.PodPhase { return "" }
	s.RunFor(time.Minute)
	pods := s.AllPods()
	change("check:2")
	if s.countEvents("SpecChangeIgnored") != 1 || !cmp.Equal(pods[0].UID, s.AllPods()[0].UID) {
		t.Errorf("a change of the template: got events %v, want one SpecChangeIgnored and the same pod", s.Recorded)
	}
	s.ends = nil
	s.RunFor(time.Minute)
	writes := len(s.Writes)
	change("check:3")
	if got := s.countEvents("SpecChangeIgnored"); got != 2 {
		t.Errorf("number of events SpecChangeIgnored: got %d, want 2\n%v", got, s.Recorded)
	}
	if len(s.Writes) != writes {
		t.Errorf("number of writes: got %d, want %d\n%v", len(s.Writes), writes, s.Recorded)
	}
	if got := s.job().Status.Phase; got != "completed" {
		t.Errorf("phase: got %q, want %q\n%v", got, "completed", s.Recorded)
	}
	s.Start()
	s.RunFor(time.Minute)
	if got := s.countEvents("SpecChangeIgnored"); got != 2 {
		t.Errorf("number of events SpecChangeIgnored: got %d, want 2\n%v", got, s.Recorded)
	}
}

// TestEventsAreToldOnce shows that what is told of is told once, though many passes find it (BJ-044 (part),
// BJ-072 (part), BJ-092 (part), BJ-134 (part)).
func TestEventsAreToldOnce(t *testing.T) {
	s := simulate(1, makeJob(onFailure(appsv1beta1.FailurePolicyPause)), "n1", "n2", "n3")
	s.ends = func(*corev1.Pod) corev1.PodPhase { return "" }
	s.RunFor(time.Minute)
	again := func() {
		for range 5 {
			s.Queue.Add()
			s.RunFor(10 * time.Second)
		}
	}
	s.change(parallelism(number(1)))
	again()
	twin := s.PodsOn("n1")[0].DeepCopy()
	twin.Name, twin.UID, twin.CreationTimestamp = "twin", "twin", metav1.NewTime(s.Now())
	s.Store(podKey("twin"), twin)
	s.Change(nodeKey("n2"), toNode(func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
	}))
	again()
	s.end(s.PodsOn("n3")[0].Name, corev1.PodFailed)
	again()
	told := map[string]int{}
	for _, event := range s.Recorded {
		told[strings.Join(strings.Fields(event)[:2], " ")]++
	}
	want := map[string]int{"Normal SuccessfulCreate": 3, "Warning TooManyActivePods": 1, "Warning DuplicatePodCreatedOnSameNode": 1,
		"Normal SuccessfulDelete": 2, "Warning Paused": 1}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s\n%q", diff, strings.Join(s.Recorded, "\n"))
	}
}

// TestStatusIsWrittenForTheNewestJob shows BJ-142: a status that was made for an older version of the job is
// not written, but made anew; and none that stays.
func TestStatusIsWrittenForTheNewestJob(t *testing.T) {
	s := simulate(1, makeJob(), "n1")
	raced := false
	s.Answer = func(r *simulation.Request) error {
		if r.Subresource == "status" && !raced {
			raced = true
			s.change(func(job *appsv1beta1.BroadcastJob) { job.Labels = map[string]string{"a": "b"} })
		}
		return nil
	}
	settled(t, s)
	if !raced {
		t.Errorf("raced: got false, want true\n%+v", s.job())
	} else if got := s.job().Status.Phase; got != "completed" {
		t.Errorf("phase: got %q, want %q\n%+v", got, "completed", s.job())
	} else if got := s.job().Labels["a"]; got != "b" {
		t.Errorf("label a: got %q, want %q\n%+v", got, "b", s.job())
	}
	writes := len(s.Writes)
	for range 3 {
		s.Queue.Add()
		s.RunFor(time.Minute)
	}
	if extra := s.Writes[writes:]; len(extra) > 0 {
		t.Errorf("written at rest: %v", extra)
	}
}

// TestTheStatusIsWrittenLastUnlessTheJobEnds shows BJ-062: what is looked at first, and that the status is
// written last, unless the job ends.
func TestTheStatusIsWrittenLastUnlessTheJobEnds(t *testing.T) {
	taint := toNode(func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
	})
	late := func(job *appsv1beta1.BroadcastJob) {
		deadline := int64(1)
		job.Spec.CompletionPolicy.ActiveDeadlineSeconds = &deadline
	}
	for name, test := range map[string]struct {
		change []option
		fails  bool
		want   string
	}{
		"a paused job neither fails nor looks at its deadline": {[]option{late, pause(true)}, true, "paused: "},
		"a failed pod comes before the deadline":               {[]option{late}, true, "failed: FailedPodFound; status, delete"},
		"the deadline comes before pods that do not fit":       {[]option{late}, false, "failed: DeadlineExceeded; status, delete, delete"},
		"pods that do not fit go, others come, status":         {nil, false, "running: ; delete, create, create, status"},
		"a job that failed is not paused":                      {[]option{pause(true), func(job *appsv1beta1.BroadcastJob) { job.Status.Phase = "failed" }}, false, "failed: "},
	} {
		s := simulate(1, makeJob(), "n1", "n2")
		s.Manage()
		first := s.job().Status
		if first.Phase != "running" {
			t.Fatalf("phase the first time: got %q, want %q\n%+v", first.Phase, "running", first)
		} else if first.StartTime == nil {
			t.Fatalf("time of the start the first time: got nil, want a value\n%+v", first)
		} else if first.Active != 2 {
			t.Fatalf("active the first time: got %d, want 2\n%+v", first.Active, first)
		}
		s.ends = func(*corev1.Pod) corev1.PodPhase { return "" }
		s.RunFor(time.Second)
		s.Pass(time.Minute)
		s.Change(nodeKey("n1"), taint)
		s.addNode("n3")
		s.addNode("n4")
		if test.fails {
			s.end(s.PodsOn("n2")[0].Name, corev1.PodFailed)
		}
		for _, change := range test.change {
			s.change(change)
		}
		s.Events(all)
		s.Recorded, s.Writes = nil, nil
		if s.Manage(); strings.Contains(test.want, "status") {
			s.RunFor(time.Second)
		}
		got := string(s.job().Status.Phase) + ": "
		for _, event := range s.Recorded {
			if reason := strings.Fields(event)[1]; !strings.HasPrefix(reason, "Successful") {
				got += reason
			}
		}
		var verbs []string
		for _, w := range s.Writes {
			if w.Subresource != "" {
				w.Verb = w.Subresource
			}
			verbs = append(verbs, w.Verb)
		}
		if wrote := "; " + strings.Join(verbs, ", "); !strings.HasPrefix(got+wrote, test.want) {
			t.Errorf("%s: %s%s, want %s", name, got, wrote, test.want)
		}
	}
}

// TestPodsAreBoundToTheirNodesByTheFlag shows the flag --assign-bcj-pods-by-scheduler=false (BJ-041 (part)).
func TestPodsAreBoundToTheirNodesByTheFlag(t *testing.T) {
	s := simulate(1, makeJob(), "n1")
	s.binds = true
	s.Start()
	s.Manage()
	if pod := s.AllPods()[0]; pod.Spec.NodeName != "n1" || slices.ContainsFunc(s.Recorded, func(e string) bool { return strings.HasPrefix(e, "Warning") }) {
		t.Errorf("pod: got %+v without a node, or there is a warning in %q", pod.Spec, s.Recorded)
	}
}
