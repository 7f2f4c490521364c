package cloneset

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// updatePods chooses the next pods to be updated, in order, as far as the budget goes (CS-120 to 127). unusable is why the user's
// numbers cannot be used, nil if they can.
func (p *planner) updatePods(unusable error) {
	p.sayPartition()
	count := rollout.ToMove(p.census(false), p.Limits)
	target, toNew := p.update, true
	if count < 0 {
		target, toNew, count = p.current, false, -count
	}
	candidates := p.candidates(toNew)
	if len(candidates) == 0 {
		return
	}
	if reason, why := p.standstill(unusable); reason != "" {
		p.say("update waits: %s", why)
		for _, info := range candidates {
			info.Stay = reason == ReasonOnDelete // one that prepares its update would wait for ever (CS-361)
			p.decide(info.Pod, Wait, reason, "%s", why)
		}
		return
	}
	count = max(count-p.replacements(toNew), 0)
	p.say("%s to move to %s", plural.Of(count, "pod"), target.name)
	budget, waiting := p.newBudget(toNew), 0
	for _, info := range candidates {
		if !p.Refused[info.Pod.UID].IsZero() { // it comes last; those before it that only wait do not take its place
			count, waiting = count+waiting, 0
		}
		if own := p.find(info.Label); count == 0 && own != nil && len(info.StaleImages)+len(info.StaleResources) > 0 {
			p.moveTo(info, own, false, budget) // it stays at its revision, and gets back what another one left in it (IPU-326)
			continue
		}
		if count == 0 {
			info.Stay = true
			p.decide(info.Pod, Keep, ReasonPartition, "%s", p.partitionWords())
			continue
		}
		if p.moveTo(info, target, toNew, budget) {
			count--
			if v := p.verdicts[info.Pod]; v.Reason == ReasonMaxUnavailable || v.Reason == ReasonUpdateUnhealthy {
				waiting++
			}
		}
	}
}

// above is how many pods there are beyond the replicas.
func (p *planner) above() int {
	n := -p.Limits.Replicas
	for _, info := range p.pods {
		count(&n, !info.Preparing)
	}
	return max(n, 0)
}

// replacements is how many of the pods to be moved wait to be deleted, and will be replaced: each uses up one of the moves, but not where a pod
// above the replicas stands in for it already. That one is to be moved instead; else the two would wait for each other if it never comes up.
func (p *planner) replacements(toNew bool) int {
	waiting := 0
	for _, info := range p.pods {
		count(&waiting, info.Specified && info.New != toNew)
	}
	return max(waiting-p.above(), 0)
}

// sayPartition tells those who raise the partition and expect pods to go back that nothing does without the gate (CS-360).
func (p *planner) sayPartition() {
	updated := 0
	for _, info := range p.pods {
		if info.New {
			updated++
		}
	}
	if more := updated - (p.Limits.Replicas - p.Limits.Partition); more > 0 && p.Limits.Partition > 0 && !p.Features.PartitionRollback {
		p.say("partition %d leaves %s to be updated, and %d more %s; %s so, because gate CloneSetPartitionRollback is off", p.Limits.Partition,
			plural.Of(p.Limits.Replicas-p.Limits.Partition, "pod"), more, plural.Form(more, "is", "are"), plural.Form(more, "it stays", "they stay"))
	}
}

// standstill says why no pod may be updated at all, nothing if pods may (CS-122, CS-096).
func (p *planner) standstill(unusable error) (Reason, string) {
	switch {
	case unusable != nil:
		return ReasonBadSpec, unusable.Error()
	case p.onDelete():
		return ReasonOnDelete, "updateStrategy.type is OnDelete: a pod gets the new template when somebody deletes it"
	case p.paused():
		return ReasonPaused, "the update is paused; set paused to false in updateStrategy to go on"
	}
	return "", ""
}

// candidates are the pods that are not of the target revision, in the order of their update (CS-123). Scaling has decided about those that are
// specified for deletion.
func (p *planner) candidates(toNew bool) []*podInfo {
	var candidates []*podInfo
	for _, info := range p.pods {
		if info.New != toNew && !info.Preparing && !info.Progress.InGrace && p.verdicts[info.Pod] == nil {
			candidates = append(candidates, info)
		}
	}
	return p.inUpdateOrder(candidates)
}

