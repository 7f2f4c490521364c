package cloneset

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// refreshPods looks after every active pod: what is complete is admitted, what waited long enough goes on, and what does neither
// has its reason. It goes on when updates are paused or OnDelete (IPU-012, IPU-120). A pod that waits for its turn may be refreshed
// too: its readiness does not depend on the next update.
func (p *planner) refreshPods() {
	for _, info := range p.pods {
		v := p.verdicts[info.Pod.Name]
		if v != nil && v.Action != Wait && v.Action != Keep {
			continue
		}
		p.refreshPod(info, v)
	}
}

func (p *planner) refreshPod(info *podInfo, held *Verdict) {
	pod := info.Pod
	progress := info.Progress
	switch {
	case info.Err != nil:
		p.UpdateError = info.Err.Error()
		p.decide(pod, Wait, ReasonUnreadableState, "%v", info.Err)
		return
	case progress.InGrace && progress.After > 0:
		p.decide(pod, Wait, ReasonGracePeriod, "%s", progress.Waiting).Until = p.Now.Add(progress.After)
		return
	case progress.InGrace:
		p.decide(pod, Continue, ReasonGracePeriod, "its grace period is over")
		return
	}
	patch, reason, why := p.admission(info)
	if !patch.Empty() {
		p.decide(pod, Patch, reason, "%s", why).Patch = patch
		return
	}
	if held != nil {
		return
	}
	switch {
	case !progress.Complete:
		p.decide(pod, Wait, ReasonUpdating, "%s", progress.Waiting)
	case pod.Spec.NodeName == "":
		p.decide(pod, Wait, ReasonUnscheduled, "it is not scheduled yet%s", conditionWords(pod, corev1.PodScheduled))
	case !readiness.Settled(pod):
		p.decide(pod, Wait, ReasonLifecycleHook, "its lifecycle state is %s and the hook is not complete", lifecycle.State(pod))
	case !info.Ready:
		p.decide(pod, Wait, ReasonNotReady, "%s", notReadyWords(pod))
	case !info.Available:
		p.decide(pod, Wait, ReasonMinReadySeconds, "ready, available in %d s", int(info.AvailableIn.Seconds()+0.999)).Until = p.Now.Add(info.AvailableIn)
	case !info.New && p.scaling:
		p.decide(pod, Wait, ReasonScaling, "at %s; updates wait until scaling is done", pod.Labels[pub.ControllerRevisionHash])
	default:
		p.decide(pod, Keep, ReasonUpToDate, "available at %s", pod.Labels[pub.ControllerRevisionHash])
	}
}

// admission returns one patch of the status subresource, or of the pod where no condition changes, that lets a pod into service
// after its creation or its update: the condition, the lifecycle state and a missing label go together, so that a whole update
// takes three writes (IPU-132, IPU-150, CS-053).
func (p *planner) admission(info *podInfo) (patch *podpatch.Patch, reason Reason, why string) {
	pod := info.Pod
	patch = &podpatch.Patch{}
	if _, ok := pod.Labels[pub.PodTemplateHash]; !ok && pod.Labels[pub.ControllerRevisionHash] != "" {
		patch.Label(pub.PodTemplateHash, revision.ShortHash(pod.Labels[pub.ControllerRevisionHash]))
		reason, why = ReasonMissingLabel, "it lacks the label "+pub.PodTemplateHash
	}
	if !info.Progress.Complete || pod.Spec.NodeName == "" {
		return patch, reason, why
	}
	readiness.Admit(patch, pod, p.Now)
	if next := p.nextState(pod); next != "" {
		lifecycle.Enter(patch, next, p.Now)
	}
	if patch.Empty() {
		return patch, reason, why
	}
	switch lifecycle.State(pod) {
	case pub.LifecycleStateUpdating, pub.LifecycleStateUpdated:
		return patch, ReasonUpdated, "its update in place is complete"
	case pub.LifecycleStatePreparingNormal:
		return patch, ReasonStarted, "it is scheduled"
	}
	if reason == "" {
		reason, why = ReasonUpdated, "nothing holds it"
	}
	return patch, reason, why
}

// nextState is the state that a complete, scheduled pod goes to, empty if it stays (table after IPU-152).
func (p *planner) nextState(pod *corev1.Pod) pub.LifecycleStateType {
	hooks := p.Set.Spec.Lifecycle
	if hooks == nil {
		hooks = &pub.Lifecycle{}
	}
	switch lifecycle.State(pod) {
	case pub.LifecycleStatePreparingNormal:
		if hooks.PreNormal == nil || lifecycle.FullyHooked(hooks.PreNormal, pod) {
			return pub.LifecycleStateNormal
		}
	case pub.LifecycleStateUpdating, pub.LifecycleStateUpdated:
		if hooks.InPlaceUpdate == nil || lifecycle.FullyHooked(hooks.InPlaceUpdate, pod) {
			return pub.LifecycleStateNormal
		}
		if lifecycle.State(pod) == pub.LifecycleStateUpdating {
			return pub.LifecycleStateUpdated
		}
	case pub.LifecycleStatePreparingUpdate:
		// The template was rolled back before the hook let go (IPU-325, CS-361).
		if revision.SameLabel(pod.Labels[pub.ControllerRevisionHash], p.UpdateRevision) {
			if hooks.InPlaceUpdate == nil || lifecycle.FullyHooked(hooks.InPlaceUpdate, pod) {
				return pub.LifecycleStateNormal
			}
			return pub.LifecycleStateUpdated
		}
	}
	return ""
}

// notReadyWords says what a pod lacks to be ready, from what kubelet reports.
func notReadyWords(pod *corev1.Pod) string {
	var parts []string
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		switch {
		case status.Ready:
		case status.State.Waiting != nil && status.State.Waiting.Reason != "":
			parts = append(parts, fmt.Sprintf("container %s: %s", status.Name, status.State.Waiting.Reason))
		case status.State.Terminated != nil:
			parts = append(parts, fmt.Sprintf("container %s ended with exit code %d", status.Name, status.State.Terminated.ExitCode))
		default:
			parts = append(parts, fmt.Sprintf("container %s is not ready", status.Name))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "phase "+string(pod.Status.Phase)+conditionWords(pod, corev1.PodReady))
	}
	return strings.Join(parts, "; ")
}

func conditionWords(pod *corev1.Pod, conditionType corev1.PodConditionType) string {
	condition := readiness.Condition(pod, conditionType)
	if condition == nil || condition.Status == corev1.ConditionTrue {
		return ""
	}
	words := ", " + string(conditionType) + " is " + string(condition.Status)
	if condition.Reason != "" {
		words += " (" + condition.Reason + ")"
	}
	if condition.Message != "" {
		words += ": " + condition.Message
	}
	return words
}
