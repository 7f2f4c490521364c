package workloadspread

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// One decision at a time, as tests look at them; the manager decides about many pods with one ledger, and
// counts all versions with one tally.

// Create chooses the subset of a pod by the counters, and books it (WS-070 to WS-076). Nothing that spread
// holds is changed. target may be nil if it cannot be read: quotas that depend on it count 0 (WS-133).
func Create(spread *appsv1beta1.WorkloadSpread, target *Target, pod Creation, now time.Time) Decision {
	return alone(spread, target, pod.Version, now, func(l *Ledger) (Decision, func()) { return l.Create(pod) })
}

// Delete books the deletion of a pod (WS-102, WS-103).
func Delete(spread *appsv1beta1.WorkloadSpread, target *Target, pod Deletion, now time.Time) Decision {
	return alone(spread, target, pod.Version, now, func(l *Ledger) (Decision, func()) { return l.Delete(pod) })
}

// alone makes one decision about a pod of that version.
func alone(spread *appsv1beta1.WorkloadSpread, target *Target, version string, now time.Time,
	decide func(*Ledger) (Decision, func())) Decision {
	l := NewLedger(spread, target, now)
	decision, commit := decide(l)
	commit()
	decision.List = l.Changed()[version]
	return decision
}

// SeenOf is what counting reads of a pod of that version and subset.
func SeenOf(pod *corev1.Pod, version, subset string) Seen {
	placed, _ := pub.ParsePlacement(pod.Annotations)
	return seenOf(pod, version, subset, placed.UID)
}

// Count counts the pods of a version. pods are those of all versions: a booking ends with the pod, whatever
// version that has meanwhile (WS-151, WS-197). before is the list that the webhooks booked in; its conditions
// are kept.
func Count(quotas []SubsetQuota, before []appsv1beta1.WorkloadSpreadSubsetStatus, version string, pods []Seen, now time.Time) Counted {
	return newTally(pods, nil, now).count(quotas, before, version)
}
