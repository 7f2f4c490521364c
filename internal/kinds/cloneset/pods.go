package cloneset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// classify decides about inactive pods, and makes active pods members of the plan.
func (p *planner) classify() {
	var failed []*corev1.Pod
	for _, pod := range p.in.Pods {
		if !readiness.Active(pod) {
			p.core.Decide(pod, podplan.Keep, podplan.ReasonInactive, "it is %s", inactivity(pod))
			switch {
			case pod.DeletionTimestamp != nil:
			case p.needsClaims(pod):
				p.core.Decide(pod, podplan.Delete, podplan.ReasonFailedPods,
					"it is %s, and its successor needs its claims", inactivity(pod))
			case pod.Status.Phase == corev1.PodFailed:
				failed = append(failed, pod)
			}
			continue
		}
		if v := p.core.Verdict(pod); v != nil {
			continue
		}
		p.core.Observe(pod, p.specified(pod))
	}

	p.forgetFailed(failed)
}

// keptFailed is how many failed pods of a set are kept for inspection.
const keptFailed = 3

// forgetFailed deletes failed pods except the newest, because evictions may leave many of them.
func (p *planner) forgetFailed(failed []*corev1.Pod) {
	if len(failed) <= keptFailed || p.set.DeletionTimestamp != nil {
		return
	}

	slices.SortStableFunc(failed,
		func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for _, pod := range failed[keptFailed:] {
		p.core.Decide(pod, podplan.Delete, podplan.ReasonFailedPods,
			"it has failed; the newest %d failed pods are kept", keptFailed)
	}
}

func inactivity(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "terminating"
	}
	return string(pod.Status.Phase)
}

// census counts the pods for scaling or for updating. Only scaling counts a pod that prepares its update as
// new.
func (p *planner) census(scaling bool) rollout.Census {
	census := rollout.Census{
		OneRevision:            p.out.CurrentRevision == p.out.UpdateRevision,
		Rollback:               p.in.Features.PartitionRollback,
		ExcludePreparingDelete: p.excludesPreparing(),
	}

	for _, info := range p.core.Members {
		group := &census.Old
		if info.New || scaling && p.countsAsNew(info) {
			group = &census.New
		} else if info.Mode.Recreate {
			census.Recreate++
		} else if info.Mode.Change != nil && !info.Preparing && !info.Specified &&
			(!p.core.Free(info, info.Mode) ||
				info.State == pub.LifecycleStatePreparingUpdate) {
			census.InPlace++
		}
		count(&census.Stale, p.core.OutOfServiceToMend(info))
		group.Total++
		switch {
		case info.Preparing:
			group.PreparingDelete++
		case info.Specified:
			group.Specified++
		case !info.Available:
			group.Unavailable++
		}
	}

	return census
}

// excludesPreparing reports whether pods that prepare their deletion do not count as present.
func (p *planner) excludesPreparing() bool {
	return p.in.Features.ExcludePreparingDelete || p.set.Spec.ScaleStrategy.ExcludePreparingDelete
}

// countsAsNew reports whether scaling counts the pod as one of the update revision. A pod that prepares its
// update is about to become one.
func (p *planner) countsAsNew(info *podplan.Pod) bool {
	return info.New || p.in.Features.PreparingUpdateAsUpdate &&
		info.State == pub.LifecycleStatePreparingUpdate
}

// specified reports whether somebody asked for the deletion of the pod.
func (p *planner) specified(pod *corev1.Pod) bool {
	_, labelled := pod.Labels[pub.SpecifiedDelete]
	return labelled || p.toDelete[pod.Name]
}
