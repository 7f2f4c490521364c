package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

func tier(value string) func(*appsv1beta1.CloneSet) {
	return clonesettest.Templated(`{"metadata":{"labels":{"app":"web","tier":"` + value +
		`"},"annotations":{"note":"x"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
}

func note(value string) func(*appsv1beta1.CloneSet) {
	return clonesettest.Templated(`{"metadata":{"labels":{"app":"web","tier":"a"},"annotations":{"note":"` + value +
		`"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
}

// TestChangedLabelsKeepThePace: a label may be what a Service selects. Pods get a new one within
// maxUnavailable, each watched for minReadySeconds before the next, ready all the time and without a grace
// period (IPU-080 (part), IPU-308 (part)).
func TestChangedLabelsKeepThePace(t *testing.T) {
	for name, seconds := range map[string]int32{"without minReadySeconds": 0, "minReadySeconds 20": 20} {
		t.Run(name, func(t *testing.T) {
			s := atRest(t, clonesettest.Set(5, tier("a"), clonesettest.MaxUnavailable(2), clonesettest.MinReadySeconds(seconds),
				clonesettest.InPlaceGrace(30)), cloneset.Features{})
			moving := 0
			s.BeforeWrite = func(_ simulation.Write, _, after client.Object) {
				if pod, ok := after.(*corev1.Pod); ok {
					now := 0
					for _, other := range s.active() {
						if other.Name == pod.Name {
							other = pod
						}
						if !readiness.Settled(other) {
							now++
						}
						if !readiness.Ready(other) {
							t.Errorf("pod %s is taken out of service", other.Name)
						}
					}
					moving = max(moving, now)
				}
			}
			start, writes := s.Now(), len(s.Writes)
			s.Edit(tier("b"))
			if err := s.Settle(300); err != nil {
				t.Fatal(err)
			}
			status := s.set().Status
			if moving != 2 {
				t.Errorf("moving: got %d, want 2; %d at a time, %+v", moving, moving, status)
			}
			if status.UpdatedAvailableReplicas != 5 {
				t.Errorf("updated and available replicas: got %d, want 5; %d at a time, %+v",
					status.UpdatedAvailableReplicas, moving, status)
			}
			perPod := 0
			for _, w := range s.Writes[writes:] {
				if w.Key.Kind == "Pod" {
					perPod++
				}
			}
			took := s.Now().Sub(start)
			if took < time.Duration(3*seconds-1)*time.Second {
				t.Errorf("time since the start: got %v, want at least %v", took, time.Duration(3*seconds-1)*time.Second)
			}
			if perPod != 10 {
				t.Errorf("time for a pod: got %d, want 10", perPod)
			}
		})
	}
}

// TestChangedAnnotationsGoFaster: an annotation that nothing of the pod reads changes in one write, at once,
// and costs no pod of surge.
func TestChangedAnnotationsGoFaster(t *testing.T) {
	for name, options := range map[string]func(*appsv1beta1.CloneSet){"maxUnavailable 1": clonesettest.MaxUnavailable(1),
		"surge alone": clonesettest.Surge(1, 0)} {
		t.Run(name, func(t *testing.T) {
			s := atRest(t, clonesettest.Set(5, note("x"), options), cloneset.Features{})
			writes := len(s.Writes)
			s.Edit(note("y"))
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			pods := 0
			for _, w := range s.Writes[writes:] {
				if w.Key.Kind == "Pod" {
					pods++
				}
			}
			status := s.set().Status
			if pods != 5 {
				t.Errorf("pods: got %d, want 5; %d writes of pods, %+v", pods, pods, status)
			}
			if status.UpdatedAvailableReplicas != 5 {
				t.Errorf("updated and available replicas: got %d, want 5; %d writes of pods, %+v",
					status.UpdatedAvailableReplicas, pods, status)
			}
		})
	}
}

// TestRecordNamesTheRevision: the record of an update has the whole name of the revision, whatever the labels
// have (IPU-061).
func TestRecordNamesTheRevision(t *testing.T) {
	for _, short := range []bool{true, false} {
		s := atRest(t, clonesettest.Set(1), cloneset.Features{ShortHash: short})
		s.Edit(clonesettest.Image("nginx:2"))
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		var record struct{ Revision string }
		err := json.Unmarshal([]byte(s.active()[0].Annotations[pub.InPlaceUpdateState]), &record)
		if err != nil {
			t.Errorf("unexpected error: %v; short labels %t: %+v %v", err, short, record, err)
		} else if record.Revision == "" {
			t.Errorf("revision of the record: got nothing, want some text; short labels %t: %+v %v", short, record,
				err)
		} else if want := s.set().Status.UpdateRevision; record.Revision != want {
			t.Errorf("revision of the record: got %q, want %q; short labels %t: %+v %v", record.Revision, want, short,
				record, err)
		} else if got := (s.active()[0].Labels[pub.ControllerRevisionHash] == record.Revision); got == short {
			t.Errorf("the pod has the name of the recorded revision: got %t, want another value; short labels %t: %+v %v",
				got, short, record, err)
		}
	}
}

// TestOnDeleteLetsPreparingPodsServe: OnDelete never updates a pod; one that had begun to prepare its update
// comes back into service (CS-361 (part), IPU-012 (part)).
func TestOnDeleteLetsPreparingPodsServe(t *testing.T) {
	s := atRest(t, clonesettest.Set(1, clonesettest.UpdateHook(true), clonesettest.HookedImage("nginx:1")),
		cloneset.Features{PreparingUpdateAsUpdate: true})
	s.Edit(clonesettest.HookedImage("nginx:2"))
	if err := s.Settle(200); err != nil {
		t.Fatal(err)
	}
	if state := s.active()[0].Labels[pub.LifecycleState]; state != string(pub.LifecycleStatePreparingUpdate) {
		t.Fatalf("state %s", state)
	}
	s.Edit(func(set *appsv1beta1.CloneSet) {
		set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteCloneSetUpdateStrategyType
	})
	if err := s.Settle(200); err != nil {
		t.Fatal(err)
	}
	status := s.set().Status
	if status.AvailableReplicas != 1 {
		t.Errorf("available replicas: got %d, want 1\n%+v\n%s", status.AvailableReplicas, status, s.describe())
	}
	if status.UpdatedReplicas != 0 {
		t.Errorf("updated replicas: got %d, want 0\n%+v\n%s", status.UpdatedReplicas, status, s.describe())
	}
}

// TestAutoscalersSizeIsNotFoughtOver: quantities that another revision has are written again once at a
// revision, since a manager may have died in the middle of an update. Whoever sets them again, such as an
// autoscaler, means them (IPU-326 (part)).
func TestAutoscalersSizeIsNotFoughtOver(t *testing.T) {
	s := atRest(t, clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))),
		cloneset.Features{InPlace: inplace.Options{Resize: true}})
	s.Edit(clonesettest.App("nginx:1", "a", "", clonesettest.CPU("3")))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	resizes := 0
	for range 10 {
		s.Change(podKey(s.active()[0].Name), func(o client.Object) {
			o.(*corev1.Pod).Spec.Containers[0].Resources = *clonesettest.Set(1, clonesettest.App("nginx:1", "a", "",
				clonesettest.CPU("2"))).Spec.Template.Spec.Containers[0].Resources.DeepCopy()
		})
		before := len(s.Writes)
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		for _, w := range s.Writes[before:] {
			if w.Subresource == "resize" {
				resizes++
			}
		}
	}
	if resizes != 1 {
		t.Errorf("%d of 10 settings were taken back", resizes)
	}
}

// TestAPodThatPartitionKeepsHasItsOwnSize: the manager died after it had resized a pod and before it wrote
// its image; then the partition was raised, and the pod stays at its revision. It gets back the size that
// goes with that, and keeps its name (IPU-326 (part)).
func TestAPodThatPartitionKeepsHasItsOwnSize(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))),
		cloneset.Features{InPlace: inplace.Options{Resize: true}})
	before := s.active()
	s.Refused = func(w simulation.Write) bool { // what would come after the resize
		return w.Key.Kind == "Pod" && w.Subresource == "" && w.Verb == "patch"
	}
	s.Edit(clonesettest.App("nginx:2", "a", "", clonesettest.CPU("3")))
	for range 20 {
		s.Round()
	}
	s.Refused = nil
	s.Edit(clonesettest.Partition(2))
	hasItsOwnSize(t, s, before)
}

// TestAPodThatPartitionKeepsHasItsOwnSizeWithoutUnavailability: likewise where no pod may be unavailable: a
// surge pod stands in for it meanwhile (IPU-326 (part), CS-102 (part)).
func TestAPodThatPartitionKeepsHasItsOwnSizeWithoutUnavailability(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2")), clonesettest.Surge(1, 0)),
		cloneset.Features{InPlace: inplace.Options{Resize: true}})
	before := s.active()
	s.Edit(clonesettest.Both(clonesettest.App("nginx:2", "a", "", clonesettest.CPU("3")), clonesettest.Partition(2)))
	if err := s.Settle(200); err != nil {
		t.Fatal(err)
	}
	s.Change(podKey(before[0].Name), func(o client.Object) {
		o.(*corev1.Pod).Spec.Containers[0].Resources = *s.set().Spec.Template.Spec.Containers[0].Resources.DeepCopy()
	})
	lowest := 2
	s.Planned = func(plan *cloneset.Plan, _ podapply.Outcome) {
		if plan.Status.AvailableReplicas > 0 {
			lowest = min(lowest, int(plan.Status.AvailableReplicas))
		}
	}
	hasItsOwnSize(t, s, before)
	if lowest < 2 {
		t.Errorf("%d pods available", lowest)
	}
}

func hasItsOwnSize(t *testing.T, s *simulated, before []*corev1.Pod) {
	t.Helper()
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	pods := s.active()
	if len(pods) != len(before) {
		t.Fatalf("%d pods", len(pods))
	}
	for i, pod := range pods {
		c := pod.Spec.Containers[0]
		if pod.UID != before[i].UID {
			t.Errorf("UID of the pod: got %q, want %q; %s has %s and %s", pod.UID, before[i].UID, pod.Name, c.Image,
				c.Resources.Limits.Cpu())
		}
		if c.Image != "nginx:1" {
			t.Errorf("image: got %q, want %q; %s has %s and %s", c.Image, "nginx:1", pod.Name, c.Image,
				c.Resources.Limits.Cpu())
		}
		if got := c.Resources.Limits.Cpu().String(); got != "2" {
			t.Errorf("CPU of the limits of the resources: got %q, want %q; %s has %s and %s", got, "2", pod.Name,
				c.Image, c.Resources.Limits.Cpu())
		}
	}
}

// TestAStuckUpdateEndsWhenPodsMayBeReplaced: an update in place waits for a node daemon that there is not,
// and the user turns to ReCreate. The pod stayed as it was, not ready, for ever; it is replaced
// (IPU-312 (part)).
func TestAStuckUpdateEndsWhenPodsMayBeReplaced(t *testing.T) {
	only := clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy)
	s := atRest(t, clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", ""), only),
		cloneset.Features{InPlace: inplace.Options{EnvFromMetadata: true}})
	before := s.active()[0].UID
	s.Node.Daemon = false
	s.Edit(clonesettest.App("nginx:1", "b", "", ""))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	pod := s.active()[0]
	if pod.UID != before {
		t.Fatalf("the update is not stuck: UID of the pod: got %q, want %q\n%s", pod.UID, before, s.describe())
	}
	if readiness.Ready(pod) {
		t.Fatalf("the update is not stuck: the pod is ready: got true, want false\n%s", s.describe())
	}
	s.Edit(clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	if pod := s.active()[0]; pod.UID == before {
		t.Errorf("UID of the pod: got %q, want another value\n%s\n%+v", pod.UID, s.describe(),
			s.set().Status.Conditions)
	} else if !readiness.Ready(pod) {
		t.Errorf("the pod is ready: got false, want true\n%s\n%+v", s.describe(), s.set().Status.Conditions)
	} else if got := len(s.set().Status.Conditions); got > 0 {
		t.Errorf("conditions: got %d, want none\n%s\n%+v", got, s.describe(), s.set().Status.Conditions)
	}
}

// TestAnUpdateDoesNotWaitForADaemonThatWasRemoved: the node daemon reported a pod, and was removed from the
// node, or crashes. An update that only it can complete left the pod not ready for ever, and nothing told
// why. The pod is replaced where the policy allows, and else it is told (IPU-312 (part)).
func TestAnUpdateDoesNotWaitForADaemonThatWasRemoved(t *testing.T) {
	for policy, replaced := range map[appsv1beta1.CloneSetPodUpdatePolicy]bool{appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy: false,
		appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy: true} {
		t.Run(string(policy), func(t *testing.T) {
			s := simulate(1, clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", ""), clonesettest.Policy(policy)),
				cloneset.Features{InPlace: inplace.Options{EnvFromMetadata: true}})
			s.Node.Daemon = true
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			before := s.active()[0]
			if !inplace.Reported(before) {
				t.Fatal("the daemon has not reported the pod")
			}
			s.Node.Daemon = false
			s.Edit(clonesettest.App("nginx:1", "b", "", ""))
			s.advance(5 * time.Minute)
			if pod := s.active()[0]; pod.UID != before.UID {
				t.Error("the daemon had no time")
			}
			s.advance(time.Minute)
			pod, status := s.active()[0], s.set().Status
			failed := cloneset.Condition(&status, appsv1beta1.CloneSetConditionFailedUpdate)
			if told := failed != nil && strings.Contains(failed.Message, "node daemon"); told == replaced {
				t.Errorf("told: got %t, want another value\n%s\n%+v", told, s.describe(), status.Conditions)
			}
			if (pod.UID != before.UID) != replaced {
				t.Errorf("the pod is another one: got %t, want %t\n%s\n%+v", pod.UID != before.UID, replaced,
					s.describe(), status.Conditions)
			}
			if got := readiness.Ready(pod); got != replaced {
				t.Errorf("the pod is ready: got %t, want %t\n%s\n%+v", got, replaced, s.describe(), status.Conditions)
			}
			plan, _, err := s.Once()
			if err != nil && replaced {
				t.Fatalf("replaced: got true, want false\n%v", err)
			}
			if said := plan.String(); strings.Contains(said, "NoNodeDaemon") == replaced {
				t.Errorf("NoNodeDaemon is told: got %t, want another value\n%s", strings.Contains(said, "NoNodeDaemon"),
					said)
			}
		})
	}
}

// TestRefusedUpdateIsNoSuccess: an update that the API server refuses, so that the pod is recreated, is told
// as that alone, and counted as that (CS-235 (part)).
func TestRefusedUpdateIsNoSuccess(t *testing.T) {
	s := atRest(t, clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))),
		cloneset.Features{InPlace: inplace.Options{Resize: true}})
	before := s.active()[0]
	s.Answer = unresizable(nil)
	done := map[podplan.Action]int{}
	s.Planned = func(_ *cloneset.Plan, outcome podapply.Outcome) {
		for _, v := range outcome.Done {
			done[v.Action]++
		}
	}
	s.Edit(clonesettest.App("nginx:1", "a", "", clonesettest.CPU("3")))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	for _, event := range s.Recorded {
		if strings.Contains(event, "SuccessfulUpdatePodInPlace") && strings.Contains(event, before.Name) {
			t.Errorf("event: got %q, want it not to contain %q", event, before.Name)
		}
	}
	if done[podplan.UpdateInPlace] != 0 {
		t.Errorf("done: number updated in place: got %d, want 0\n%v", done[podplan.UpdateInPlace], done)
	}
	if done[podplan.Recreate] != 1 {
		t.Errorf("done: number recreated: got %d, want 1\n%v", done[podplan.Recreate], done)
	}
	if done[podplan.Delete] != 1 {
		t.Errorf("done: number deleted: got %d, want 1\n%v", done[podplan.Delete], done)
	}
}

func labelled(tier, image string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		clonesettest.SetTemplate(set, fmt.Sprintf(`{"metadata":{"labels":{"app":"web","tier":%q}},"spec":{"containers":[{"name":"nginx","image":%q}]}}`,
			tier, image))
	}
}
