package cloneset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// maxCreate is how many pods one plan makes. A wrong number of replicas must not take the memory of a manager that serves others too.
const maxCreate = 2000

// scale decides creation and deletion. It tells whether it changes anything; if so no update starts in this pass (CS-117, CS-072).
func (p *planner) scale() bool {
	census := p.census(true)
	scale := rollout.ComputeScale(census, p.Limits)
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
	if scale.Missing > 0 && p.ScaleLimited == "" && !p.creationHeld {
		p.ScaleLimited = fmt.Sprintf("%d pods are missing, but %d are unavailable and scaleStrategy.maxUnavailable is %d",
			scale.Missing, scale.Unavailable, p.Limits.ScaleMaxUnavailable)
	}
	if p.ScaleLimited != "" {
		p.say("creation waits: %s", p.ScaleLimited)
	}
	if p.deletePrepared() {
		return true
	}
	if deleted, pending := p.deleteSpecified(); deleted || pending {
		return deleted // ordinary scale-in waits for what is specified (CS-133)
	}
	if scale.Missing > 0 {
		return false
	}
	return p.scaleIn(scale)
}

func (p *planner) sayScale(census rollout.Census, scale rollout.Scale) {
	p.say("%d of %d pods, %d at %s, %d old; partition %d, maxUnavailable %d, maxSurge %d; %d unavailable", census.Old.Total+census.New.Total,
		p.Limits.Replicas, census.New.Total, p.UpdateRevision, census.Old.Total, p.Limits.Partition, p.Limits.MaxUnavailable, p.Limits.MaxSurge,
		scale.Unavailable)
	if scale.Surge > 0 {
		p.say("surge of %d pods", scale.Surge)
	}
}

func (p *planner) createPods(scale rollout.Scale) {
	next := p.ids()
	for i := range scale.Create {
		from := p.update
		if i < scale.CreateOld { // CS-112
			from = p.current
		}
		if err := p.create(next(), from); err != nil {
			p.ScaleError = err.Error()
			return
		}
	}
	p.say("create %d of %d missing pods, %d of them at %s", scale.Create, scale.Missing, scale.CreateOld, p.CurrentRevision)
}

// holdCreation creates nothing for a while after that failed: whatever is to be deleted or updated goes on meanwhile (CS-072).
func (p *planner) holdCreation(scale *rollout.Scale) {
	if scale.Create > 0 && p.Now.Before(p.CreationHeldUntil) {
		p.lookAgain(p.CreationHeldUntil)
		p.ScaleError, p.creationHeld = p.CreationError, true
		p.say("%d pods are missing; the next attempt is made later, because creation failed: %s", scale.Missing, p.CreationError)
		scale.Create = 0
	}
}

// cancelDeletions brings pods back that need not go any more: they prepare their deletion, but are not specified (CS-118).
func (p *planner) cancelDeletions() bool {
	for _, hook := range []*pub.LifecycleHook{p.hooks().PreDelete, p.hooks().InPlaceUpdate} {
		if hook != nil && hook.MarkPodNotReady {
			return false
		}
	}
	spoken := 0
	for _, info := range p.pods {
		if info.Preparing || info.Specified {
			spoken++
		}
	}
	excess, changed := p.Limits.Replicas-len(p.pods)+spoken, false
	for _, info := range p.pods {
		if excess <= 0 {
			break
		}
		_, labelled := info.Pod.Labels[pub.SpecifiedDelete]
		if info.Preparing && !labelled && !slices.Contains(p.Set.Spec.ScaleStrategy.PodsToDelete, info.Pod.Name) {
			patch := &podpatch.Patch{}
			lifecycle.Enter(patch, pub.LifecycleStatePreparingNormal, p.Now)
			p.share(patch, info.Pod, pub.LifecycleStatePreparingNormal)
			p.decide(info.Pod, Patch, ReasonLifecycleHook, "its deletion is not needed any more").Patch = patch
			excess, changed = excess-1, true
		}
	}
	return changed
}

// deletePrepared deletes pods whose preDelete hook has let them go (IPU-152).
func (p *planner) deletePrepared() bool {
	changed := false
	for _, info := range p.pods {
		if !info.Preparing {
			continue
		}
		if lifecycle.Hooked(p.preDelete(), info.Pod) {
			p.decide(info.Pod, Wait, ReasonLifecycleHook, "its preDelete hook holds it")
			continue
		}
		p.deletePod(info, ReasonSpecifiedDelete, "its preDelete hook let it go")
		changed = true
	}
	return changed
}

