package cloneset

import (
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Reasons of the condition Progressing, as in the API.
const (
	progressAvailable          = "CloneSetAvailable"
	progressPaused             = "CloneSetPaused"
	progressPartitionAvailable = "ProgressPartitionAvailable"
	progressDeadlineExceeded   = "ProgressDeadlineExceeded"
	progressUpdated            = "CloneSetUpdated"
)

// status computes the status from the snapshot.
func (p *planner) status() {
	old, status := p.set.Status, &p.out.Status
	status.ObservedGeneration = p.set.Generation
	status.LabelSelector = old.LabelSelector
	if p.selector != nil {
		status.LabelSelector = p.selector.String()
	}
	status.UpdateRevision, status.CurrentRevision, status.CollisionCount =
		p.out.UpdateRevision, p.out.CurrentRevision, p.out.CollisionCount
	for _, info := range p.core.Members {
		status.Replicas++
		count(&status.ReadyReplicas, info.Ready)
		count(&status.AvailableReplicas, info.Available)
		if info.New {
			status.UpdatedReplicas++
			count(&status.UpdatedReadyReplicas, info.Ready)
			count(&status.UpdatedAvailableReplicas, info.Available)
		}
	}

	replicas := int32(p.replicas())
	if status.UpdatedReplicas == replicas && status.Replicas == replicas && p.out.UpdateRevision != "" {
		status.CurrentRevision = p.out.UpdateRevision
	}
	status.ExpectedUpdatedReplicas = max(replicas-int32(p.out.Limits.Partition), 0)
	if p.core.Update != nil && p.core.Current != nil {
		p.core.PruneHistory(status.CurrentRevision)
	}
	status.Conditions = slices.Clone(old.Conditions)
	p.available()
	p.progressing()
}

// available maintains the condition Available if the owner asks for it. It is for tools that do not know
// CloneSets.
func (p *planner) available() {
	if p.set.Annotations[pub.PublishConditions] != "true" {
		removeCondition(&p.out.Status, appsv1beta1.CloneSetConditionAvailable)
		return
	}

	enough := p.out.Limits.Replicas - p.out.Limits.MaxUnavailable
	next := appsv1beta1.CloneSetCondition{Type: appsv1beta1.CloneSetConditionAvailable,
		Status: corev1.ConditionTrue, Reason: "MinimumPodsAvailable",
		Message: fmt.Sprintf("%s available, %d of %d must be (maxUnavailable %d)",
			wording.Count(p.out.Status.AvailableReplicas, "pod"), enough, p.out.Limits.Replicas,
			p.out.Limits.MaxUnavailable)}
	if int(p.out.Status.AvailableReplicas) < enough {
		next.Status, next.Reason = corev1.ConditionFalse, "MinimumPodsUnavailable"
	}
	setCondition(&p.out.Status, next, p.in.Now, false)
}

// progressing maintains the condition Progressing, which exists only with a deadline or if the owner asks for
// it.
func (p *planner) progressing() {
	deadline := p.set.Spec.ProgressDeadlineSeconds
	status := &p.out.Status
	limited := deadline != nil && *deadline != math.MaxInt32
	if !limited && p.set.Annotations[pub.PublishConditions] != "true" {
		removeCondition(status, appsv1beta1.CloneSetConditionProgressing)
		return
	}

	replicas := int32(p.replicas())
	previous := Condition(status, appsv1beta1.CloneSetConditionProgressing)
	next := appsv1beta1.CloneSetCondition{Type: appsv1beta1.CloneSetConditionProgressing,
		Status: corev1.ConditionTrue, Reason: progressUpdated,
		Message: fmt.Sprintf("%d of %s updated and available", status.UpdatedAvailableReplicas,
			wording.Count(status.ExpectedUpdatedReplicas, "pod"))}
	// A new goal, which is another template or another number of pods, restarts the deadline. The generation
	// shows it.
	restarted := p.set.Status.ObservedGeneration != p.set.Generation
	switch {
	case status.CurrentRevision == status.UpdateRevision && status.Replicas == replicas &&
		status.UpdatedReplicas == replicas && status.UpdatedAvailableReplicas == replicas:
		next.Reason = progressAvailable
	case p.core.Workload.Paused:
		next.Reason, next.Message =
			progressPaused, "the update is paused; set paused to false in updateStrategy to go on"
	case status.ExpectedUpdatedReplicas < replicas &&
		status.UpdatedAvailableReplicas >= status.ExpectedUpdatedReplicas:
		next.Reason = progressPartitionAvailable
	case previous == nil || restarted || !limited:
	case previous.Reason == progressDeadlineExceeded:
		next = *previous
	case previous.Reason == progressUpdated:
		due := previous.LastUpdateTime.Add(time.Duration(*deadline) * time.Second)
		if p.in.Now.Before(due) {
			p.core.LookAgain(due)
		} else {
			next.Status, next.Reason = corev1.ConditionFalse, progressDeadlineExceeded
			next.Message = fmt.Sprintf("exceeded progressDeadlineSeconds %d: %s; the update goes on",
				*deadline, next.Message)
		}
	}

	if limited && next.Reason == progressUpdated &&
		(previous == nil || restarted || previous.Reason != progressUpdated) {
		p.core.LookAgain(p.in.Now.Add(time.Duration(*deadline) * time.Second))
	}
	setCondition(status, next, p.in.Now, restarted && next.Reason == progressUpdated)
}

// Condition returns the condition of the given type, or nil if the status has none.
func Condition(
	status *appsv1beta1.CloneSetStatus, conditionType appsv1beta1.CloneSetConditionType,
) *appsv1beta1.CloneSetCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == conditionType {
			return &status.Conditions[i]
		}
	}
	return nil
}

