package podplan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/timing"
)

// Action is what a plan does with a pod.
type Action string

// These are the actions.
const (
	// Keep leaves the pod alone, because there is nothing to do.
	Keep Action = "keep"
	// Wait leaves the pod alone although there is something to do. The reason is what it waits for.
	Wait Action = "wait"
	// Delete deletes the pod and its claims.
	Delete Action = "delete"
	// Recreate marks the pod for replacement (CS-126).
	Recreate Action = "recreate"
	// UpdateInPlace takes the pod out of service and starts its update.
	UpdateInPlace Action = "update in place"
	// Continue writes the content of an update whose grace period is over, or the next batch of an update
	// (IPU-103, IPU-107).
	Continue Action = "continue update"
	// Patch changes labels or conditions of the pod: admission after creation or update, lifecycle states,
	// missing labels.
	Patch Action = "patch"
	// Release removes the owner reference of a pod that the selector does not match any more (CS-056).
	Release Action = "release"
	// Adopt makes the workload the controller of a pod that has none, after a live read of the workload
	// (ASTS-070).
	Adopt Action = "adopt"
)

// Reason is why a pod gets its action, or what it waits for.
type Reason string

// These are the reasons.
const (
	ReasonUpToDate          Reason = "UpToDate"
	ReasonNotReady          Reason = "NotReady"
	ReasonMinReadySeconds   Reason = "MinReadySeconds"
	ReasonPartition         Reason = "Partition"
	ReasonMaxUnavailable    Reason = "MaxUnavailable"
	ReasonUpdateUnhealthy   Reason = "UpdatedPodsUnavailable"
	ReasonPaused            Reason = "Paused"
	ReasonOnDelete          Reason = "OnDelete"
	ReasonScaling           Reason = "Scaling"
	ReasonGracePeriod       Reason = "GracePeriod"
	ReasonUpdating          Reason = "UpdatingInPlace"
	ReasonUpdated           Reason = "InPlaceUpdateComplete"
	ReasonOutdated          Reason = "Outdated"
	ReasonInPlaceImpossible Reason = "InPlaceImpossible"
	ReasonUnreadableState   Reason = "UnreadableState"
	ReasonBadSpec           Reason = "BadSpec"
	ReasonUpdateRefused     Reason = "UpdateRefused"
	ReasonResizePending     Reason = "ResizePending"
	ReasonNoDaemon          Reason = "NoNodeDaemon"
	ReasonFailedPods        Reason = "FailedPods"
	ReasonSpecifiedDelete   Reason = "SpecifiedDelete"
	ReasonScaleIn           Reason = "ScaleIn"
	ReasonLifecycleHook     Reason = "LifecycleHook"
	ReasonStarted           Reason = "Started"
	ReasonUnscheduled       Reason = "Unscheduled"
	ReasonInactive          Reason = "Inactive"
	ReasonSelector          Reason = "SelectorMismatch"
	ReasonMissingLabel      Reason = "MissingLabel"
	ReasonOrphan            Reason = "Orphan"
	ReasonIdentity          Reason = "Identity"
	ReasonOrdinal           Reason = "Ordinal"
	ReasonFailed            Reason = "Failed"
	ReasonOrdered           Reason = "OrderedReady"
	ReasonVolumes           Reason = "Volumes"
	// ReasonBudget means that a PodUnavailableBudget does not allow the disruption now (PUB-100).
	ReasonBudget Reason = "PodUnavailableBudget"
)

// Verdict is the decision about one pod.
type Verdict struct {
	Pod    *corev1.Pod
	Action Action
	Reason Reason
	// Message is the reason in words, with numbers.
	Message string
	// Until is when time alone ends what holds the pod; zero if it does not.
	Until time.Time
	// Update is set for UpdateInPlace.
	Update *inplace.Update
	// MayRecreate is true if the pod is to be recreated in case the API server refuses its update (IPU-184).
	MayRecreate bool
	// Unstored is the revision that the pod carries and the cache lacks, if the pod is recreated for this
	// reason. The API server is asked for it first.
	Unstored string
	// Patch is set for Patch, Recreate and Release. It is made for exactly this version of the pod.
	Patch *podpatch.Patch
	// Claims get the pod as their owner before it is deleted, so that they are deleted with it in any case
	// (CS-061).
	Claims []*corev1.PersistentVolumeClaim
	// Prepares is the operation for which a patch prepares the pod if it only enters a lifecycle state: the
	// hook of that state may take the pod out of service.
	Prepares disruption.Operation
	// Kept are the names of claims that must not be deleted with the pod. They are read from the API server
	// before the pod is deleted.
	Kept []string
}

// Written reports whether the verdict, once carried out, has brought its pod what an update is about. A grace period
// holds that back at first.
func (v *Verdict) Written() bool {
	return v.Action == Continue || v.Action == Recreate || v.Action == UpdateInPlace && !v.Update.Graceful()
}

// Creation is a pod to create, with the claims that it lacks.
type Creation struct {
	Name string
	// Revision is the name of the revision to create it from; empty if there are no revisions.
	Revision string
	// Node is the only node for which the pod is meant; empty if the scheduler may choose.
	Node string
	// Reused are the names of the claims that the pod takes over.
	Reused []string
	// Pod and Claims are the documents to send.
	Pod    map[string]any
	Claims []map[string]any
}

// Decide decides about a pod and replaces any earlier decision.
func (p *Planner) Decide(pod *corev1.Pod, action Action, reason Reason, format string, args ...any) *Verdict {
	// Make one allocation for all pods, and another one for those that are decided about twice.
	if len(p.room) == 0 {
		p.room = make([]Verdict, max(len(p.in.Pods), 1))
	}
	v := &p.room[0]
	p.room = p.room[1:]
	*v = Verdict{Pod: pod, Action: action, Reason: reason, Message: words(format, args)}
	p.verdicts[pod] = v
	if p.in.Disruptions != nil && action != Keep && action != Wait {
		p.decided = append(p.decided, v)
	}
	return v
}

// words formats a message. A format of only "%s" needs no formatting, since most pods of a large set share
// their message.
func words(format string, args []any) string {
	if len(args) == 1 && format == "%s" {
		if text, ok := args[0].(string); ok {
			return text
		}
	}
	return fmt.Sprintf(format, args...)
}

// HoldAll makes all pods wait about which nothing is decided yet.
func (p *Planner) HoldAll(reason Reason, message string) {
	for _, pod := range p.in.Pods {
		if p.verdicts[pod] == nil {
			p.Decide(pod, Wait, reason, "%s", message)
		}
	}
}

// HoldDeleted makes all pods wait because their workload is being deleted. The reason names its kind, as in
// "CloneSetDeleted".
func (p *Planner) HoldDeleted() {
	kind := p.Workload.Owner.Kind
	p.HoldAll(Reason(kind+"Deleted"), "the "+kind+" is being deleted")
}

// LookAgain requests another plan at the given time. The earliest request counts, and one in the past is
// ignored.
func (p *Planner) LookAgain(at time.Time) { timing.MinWaitUntil(&p.out.After, p.in.Now, at) }

// Say adds a sentence about the workload as a whole to the plan.
func (p *Planner) Say(format string, args ...any) {
	p.out.Sentences = append(p.out.Sentences, fmt.Sprintf(format, args...))
}
