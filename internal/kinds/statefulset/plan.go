package statefulset

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Plan is what one pass is to do.
type Plan struct {
	// Set is the StatefulSet that the plan is for.
	Set *appsv1beta1.StatefulSet
	podplan.Plan
	// AdoptRevisions are revisions without a controller that become the set's (ASTS-071).
	AdoptRevisions []*appsv1.ControllerRevision
	// CreateClaims are PVCs that pods wait for (ASTS-104).
	CreateClaims []podplan.Creation
	// ClaimOwners are PVCs that get other owners (ASTS-262).
	ClaimOwners []ClaimOwners
	// Growth are the PVCs to be grown to the size in their templates (ASTS-273).
	Growth []podplan.Growth
	// ClaimsFixed says which PVCs differ from their templates in fields that cannot be changed (ASTS-275).
	ClaimsFixed string
	// GrowthFailed is why the storage cannot grow a PVC (ASTS-277).
	GrowthFailed string
	// Ended are the pods that are deleted because they ended by themselves. Other pods take their place
	// (ASTS-140).
	Ended []*corev1.Pod
	// Refusal says why a missing pod is not created.
	Refusal string
	// Status is the status as far as it follows from the snapshot.
	Status appsv1beta1.StatefulSetStatus
	// full reports that every slot has an available pod and that there are no other pods.
	full bool
}

// ClaimOwners are the owners that a PVC is to get.
type ClaimOwners struct {
	Claim  *corev1.PersistentVolumeClaim
	Owners []metav1.OwnerReference
	Why    string
}

// planner is the working state of Make. in is what it decides from, out is what it decides, and core makes
// the decisions that all pod workloads share.
type planner struct {
	core     *podplan.Planner
	in       Snapshot
	out      *Plan
	set      *appsv1beta1.StatefulSet
	selector labels.Selector
	// slots are in ascending order, condemned pods in descending order.
	slots, condemned []slot
	// blocked says what blocks scaling under OrderedReady. It is empty if nothing does.
	blocked string
	// held reports that an available pod waits for its update, so that no pod after it may overtake it.
	held bool
	// others is how many slots have, or get, a pod that is not at the update revision.
	others int
	// resizes reports that PVCs follow their templates when pods are updated.
	resizes bool
	// claims are the states of the PVCs of slots and condemned pods, by ordinal.
	claims map[int]*claimState
}

// Make decides what to do. It does not change the snapshot.
func Make(s Snapshot) *Plan {
	p := &planner{in: s, set: s.Set, out: &Plan{Set: s.Set}, claims: map[int]*claimState{}}
	byName := func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) }
	p.in.Orphans = slices.SortedFunc(slices.Values(s.Orphans), byName)
	p.in.Pods = slices.SortedFunc(slices.Values(append(s.Pods[:len(s.Pods):len(s.Pods)], s.Orphans...)),
		byName)
	p.core = podplan.New(workloadOf(s.Set, s.Features), &p.in.Snapshot, &p.out.Plan)
	p.in.Orphans = nil // they are among the pods now
	p.resizes = s.Features.ResizeClaims &&
		s.Set.Spec.VolumeClaimUpdateStrategy.Type == appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
	p.core.Replace = func(info *podplan.Pod, reason podplan.Reason, unstored, why string) {
		p.deletePod(info.Pod, reason, why).Unstored = unstored
	}
	p.make()
	p.sayClaims()
	p.status()
	p.core.Conclude()
	if p.out.Waiting == nil {
		p.out.Waiting = p.core.Lingering()
	}

	return p.out
}