// deleteSpecified deletes pods specified for deletion: those not ready at once, the others while enough pods are available (CS-132).
func (p *planner) deleteSpecified() (deleted, pending bool) {
	spare := p.spare()
	for _, info := range p.pods {
		if info.Preparing {
			pending = true
		}
		if !info.Specified {
			continue
		}
		if info.Available && spare <= 0 {
			p.decide(info.Pod, Wait, ReasonMaxUnavailable, "it is specified for deletion, %s", p.budgetWords())
			pending = true
			continue
		}
		if info.Available {
			spare--
		}
		p.deletePod(info, ReasonSpecifiedDelete, "it is specified for deletion")
		deleted = true
	}
	return deleted, pending
}

// scaleIn deletes pods beyond the wanted number: its share of old ones first, unavailable ones freely, available ones while there
// are more than enough (CS-113, CS-140, CS-172).
func (p *planner) scaleIn(scale rollout.Scale) bool {
	if scale.Remove == 0 {
		return false
	}
	var old, new []rollout.Candidate
	for _, info := range p.pods {
		switch {
		case info.Preparing || info.Specified:
		case info.New:
			new = append(new, info.Candidate)
		default:
			old = append(old, info.Candidate)
		}
	}
	for _, group := range [][]rollout.Candidate{old, new} {
		rollout.Rank(group, topologyKeys(p.Set), func(node, key string) (string, bool) {
			value, ok := p.NodeLabels[node][key]
			return value, ok
		})
	}
	slices.SortFunc(old, rollout.ByRemoval)
	slices.SortFunc(new, rollout.ByRemoval)
	if p.CurrentRevision != p.UpdateRevision {
		slices.SortStableFunc(new, func(a, b rollout.Candidate) int { return p.surged(b.Pod) - p.surged(a.Pod) })
	}
	fromOld := min(scale.RemoveOld, len(old))
	if p.paused() { // what a pause leaves over must not bring the rollout further (CS-353)
		down := 0
		for _, candidate := range old {
			count(&down, !candidate.Available)
		}
		fromOld = max(min(fromOld, down), scale.Remove-len(new))
	}
	chosen := append(old[:fromOld:fromOld], new[:min(scale.Remove-fromOld, len(new))]...)
	spare, changed := p.spare(), false
	for _, candidate := range chosen {
		if candidate.Available && spare <= 0 {
			p.decide(candidate.Pod, Wait, ReasonMaxUnavailable, "it is one of %d pods too many, %s", scale.Remove, p.budgetWords())
			continue
		}
		if candidate.Available {
			spare--
		}
		p.deletePod(p.info(candidate.Pod), ReasonScaleIn, fmt.Sprintf("it is one of %d pods too many", scale.Remove))
		changed = true
	}
	return changed
}

// surged is 1 for a pod that was made at the update revision: during a rollout in place with surge these are what surge added, and go before
// the originals that were updated, also if one of these is not available at the moment (CS-103).
func (p *planner) surged(pod *corev1.Pod) int {
	if _, original := pod.Annotations[pub.InPlaceUpdateState]; original || p.policy() == appsv1beta1.ReCreateCloneSetPodUpdatePolicy || !p.surges() {
		return 0
	}
	return 1
}

// surges tells whether the user asks for surge, also while a pause suspends it.
func (p *planner) surges() bool {
	rolling := p.rolling()
	return rolling != nil && rolling.MaxSurge != nil && rolling.MaxSurge.String() != "0" && rolling.MaxSurge.String() != "0%"
}

// topologyKeys are those over which the template spreads its pods (CS-151).
func topologyKeys(set *appsv1beta1.CloneSet) []string {
	var keys []string
	for i := range set.Spec.Template.Spec.TopologySpreadConstraints {
		keys = append(keys, set.Spec.Template.Spec.TopologySpreadConstraints[i].TopologyKey)
	}
	return keys
}

func (p *planner) info(pod *corev1.Pod) *podInfo {
	for _, info := range p.pods {
		if info.Pod == pod {
			return info
		}
	}
	return nil
}

func (p *planner) budgetWords() string {
	available := 0
	for _, info := range p.pods {
		if info.Available {
			available++
		}
	}
	return fmt.Sprintf("but only %d pods are available and %d - %d must stay so", available, p.Limits.Replicas, p.Limits.MaxUnavailable)
}

