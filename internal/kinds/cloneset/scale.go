package cloneset

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// maxCreate is how many pods one plan creates at most. A wrong number of replicas must not use up the memory
// of a manager that serves other workloads too.
const maxCreate = 2000

// scale decides which pods to create and delete. It reports whether it changes anything, in which case no
// update starts in this pass.
func (p *planner) scale() bool {
	census := p.census(true)
	scale := rollout.ComputeScale(census, p.out.Limits)
	p.sayScale(census, scale)
	if p.cancelDeletions() {
		return true
	}

	p.awaitClaims(&scale)
	p.holdCreation(&scale)
	if scale.Create > 0 {
		scale.Create = min(scale.Create, maxCreate)
		scale.CreateOld = min(scale.CreateOld, scale.Create)
		p.createPods(scale)
		return true
	}
	if scale.Missing > 0 && p.out.ScaleLimited == "" && p.out.ClaimsAwaited == "" && !p.creationHeld {
		p.out.ScaleLimited = fmt.Sprintf(
			"%s missing and not created yet: %d unavailable already, and scaleStrategy.maxUnavailable is %d",
			wording.Count(scale.Missing, "pod"), scale.Unavailable, p.out.Limits.ScaleMaxUnavailable)
	}
	if p.out.ScaleLimited != "" {
		p.core.Say("creation waits: %s", p.out.ScaleLimited)
	}
	if p.deletePrepared() {
		return true
	}
	if deleted, pending := p.deleteSpecified(); deleted || pending {
		return deleted // ordinary scale-in waits for specified pods
	}
	if scale.Missing > 0 {
		return false
	}

	return p.scaleIn(scale)
}

func (p *planner) sayScale(census rollout.Census, scale rollout.Scale) {
	p.core.Say("%d of %s, %d at %s, %d old; partition %d, maxUnavailable %d, maxSurge %d; %d unavailable",
		census.Old.Total+census.New.Total, wording.Count(p.out.Limits.Replicas, "pod"), census.New.Total,
		p.out.UpdateRevision, census.Old.Total, p.out.Limits.Partition, p.out.Limits.MaxUnavailable,
		p.out.Limits.MaxSurge, scale.Unavailable)
	if scale.Surge > 0 {
		p.core.Say("surge of %s", wording.Count(scale.Surge, "pod"))
	}
}

func (p *planner) createPods(scale rollout.Scale) {
	next := p.ids()
	for i := range scale.Create {
		from := p.core.Update
		if i < scale.CreateOld {
			from = p.core.Current
		}
		if err := p.create(next(), from); err != nil {
			p.out.ScaleError = err.Error()
			return
		}
	}

	p.core.Say("create %d of %s, %d of them at %s", scale.Create, wording.Count(scale.Missing, "missing pod"),
		scale.CreateOld, p.out.CurrentRevision)
}

// holdCreation creates nothing for a while after creation failed. Deletions and updates go on meanwhile.
func (p *planner) holdCreation(scale *rollout.Scale) {
	n := p.core.MayCreate(scale.Create)
	p.creationHeld = n == 0 && scale.Create > 0
	old := min(scale.CreateOld, n)
	// A refusal may concern only one of the revisions.
	if n < scale.Create && p.in.CreationError != "" && p.core.Turn(scale.Create) >= scale.CreateOld {
		old = 0
	}
	scale.Create, scale.CreateOld = n, old
}

// cancelDeletions brings back pods that prepare their deletion but are not specified, if they are needed
// again.
func (p *planner) cancelDeletions() bool {
	for _, hook := range []*pub.LifecycleHook{p.core.Hooks().PreDelete, p.core.Hooks().InPlaceUpdate} {
		if hook != nil && hook.MarkPodNotReady {
			return false
		}
	}

	spoken := 0
	for _, info := range p.core.Members {
		if info.Preparing || info.Specified {
			spoken++
		}
	}

	excess, changed := p.out.Limits.Replicas-len(p.core.Members)+spoken, false
	for _, info := range p.core.Members {
		if excess <= 0 {
			break
		}
		if info.Preparing && !p.specified(info.Pod) {
			patch := &podpatch.Patch{}
			lifecycle.Enter(patch, pub.LifecycleStatePreparingNormal, p.in.Now)
			p.core.Share(patch, info.Pod, pub.LifecycleStatePreparingNormal)
			p.core.Decide(info.Pod, podplan.Patch, podplan.ReasonLifecycleHook,
				"its deletion is not needed any more").Patch = patch
			excess, changed = excess-1, true
		}
	}

	return changed
}

