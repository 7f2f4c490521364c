package statefulset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// countStatus counts the pods as the snapshot shows them, slots and condemned ones.
func (p *planner) countStatus() {
	status := &p.out.Status
	for _, list := range [][]slot{p.slots, p.condemned} {
		for i := range list {
			s := &list[i]
			if s.pod == nil || s.pod.Status.Phase == "" {
				continue
			}
			status.Replicas++
			ready := readiness.Ready(s.pod)
			available, _ := readiness.Available(s.pod, p.core.Workload.MinReadySeconds, p.in.Now)
			count(&status.ReadyReplicas, ready)
			count(&status.AvailableReplicas, available)
			if p.carries(s.pod, p.out.UpdateRevision) {
				count(&status.UpdatedReadyReplicas, ready)
				count(&status.UpdatedAvailableReplicas, available)
			}
		}
	}

	for i := range p.set.Spec.VolumeClaimTemplates {
		of := appsv1beta1.StatefulSetVolumeClaimStatus{
			VolumeClaimName: p.set.Spec.VolumeClaimTemplates[i].Name}
		for j := range p.slots {
			if c := p.claims[p.slots[j].ordinal]; p.slots[j].pod != nil {
				count(&of.CompatibleReplicas, c.compatible[i])
				count(&of.CompatibleReadyReplicas, c.ready[i])
			}
		}
		status.VolumeClaims = append(status.VolumeClaims, of)
	}
}

func (p *planner) carries(pod *corev1.Pod, name string) bool {
	return name != "" && revision.SameLabel(pod.Labels[pub.ControllerRevisionHash], name)
}

// status completes the status (ASTS-301 to 304).
func (p *planner) status() {
	old, status := p.set.Status, &p.out.Status
	if p.core.Update == nil { // what is not counted stays
		counted := old.DeepCopy()
		counted.Conditions, counted.LabelSelector = nil, ""
		*status = *counted
	}
	status.ObservedGeneration = p.set.Generation
	status.LabelSelector = old.LabelSelector
	if p.selector != nil {
		status.LabelSelector = p.selector.String()
	}
	status.UpdateRevision, status.CurrentRevision, status.CollisionCount = p.out.UpdateRevision,
		p.out.CurrentRevision, p.out.CollisionCount
	status.Conditions = slices.Clone(old.Conditions)
	if p.core.Update == nil || p.core.Current == nil {
		return
	}

	for _, list := range [][]slot{p.slots, p.condemned} {
		for i := range list {
			p.countRevision(&list[i])
		}
	}

	// pods that are left do not complete a rollout, and revisions go with the set
	if p.set.DeletionTimestamp != nil {
		return
	}
	if status.UpdatedReplicas == status.Replicas && status.ReadyReplicas == status.Replicas &&
		int(status.Replicas) == p.out.Limits.Replicas {
		status.CurrentRevision, status.CurrentReplicas = status.UpdateRevision, status.UpdatedReplicas
	}
	p.core.PruneHistory(status.CurrentRevision)
}

// countRevision counts a pod for its revision, unless the plan takes it away or moves it.
func (p *planner) countRevision(s *slot) {
	if s.pod == nil || s.pod.Status.Phase == "" || s.pod.DeletionTimestamp != nil {
		return
	}
	v := p.core.Verdict(s.pod)
	goes := v != nil && v.Action == podplan.Delete
	count(&p.out.Status.UpdatedReplicas, p.carries(s.pod, p.out.UpdateRevision) && !goes)
	count(&p.out.Status.CurrentReplicas, p.carries(s.pod, p.out.CurrentRevision) && !goes &&
		(v == nil || v.Action != podplan.UpdateInPlace))
}

func count(n *int32, yes bool) {
	if yes {
		*n++
	}
}

// FinalStatus completes the planned status with the errors met in planning and applying: FailedCreatePod and
// FailedUpdatePod stand while their step fails, with the present error, and vanish when it succeeds
// (ASTS-306, ASTS-307). It tells whether the status changed (ASTS-305).
func (p *Plan) FinalStatus(
	scaleError, updateError error, now time.Time,
) (*appsv1beta1.StatefulSetStatus, bool) {
	status := p.Status.DeepCopy()
	for _, c := range []struct {
		of   appsv1beta1.StatefulSetConditionType
		text string
	}{{appsv1beta1.StatefulSetConditionFailedCreatePod, podplan.FailureWords(scaleError, p.ScaleError)},
		{appsv1beta1.StatefulSetConditionFailedUpdatePod, podplan.FailureWords(updateError, p.UpdateError)}} {
		i := slices.IndexFunc(status.Conditions,
			func(present appsv1beta1.StatefulSetCondition) bool { return present.Type == c.of })
		switch {
		case c.text == "" && i >= 0:
			status.Conditions = slices.Delete(status.Conditions, i, i+1)
		case c.text == "":
		case i >= 0:
			status.Conditions[i].Message = c.text
		default:
			status.Conditions = append(status.Conditions,
				appsv1beta1.StatefulSetCondition{Type: c.of, Status: corev1.ConditionTrue, Message: c.text,
					LastTransitionTime: metav1.NewTime(now)})
		}
	}

	return status, !equality.Semantic.DeepEqual(*status, p.Set.Status)
}

// Settled tells whether the set is as it shall be: every slot has an available pod, there are no others, and
// as many as partition leaves are updated.
func (p *Plan) Settled() bool {
	return p.full && int(p.Status.UpdatedAvailableReplicas) >= p.Limits.Replicas-p.Limits.Partition
}

// fill finds out whether every slot has an available pod, and there are no others.
func (p *planner) fill() {
	p.out.full = len(p.condemned) == 0 && len(p.slots) == p.out.Limits.Replicas &&
		!slices.ContainsFunc(p.slots, func(s slot) bool { return s.info == nil || !s.info.Available })
}

// OwnerOfRevisions is how the set's revisions refer to it.
func (p *Plan) OwnerOfRevisions() metav1.OwnerReference {
	return *metav1.NewControllerRef(p.Set, appsv1beta1.GroupVersion.WithKind(kind))
}

// OnlyNumbers tells whether nothing but numbers of pods changes from one status to the other.
func OnlyNumbers(from, to *appsv1beta1.StatefulSetStatus) bool {
	old := from.DeepCopy()
	old.Replicas, old.ReadyReplicas, old.AvailableReplicas = to.Replicas, to.ReadyReplicas,
		to.AvailableReplicas
	old.CurrentReplicas, old.UpdatedReplicas = to.CurrentReplicas, to.UpdatedReplicas
	old.UpdatedReadyReplicas, old.UpdatedAvailableReplicas = to.UpdatedReadyReplicas,
		to.UpdatedAvailableReplicas
	old.VolumeClaims = to.VolumeClaims
	return equality.Semantic.DeepEqual(old, to)
}
