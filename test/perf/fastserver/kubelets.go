package fastserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/afloat-project/afloat/internal/memcluster/rules"
)

// Kubelets are simulated: a scheduler and nodes in the process of the server, which write without requests.
// They do what the kwok stages of the other scenarios do (test/cluster/kwok-stages.yaml), within
// milliseconds.
type Kubelets struct {
	// Bind, Start, Restart, Ready and End are how long it takes to bind a pod to a node, to start its
	// containers, to restart one whose image was changed, to set the condition Ready, and to end a pod.
	Bind, Start, Restart, Ready, End time.Duration
	// Nodes is how many there are.
	Nodes int

	pods    *resource
	mu      sync.Mutex
	pending map[types.UID]bool
	bound   int
}

// run follows pods until the context ends.
func (k *Kubelets) run(ctx context.Context, pods *resource) {
	k.pods, k.pending = pods, map[types.UID]bool{}
	position := 0
	for {
		events, more, _ := pods.since(position)
		position += len(events)
		for _, e := range events {
			if e.kind != watch.Deleted {
				k.see(ctx, e.now)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}

// see schedules the next step of a pod.
func (k *Kubelets) see(ctx context.Context, v *version) {
	pod := v.object.(*corev1.Pod)
	after, _ := k.step(pod)
	if after < 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pending[pod.UID] { // the pending step will use the newest version
		return
	}
	k.pending[pod.UID] = true
	time.AfterFunc(after, func() {
		k.mu.Lock()
		delete(k.pending, pod.UID)
		k.mu.Unlock()
		if ctx.Err() == nil {
			k.act(ctx, v)
		}
	})
}

// act does the next step of the present version of a pod; the version that it writes leads to the step after
// it.
func (k *Kubelets) act(ctx context.Context, v *version) {
	now := k.pods.get(v.key)
	if now == nil || now.GetUID() != v.GetUID() {
		return
	}
	_, do := k.step(now.object.(*corev1.Pod))
	if do == nil {
		return
	}
	if now.GetDeletionTimestamp() != nil {
		uid, none := now.GetUID(), int64(0)
		_, _ = k.pods.remove(v.key, v.GetName(),
			&metav1.DeleteOptions{GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &uid}})
		return
	}
	k.pods.change(ctx, v.key, func(before object) object {
		pod := before.(*corev1.Pod)
		if pod.UID != v.GetUID() || pod.DeletionTimestamp != nil {
			return nil
		}
		_, do := k.step(pod)
		if do == nil {
			return nil
		}
		pod = pod.DeepCopy()
		do(pod)
		return pod
	})
}

// step returns the next step of a pod and the time until it; a negative time means that there is none.
func (k *Kubelets) step(pod *corev1.Pod) (time.Duration, func(*corev1.Pod)) {
	switch {
	case pod.DeletionTimestamp != nil:
		if rules.GraceOf(pod) == 0 { // finalizers hold it
			return -1, nil
		}
		return k.End, func(*corev1.Pod) {}
	case pod.Spec.NodeName == "":
		return k.Bind, k.bind
	case pod.Status.Phase == corev1.PodPending:
		return k.Start, start
	case pod.Status.Phase == corev1.PodRunning &&
		slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return outOfDate(pod, c) }):
		return k.Restart, restart
	case pod.Status.Phase == corev1.PodRunning && open(pod) != isTrue(pod, corev1.PodReady):
		return k.Ready, ready
	}
	return -1, nil
}

func (k *Kubelets) bind(pod *corev1.Pod) {
	k.mu.Lock()
	k.bound++
	node := k.bound
	k.mu.Unlock()
	pod.Spec.NodeName = fmt.Sprintf("node-%d", node%max(k.Nodes, 1))
	set(pod, corev1.PodScheduled, true)
}

func start(pod *corev1.Pod) {
	now := metav1.Now()
	set(pod, corev1.PodInitialized, true)
	set(pod, corev1.ContainersReady, true)
	set(pod, corev1.PodReady, len(pod.Spec.ReadinessGates) == 0)
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
	pod.Status.HostIP, pod.Status.HostIPs = "10.200.0.1", []corev1.HostIP{{IP: "10.200.0.1"}}
	pod.Status.PodIP, pod.Status.PodIPs = "10.200.1.1", []corev1.PodIP{{IP: "10.200.1.1"}}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, running(c, 0))
	}
}

func running(c corev1.Container, restarts int32) corev1.ContainerStatus {
	started := true
	return corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "sim://" + c.Image, Ready: true,
		ContainerID: fmt.Sprintf("sim://%s-%d", c.Name, restarts), Started: &started, RestartCount: restarts,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}
}

func outOfDate(pod *corev1.Pod, c corev1.Container) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(s corev1.ContainerStatus) bool { return s.Name == c.Name && s.Image != c.Image })
}

func restart(pod *corev1.Pod) {
	statuses := slices.Clone(pod.Status.ContainerStatuses)
	for _, c := range pod.Spec.Containers {
		for i := range statuses {
			if statuses[i].Name == c.Name && statuses[i].Image != c.Image {
				statuses[i] = running(c, statuses[i].RestartCount+1)
			}
		}
	}
	pod.Status.ContainerStatuses = statuses
}

// open tells whether the containers and the readiness gates let the pod be ready.
func open(pod *corev1.Pod) bool {
	return isTrue(pod, corev1.ContainersReady) &&
		!slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return !isTrue(pod, g.ConditionType) })
}

func ready(pod *corev1.Pod) { set(pod, corev1.PodReady, open(pod)) }

func isTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

func set(pod *corev1.Pod, kind corev1.PodConditionType, value bool) {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}
	if value {
		c.Status = corev1.ConditionTrue
	}
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			pod.Status.Conditions[i] = c
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, c)
}