func (p *planner) make() {
	selector, err := metav1.LabelSelectorAsSelector(p.set.Spec.Selector)
	if err != nil {
		p.blockOnInvalidSpec(fmt.Errorf("spec.selector: %w", err))
		return
	}

	p.selector = selector
	if err := p.core.DetermineRevisions(); err != nil {
		p.blockOnInvalidSpec(err)
		return
	}

	ordinals, err := p.in.ordinals()
	if err != nil {
		p.blockOnInvalidSpec(err)
		return
	}
	if p.set.DeletionTimestamp != nil {
		p.sortMembers(ordinals)
		p.observeClaims()
		p.countStatus()
		p.core.HoldDeleted()
		return
	}
	if !selector.Matches(labels.Set(p.set.Spec.Template.Labels)) || inplace.Selects(selector) != "" {
		p.blockOnInvalidSpec(fmt.Errorf(
			"spec.selector %s does not match the labels of spec.template.metadata, or asks for labels that controllers change: "+
				"no pod could be the set's", selector))
		return
	}
	if err := p.limits(); err != nil {
		p.blockOnInvalidSpec(err)
		return
	}

	p.adopt()
	p.sortMembers(ordinals)
	p.fill()
	p.observeClaims()
	p.core.DecideModes()
	p.core.PreDownload(false)
	p.countStatus()
	p.retain()
	p.createClaims()
	p.chooseRevisions()
	if ordered(p.set) {
		p.scaleOrdered()
	} else {
		p.scaleParallel()
	}
	p.update()
	p.repair()
	p.core.Refresh()
	p.core.HoldAll(podplan.ReasonInactive, "it is being deleted") // pods whose names contain no ordinal
}

// blockOnInvalidSpec leaves everything as it is, because the spec cannot be used. The revisions in the status
// stay, too.
func (p *planner) blockOnInvalidSpec(err error) {
	p.out.UpdateError, p.out.NewRevision, p.out.Renumber, p.core.Update = err.Error(), nil, nil, nil
	p.out.UpdateRevision, p.out.CurrentRevision = p.set.Status.UpdateRevision, p.set.Status.CurrentRevision
	p.out.CollisionCount = p.set.Status.CollisionCount
	for _, pod := range p.in.Pods {
		if readiness.Active(pod) && metav1.IsControlledBy(pod, p.set) {
			p.core.Observe(pod, false)
		}
	}
	p.core.HoldAll(podplan.ReasonBadSpec, p.out.UpdateError)
}

// limits resolves the user's numbers.
func (p *planner) limits() error {
	p.out.Limits = rollout.Limits{Replicas: 1, MaxUnavailable: 1, ScaleMaxUnavailable: rollout.Unlimited}
	if p.set.Spec.Replicas != nil {
		p.out.Limits.Replicas = int(*p.set.Spec.Replicas)
	}
	scaled := func(value *intstr.IntOrString, field string) (int, error) {
		n, err := rollout.Scaled(*value, p.out.Limits.Replicas, false)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", field, err)
		}
		return max(n, 1), nil
	}

	var err error
	if r := rollingOf(p.set); r != nil {
		if r.Partition != nil {
			p.out.Limits.Partition = min(max(int(*r.Partition), 0), p.out.Limits.Replicas)
		}
		if r.MaxUnavailable != nil && !ordered(p.set) {
			if p.out.Limits.MaxUnavailable, err = scaled(r.MaxUnavailable,
				"spec.updateStrategy.rollingUpdate.maxUnavailable"); err != nil {
				return err
			}
		}
	}
	if s := p.set.Spec.ScaleStrategy; s != nil && s.MaxUnavailable != nil && !ordered(p.set) {
		p.out.Limits.ScaleMaxUnavailable, err = scaled(s.MaxUnavailable, "spec.scaleStrategy.maxUnavailable")
	}

	return err
}

