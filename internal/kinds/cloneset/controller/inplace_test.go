package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

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
		s.Edit(clonesettest.Image(images[1]))
		for ; s.Now().Sub(begin) < 10*time.Second; s.Pass(time.Second) {
			look()
		}
		s.Edit(clonesettest.Image(images[0]))
		for ; s.Now().Sub(begin) < 3*time.Minute; s.Pass(time.Second) {
			look()
		}
		if len(seen) != 2 {
			t.Errorf("%v: number seen: got %d, want 2\n%v", images, len(seen), seen)
		} else if seen[0] != images[1]+" at 30s" {
			t.Errorf("%v: first seen: got %q, want %q\n%v", images, seen[0], images[1]+" at 30s", seen)
		} else if !strings.HasPrefix(seen[1], images[0]+" at ") {
			t.Errorf("%v: second seen: got %q, want it to begin with %q\n%v", images, seen[1], images[0]+" at ", seen)
		}
		pod := s.active()[0]
		status, err := inplace.Progress(pod, s.Now())
		if set := s.set().Status; err != nil {
			t.Errorf("%v: unexpected error: %v\n%+v\n%+v", images, err, status, set)
		} else if !status.Complete {
			t.Errorf("%v: complete: got false, want true\n%+v\n%v\n%+v", images, status, err, set)
		} else if pod.UID != uid {
			t.Errorf("%v: UID of the pod: got %q, want %q\n%+v\n%v\n%+v", images, pod.UID, uid, status, err, set)
		} else if set.UpdatedAvailableReplicas != 1 {
			t.Errorf("%v: updated and available replicas: got %d, want 1\n%+v\n%v\n%+v", images,
				set.UpdatedAvailableReplicas, status, err, set)
		} else if set.ReadyReplicas != 1 {
			t.Errorf("%v: ready replicas: got %d, want 1\n%+v\n%v\n%+v", images, set.ReadyReplicas, status, err, set)
		} else if inplace.InGrace(pod) {
			t.Errorf("%v: the pod is in its grace period: got true, want false\n%+v\n%v\n%+v", images, status, err,
				set)
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
		s.Edit(clonesettest.Image("nginx:2"))
		for s.active()[0].Annotations[pub.InPlaceUpdateState] == "" || (grace > 0) != inplace.InGrace(s.active()[0]) {
			s.Round()
		}
		s.Recorded = nil
		(&tale{simulated: s}).edit(s.active()[0], func(pod *corev1.Pod) { pod.Annotations[pub.InPlaceUpdateState] = "junk" })
		for range 120 {
			s.Round()
			s.Pass(time.Second)
		}
		pod := s.active()[0]
		if !slices.ContainsFunc(s.Recorded, func(e string) bool {
			return strings.HasPrefix(e, "Warning FailedUpdatePodInPlace annotation apps.kruise.io/inplace-update-state of pod "+pod.Name+" is unreadable") && strings.HasSuffix(e, "its update begins anew")
		}) {
			t.Errorf("%s: events %q", name, s.Recorded)
		}
		status, err := inplace.Progress(pod, s.Now())
		if set := s.set().Status; err != nil {
			t.Errorf("%s: unexpected error: %v\n%+v\n%+v", name, err, status, set)
		} else if !status.Complete {
			t.Errorf("%s: complete: got false, want true\n%+v\n%v\n%+v", name, status, err, set)
		} else if pod.UID != uid {
			t.Errorf("%s: UID of the pod: got %q, want %q\n%+v\n%v\n%+v", name, pod.UID, uid, status, err, set)
		} else if pod.Spec.Containers[0].Image != "nginx:2" {
			t.Errorf("%s: image of the first container of the pod: got %q, want %q\n%+v\n%v\n%+v", name,
				pod.Spec.Containers[0].Image, "nginx:2", status,
				err, set)
		} else if set.UpdatedAvailableReplicas != 1 {
			t.Errorf("%s: updated and available replicas: got %d, want 1\n%+v\n%v\n%+v", name,
				set.UpdatedAvailableReplicas, status, err, set)
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
	s.Node.Daemon = true
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	uid := s.active()[0].UID
	s.Edit(prioritizedApp("nginx:2", "b"))
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
			if agent.RestartCount != 1 {
				t.Errorf("nginx was updated while the agent was so: restart count of the agent: got %d, want 1\n%+v",
					agent.RestartCount, agent)
			}
			if !agent.Ready {
				t.Errorf("nginx was updated while the agent was so: agent is ready: got false, want true\n%+v", agent)
			}
			if pod.Annotations["config"] != "b" {
				t.Errorf("nginx was updated while the agent was so: annotation config of the pod: got %q, want %q\n%+v",
					pod.Annotations["config"],
					"b", agent)
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
	if !waited {
		t.Errorf("waited: got false, want true; waited %t, followed %t, %+v %v %+v", waited, followed, status, err,
			state.ContainerBatchesRecord)
	} else if !followed {
		t.Errorf("followed: got false, want true; waited %t, followed %t, %+v %v %+v", waited, followed, status, err,
			state.ContainerBatchesRecord)
	} else if pod.UID != uid {
		t.Errorf("UID of the pod: got %q, want %q; waited %t, followed %t, %+v %v %+v", pod.UID, uid, waited,
			followed, status, err,
			state.ContainerBatchesRecord)
	} else if err != nil {
		t.Errorf("unexpected error: %v; waited %t, followed %t, %+v %v %+v", err, waited, followed, status, err,
			state.ContainerBatchesRecord)
	} else if !status.Complete {
		t.Errorf("complete: got false, want true; waited %t, followed %t, %+v %v %+v", waited, followed, status,
			err,
			state.ContainerBatchesRecord)
	} else if len(state.ContainerBatchesRecord) != 2 {
		t.Errorf("number of batches: got %d, want 2; waited %t, followed %t, %+v %v %+v",
			len(state.ContainerBatchesRecord),
			waited, followed, status, err, state.ContainerBatchesRecord)
	} else if !slices.Equal(state.ContainerBatchesRecord[0].Containers, []string{"agent"}) {
		t.Errorf("containers of the first batch: got %q, want %q; waited %t, followed %t, %+v %v %+v",
			state.ContainerBatchesRecord[0].Containers, []string{"agent"}, waited, followed, status, err,
			state.ContainerBatchesRecord)
	} else if !slices.Equal(state.ContainerBatchesRecord[1].Containers, []string{"nginx"}) {
		t.Errorf("containers of the second batch: got %q, want %q; waited %t, followed %t, %+v %v %+v",
			state.ContainerBatchesRecord[1].Containers, []string{"nginx"}, waited, followed, status, err,
			state.ContainerBatchesRecord)
	}
	agent, nginx := statusOf(pod, "agent"), statusOf(pod, "nginx")
	if agent.RestartCount != 1 {
		t.Errorf("restart count of the agent: got %d, want 1", agent.RestartCount)
	}
	if nginx.RestartCount != 1 {
		t.Errorf("restart count of the nginx: got %d, want 1", nginx.RestartCount)
	}
}

// IPU-001: of a pod that is updated in place nothing changes that anybody relies on: neither name nor UID,
// node, address and volumes, nor the container that has nothing to change, which runs on.
func TestWhatAnUpdateInPlaceLeavesAlone(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.TwoImages("nginx:1", "agent:1"), clonesettest.Claims("1Gi")), cloneset.Features{})
	for i, pod := range s.active() {
		s.Change(podKey(pod.Name), func(o client.Object) { o.(*corev1.Pod).Status.PodIP = fmt.Sprintf("10.0.0.%d", i) })
	}
	type rest struct {
		UID        types.UID
		Node, IP   string
		Volumes    []corev1.Volume
		Data       types.UID
		Agent      corev1.ContainerStatus
		AgentsSpec corev1.Container
	}
	of := func() (map[string]rest, []string) {
		all, nginx := map[string]rest{}, []string(nil)
		for _, pod := range s.active() {
			r := rest{UID: pod.UID, Node: pod.Spec.NodeName, IP: pod.Status.PodIP, Volumes: pod.Spec.Volumes, Data: s.data()[pod.Name]}
			for i := range pod.Spec.Containers {
				if status := pod.Status.ContainerStatuses[slices.IndexFunc(pod.Status.ContainerStatuses,
					func(c corev1.ContainerStatus) bool { return c.Name == pod.Spec.Containers[i].Name })]; status.Name == "agent" {
					r.Agent, r.AgentsSpec = status, pod.Spec.Containers[i]
				} else {
					nginx = append(nginx, fmt.Sprintf("%s %s %t", pod.Spec.Containers[i].Image, status.Image, status.Ready))
				}
			}
			all[pod.Name] = r
		}
		return all, nginx
	}
	before, _ := of()
	s.Edit(clonesettest.TwoImages("nginx:2", "agent:1"))
	if err := s.Settle(200); err != nil {
		t.Fatal(err)
	}
	after, nginx := of()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("pods that are updated in place (-before +after):\n%s", diff)
	}
	if !slices.Equal(nginx, []string{"nginx:2 nginx:2 true", "nginx:2 nginx:2 true"}) {
		t.Errorf("nginx: %q", nginx)
	}
	for name, r := range before {
		if r.Node == "" {
			t.Errorf("node: got nothing, want some text; pod %s had %+v", name, r)
		}
		if r.IP == "" {
			t.Errorf("IP: got nothing, want some text; pod %s had %+v", name, r)
		}
		if r.Data == "" {
			t.Errorf("data: got nothing, want some text; pod %s had %+v", name, r)
		}
		if len(r.Volumes) != 1 {
			t.Errorf("number of volumes: got %d, want 1; pod %s had %+v", len(r.Volumes), name, r)
		}
		if r.Agent.ContainerID == "" {
			t.Errorf("ID of the container of the agent: got nothing, want some text; pod %s had %+v", name, r)
		}
		if r.Agent.State.Running == nil {
			t.Errorf("state of the agent is running: got nil, want a value; pod %s had %+v", name, r)
		}
	}
}