// deletePod deletes the pod with its claims, or, if the preDelete hook holds it, makes it wait for the hook (CS-136, CS-137).
func (p *planner) deletePod(info *podInfo, reason Reason, why string) {
	if lifecycle.Hooked(p.preDelete(), info.Pod) && !info.Preparing {
		patch := &podpatch.Patch{}
		lifecycle.Enter(patch, pub.LifecycleStatePreparingDelete, p.Now)
		p.share(patch, info.Pod, pub.LifecycleStatePreparingDelete)
		p.decide(info.Pod, Patch, ReasonLifecycleHook, "%s; its preDelete hook comes first", why).Patch = patch
		return
	}
	v := p.decide(info.Pod, Delete, reason, "%s", why)
	if id := info.Pod.Labels[pub.CloneSetInstanceID]; id != "" && (reason != ReasonSpecifiedDelete || !p.keepsClaims(info.Pod)) {
		for _, claim := range p.Claims {
			if claim.Labels[pub.CloneSetInstanceID] == id && claim.DeletionTimestamp == nil {
				v.Claims = append(v.Claims, claim)
			}
		}
	}
}

func (p *planner) preDelete() *pub.LifecycleHook {
	return p.hooks().PreDelete
}

// keepsClaims tells whether the pod leaves its claims for its successor (CS-337). Without reuse they would find none.
func (p *planner) keepsClaims(pod *corev1.Pod) bool {
	return pod.Labels[pub.KeepClaims] == "true" && p.Set.Spec.ScaleStrategy.EnablePVCReuse
}

// awaitClaims holds back the successors of pods that leave them their claims: they have the names of their predecessors, and must
// wait until these are gone (CS-335, CS-337).
func (p *planner) awaitClaims(scale *rollout.Scale) {
	if scale.Create == 0 || len(p.Claims) == 0 {
		return
	}
	var leaving []string
	for _, pod := range p.Pods {
		id := pod.Labels[pub.CloneSetInstanceID]
		if pod.DeletionTimestamp != nil && id != "" && p.keepsClaims(pod) && slices.ContainsFunc(p.Claims, func(c *corev1.PersistentVolumeClaim) bool {
			return c.Labels[pub.CloneSetInstanceID] == id && c.DeletionTimestamp == nil
		}) {
			leaving = append(leaving, pod.Name)
		}
	}
	if held := min(len(leaving), scale.Create); held > 0 {
		scale.Create -= held
		scale.CreateOld = min(scale.CreateOld, scale.Create)
		p.ScaleLimited = fmt.Sprintf("%d pods wait until %s are gone, whose claims they take over", held, strings.Join(leaving, ", "))
	}
}

// settleClaims decides about claims whose pod is not active any more. A pod that the set itself wanted to go takes its claims
// along whatever the reuse setting, also if the manager died in between (CS-061); a released one keeps them (CS-348); without
// reuse the others are handed to what is left of their pod, or deleted (CS-064).
func (p *planner) settleClaims() {
	if len(p.Claims) == 0 {
		return
	}
	active := map[string]bool{}
	inactive := map[string]*corev1.Pod{}
	released := map[string]*corev1.Pod{}
	for _, pod := range p.Pods {
		id := p.idOf(pod)
		switch v := p.verdicts[pod]; {
		case id == "":
		case v != nil && v.Action == Release:
			released[id] = pod
		case Active(pod):
			active[id] = true
		default:
			inactive[id] = pod
		}
	}
	for _, pod := range p.Strangers {
		if id := p.idOf(pod); id != "" && metav1.GetControllerOfNoCopy(pod) == nil {
			released[id] = pod
		}
	}
	for _, claim := range p.Claims {
		id := claim.Labels[pub.CloneSetInstanceID]
		if id == "" || active[id] || claim.DeletionTimestamp != nil {
			continue
		}
		left := inactive[id]
		if left != nil {
			if _, wanted := left.Labels[pub.SpecifiedDelete]; wanted && !p.keepsClaims(left) {
				p.ClaimFates = append(p.ClaimFates, ClaimFate{Claim: claim, Why: "its pod was specified for deletion"})
				continue
			}
		}
		switch {
		case released[id] != nil:
			p.ClaimFates = append(p.ClaimFates, ClaimFate{Claim: claim, HandTo: released[id], Why: "its pod is released"})
		case p.Set.Spec.ScaleStrategy.EnablePVCReuse:
		case left != nil:
			p.ClaimFates = append(p.ClaimFates, ClaimFate{Claim: claim, HandTo: left, Why: "its pod is " + inactivity(left)})
		default:
			p.ClaimFates = append(p.ClaimFates, ClaimFate{Claim: claim, Why: "it has no pod and reuse is off"})
		}
	}
}
