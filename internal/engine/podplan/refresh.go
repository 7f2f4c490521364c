package podplan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Refresh looks after every active pod: it admits pods whose update is complete, continues updates that have
// waited long enough, and gives all others a reason. It also does this while updates are paused or the
// strategy is OnDelete (IPU-012, IPU-120). It may also patch a pod that waits for its update, since becoming
// ready does not depend on that.
func (p *Planner) Refresh() {
	p.HeedBudgets()
	for _, info := range p.Members {
		v := p.verdicts[info.Pod]
		if v != nil && v.Action != Wait && v.Action != Keep {
			continue
		}
		p.refreshPod(info, v)
	}
}

func (p *Planner) refreshPod(info *Pod, held *Verdict) {
	pod := info.Pod
	progress := info.Progress
	switch {
	case info.Err != nil:
		p.out.UpdateError = info.Err.Error()
		p.Decide(pod, Wait, ReasonUnreadableState,
			"%v; its update begins anew when the rollout comes to it", info.Err)
		return
	case info.Preparing: // a pod that prepares its deletion is never updated
	case progress.InGrace && progress.After > 0:
		p.Decide(pod, Wait, ReasonGracePeriod, "%s", progress.Waiting).Until = p.in.Now.Add(progress.After)
		return
	case progress.InGrace && p.withdraw(info):
		return
	case progress.InGrace:
		p.Decide(pod, Continue, ReasonGracePeriod, "its grace period is over").MayRecreate = p.mayRecreate()
		return
	case progress.Next:
		p.Decide(pod, Continue, ReasonUpdating, "its next containers follow").MayRecreate = p.mayRecreate()
		return
	case progress.Resize != nil && p.resizePending(info), p.daemonMissing(info):
		return
	}

	patch, reason, why := p.admission(info)
	if !patch.Empty() {
		p.Decide(pod, Patch, reason, "%s", why).Patch = patch
		return
	}
	if held != nil {
		return
	}

	switch {
	case !info.WatchedUntil.IsZero():
		p.Decide(pod, Wait, ReasonMinReadySeconds, "%s", progress.Waiting).Until = info.WatchedUntil
	case !progress.Complete && !info.Preparing:
		p.Decide(pod, Wait, ReasonUpdating, "%s", progress.Waiting)
	case pod.Spec.NodeName == "":
		p.Decide(pod, Wait, ReasonUnscheduled, "it is not scheduled yet%s",
			conditionWords(pod, corev1.PodScheduled))
	case !p.unreportedUntil(pod).IsZero():
		p.Decide(pod, Wait, ReasonNotReady, "node %s has not reported of it yet", pod.Spec.NodeName)
	case !readiness.Settled(pod):
		p.Decide(pod, Wait, ReasonLifecycleHook,
			"its lifecycle state is %s and the hook is not complete", info.State)
	case !info.Ready:
		p.Decide(pod, Wait, ReasonNotReady, "%s", NotReadyWords(pod))
	case !info.Available:
		p.Decide(pod, Wait, ReasonMinReadySeconds, "ready, available in %d s",
			int(info.AvailableIn.Seconds()+0.999)).Until = p.in.Now.Add(info.AvailableIn)
	case !info.New && p.Scaling:
		p.Decide(pod, Wait, ReasonScaling, "at %s; updates wait until scaling is done", info.Label)
	default:
		p.Decide(pod, Keep, ReasonUpToDate, "%s", "available at "+info.Label)
	}
}

// withdraw takes back an update whose content was refused when its grace period was over: the pod goes back into
// service, and is updated like others that were refused. It reports whether it decided about the pod.
func (p *Planner) withdraw(info *Pod) bool {
	if info.Progress.GraceEnd.IsZero() || p.tries(info) {
		return false
	}
	patch := inplace.Withdraw(info.Pod)
	if patch.Empty() {
		return false
	}
	if p.in.UpdateRefused != "" {
		p.out.UpdateError = p.in.UpdateRefused
	}
	p.Decide(info.Pod, Patch, ReasonUpdateRefused,
		"its update is taken back, because it failed when its grace period was over").Patch = patch
	return true
}

