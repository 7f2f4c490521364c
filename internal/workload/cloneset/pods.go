package cloneset

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// podInfo is an active pod with what the plan needs to know of it.
type podInfo struct {
	rollout.Candidate
	// New: the pod carries the update revision.
	New bool
	// Preparing: it waits for its preDelete hook (pd). Specified: it is specified for deletion and not preparing it yet (sd).
	Preparing, Specified bool
	// Progress of its last in-place update; Err if that cannot be read.
	Progress inplace.Status
	Err      error
	// AvailableIn is how long it takes to become available by time alone; 0 if time does not help.
	AvailableIn time.Duration
	// Mode is how it reaches the update revision; set for old pods only.
	Mode mode
}

// mode is how a pod can reach another revision.
type mode struct {
	recreate bool
	change   *inplace.Change
	// refusal is why neither is allowed; empty if one is.
	refusal string
	// why says why it is recreated.
	why string
}

func (p *planner) classify() {
	for _, pod := range p.Pods {
		if !Active(pod) {
			p.decide(pod, Keep, ReasonInactive, "it is %s", inactivity(pod))
			continue
		}
		if v := p.verdicts[pod.Name]; v != nil {
			continue
		}
		info := &podInfo{Candidate: rollout.Candidate{Pod: pod, Ready: readiness.Ready(pod)}}
		info.Available, info.AvailableIn = readiness.Available(pod, p.Set.Spec.MinReadySeconds, p.Now)
		if info.AvailableIn > 0 { // whatever holds the pod, others may wait for it to count
			p.lookAgain(p.Now.Add(info.AvailableIn))
		}
		info.New = revision.SameLabel(pod.Labels[pub.ControllerRevisionHash], p.UpdateRevision)
		info.Preparing = lifecycle.State(pod) == pub.LifecycleStatePreparingDelete
		_, labelled := pod.Labels[pub.SpecifiedDelete]
		info.Specified = !info.Preparing && (labelled || slices.Contains(p.Set.Spec.ScaleStrategy.PodsToDelete, pod.Name))
		info.Progress, info.Err = inplace.Progress(pod, p.Now)
		p.pods = append(p.pods, info)
	}
}

func inactivity(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "terminating"
	}
	return string(pod.Status.Phase)
}

func (p *planner) census() rollout.Census {
	census := rollout.Census{
		OneRevision:            p.CurrentRevision == p.UpdateRevision,
		Rollback:               p.Features.PartitionRollback,
		ExcludePreparingDelete: p.Features.ExcludePreparingDelete || p.Set.Spec.ScaleStrategy.ExcludePreparingDelete,
	}
	for _, info := range p.pods {
		group := &census.Old
		if info.New || (p.Features.PreparingUpdateAsUpdate && lifecycle.State(info.Pod) == pub.LifecycleStatePreparingUpdate) {
			group = &census.New
		} else if info.Mode.recreate {
			census.Recreate++
		}
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

// spare is how many available pods may be taken away: those above replicas - maxUnavailable.
func (p *planner) spare() int {
	available := 0
	for _, info := range p.pods {
		if info.Available {
			available++
		}
	}
	return available - (p.Limits.Replicas - p.Limits.MaxUnavailable)
}

// decideModes finds out for every old pod whether it can reach the update revision in place, before anything is counted (CS-102,
// CS-127). The answer depends on the revision that the pod carries alone, so that it is computed once for each (IPU-031).
func (p *planner) decideModes() {
	modes := map[string]mode{}
	for _, info := range p.pods {
		if info.New {
			continue
		}
		label := info.Pod.Labels[pub.ControllerRevisionHash]
		m, ok := modes[label]
		if !ok {
			m = p.modeFrom(label, p.update)
			modes[label] = m
		}
		info.Mode = m
	}
}

func (p *planner) modeFrom(label string, target *revisionInfo) mode {
	policy := p.policy()
	if policy == appsv1beta1.ReCreateCloneSetPodUpdatePolicy {
		return mode{recreate: true, why: "the policy is ReCreate"}
	}
	change, refusal := p.compare(label, target, policy)
	switch {
	case refusal == "":
		return mode{change: change}
	case policy == appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy:
		return mode{refusal: refusal}
	}
	return mode{recreate: true, why: refusal}
}

// compare returns the change from the revision named by the label to the target, or why it cannot be applied in place.
func (p *planner) compare(label string, target *revisionInfo, policy appsv1beta1.CloneSetPodUpdatePolicy) (*inplace.Change, string) {
	from := p.find(label)
	if from == nil {
		return nil, fmt.Sprintf("its revision %q is not stored any more", label) // IPU-030
	}
	if p.Features.RecreateOnClaimChange && policy != appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy &&
		from.hasFingerprint && target.hasFingerprint && from.fingerprint != target.fingerprint { // IPU-046, IPU-048
		return nil, "volumeClaimTemplates changed"
	}
	change, blockers, err := inplace.Compare(from.template, target.template)
	if err != nil {
		return nil, err.Error()
	}
	if len(blockers) > 0 {
		return nil, blockers[0].String()
	}
	return change, ""
}