// adopt adopts pods and revisions without a controller, and releases pods that no longer belong to the set.
func (p *planner) adopt() {
	for _, pod := range p.in.Pods {
		_, named := ordinalOf(p.set.Name, pod.Name)
		switch {
		case metav1.GetControllerOfNoCopy(pod) == nil:
			if pod.DeletionTimestamp == nil {
				patch := &podpatch.Patch{}
				patch.AdoptOwner(p.core.Workload.Owner)
				p.core.Decide(pod, podplan.Adopt, podplan.ReasonOrphan,
					"it has the name and the labels of a pod of the set, and no controller").Patch = patch
			}
		case pod.DeletionTimestamp == nil && (!named || !p.selector.Matches(labels.Set(pod.Labels))):
			patch := &podpatch.Patch{}
			patch.ReleaseOwner(string(p.set.UID))
			p.core.Decide(pod, podplan.Release, podplan.ReasonSelector,
				"its name or its labels are not those of a pod of the set any more").Patch = patch
		}
	}

	for _, r := range p.in.Revisions {
		if metav1.GetControllerOfNoCopy(r) == nil && r.DeletionTimestamp == nil {
			p.out.AdoptRevisions = append(p.out.AdoptRevisions, r)
		}
	}
}

// deletePod deletes a pod. If the preDelete hook holds the pod, it waits for the hook instead. The pod's PVCs
// must have their owners first, because what becomes of them is decided at the moment the pod is gone.
func (p *planner) deletePod(pod *corev1.Pod, reason podplan.Reason, why string) *podplan.Verdict {
	if held := p.core.Prepare(pod, why); held != nil {
		return held
	}

	ordinal, _ := ordinalOf(p.set.Name, pod.Name)
	if p.claims[ordinal].settling {
		return p.core.Decide(pod, podplan.Wait, reason, "%s; its claims get their owners first", why)
	}
	v := p.core.Decide(pod, podplan.Delete, reason, "%s", why)
	v.Kept = p.claims[ordinal].kept
	return v
}

// restore brings back a pod that prepares its deletion and is needed again. A pod whose update is incomplete
// does not enter state Normal, because that would declare the update complete.
func (p *planner) restore(info *podplan.Pod) {
	next := pub.LifecycleStateNormal
	if hook := p.core.Hooks().PreNormal; !info.Progress.Complete {
		next = pub.LifecycleStateUpdating
	} else if hook != nil && !lifecycle.FullyHooked(hook, info.Pod) {
		next = pub.LifecycleStatePreparingNormal
	}
	patch := &podpatch.Patch{}
	lifecycle.Enter(patch, next, p.in.Now)
	p.core.Share(patch, info.Pod, next)
	p.core.Decide(info.Pod, podplan.Patch, podplan.ReasonLifecycleHook,
		"its deletion is not needed any more").Patch = patch
}

// repair restores the identity labels of pods.
func (p *planner) repair() {
	for _, list := range [][]slot{p.slots, p.condemned} {
		for i := range list {
			s := &list[i]
			if s.info == nil || s.pod.Labels[appsv1.StatefulSetPodNameLabel] == s.pod.Name {
				continue
			}
			if v := p.core.Verdict(s.pod); v != nil && v.Action != podplan.Wait && v.Action != podplan.Keep {
				continue
			}
			patch := &podpatch.Patch{}
			for key, value := range p.identity(s.ordinal).Labels {
				patch.Label(key, value)
			}
			p.core.Decide(s.pod, podplan.Patch, podplan.ReasonIdentity,
				"it lacks the label %s", appsv1.StatefulSetPodNameLabel).Patch = patch
		}
	}
}

// sayClaims adds what becomes of PVCs to the printed plan.
func (p *planner) sayClaims() {
	t := &wording.Report{}
	for _, change := range p.out.ClaimOwners {
		t.Add("claim "+change.Claim.Name, "other owners: %s", change.Why)
	}
	for _, creation := range p.out.CreateClaims {
		t.Add("pod "+creation.Name, "create the claims that it waits for")
	}
	for _, growth := range p.out.Growth {
		t.Add("claim "+growth.Claim.Name, "grow to %s", growth.Storage.String())
	}
	p.out.ClaimLines = t.Lines
}