// deletePrepared deletes pods that their preDelete hook has released.
func (p *planner) deletePrepared() bool {
	changed := false
	for _, info := range p.core.Members {
		if !info.Preparing {
			continue
		}
		if lifecycle.Hooked(p.preDelete(), info.Pod) {
			p.core.Decide(info.Pod, podplan.Wait, podplan.ReasonLifecycleHook, "its preDelete hook holds it")
			continue
		}
		p.deletePod(info, podplan.ReasonSpecifiedDelete, "its preDelete hook let it go")
		changed = changed || !p.refused(info)
	}

	return changed
}

// refused reports whether the API server refused to change the pod a while ago. What is tried again with such a pod must not
// hold up the others.
func (p *planner) refused(info *podplan.Pod) bool { return !p.in.Refused[info.Pod.UID].IsZero() }

// deletions counts how many pods may be deleted. A ready pod may be deleted while more than replicas -
// maxUnavailable pods are ready. If it is also available, more than that many pods must be available, too.
// Ready pods count because users have them even before minReadySeconds are over.
type deletions struct{ serving, available int }

func (p *planner) deletions() *deletions {
	keep := p.out.Limits.Replicas - p.out.Limits.MaxUnavailable
	d := &deletions{-keep, -keep}
	for _, info := range p.core.Members {
		count(&d.serving, info.Serving)
		count(&d.available, info.Available)
	}
	return d
}

// take reports whether the pod may be deleted, and if so, counts it as deleted.
func (d *deletions) take(info *podplan.Pod) bool {
	if info.Serving && d.serving <= 0 || info.Available && d.available <= 0 {
		return false
	}
	if info.Serving {
		d.serving--
	}
	if info.Available {
		d.available--
	}
	return true
}

// deleteSpecified deletes pods that are specified for deletion. Those that are not ready are deleted at once,
// the others while enough pods are left.
func (p *planner) deleteSpecified() (deleted, pending bool) {
	budget, infos := p.deletions(), p.core.Members
	if len(p.in.Refused) > 0 {
		infos = slices.SortedStableFunc(slices.Values(infos),
			func(a, b *podplan.Pod) int { return p.byRefusal(a.Pod.UID, b.Pod.UID) })
	}

	for _, info := range infos {
		switch {
		case info.Preparing:
			pending = pending || !p.refused(info)
		case !info.Specified:
		case p.refused(info): // it is tried again with the room that the updates leave, and nothing waits for it
			p.later(info, podplan.ReasonSpecifiedDelete, "it is specified for deletion")
		case !budget.take(info):
			p.core.Decide(info.Pod, podplan.Wait, podplan.ReasonMaxUnavailable,
				"it is specified for deletion, %s", p.budgetWords())
			pending = true
		default:
			p.deletePod(info, podplan.ReasonSpecifiedDelete, "it is specified for deletion")
			deleted = true
		}
	}

	return deleted, pending
}

// again is a deletion that the API server refused before.
type again struct {
	info   *podplan.Pod
	reason podplan.Reason
	why    string
}

// later leaves a deletion to retryDeletions.
func (p *planner) later(info *podplan.Pod, reason podplan.Reason, why string) {
	p.again = append(p.again, again{info, reason, why})
	p.core.Decide(info.Pod, podplan.Wait, podplan.ReasonMaxUnavailable,
		"%s, and comes after the others, since the API server refused it before", why)
}

// retryDeletions tries again what the API server refused. That takes only what the updates have left of the budget, since a policy
// may protect a pod for long.
func (p *planner) retryDeletions(budget *podplan.Budget) {
	for _, again := range p.again {
		info := again.info
		if info.Serving && !budget.Available() {
			continue
		}
		p.deletePod(info, again.reason, again.why)
		if info.Serving && !p.core.HeldByBudget(info.Pod) {
			budget.Spend(1)
		}
	}
}