// inUpdateOrder orders the pods by CS-180 to 188.
func (p *planner) inUpdateOrder(infos []*podInfo) []*podInfo {
	var priority *pub.UpdatePriorityStrategy
	var scatter []pub.UpdateScatterTerm
	var all []rollout.Candidate
	if rolling := p.rolling(); rolling != nil {
		if priority, scatter = rolling.PriorityStrategy, rolling.ScatterStrategy; len(scatter) > 0 {
			all = candidatesOf(p.pods)
		}
	}
	order := rollout.UpdateOrder(candidatesOf(infos), all, priority, scatter)
	// Whatever the user's order is, a pod above the replicas that is down goes first: it costs nothing, and those in service wait for it.
	above := p.above()
	var first, sorted []*podInfo
	for _, i := range order {
		if !infos[i].Available && len(first) < above {
			first = append(first, infos[i])
		} else {
			sorted = append(sorted, infos[i])
		}
	}
	sorted = append(first, sorted...)
	slices.SortStableFunc(sorted, func(a, b *podInfo) int { return p.byRefusal(a.Pod.UID, b.Pod.UID) })
	return sorted
}

// byRefusal puts what the API server refused to change after everything else, and of that what was refused last at the end: one object that a
// policy protects must not hold up the others for ever.
func (p *planner) byRefusal(a, b types.UID) int { return p.Refused[a].Compare(p.Refused[b]) }

func candidatesOf(infos []*podInfo) []rollout.Candidate {
	candidates := make([]rollout.Candidate, len(infos))
	for i, info := range infos {
		candidates[i] = info.Candidate
	}
	return candidates
}

func (p *planner) partitionWords() string {
	if p.Limits.Partition > 0 {
		return fmt.Sprintf("partition keeps %s at %s revision", plural.Of(p.Limits.Partition, "pod"), plural.Form(p.Limits.Partition, "its", "their"))
	}
	return "it need not be updated: enough others are updated, or are being replaced by updated ones"
}

// budget bounds how many pods may be moved at a time (CS-121, CS-124).
type budget struct {
	// spare is how many available pods may still be taken.
	spare int
	// moving is how many pods are of the target revision and unavailable, or on their way there; total is how many may be. leaving is how many
	// of them wait to be deleted.
	moving, leaving, total int
	// exhausted and spent are the words of refusals, which most pods of a large set share.
	exhausted, spent string
}

func (p *planner) newBudget(toNew bool) *budget {
	b := &budget{spare: p.spare(), total: p.Limits.MaxUnavailable + len(p.pods) - p.Limits.Replicas}
	for _, info := range p.pods {
		switch {
		case info.Specified && info.Available:
			b.spare-- // its place is reserved; it moves only when it may go, and must not hold up one that is down
		case info.Specified || info.Preparing:
			b.moving++
			b.leaving++
		case info.New == toNew && !info.Available:
			b.moving++
		}
	}
	return b
}

// refuse says why the pod cannot be moved now, nothing if it can.
func (b *budget) refuse(info *podInfo, limits rollout.Limits) (Reason, string) {
	total := b.total
	if !info.Available {
		total = max(total, 1) // missing pods must not hold up one that is down anyway (CS-125)
	}
	switch {
	case b.moving >= total && total != b.total:
		return ReasonUpdateUnhealthy, b.waitingFor(total, limits) // with a number of its own
	case b.moving >= total:
		if b.exhausted == "" {
			b.exhausted = b.waitingFor(max(total, 0), limits)
		}
		return ReasonUpdateUnhealthy, b.exhausted
	case info.Available && b.spare <= 0:
		if b.spent == "" {
			keep := limits.Replicas - limits.MaxUnavailable
			b.spent = fmt.Sprintf("%d of %s must stay available (maxUnavailable %d), and only %d %s", keep, plural.Of(limits.Replicas, "pod"),
				limits.MaxUnavailable, keep+b.spare, plural.Form(keep+b.spare, "is", "are"))
		}
		return ReasonMaxUnavailable, b.spent
	}
	return "", ""
}

// waitingFor says for what pods the others wait, and how many of them there may be.
func (b *budget) waitingFor(total int, limits rollout.Limits) string {
	var parts []string
	if n := b.moving - b.leaving; n > 0 {
		parts = append(parts, plural.Of(n, "updated pod")+" to become available")
	}
	if b.leaving > 0 {
		parts = append(parts, plural.Of(b.leaving, "pod")+" to be deleted")
	}
	switch missing := limits.MaxUnavailable - b.total; {
	case len(parts) > 0:
	case missing > 0:
		parts = append(parts, plural.Of(missing, "missing pod")+" to be created")
	default:
		parts = append(parts, "a pod above the replicas")
	}
	return fmt.Sprintf("waiting for %s; %s at a time (maxUnavailable %d)", strings.Join(parts, " and "), plural.Of(total, "pod"), limits.MaxUnavailable)
}

func (b *budget) take(info *podInfo) {
	b.exhausted, b.spent = "", ""
	b.moving++
	if info.Available {
		b.spare--
	}
}

