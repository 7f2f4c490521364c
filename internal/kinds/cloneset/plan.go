package cloneset

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// ClaimFate is what happens to a claim that has no active pod (CS-064), or that its pod must not take along
// after all.
type ClaimFate struct {
	Claim *corev1.PersistentVolumeClaim
	// HandTo is the pod that takes the claim along when it goes.
	HandTo *corev1.Pod
	// TakeBack returns the claim to the set. If neither HandTo nor TakeBack is set, the claim is deleted once
	// a live read has shown that its pod does not exist.
	TakeBack bool
	Why      string
}

// Plan is what one pass is to do.
type Plan struct {
	// Set is the CloneSet that the plan is for.
	Set *appsv1beta1.CloneSet
	podplan.Plan
	// ClaimFates are the decisions about claims without an active pod.
	ClaimFates []ClaimFate
	// PodsToDelete is the new scaleStrategy.podsToDelete if PrunePodsToDelete is set (CS-134).
	PodsToDelete      []string
	PrunePodsToDelete bool
	// ClaimsNotReused says which claims new pods no longer get, because the pods that hold them do not go
	// (CS-335).
	ClaimsNotReused string
	// ClaimGrowth are the claims to be grown to the size in their templates (CS-338).
	ClaimGrowth []podplan.Growth
	// ClaimsHeld says which claims cannot follow their templates. It is empty if all can.
	ClaimsHeld string
	// Orphans are the names of pods that match the selector and have no controller (CS-355).
	Orphans []string
	// Status is the status as far as it follows from the snapshot.
	Status appsv1beta1.CloneSetStatus
}

// Empty reports whether the plan writes nothing, except perhaps the status.
func (p *Plan) Empty() bool {
	if p.NewRevision != nil || p.Renumber != nil || p.PrunePodsToDelete ||
		len(p.Create)+len(p.ClaimFates)+len(p.ClaimGrowth)+len(p.History) > 0 {
		return false
	}
	if len(p.Pulls)+len(p.EndedPulls)+len(p.RevisionLabels) > 0 {
		return false
	}
	return !slices.ContainsFunc(p.Verdicts,
		func(v *podplan.Verdict) bool { return v.Action != podplan.Keep && v.Action != podplan.Wait })
}

// planner is the working state of Make. in is what it decides from, out is what it decides, and core makes
// the decisions that all pod workloads share.
type planner struct {
	core     *podplan.Planner
	in       Snapshot
	out      *Plan
	set      *appsv1beta1.CloneSet
	selector labels.Selector
	// again are pods whose deletion is tried again, see retryDeletions.
	again []again
	// creationHeld reports that pods are missing but none are created, because creation failed a moment ago.
	creationHeld bool
	// claimsOf are the live claims of the set by instance ID.
	claimsOf map[string][]*corev1.PersistentVolumeClaim
	// toDelete are the names in scaleStrategy.podsToDelete.
	toDelete map[string]bool
	// spent caches the message of budgetWords.
	spent string
}

