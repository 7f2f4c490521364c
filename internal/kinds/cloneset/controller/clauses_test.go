package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// CS-190 (part), IPU-152 (part): a new pod is not available before its preNormal hook has wholly arrived,
// however ready it is; then it is.
func TestANewPodWaitsForItsWholePreNormalHook(t *testing.T) {
	s := simulate(1, clonesettest.Set(2, func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{PreNormal: &pub.LifecycleHook{LabelsHandler: map[string]string{"registered": "yes"},
			FinalizersHandler: []string{"registry.example/entry"}}}
	}), cloneset.Features{})
	expect := func(when string, available int32, states ...string) {
		t.Helper()
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, pod := range s.active() {
			got = append(got, pod.Labels[pub.LifecycleState])
		}
		slices.Sort(got)
		if status := s.set().Status; status.AvailableReplicas != available || status.ReadyReplicas != 2 || !slices.Equal(got, states) {
			t.Errorf("%s: %d available, %d ready, %v", when, status.AvailableReplicas, status.ReadyReplicas, got)
		}
	}
	preparing, normal := string(pub.LifecycleStatePreparingNormal), string(pub.LifecycleStateNormal)
	expect("new", 0, preparing, preparing)
	names := []string{s.active()[0].Name, s.active()[1].Name}
	tale := &tale{simulated: s}
	tale.edit(s.active()[0], label("registered", "no"))
	tale.edit(s.active()[1], func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, "registry.example/entry") })
	expect("another value; the finalizer alone", 0, preparing, preparing)
	tale.edit(s.active()[0], label("registered", "yes"))
	expect("the label alone", 0, preparing, preparing)
	tale.edit(s.active()[0], func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, "registry.example/entry") })
	expect("one has both", 1, normal, preparing)
	tale.edit(s.active()[1], label("registered", "yes"))
	expect("both have", 2, normal, normal)
	if got := []string{s.active()[0].Name, s.active()[1].Name}; !slices.Equal(got, names) {
		t.Errorf("pods %v became %v", names, got)
	}
}

// IPU-216: a rollback 10 s into a grace period of 30 s: the second image is written at its end all the same,
// then the first again, and the pod ends complete and ready. Images without a tag among them, at which the
// reference hung.
func TestARollbackInTheGracePeriodComesAfterIt(t *testing.T) {
	for _, images := range [][2]string{{"nginx:1", "nginx:2"}, {"nginx", "nginx:2"}, {"nginx:1", "nginx"}} {
		s := atRest(t, clonesettest.Set(1, clonesettest.Image(images[0]),
			clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
				s.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: 30}
			})), cloneset.Features{})
		begin, last, uid := s.Now(), images[0], s.active()[0].UID
		var seen []string
		look := func() {
			s.Round()
			if now := s.active()[0].Spec.Containers[0].Image; now != last {
				last = now
				seen = append(seen, fmt.Sprintf("%s at %s", now, s.Now().Sub(begin)))
			}
		}
		s.change(clonesettest.Image(images[1]))
		for ; s.Now().Sub(begin) < 10*time.Second; s.Pass(time.Second) {
			look()
		}
		s.change(clonesettest.Image(images[0]))
		for ; s.Now().Sub(begin) < 3*time.Minute; s.Pass(time.Second) {
			look()
		}
		if len(seen) != 2 || seen[0] != images[1]+" at 30s" || !strings.HasPrefix(seen[1], images[0]+" at ") {
			t.Errorf("%v: %v", images, seen)
		}
		pod := s.active()[0]
		status, err := inplace.Progress(pod, s.Now())
		if set := s.set().Status; err != nil || !status.Complete || pod.UID != uid || set.UpdatedAvailableReplicas != 1 ||
			set.ReadyReplicas != 1 || inplace.InGrace(pod) {
			t.Errorf("%v: %+v %v %+v", images, status, err, set)
		}
	}
}

