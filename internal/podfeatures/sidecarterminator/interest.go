package sidecarterminator

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
)

// container is a container of a pod, with its status.
type container struct {
	*corev1.Container
	// status is nil if kubelet has not reported it yet.
	status *corev1.ContainerStatus
	// stop means that the container is a sidecar that the daemon stops, and ignored that its exit code does
	// not count. image is the image that replaces its own.
	stop, ignored bool
	image         string
}

// sidecar reports whether the container is a sidecar; all others are main containers.
func (c *container) sidecar() bool { return c.stop || c.image != "" }

func (c *container) running() bool { return c.status != nil && c.status.State.Running != nil }

func (c *container) terminated() *corev1.ContainerStateTerminated {
	if c.status == nil {
		return nil
	}
	return c.status.State.Terminated
}

// done reports whether the container has ended and kubelet will not restart it.
func (c *container) done(pod *corev1.Pod) bool {
	ended := c.terminated()
	return ended != nil && !restart.StartsAgain(pod, c.Container, ended.ExitCode)
}

// containersOf returns the containers of a pod, without its init containers.
func containersOf(pod *corev1.Pod) []container {
	statuses := make(map[string]*corev1.ContainerStatus, len(pod.Status.ContainerStatuses))
	for i := range pod.Status.ContainerStatuses {
		statuses[pod.Status.ContainerStatuses[i].Name] = &pod.Status.ContainerStatuses[i]
	}

	all := make([]container, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		c := container{Container: &pod.Spec.Containers[i], status: statuses[pod.Spec.Containers[i].Name]}
		for j := range c.Env { // the last variable of a name wins, as in the container
			env := &c.Env[j]
			if env.ValueFrom != nil {
				continue
			}
			switch env.Name {
			case pub.TerminateSidecarEnv:
				c.stop = strings.EqualFold(env.Value, "true")
			case pub.TerminateSidecarIgnoreExitEnv:
				c.ignored = strings.EqualFold(env.Value, "true")
			case pub.TerminateSidecarImageEnv:
				c.image = env.Value
			}
		}

		c.ignored = c.ignored && c.stop
		all[i] = c
	}

	return all
}

// Marked reports whether the pod has sidecars to stop when the other containers are done.
func Marked(pod *corev1.Pod) bool {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return false
	}
	all := containersOf(pod)
	return slices.ContainsFunc(all, func(c container) bool { return c.sidecar() })
}

// Concerns reports whether there is something to do about the sidecars of the pod (JST-022).
func Concerns(pod *corev1.Pod) bool {
	_, why := interest(pod)
	return why == ""
}

// finished reports whether the pod has its final phase.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// aheadOf returns the condition that marks a phase that was set ahead, or nil.
func aheadOf(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == pub.SidecarTerminated {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// interest returns the containers of the pod, and why there is nothing to do about them, or "".
func interest(pod *corev1.Pod) (all []container, why string) {
	switch {
	case pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return nil, "the pod does not run to completion"
	case pod.DeletionTimestamp != nil:
		return nil, "the pod is being deleted"
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return nil, "the pod has not started"
	case finished(pod) && aheadOf(pod) == nil:
		return nil, "the pod has ended: kubelet stops what runs in it"
	}

	all = containersOf(pod)
	sidecars, open := 0, false
	for i := range all {
		if all[i].sidecar() {
			sidecars++
			open = open || all[i].terminated() == nil
		}
	}

	switch {
	case sidecars == 0:
		return nil, "no container is marked as a sidecar"
	case sidecars == len(all):
		return nil, "the pod has no main container"
	case !open:
		return nil, "all sidecars have ended"
	case len(pod.Status.ContainerStatuses) != len(all):
		return nil, fmt.Sprintf("kubelet has reported of %d of %d containers",
			len(pod.Status.ContainerStatuses), len(all))
	}

	for i := range all {
		if c := &all[i]; !c.sidecar() && !c.done(pod) {
			if c.terminated() != nil {
				return nil, fmt.Sprintf("main container %s is started again by kubelet", c.Name)
			}
			return nil, fmt.Sprintf("main container %s has not ended", c.Name)
		}
	}

	return all, ""
}
