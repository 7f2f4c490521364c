package uniteddeployment

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Reasons of condition UnitedDeploymentUpdated (UD-140).
const (
	ReasonUpdated  = "UnitedDeploymentRevisionUpdated"
	ReasonUpdating = "UnitedDeploymentRevisionUpdating"
)

// condition sets a condition of the object. Its time is that of the last change of its status.
func (p *Plan) condition(
	now time.Time, of appsv1beta1.UnitedDeploymentConditionType, status corev1.ConditionStatus,
	reason, message string,
) {
	next := appsv1beta1.UnitedDeploymentCondition{Type: of, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	for i := range p.Status.Conditions {
		if old := &p.Status.Conditions[i]; old.Type == of {
			if old.Status == status {
				next.LastTransitionTime = old.LastTransitionTime
			}
			*old = next
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, next)
}

func (p *Plan) drop(of appsv1beta1.UnitedDeploymentConditionType) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions,
		func(c appsv1beta1.UnitedDeploymentCondition) bool { return c.Type == of })
}

// state fills in the status as far as the plan knows it (UD-125, UD-137 to UD-142).
func (p *Plan) state(s *Snapshot, matches labels.Selector) {
	status, old := &p.Status, s.United.Status.SubsetStatuses
	*status = appsv1beta1.UnitedDeploymentStatus{UpdatedRevision: p.Expected,
		UnitedDeploymentCounters: appsv1beta1.UnitedDeploymentCounters{
			ObservedGeneration: s.United.Generation, CollisionCount: p.Collisions,
			CurrentRevision: status.CurrentRevision,
			Conditions:      status.Conditions, LabelSelector: matches.String()}}
	if options(s.United).reserve {
		status.LabelSelector += "," + ReservedPod + "=false"
	}
	failure := ""
	for i := range p.Subsets {
		v := &p.Subsets[i]
		entry := appsv1beta1.UnitedDeploymentSubsetStatus{Name: v.Subset.Name, Replicas: v.Wanted.Replicas,
			Partition: v.Wanted.Partition, ReservedPods: int32(v.Reserved)}
		if v.condition != nil {
			entry.Conditions = []appsv1beta1.UnitedDeploymentSubsetCondition{*v.condition}
		}
		if c := v.Child; c != nil {
			entry.ReadyReplicas = c.Ready
			status.Replicas += c.Total
			status.ReadyReplicas += c.Ready
			if c.OnDelete {
				entry.Partition = 0
				for _, pod := range v.pods {
					if pod.Labels[RevisionHash] != c.Revision {
						entry.Partition++
					}
				}
			}
			if failure == "" {
				failure = c.Failure
			}
		}
		status.UpdatedReplicas += int32(v.Updated)
		status.UpdatedReadyReplicas += int32(v.UpdatedReady)
		status.ReservedPods += int32(v.Reserved)
		status.SubsetStatuses = append(status.SubsetStatuses, entry)
		was := schedulable(statusIn(old, v.Subset.Name))
		if v.condition != nil && (was == nil || was.Status != v.condition.Status ||
			!was.LastTransitionTime.Equal(&v.condition.LastTransitionTime)) {
			p.First = true
		}
	}

	status.Replicas = max(status.Replicas-status.ReservedPods, 0)
	if status.CurrentRevision == "" || status.UpdatedReadyReplicas >= status.Replicas {
		status.CurrentRevision = p.Expected
	}
	p.prune(s, status.CurrentRevision)
	if status.CurrentRevision == p.Expected {
		p.condition(s.Now, appsv1beta1.UnitedDeploymentUpdated, corev1.ConditionTrue, ReasonUpdated,
			"all pods are of revision "+p.Expected)
	} else {
		p.condition(s.Now, appsv1beta1.UnitedDeploymentUpdated, corev1.ConditionFalse, ReasonUpdating,
			"pods are being updated to revision "+p.Expected)
	}
	if failure == "" {
		p.drop(appsv1beta1.SubsetFailure)
	} else {
		p.condition(s.Now, appsv1beta1.SubsetFailure, corev1.ConditionTrue, "Error", failure)
	}
}

func statusIn(
	entries []appsv1beta1.UnitedDeploymentSubsetStatus, name string,
) *appsv1beta1.UnitedDeploymentSubsetStatus {
	i := slices.IndexFunc(entries,
		func(e appsv1beta1.UnitedDeploymentSubsetStatus) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &entries[i]
}

// Outcome is what became of a plan.
type Outcome struct {
	// Provisioned is how many children were created, adopted or deleted.
	Provisioned int
	// Provision and Update say what went wrong with creating and deleting children, and with updating them;
	// empty if nothing did.
	Provision, Update string
}

// Finish completes the status with what became of the plan (UD-140, UD-141).
func (p *Plan) Finish(o Outcome, now time.Time) {
	switch known := slices.ContainsFunc(p.Status.Conditions,
		func(c appsv1beta1.UnitedDeploymentCondition) bool {
			return c.Type == appsv1beta1.SubsetProvisioned
		}); {
	case o.Provision != "":
		p.condition(now, appsv1beta1.SubsetProvisioned, corev1.ConditionFalse, "Error", o.Provision)
	case known || o.Provisioned > 0:
		p.condition(now, appsv1beta1.SubsetProvisioned, corev1.ConditionTrue, "", "")
	}

	switch {
	case p.Fault != nil:
	case p.Refused != nil:
		p.condition(now, appsv1beta1.SubsetUpdated, corev1.ConditionFalse, "Error", p.Refused.Message)
	case o.Update != "":
		p.condition(now, appsv1beta1.SubsetUpdated, corev1.ConditionFalse, "Error", o.Update)
	default:
		p.condition(now, appsv1beta1.SubsetUpdated, corev1.ConditionTrue, "", "")
	}
}