func removeCondition(status *appsv1beta1.CloneSetStatus, conditionType appsv1beta1.CloneSetConditionType) {
	status.Conditions = slices.DeleteFunc(status.Conditions,
		func(c appsv1beta1.CloneSetCondition) bool { return c.Type == conditionType })
}

// setCondition sets a condition. Its update time changes with the status or the reason, its transition time
// only with the status.
func setCondition(
	status *appsv1beta1.CloneSetStatus, next appsv1beta1.CloneSetCondition, now time.Time, restart bool,
) {
	next.LastUpdateTime, next.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	previous := Condition(status, next.Type)
	if previous == nil {
		status.Conditions = append(status.Conditions, next)
		return
	}
	if previous.Status == next.Status {
		next.LastTransitionTime = previous.LastTransitionTime
		if previous.Reason == next.Reason && !restart {
			next.LastUpdateTime = previous.LastUpdateTime
		}
	}
	*previous = next
}

// FinalStatus completes the planned status with the errors of planning and applying, and reports whether the
// status changed (CS-223). The conditions FailedScale and FailedUpdate exist while their step fails, contain
// the latest error, and are removed when the step succeeds (CS-225).
func (p *Plan) FinalStatus(scaleError, updateError error, now time.Time) (*appsv1beta1.CloneSetStatus, bool) {
	status := p.Status.DeepCopy()
	for conditionType, text := range map[appsv1beta1.CloneSetConditionType]string{
		appsv1beta1.CloneSetConditionFailedScale:  podplan.FailureWords(scaleError, p.ScaleError),
		appsv1beta1.CloneSetConditionFailedUpdate: podplan.FailureWords(updateError, p.UpdateError),
	} {
		if text == "" {
			removeCondition(status, conditionType)
			continue
		}
		setCondition(status, appsv1beta1.CloneSetCondition{Type: conditionType, Status: corev1.ConditionTrue,
			Message: text}, now, false)
	}

	slices.SortStableFunc(status.Conditions, func(a, b appsv1beta1.CloneSetCondition) int {
		switch {
		case a.Type < b.Type:
			return -1
		case a.Type > b.Type:
			return 1
		}
		return 0
	})

	return status, !equality.Semantic.DeepEqual(*status, p.Set.Status)
}