// admission returns one patch that lets a pod into service after its creation or its update, for the status
// subresource, or for the pod itself if no condition changes. It contains the condition, the lifecycle state
// and a missing label together, so that a whole update takes three writes.
func (p *Planner) admission(info *Pod) (patch *podpatch.Patch, reason Reason, why string) {
	pod := info.Pod
	patch = p.emptyPatch()
	if _, ok := pod.Labels[pub.PodTemplateHash]; !ok && info.Label != "" && p.Workload.Traits.TemplateHash {
		patch.Label(pub.PodTemplateHash, revision.ShortHash(info.Label))
		reason, why = ReasonMissingLabel, "it lacks the label "+pub.PodTemplateHash
	}
	if pod.Spec.NodeName == "" {
		return patch, reason, why
	}
	if until := p.unreportedUntil(pod); !until.IsZero() {
		p.LookAgain(until)
		return patch, reason, why
	}

	state := info.State
	if info.Progress.Complete {
		readiness.Release(patch, pod, p.in.Now)
		if next := p.nextState(info); next != "" {
			lifecycle.Enter(patch, next, p.in.Now)
			state = next
		}
	}

	p.Share(patch, pod, state)
	if patch.Empty() {
		return patch, reason, why
	}

	switch info.State {
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

// reportTime is how long the first report of a node about a pod may take.
const reportTime = 2 * time.Second

// unreportedUntil returns the time until which a new pod on a node is left alone, zero if it is not. Its node
// reports about it within moments, and a write based on the state before that would end in a conflict. A node
// that does not report in this time is not waited for.
func (p *Planner) unreportedUntil(pod *corev1.Pod) time.Time {
	if pod.Spec.NodeName == "" || readiness.Condition(pod, pub.InPlaceUpdateReady) != nil ||
		readiness.Condition(pod, corev1.ContainersReady) != nil {
		return time.Time{}
	}

	since := pod.CreationTimestamp.Time
	if scheduled := readiness.Condition(pod, corev1.PodScheduled); scheduled != nil &&
		scheduled.LastTransitionTime.After(since) {
		since = scheduled.LastTransitionTime.Time
	}
	if until := since.Add(reportTime); p.in.Now.Before(until) {
		return until
	}
	return time.Time{}
}

// emptyPatch returns an empty patch. A patch that stayed empty is reused for the next pod.
func (p *Planner) emptyPatch() *podpatch.Patch {
	if p.unused == nil || !p.unused.Empty() {
		p.unused = &podpatch.Patch{}
	}
	return p.unused
}

// nextState returns the state that a complete, scheduled pod goes to, empty if it keeps its state.
func (p *Planner) nextState(info *Pod) pub.LifecycleStateType {
	pod, hooks := info.Pod, p.Hooks()
	switch info.State {
	case pub.LifecycleStatePreparingNormal:
		if hooks.PreNormal == nil || lifecycle.FullyHooked(hooks.PreNormal, pod) {
			return pub.LifecycleStateNormal
		}
	case pub.LifecycleStateUpdating, pub.LifecycleStateUpdated:
		if hooks.InPlaceUpdate == nil || lifecycle.FullyHooked(hooks.InPlaceUpdate, pod) {
			return pub.LifecycleStateNormal
		}
		if info.State == pub.LifecycleStateUpdating {
			return pub.LifecycleStateUpdated
		}
	case pub.LifecycleStatePreparingUpdate:
		// The template was rolled back before the hook let the pod go, or others took the pod's place.
		if info.Stay || revision.SameLabel(info.Label, p.out.UpdateRevision) {
			if hooks.InPlaceUpdate == nil || lifecycle.FullyHooked(hooks.InPlaceUpdate, pod) {
				return pub.LifecycleStateNormal
			}
			return pub.LifecycleStateUpdated
		}
	}

	return ""
}

// Share adds to the patch what a pod in the given state reports in the KruisePodReady condition for its hooks
// with markPodNotReady: the hooks hold it while the pod prepares its deletion or its update, and during the
// update that follows (IPU-141, IPU-155, IPU-156, IPU-316).
func (p *Planner) Share(patch *podpatch.Patch, pod *corev1.Pod, state pub.LifecycleStateType) {
	marks := func(hook *pub.LifecycleHook) bool { return hook != nil && hook.MarkPodNotReady }
	var hold []readiness.Holder
	release := []readiness.Holder{readiness.PreDeleteHook, readiness.PreUpdateHook}
	switch deletes, updates := marks(p.Hooks().PreDelete), marks(p.Hooks().InPlaceUpdate); {
	case state == pub.LifecycleStatePreparingDelete && deletes:
		hold, release = release[:1], release[1:]
	case state == pub.LifecycleStatePreparingUpdate && updates:
		hold, release = release[1:], release[:1]
	case state == pub.LifecycleStateUpdating && updates:
		release = release[:1]
	}
	readiness.Share(patch, pod, hold, release, p.in.Now)
}

// Hooks returns the workload's hooks, never nil.
func (p *Planner) Hooks() *pub.Lifecycle {
	if p.Workload.Lifecycle == nil {
		return &pub.Lifecycle{}
	}
	return p.Workload.Lifecycle
}

// resizePending handles a resize that the node does not carry out. If the policy allows it, the pod is
// recreated: at once if the resize is infeasible, after a while if it is deferred. It reports whether it
// decided about the pod.
func (p *Planner) resizePending(info *Pod) bool {
	pending := info.Progress.Resize
	var until time.Time
	if !pending.Infeasible && p.Workload.DeferredResize > 0 && !pending.Since.IsZero() {
		until = pending.Since.Add(p.Workload.DeferredResize)
	}
	if info.Specified || info.Preparing {
		return false
	}
	if pending.Infeasible || until.Before(pending.NotBefore) && !until.IsZero() {
		until = pending.NotBefore
	}

	due := (pending.Infeasible || !until.IsZero()) && !p.in.Now.Before(until)
	return p.stuck(info, ReasonResizePending, due, until, "its node does not resize it: "+pending.Message)
}

// daemonMissing handles an update that only a node daemon can complete, on a node that turned out to have
// none, or none any more. It reports whether it decided about the pod.
func (p *Planner) daemonMissing(info *Pod) bool {
	since, silent := info.Progress.NoDaemonSince, info.Progress.SilentFrom
	switch {
	case info.Specified || info.Preparing:
		return false
	case !since.IsZero():
		until := since.Add(inplace.DaemonPatience)
		return p.stuck(info, ReasonNoDaemon, !p.in.Now.Before(until), until,
			"its node has no node daemon, which would have to restart containers: "+info.Progress.Waiting)
	case silent.IsZero():
		return false
	case p.in.Now.Before(silent):
		p.LookAgain(silent)
		return false
	}

	return p.stuck(info, ReasonNoDaemon, true, silent,
		"the node daemon of its node does not restart containers, or is gone: "+info.Progress.Waiting)
}

// stuck recreates a pod whose update cannot be completed, once that is due and if the policy allows it.
// Otherwise it makes the pod wait and gives it the reason. It always returns true.
func (p *Planner) stuck(info *Pod, reason Reason, due bool, until time.Time, why string) bool {
	switch {
	case due && p.mayRecreate() && !p.Workload.Paused:
		patch := &podpatch.Patch{}
		patch.Label(pub.SpecifiedDelete, "true")
		p.Decide(info.Pod, Recreate, reason, "%s", why).Patch = patch
	case due:
		p.out.UpdateError = fmt.Sprintf("pod %s: %s", info.Pod.Name, why)
		p.Decide(info.Pod, Wait, reason, "%s", why)
	default:
		p.Decide(info.Pod, Wait, reason, "%s", why).Until = until
	}
	return true
}

// NotReadyWords describes why a pod is not ready, from what kubelet reports.
func NotReadyWords(pod *corev1.Pod) string {
	var parts []string
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		switch {
		case status.Ready:
		case status.State.Waiting != nil && status.State.Waiting.Reason != "":
			parts = append(parts, fmt.Sprintf("container %s: %s", status.Name, status.State.Waiting.Reason))
		case status.State.Terminated != nil:
			parts = append(parts, fmt.Sprintf("container %s ended with exit code %d",
				status.Name, status.State.Terminated.ExitCode))
		default:
			parts = append(parts, fmt.Sprintf("container %s is not ready", status.Name))
		}
	}

	if ready := readiness.Condition(pod, corev1.PodReady); len(parts) == 0 &&
		ready != nil && ready.Status == corev1.ConditionTrue {
		parts = append(parts,
			"ready since "+ready.LastTransitionTime.UTC().Format(time.RFC3339)+
				", and not for long enough yet")
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