// IPU-305: a record that nobody can read, in the grace period and after it, is told, and the update of that
// pod begins anew.
func TestAnUnreadableRecordIsToldAndTheUpdateBeginsAnew(t *testing.T) {
	for name, grace := range map[string]int32{"in the grace period": 30, "without one": 0} {
		s := atRest(t, clonesettest.Set(1, clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
			s.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: grace}
		})), cloneset.Features{})
		uid := s.active()[0].UID
		s.change(clonesettest.Image("nginx:2"))
		for s.active()[0].Annotations[pub.InPlaceUpdateState] == "" || (grace > 0) != inplace.InGrace(s.active()[0]) {
			s.Round()
		}
		s.events = nil
		(&tale{simulated: s}).edit(s.active()[0], func(pod *corev1.Pod) { pod.Annotations[pub.InPlaceUpdateState] = "junk" })
		for range 120 {
			s.Round()
			s.Pass(time.Second)
		}
		pod := s.active()[0]
		if !slices.ContainsFunc(s.events, func(e string) bool {
			return strings.HasPrefix(e, "Warning FailedUpdatePodInPlace annotation apps.kruise.io/inplace-update-state of pod "+pod.Name+" is unreadable") && strings.HasSuffix(e, "its update begins anew")
		}) {
			t.Errorf("%s: events %q", name, s.events)
		}
		status, err := inplace.Progress(pod, s.Now())
		if set := s.set().Status; err != nil || !status.Complete || pod.UID != uid || pod.Spec.Containers[0].Image != "nginx:2" ||
			set.UpdatedAvailableReplicas != 1 {
			t.Errorf("%s: %+v %v %+v", name, status, err, set)
		}
	}
}

// CS-276: a rollout that is paused from its beginning changes no pod and adds none, though surge is allowed;
// pods that go are replaced by the revision that goes with the partition, and the deadline does not pass.
func TestAPausedRolloutKeepsItsPods(t *testing.T) {
	deadline := int32(60)
	inPlace, reCreate := appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, appsv1beta1.ReCreateCloneSetPodUpdatePolicy
	for _, test := range []struct {
		policy         appsv1beta1.CloneSetPodUpdatePolicy
		partition, old int
	}{{inPlace, 0, 0}, {inPlace, 2, 2}, {reCreate, 0, 0}, {reCreate, 2, 2}, {reCreate, 3, 3}} {
		s := atRest(t, clonesettest.Set(3, clonesettest.Policy(test.policy), clonesettest.Surge(2, 1), clonesettest.Partition(test.partition),
			func(set *appsv1beta1.CloneSet) { set.Spec.ProgressDeadlineSeconds = &deadline }), cloneset.Features{})
		first := s.set().Status.UpdateRevision
		before := s.active()
		s.change(clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.Paused(true)))
		for range 200 {
			s.Round()
			s.Pass(time.Second)
			if n := len(s.active()); n != 3 {
				t.Fatalf("partition %d: %d pods", test.partition, n)
			}
		}
		for i, pod := range s.active() {
			if pod.UID != before[i].UID || pod.Spec.Containers[0].Image != "nginx:1" ||
				pod.Labels[pub.ControllerRevisionHash] != before[i].Labels[pub.ControllerRevisionHash] {
				t.Errorf("partition %d: %s changed", test.partition, pod.Name)
			}
		}
		if c := cloneset.Condition(&s.set().Status, appsv1beta1.CloneSetConditionProgressing); c == nil || c.Status != corev1.ConditionTrue ||
			c.Reason != "CloneSetPaused" {
			t.Errorf("partition %d: %+v", test.partition, c)
		}
		for _, pod := range before { // somebody drains all nodes
			if err := s.Delete(podKey(pod.Name), pod); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				s.Round()
				s.Pass(time.Second)
			}
		}
		if err := s.Settle(200); err != nil {
			t.Fatal(err)
		}
		old := 0
		for _, pod := range s.active() {
			if slices.ContainsFunc(before, func(b *corev1.Pod) bool { return b.UID == pod.UID }) {
				t.Errorf("partition %d: %s is still there", test.partition, pod.Name)
			}
			if strings.HasSuffix(first, pod.Labels[pub.PodTemplateHash]) != (pod.Spec.Containers[0].Image == "nginx:1") {
				t.Errorf("partition %d: %s of %s has %s", test.partition, pod.Name, pod.Labels[pub.PodTemplateHash],
					pod.Spec.Containers[0].Image)
			}
			if pod.Spec.Containers[0].Image == "nginx:1" {
				old++
			}
		}
		if len(s.active()) != 3 || old != test.old {
			t.Errorf("partition %d: %d of %d pods are old", test.partition, old, len(s.active()))
		}
	}
}