// Make decides what to do. It does not change the snapshot.
func Make(s Snapshot) *Plan {
	p := &planner{in: s, set: s.Set, out: &Plan{Set: s.Set}, toDelete: map[string]bool{}}
	p.core = podplan.New(workloadOf(s.Set, s.Features), &p.in.Snapshot, &p.out.Plan)
	for _, name := range s.Set.Spec.ScaleStrategy.PodsToDelete {
		p.toDelete[name] = true
	}

	p.out.Orphans = slices.Sorted(slices.Values(s.Orphans)) // the index returns them in any order
	p.in.Pods = slices.SortedFunc(slices.Values(s.Pods),
		func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	p.make()
	p.sayClaims()
	p.status()
	p.core.Conclude()
	return p.out
}

func (p *planner) make() {
	limits, unusable := p.limits()
	p.out.Limits = limits
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
	if p.set.DeletionTimestamp == nil &&
		(!selector.Matches(labels.Set(p.set.Spec.Template.Labels)) || inplace.Selects(selector) != "") {
		p.blockOnInvalidSpec(fmt.Errorf(
			"spec.selector %s does not match the labels of spec.template.metadata, or asks for labels that controllers change: "+
				"pods would be made without end; correct the labels", selector))
		return
	}
	if p.set.DeletionTimestamp != nil {
		p.classify()
		p.core.HoldDeleted()
		return
	}

	p.release()
	p.sortClaims()
	p.classify()
	p.settleClaims()
	p.growClaims()
	if unusable != nil {
		p.out.UpdateError = unusable.Error()
	}
	p.core.DecideModes()
	p.core.PreDownload(unusable != nil)
	// Pods that budgets hold back may wait for a pod that only an update brings back.
	scaling, stuck := p.scale(), p.core.HeedBudgets()
	if p.core.Scaling = scaling && !stuck; !p.core.Scaling {
		p.retryDeletions(p.updatePods(unusable))
	}
	p.core.Refresh()
	p.takeClaimsBack()
	p.prune()
}

// blockOnInvalidSpec leaves everything as it is, because the spec cannot be used. The revisions in the status
// stay, too.
func (p *planner) blockOnInvalidSpec(err error) {
	p.out.UpdateError, p.out.NewRevision, p.out.Renumber, p.core.Update = err.Error(), nil, nil, nil
	p.out.UpdateRevision, p.out.CurrentRevision = p.set.Status.UpdateRevision, p.set.Status.CurrentRevision
	p.out.CollisionCount = p.set.Status.CollisionCount
	p.classify()
	p.core.HoldAll(podplan.ReasonBadSpec, p.out.UpdateError)
}

// limits resolves the user's numbers. If one of them is unusable, nothing is updated and no available pod is
// taken away.
func (p *planner) limits() (rollout.Limits, error) {
	spec := rollout.Spec{Replicas: p.replicas(), ScaleMaxUnavailable: p.set.Spec.ScaleStrategy.MaxUnavailable}
	if r := rollingOf(p.set); r != nil {
		spec.Partition, spec.MaxSurge, spec.MaxUnavailable, spec.Paused =
			r.Partition, r.MaxSurge, r.MaxUnavailable, r.Paused
	}
	limits, err := rollout.Resolve(spec)
	if err != nil {
		return rollout.Limits{Replicas: spec.Replicas, Partition: spec.Replicas,
				ScaleMaxUnavailable: rollout.Unlimited},
			fmt.Errorf("spec.updateStrategy: %w", err)
	}
	return limits, nil
}

func (p *planner) onDelete() bool {
	return p.set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteCloneSetUpdateStrategyType
}

func (p *planner) replicas() int {
	if p.set.Spec.Replicas == nil {
		return 1
	}
	return int(*p.set.Spec.Replicas)
}

// release gives up pods that no longer match the selector.
func (p *planner) release() {
	for _, pod := range p.in.Pods {
		if readiness.Active(pod) && !p.selector.Matches(labels.Set(pod.Labels)) {
			patch := &podpatch.Patch{}
			patch.ReleaseOwner(string(p.set.UID))
			p.core.Decide(pod, podplan.Release, podplan.ReasonSelector,
				"its labels do not match the selector %s any more", p.selector).Patch = patch
		}
	}
}

// sayClaims adds what becomes of claims to the printed plan.
func (p *planner) sayClaims() {
	t := &wording.Report{}
	for _, fate := range p.out.ClaimFates {
		about := "claim " + fate.Claim.Name
		switch {
		case fate.HandTo != nil:
			t.Add(about, "handed to pod %s: %s", fate.HandTo.Name, fate.Why)
		case fate.TakeBack:
			t.Add(about, "taken back: %s", fate.Why)
		default:
			t.Add(about, "delete: %s", fate.Why)
		}
	}

	for _, growth := range p.out.ClaimGrowth {
		t.Add("claim "+growth.Claim.Name, "grow to %s", growth.Storage.String())
	}

	p.out.ClaimLines = t.Lines
}

// prune removes names from podsToDelete that no longer name an active pod.
func (p *planner) prune() {
	names := p.set.Spec.ScaleStrategy.PodsToDelete
	if len(names) == 0 {
		return
	}
	active := make(map[string]bool, len(p.core.Members))
	for _, info := range p.core.Members {
		active[info.Pod.Name] = true
	}
	p.out.PodsToDelete = slices.DeleteFunc(slices.Clone(names),
		func(name string) bool { return !active[name] })
	p.out.PrunePodsToDelete = len(p.out.PodsToDelete) < len(names)
}
