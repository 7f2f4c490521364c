package sidecarterminator

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
)

// container is one of a pod, with its status.
type container struct {
	*corev1.Container
	// status is nil if kubelet has not reported of it.
	status *corev1.ContainerStatus
	// stop: it is a sidecar to be stopped by the daemon. ignored: so that its exit code does not count. image
	// is what it is replaced by.
	stop, ignored bool
	image         string
}

// sidecar tells whether the container is a sidecar; all others are main containers.
func (c *container) sidecar() bool { return c.stop || c.image != "" }

func (c *container) running() bool { return c.status != nil && c.status.State.Running != nil }

func (c *container) terminated() *corev1.ContainerStateTerminated {
	if c.status == nil {
		return nil
	}
	return c.status.State.Terminated
}

// done tells whether the container has ended, and kubelet does not start it again.
func (c *container) done(pod *corev1.Pod) bool {
	ended := c.terminated()
	return ended != nil && !restart.StartsAgain(pod, c.Container, ended.ExitCode)
}

// containersOf reads the containers of a pod; init containers are none of them.
func containersOf(pod *corev1.Pod) []container {
	statuses := make(map[string]*corev1.ContainerStatus, len(pod.Status.ContainerStatuses))
	for i := range pod.Status.ContainerStatuses {
		statuses[pod.Status.ContainerStatuses[i].Name] = &pod.Status.ContainerStatuses[i]
	}
	all := make([]container, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		c := container{Container: &pod.Spec.Containers[i], status: statuses[pod.Spec.Containers[i].Name]}
		for j := range c.Env { // of several of a name the last one counts, as for the container
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

// Marked tells whether the pod has sidecars that are stopped when the others are done.
func Marked(pod *corev1.Pod) bool {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return false
	}
	all := containersOf(pod)
	return slices.ContainsFunc(all, func(c container) bool { return c.sidecar() })
}

// Concerns tells whether something is to be done about the sidecars of the pod (JST-022).
func Concerns(pod *corev1.Pod) bool {
	_, why := interest(pod)
	return why == ""
}

// finished tells whether the pod has its final phase.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// aheadOf returns the condition that says that the phase was set ahead, nil if it was not.
func aheadOf(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == pub.SidecarTerminated {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// interest returns the containers of the pod, and why nothing is to be done about them; empty if something
// is.
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
