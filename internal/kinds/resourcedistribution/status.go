package resourcedistribution

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Conditions are the types of conditions, in their order (RD-091).
var Conditions = []appsv1beta1.ResourceDistributionConditionType{
	appsv1beta1.ResourceDistributionGetResourceFailed, appsv1beta1.ResourceDistributionCreateResourceFailed,
	appsv1beta1.ResourceDistributionUpdateResourceFailed,
	appsv1beta1.ResourceDistributionDeleteResourceFailed,
	appsv1beta1.ResourceDistributionConflictOccurred, appsv1beta1.ResourceDistributionNamespaceNotExists,
}

// Bounds of what a status says: an object has a megabyte and a half at most, of which the resource may need
// most.
const (
	mostNames  = 250
	mostReason = 512
)

// succeeded is the reason of conditions without failures.
const succeeded = "Succeeded"

// Tally holds the outcomes of all namespaces of one ResourceDistribution. An outcome costs what it changes,
// however many there are.
type Tally struct {
	outcomes map[string]Outcome
	failed   map[appsv1beta1.ResourceDistributionConditionType]*failures
	// desired and correct are how many targets there are, and how many of them are as they should be.
	desired, correct int
}

// failures are those of one condition.
type failures struct {
	// names are in order. reasons counts how many have which.
	names   []string
	reasons map[string]int
}

// Of is the outcome of a namespace; known is false if nothing is known of it.
func (t *Tally) Of(namespace string) (outcome Outcome, known bool) {
	outcome, known = t.outcomes[namespace]
	return outcome, known
}

// Namespaces calls do for each namespace of which something is known.
func (t *Tally) Namespaces(do func(namespace string)) {
	for name := range t.outcomes {
		do(name)
	}
}

// Desired is the number of targets, Correct that of those with a correct copy.
func (t *Tally) Desired() int { return t.desired }

// Correct is the number of targets with a correct copy.
func (t *Tally) Correct() int { return t.correct }

// Failures is how many namespaces are in a condition.
func (t *Tally) Failures(of appsv1beta1.ResourceDistributionConditionType) int {
	if f := t.failed[of]; f != nil {
		return len(f.names)
	}
	return 0
}

// Set notes the outcome of a namespace. One that is no target and has not failed is forgotten.
func (t *Tally) Set(namespace string, outcome Outcome) {
	before, known := t.outcomes[namespace]
	if len(outcome.Reason) > mostReason {
		outcome.Reason = string([]rune(outcome.Reason)[:min(mostReason, len([]rune(outcome.Reason)))])
	}
	if known && before == outcome {
		return
	}
	if known {
		t.count(namespace, before, -1)
		delete(t.outcomes, namespace)
	}
	if !outcome.Target && outcome.Failure == "" {
		return
	}
	if t.outcomes == nil {
		t.outcomes, t.failed = map[string]Outcome{},
			map[appsv1beta1.ResourceDistributionConditionType]*failures{}
	}
	t.outcomes[namespace] = outcome
	t.count(namespace, outcome, 1)
}

func (t *Tally) count(namespace string, outcome Outcome, n int) {
	if outcome.Target {
		if t.desired += n; outcome.Failure == "" {
			t.correct += n
		}
	}
	if outcome.Failure == "" || outcome.Failure == Pending {
		return
	}

	f := t.failed[outcome.Failure]
	if f == nil {
		f = &failures{reasons: map[string]int{}}
		t.failed[outcome.Failure] = f
	}
	i, there := slices.BinarySearch(f.names, namespace)
	switch {
	case n > 0 && !there:
		f.names = slices.Insert(f.names, i, namespace)
	case n < 0 && there:
		f.names = slices.Delete(f.names, i, i+1)
	}
	if f.reasons[outcome.Reason] += n; f.reasons[outcome.Reason] == 0 {
		delete(f.reasons, outcome.Reason)
	}
}

// Status is what the outcomes make of a status (RD-090 to RD-094, RD-096).
func (t *Tally) Status(
	old *appsv1beta1.ResourceDistributionStatus, generation int64, now time.Time,
) appsv1beta1.ResourceDistributionStatus {
	status := appsv1beta1.ResourceDistributionStatus{
		ResourceDistributionCounters: appsv1beta1.ResourceDistributionCounters{
			ObservedGeneration: generation, Desired: int32(t.desired), Succeeded: int32(t.correct),
			Failed: int32(t.desired - t.correct)}}
	for _, of := range Conditions {
		condition := appsv1beta1.ResourceDistributionCondition{
			ResourceDistributionConditionState: appsv1beta1.ResourceDistributionConditionState{
				Type: of, Status: corev1.ConditionFalse, Reason: succeeded}}
		if f := t.failed[of]; f != nil && len(f.names) > 0 {
			condition.Status, condition.Reason = corev1.ConditionTrue, t.reason(f)
			condition.FailedNamespaces = slices.Clone(f.names[:min(len(f.names), mostNames)])
		}
		status.Conditions = append(status.Conditions, since(condition, old, now))
	}

	return status
}

// since gives a condition the time of its last transition.
func since(condition appsv1beta1.ResourceDistributionCondition, old *appsv1beta1.ResourceDistributionStatus,
	now time.Time) appsv1beta1.ResourceDistributionCondition {
	condition.LastTransitionTime = metav1.NewTime(now)
	for i := range old.Conditions {
		if before := &old.Conditions[i]; before.Type == condition.Type && before.Status == condition.Status &&
			!before.LastTransitionTime.IsZero() {
			condition.LastTransitionTime = before.LastTransitionTime
		}
	}
	return condition
}

// reason is the text of all failures, or that of the first namespace with the number of others.
func (t *Tally) reason(f *failures) string {
	first, more := t.outcomes[f.names[0]].Reason, ""
	if len(f.names) > mostNames {
		more = fmt.Sprintf(" (the first %d of %d namespaces are named)", mostNames, len(f.names))
	}
	if len(f.reasons) == 1 {
		return first + more
	}
	others := "1 other"
	if n := len(f.names) - 1; n > 1 {
		others = fmt.Sprintf("%d others", n)
	}
	return fmt.Sprintf("%s: %s; and %s%s", f.names[0], first, others, more)
}

// Unreadable is the status of a ResourceDistribution with a fault for which nothing can be done: the counters
// stay.
func Unreadable(
	old *appsv1beta1.ResourceDistributionStatus, generation int64, err error, now time.Time,
) appsv1beta1.ResourceDistributionStatus {
	status := *old.DeepCopy()
	status.ObservedGeneration, status.Conditions = generation, nil
	for _, of := range Conditions {
		condition := appsv1beta1.ResourceDistributionCondition{
			ResourceDistributionConditionState: appsv1beta1.ResourceDistributionConditionState{
				Type: of, Status: corev1.ConditionFalse, Reason: succeeded}}
		if of == appsv1beta1.ResourceDistributionGetResourceFailed {
			condition.Status, condition.Reason = corev1.ConditionTrue, err.Error()
		}
		status.Conditions = append(status.Conditions, since(condition, old, now))
	}
	return status
}