// scaleIn deletes the pods above the wanted number, its share of old ones first. Pods that are not ready are
// deleted at once, the others while enough pods are left.
func (p *planner) scaleIn(scale rollout.Scale) bool {
	if scale.Remove == 0 {
		return false
	}

	var old, new []rollout.Candidate
	infos, protected := make(map[*corev1.Pod]*podplan.Pod, len(p.core.Members)), 0
	for _, info := range p.core.Members {
		infos[info.Pod] = info
		switch {
		case info.Preparing && !p.excludesPreparing(): // its deletion was refused, and it is one of those that go
			scale.Remove = max(scale.Remove-1, 0)
			if !p.countsAsNew(info) {
				scale.RemoveOld = max(scale.RemoveOld-1, 0)
			}
		case info.Preparing || info.Specified:
		case p.countsAsNew(info):
			new = append(new, info.Candidate)
		default:
			old = append(old, info.Candidate)
			count(&protected, p.refused(info))
		}
	}

	for _, group := range [][]rollout.Candidate{old, new} {
		rollout.Rank(group, topologyKeys(p.set), func(node, key string) (string, bool) {
			value, ok := p.in.NodeLabels[node][key]
			return value, ok
		})
	}

	slices.SortFunc(old, rollout.ByRemoval)
	slices.SortFunc(new, rollout.ByRemoval)
	if p.out.CurrentRevision != p.out.UpdateRevision {
		slices.SortStableFunc(new,
			func(a, b rollout.Candidate) int { return p.surged(b.Pod) - p.surged(a.Pod) })
	}
	for _, group := range [][]rollout.Candidate{old, new} {
		slices.SortStableFunc(group, func(a, b rollout.Candidate) int { return p.byRefusal(a.Pod.UID, b.Pod.UID) })
	}

	fromOld := min(scale.RemoveOld, len(old), scale.Remove)
	// New pods go instead of old ones that a policy protects, but not those of a surge, which would come again.
	if instead := min(fromOld-(len(old)-protected), len(new)-(scale.Remove-fromOld)); instead > 0 && !p.surges() {
		fromOld -= instead
	}
	if p.core.Workload.Paused { // what a pause leaves over must not advance the rollout
		down := 0
		for _, candidate := range old {
			count(&down, !candidate.Available)
		}
		fromOld = max(min(fromOld, down), scale.Remove-len(new))
	}

	chosen := append(old[:fromOld:fromOld], new[:min(scale.Remove-fromOld, len(new))]...)
	budget, changed := p.deletions(), false
	for _, candidate := range chosen {
		if p.refused(infos[candidate.Pod]) {
			p.later(infos[candidate.Pod], podplan.ReasonScaleIn, tooMany(scale.Remove))
			continue
		}
		if !budget.take(infos[candidate.Pod]) {
			p.core.Decide(candidate.Pod, podplan.Wait, podplan.ReasonMaxUnavailable, "%s, %s",
				tooMany(scale.Remove), p.budgetWords())
			continue
		}
		p.deletePod(infos[candidate.Pod], podplan.ReasonScaleIn, tooMany(scale.Remove))
		changed = true
	}

	return changed
}

func tooMany(n int) string {
	if n == 1 {
		return "there is one pod too many"
	}
	return fmt.Sprintf("it is one of %d pods too many", n)
}

// surged returns 1 for a pod that was created at the update revision, and 0 for others. During an in-place
// rollout with surge, such pods are the surge. They are deleted before original pods that were updated, even
// if one of these is not available at the moment.
func (p *planner) surged(pod *corev1.Pod) int {
	if _, original := pod.Annotations[pub.InPlaceUpdateState]; original ||
		p.core.Workload.Policy == podplan.ReCreate || !p.surges() {
		return 0
	}
	return 1
}

// surges reports whether the user asks for surge, even while a pause suspends it.
func (p *planner) surges() bool {
	rolling := rollingOf(p.set)
	return rolling != nil && rolling.MaxSurge != nil && rolling.MaxSurge.String() != "0" &&
		rolling.MaxSurge.String() != "0%"
}

// topologyKeys returns the keys over which the template spreads its pods.
func topologyKeys(set *appsv1beta1.CloneSet) []string {
	var keys []string
	for i := range set.Spec.Template.Spec.TopologySpreadConstraints {
		keys = append(keys, set.Spec.Template.Spec.TopologySpreadConstraints[i].TopologyKey)
	}
	return keys
}

// budgetWords returns why no ready pod may be deleted now. It is computed once, because most pods of a large
// set share it.
func (p *planner) budgetWords() string {
	if p.spent == "" {
		ready, available := 0, 0
		for _, info := range p.core.Members {
			count(&ready, info.Serving)
			count(&available, info.Available)
		}
		p.spent = fmt.Sprintf(
			"but %d of %s must stay (maxUnavailable %d); with those that go now %d %s ready, %d available",
			p.out.Limits.Replicas-p.out.Limits.MaxUnavailable, wording.Count(p.out.Limits.Replicas, "pod"),
			p.out.Limits.MaxUnavailable, ready, wording.Form(ready, "is", "are"), available)
	}

	return p.spent
}

// deletePod deletes the pod with its claims. If the preDelete hook holds the pod, it waits for the hook
// instead.
func (p *planner) deletePod(info *podplan.Pod, reason podplan.Reason, why string) {
	if !info.Preparing && p.core.Prepare(info.Pod, why) != nil {
		return
	}
	v := p.core.Decide(info.Pod, podplan.Delete, reason, "%s", why)
	if id := p.idOf(info.Pod); id != "" &&
		(reason != podplan.ReasonSpecifiedDelete || !p.keepsClaims(info.Pod)) {
		v.Claims = p.claimsOf[id]
	}
}

func (p *planner) preDelete() *pub.LifecycleHook {
	return p.core.Hooks().PreDelete
}

func count[N int | int32](n *N, yes bool) {
	if yes {
		*n++
	}
}
