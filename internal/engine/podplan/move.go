package podplan

import (
	"fmt"
	"slices"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// MoveTo moves one pod towards the target if it may be moved now. It reports whether the pod counts as one of
// the pods to be moved.
func (p *Planner) MoveTo(info *Pod, target *Revision, toNew bool, b *Budget) bool {
	m := info.Mode
	if !toNew {
		m = p.modeOf(info, target)
	}
	if m.refusal != "" { // this pod cannot be moved, but others may
		p.out.UpdateError = fmt.Sprintf("pod %s cannot be updated in place to %s: %s",
			info.Pod.Name, target.Name, m.refusal)
		p.Decide(info.Pod, Wait, ReasonInPlaceImpossible,
			"%s; podUpdatePolicy InPlaceOnly does not recreate it", m.refusal)
		return false
	}

	free := p.Free(info, m)
	if reason, why := b.refuse(info, p.out.Limits); reason != "" && !free {
		p.Decide(info.Pod, Wait, reason, "%s", why)
		return true
	}

	if m.Recreate && p.Replace != nil {
		p.Replace(info, ReasonOutdated, m.unstored,
			fmt.Sprintf("%s to %s, recreated because %s", p.labelOf(info), target.Name, m.why))
		if !p.HeldByBudget(info.Pod) {
			b.take(info)
		}
		return true
	}
	if m.Recreate {
		// Once marked, it would keep the place of others until it may be deleted.
		if p.budgetHolds(info.Pod, policyv1beta1.Delete) {
			return true
		}
		patch := &podpatch.Patch{}
		patch.Label(pub.SpecifiedDelete, "true")
		v := p.Decide(info.Pod, Recreate, ReasonOutdated,
			"%s to %s, recreated because %s", p.labelOf(info), target.Name, m.why)
		v.Patch, v.Unstored = patch, m.unstored
		b.take(info)
		return true
	}

	if p.holdUpdate(info) {
		return true
	}
	if p.hookedForUpdate(info) || p.rehook(info) {
		p.prepare(info)
	} else {
		v := p.Decide(info.Pod, UpdateInPlace, ReasonOutdated,
			"%s to %s: %s", p.labelOf(info), target.Name, m.words)
		v.Update, v.MayRecreate = p.inPlaceUpdate(target, m.Change), p.mayRecreate()
		if info.Err != nil {
			p.out.UpdateError = fmt.Sprintf("%v; its update begins anew", info.Err)
		}
	}

	if !p.HeldByBudget(info.Pod) && !free {
		b.take(info)
	}

	return true
}

// holdUpdate leaves pods in service for a while after the update of a pod failed: a policy or a quota refuses the
// updates of other pods, too, and each attempt takes its pod out of service first. After that, one pod tries again. A
// pod whose own update fails for long does so only when it is available again: until then it costs nothing, so that it would
// try again and again, and the others would wait for it.
func (p *Planner) holdUpdate(info *Pod) bool {
	reason, why, until := ReasonUpdateRefused, p.in.UpdateRefused, p.in.UpdateHeldUntil
	switch {
	case info.AvailableIn > 0 && p.in.RefusedLong[info.Pod.UID]:
		reason, until = ReasonMinReadySeconds, p.in.Now.Add(info.AvailableIn)
		why = "its update failed before, and is tried again when it is available"
	case why == "":
		return false
	case !p.probing && !p.in.Now.Before(until):
		if p.probing = true; !slices.ContainsFunc(p.Members, p.tries) {
			return false
		}
	}
	info.Stay = true // a pod that has prepared its update goes back into service
	if p.in.UpdateRefused != "" {
		p.out.UpdateError = p.in.UpdateRefused
	}
	p.LookAgain(until)
	p.Decide(info.Pod, Wait, reason, "%s", why)
	return true
}

// tries reports whether the grace period of a pod holds back content of which nobody knows yet whether it is refused.
func (p *Planner) tries(info *Pod) bool {
	end := info.Progress.GraceEnd
	return !end.IsZero() && !info.Preparing && (!p.refused(info) || p.in.Refused[info.Pod.UID].Before(end))
}

// prepare makes the pod wait for its inPlaceUpdate hook before the update.
func (p *Planner) prepare(info *Pod) {
	state := info.State
	if state == pub.LifecycleStatePreparingUpdate {
		p.Decide(info.Pod, Wait, ReasonLifecycleHook, "its inPlaceUpdate hook holds it")
		return
	}

	patch := &podpatch.Patch{}
	if p.rehook(info) {
		lifecycle.Hook(patch, p.Hooks().InPlaceUpdate, info.Pod)
	}

	lifecycle.Enter(patch, pub.LifecycleStatePreparingUpdate, p.in.Now)
	p.Share(patch, info.Pod, pub.LifecycleStatePreparingUpdate)
	v := p.Decide(info.Pod, Patch, ReasonLifecycleHook, "its inPlaceUpdate hook comes first")
	v.Patch, v.Prepares = patch, policyv1beta1.Update
}

// rehook reports whether an updated pod waits for its hook to be restored, so that a further update has to
// give the user's operator something to remove again.
func (p *Planner) rehook(info *Pod) bool {
	hook := p.Hooks().InPlaceUpdate
	return hook != nil && info.State == pub.LifecycleStateUpdated && !lifecycle.FullyHooked(hook, info.Pod)
}

func (p *Planner) mayRecreate() bool {
	return p.Workload.Policy != InPlaceOnly && !p.Workload.OnDelete
}

func (p *Planner) labelOf(info *Pod) string {
	if label := info.Label; label != "" {
		return "from " + label
	}
	return "from no revision"
}

// Free reports whether the pod serves throughout its update: neither a container nor a label changes, and no
// hook must let it go first (IPU-308).
func (p *Planner) Free(info *Pod, m Mode) bool {
	return !m.Recreate && m.Change.Quiet() && !p.hookedForUpdate(info)
}

func (p *Planner) hookedForUpdate(info *Pod) bool {
	return lifecycle.Hooked(p.Hooks().InPlaceUpdate, info.Pod)
}

func (p *Planner) inPlaceUpdate(target *Revision, change *inplace.Change) *inplace.Update {
	update := &inplace.Update{
		Revision:       target.Name,
		RevisionLabels: map[string]string{pub.ControllerRevisionHash: p.revisionLabel(target.Name)},
		Change:         change,
	}
	if p.Workload.Traits.TemplateHash {
		update.RevisionLabels[pub.PodTemplateHash] = revision.ShortHash(target.Name)
	}
	if strategy := p.Workload.Strategy; strategy != nil {
		update.GraceSeconds = strategy.GracePeriodSeconds
	}
	return update
}
