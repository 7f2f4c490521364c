package daemonset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// count counts nodes as the snapshot shows them.
func (p *planner) count() {
	status := &p.out.Status
	status.DesiredNumberScheduled = int32(p.out.Limits.Replicas)
	for _, l := range p.ordered() {
		switch {
		case len(l.pods) == 0:
		case !l.Eligible:
			status.NumberMisscheduled++
		default:
			status.CurrentNumberScheduled++
			if first := l.first(); first != nil {
				tally(&status.NumberReady, first.info != nil && first.info.Ready)
				tally(&status.NumberAvailable, first.available())
				tally(&status.UpdatedNumberScheduled, first.new)
			}
		}
	}

	status.NumberUnavailable = status.DesiredNumberScheduled - status.NumberAvailable
	p.out.full = status.NumberUnavailable == 0
}

// first is the first pod of a site that is not being deleted; nil if there is none.
func (l *site) first() *daemon {
	for _, d := range l.pods {
		if d.pod.DeletionTimestamp == nil {
			return d
		}
	}
	return nil
}

func tally(n *int32, yes bool) {
	if yes {
		*n++
	}
}

// status completes the status.
func (p *planner) status() {
	old, status := &p.set.Status, &p.out.Status
	// what is not counted stays
	if p.core.Update == nil || p.set.DeletionTimestamp != nil || p.out.SelectsAll {
		*status = *old.DeepCopy()
		return
	}
	status.ObservedGeneration, status.CollisionCount = p.set.Generation, p.out.CollisionCount
	status.UpdateRevision = revision.ShortHash(p.out.UpdateRevision)
	status.Conditions = slices.Clone(old.Conditions)
	p.core.PruneHistory(p.out.UpdateRevision)
	p.dropDuplicates()
}

// dropDuplicates deletes revisions that hold the template of the update revision, too, when no pod carries
// them any more.
func (p *planner) dropDuplicates() {
	for _, stored := range p.in.Revisions {
		if stored.Name != p.out.UpdateRevision && p.core.Duplicate(stored.Name) &&
			!slices.Contains(p.out.History, stored) &&
			metav1.IsControlledBy(stored, p.set) &&
			!slices.ContainsFunc(p.in.Pods, func(pod *corev1.Pod) bool {
				return revision.SameLabel(pod.Labels[pub.ControllerRevisionHash], stored.Name)
			}) {
			p.out.History = append(p.out.History, stored)
		}
	}
}

// FinalStatus completes the planned status with the errors met in planning and applying: FailedCreatePod and
// FailedUpdatePod stand while their step fails, or waits to be tried again, with the present error, and
// vanish when it succeeds. Until then no pass is complete, so that the observed generation stays (ADS-044,
// ADS-192, ADS-194). It tells whether the status changed.
func (p *Plan) FinalStatus(
	scaleError, updateError error, now time.Time,
) (*appsv1beta1.DaemonSetStatus, bool) {
	status := p.Status.DeepCopy()
	if p.Set.DeletionTimestamp != nil || p.SelectsAll {
		return status, false
	}

	for _, c := range []struct {
		of   appsv1beta1.DaemonSetConditionType
		text string
	}{{appsv1beta1.DaemonSetConditionFailedCreatePod, podplan.FailureWords(scaleError, p.ScaleError)},
		{appsv1beta1.DaemonSetConditionFailedUpdatePod, podplan.FailureWords(updateError, p.UpdateError)}} {
		if c.text != "" {
			status.ObservedGeneration = p.Set.Status.ObservedGeneration
		}
		i := slices.IndexFunc(status.Conditions,
			func(present appsv1beta1.DaemonSetCondition) bool { return present.Type == c.of })
		switch {
		case c.text == "" && i >= 0:
			status.Conditions = slices.Delete(status.Conditions, i, i+1)
		case c.text == "":
		case i >= 0:
			status.Conditions[i].Message = c.text
		default:
			status.Conditions = append(status.Conditions,
				appsv1beta1.DaemonSetCondition{Type: c.of, Status: corev1.ConditionTrue, Message: c.text,
					LastTransitionTime: metav1.NewTime(now)})
		}
	}

	return status, !equality.Semantic.DeepEqual(*status, p.Set.Status)
}

// Settled tells whether the set is as it shall be: every eligible node has an available pod, and those of the
// update set are updated.
func (p *Plan) Settled() bool { return p.full && p.arrived >= p.updates }

// OnlyNumbers tells whether nothing but numbers of nodes changes from one status to the other.
func OnlyNumbers(from, to *appsv1beta1.DaemonSetStatus) bool {
	old := from.DeepCopy()
	old.CurrentNumberScheduled, old.NumberMisscheduled, old.DesiredNumberScheduled = to.CurrentNumberScheduled,
		to.NumberMisscheduled,
		to.DesiredNumberScheduled
	old.NumberReady, old.UpdatedNumberScheduled = to.NumberReady, to.UpdatedNumberScheduled
	old.NumberAvailable, old.NumberUnavailable = to.NumberAvailable, to.NumberUnavailable
	return equality.Semantic.DeepEqual(old, to)
}