// prioritizedApp is a template of nginx, and of agent with launch priority 10 that reads annotation config.
// The barriers are those that the webhook gives pods: one of 0 to a container without priority.
func prioritizedApp(image, config string) func(*appsv1beta1.CloneSet) {
	barrier := func(priority int) string {
		return fmt.Sprintf(`{"name":"KRUISE_CONTAINER_BARRIER","valueFrom":{"configMapKeyRef":{"name":"b","key":"p_%d"}}}`, priority)
	}
	return clonesettest.Templated(fmt.Sprintf(`{"metadata":{"labels":{"app":"web"},"annotations":{"config":%q}},"spec":{"containers":[{"name":"nginx","image":%q,"env":[%s]},`+
		`{"name":"agent","image":"agent:1","env":[%s,{"name":"CONFIG","valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['config']"}}}]}]}}`,
		config, image, barrier(0), barrier(10)))
}

// IPU-217: the configuration of a sidecar that starts first, and the image of the application, change
// together: the sidecar is restarted, and only when it is complete and ready does the application follow.
func TestTheSidecarRestartsBeforeTheApplicationIsUpdated(t *testing.T) {
	s := simulate(1, clonesettest.Set(1, prioritizedApp("nginx:1", "a")), cloneset.Features{InPlace: inplace.Options{EnvFromMetadata: true}})
	s.node.Daemon = true
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	uid := s.active()[0].UID
	s.change(prioritizedApp("nginx:2", "b"))
	statusOf := func(pod *corev1.Pod, name string) corev1.ContainerStatus {
		return pod.Status.ContainerStatuses[slices.IndexFunc(pod.Status.ContainerStatuses,
			func(c corev1.ContainerStatus) bool { return c.Name == name })]
	}
	waited, followed := false, false
	for range 200 {
		pod := s.active()[0]
		agent := statusOf(pod, "agent")
		switch written := pod.Spec.Containers[0].Image; {
		case written == "nginx:2" && !followed:
			followed = true
			if agent.RestartCount != 1 || !agent.Ready || pod.Annotations["config"] != "b" {
				t.Errorf("nginx was updated while the agent was so: %+v", agent)
			}
		case written == "nginx:1" && pod.Annotations["config"] == "b" && (agent.RestartCount == 0 || !agent.Ready):
			waited = true
		}
		s.Round()
		s.Pass(time.Second)
	}
	pod := s.active()[0]
	status, err := inplace.Progress(pod, s.Now())
	state, _ := inplace.StateOf(pod)
	if !waited || !followed || pod.UID != uid || err != nil || !status.Complete || len(state.ContainerBatchesRecord) != 2 ||
		!slices.Equal(state.ContainerBatchesRecord[0].Containers, []string{"agent"}) ||
		!slices.Equal(state.ContainerBatchesRecord[1].Containers, []string{"nginx"}) {
		t.Errorf("waited %t, followed %t, %+v %v %+v", waited, followed, status, err, state.ContainerBatchesRecord)
	}
	if agent, nginx := statusOf(pod, "agent"), statusOf(pod, "nginx"); agent.RestartCount != 1 || nginx.RestartCount != 1 {
		t.Errorf("agent was restarted %d times, nginx %d times", agent.RestartCount, nginx.RestartCount)
	}
}