// moveTo moves one pod towards the target if it may be moved now. It tells whether the pod uses up one of the pods to be moved.
func (p *planner) moveTo(info *podInfo, target *revisionInfo, toNew bool, b *budget) bool {
	m := info.Mode
	if !toNew {
		m = p.modeOf(info, target)
	}
	if m.refusal != "" { // IPU-173: this pod cannot, others may
		p.UpdateError = fmt.Sprintf("pod %s cannot be updated in place: %s", info.Pod.Name, m.refusal)
		p.decide(info.Pod, Wait, ReasonInPlaceImpossible, "%s; podUpdatePolicy InPlaceOnly does not recreate it", m.refusal)
		return false
	}
	free := p.free(info, m)
	if reason, why := b.refuse(info, p.Limits); reason != "" && !free {
		p.decide(info.Pod, Wait, reason, "%s", why)
		return true
	}
	if m.recreate {
		patch := &podpatch.Patch{}
		patch.Label(pub.SpecifiedDelete, "true")
		v := p.decide(info.Pod, Recreate, ReasonOutdated, "%s to %s, recreated because %s", p.labelOf(info), target.name, m.why)
		v.Patch, v.Unstored = patch, m.unstored
		b.take(info)
		return true
	}
	if p.hookedForUpdate(info) || p.rehook(info) {
		p.prepare(info)
	} else if p.holdUpdate(info) {
		return true
	} else {
		v := p.decide(info.Pod, UpdateInPlace, ReasonOutdated, "%s to %s: %s", p.labelOf(info), target.name, m.words)
		v.Update, v.MayRecreate = p.inPlaceUpdate(target, m.change), p.mayRecreate()
		if info.Err != nil {
			p.UpdateError = fmt.Sprintf("%v; its update begins anew", info.Err) // IPU-305
		}
	}
	if !free {
		b.take(info)
	}
	return true
}

// holdUpdate leaves pods in service for a while after the API server refused an update: a policy or a quota refuses the others too, and each
// attempt takes its pod out of service first. Then one pod tries again (IPU-184).
func (p *planner) holdUpdate(info *podInfo) bool {
	if p.UpdateRefused == "" {
		return false
	}
	if !p.probing && !p.Now.Before(p.UpdateHeldUntil) {
		p.probing = true
		return false
	}
	p.UpdateError = p.UpdateRefused
	p.lookAgain(p.UpdateHeldUntil)
	p.decide(info.Pod, Wait, ReasonUpdateRefused, "%s", p.UpdateRefused)
	return true
}

// prepare lets the inPlaceUpdate hook come first (IPU-152, IPU-155).
func (p *planner) prepare(info *podInfo) {
	state := info.State
	if state == pub.LifecycleStatePreparingUpdate {
		p.decide(info.Pod, Wait, ReasonLifecycleHook, "its inPlaceUpdate hook holds it")
		return
	}
	patch := &podpatch.Patch{}
	if p.rehook(info) {
		lifecycle.Hook(patch, p.hooks().InPlaceUpdate, info.Pod)
	}
	lifecycle.Enter(patch, pub.LifecycleStatePreparingUpdate, p.Now)
	p.share(patch, info.Pod, pub.LifecycleStatePreparingUpdate)
	p.decide(info.Pod, Patch, ReasonLifecycleHook, "its inPlaceUpdate hook comes first").Patch = patch
}

// rehook tells whether the pod waits, updated, for its hook to be restored, so that a further update has to give the user's operator
// something to remove again (table after IPU-152).
func (p *planner) rehook(info *podInfo) bool {
	hook := p.hooks().InPlaceUpdate
	return hook != nil && info.State == pub.LifecycleStateUpdated && !lifecycle.FullyHooked(hook, info.Pod)
}

func (p *planner) mayRecreate() bool {
	return p.policy() != appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy
}

func (p *planner) labelOf(info *podInfo) string {
	if label := info.Label; label != "" {
		return "from " + label
	}
	return "from no revision"
}

// free tells whether the pod serves throughout its update: neither a container nor a label changes, and no hook comes first (IPU-308).
func (p *planner) free(info *podInfo, m mode) bool {
	return !m.recreate && m.change.Quiet() && !p.hookedForUpdate(info)
}

func (p *planner) hookedForUpdate(info *podInfo) bool {
	return lifecycle.Hooked(p.hooks().InPlaceUpdate, info.Pod)
}

func (p *planner) inPlaceUpdate(target *revisionInfo, change *inplace.Change) *inplace.Update {
	update := &inplace.Update{
		Revision: target.name,
		RevisionLabels: map[string]string{
			pub.ControllerRevisionHash: p.revisionLabel(target.name),
			pub.PodTemplateHash:        revision.ShortHash(target.name),
		},
		Change: change,
	}
	if strategy := p.inPlaceStrategy(); strategy != nil {
		update.GraceSeconds = strategy.GracePeriodSeconds
	}
	return update
}

func (p *planner) inPlaceStrategy() *pub.InPlaceUpdateStrategy {
	var r *appsv1beta1.RollingUpdateCloneSetStrategy
	if r = p.rolling(); r == nil {
		return nil
	}
	return r.InPlaceUpdateStrategy
}
