package podplan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/again"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// Action is what a plan does with a pod.
type Action string

// Actions.
const (
	// Keep leaves the pod alone; nothing is to be done with it.
	Keep Action = "keep"
	// Wait leaves the pod alone although something remains to be done; the reason says what it waits for.
	Wait Action = "wait"
	// Delete deletes the pod and its claims.
	Delete Action = "delete"
	// Recreate marks the pod for replacement (CS-126).
	Recreate Action = "recreate"
	// UpdateInPlace takes the pod out of service and begins its update.
	UpdateInPlace Action = "update in place"
	// Continue writes the content of an update whose grace period is over, or its next batch (IPU-103,
	// IPU-107).
	Continue Action = "continue update"
	// Patch changes labels or conditions of the pod: admission after creation or update, lifecycle states,
	// missing labels.
	Patch Action = "patch"
	// Release gives up a pod that the selector does not match any more (CS-056).
	Release Action = "release"
	// Adopt makes the workload the controller of a pod that has none, after a live look at the workload
	// (ASTS-070).
	Adopt Action = "adopt"
)

// Reason is why a pod gets the action that it gets, or what holds it.
type Reason string

// Reasons.
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
	// ReasonBudget: a budget of all who disrupt pods does not allow it now (PUB-100).
	ReasonBudget Reason = "PodUnavailableBudget"
)

// Verdict is the decision about one pod.
type Verdict struct {
	Pod    *corev1.Pod
	Action Action
	Reason Reason
	// Message says it in words, with numbers.
	Message string
	// Until is when time alone lifts what holds the pod; zero if it does not.
	Until time.Time
	// Update is set for UpdateInPlace.
	Update *inplace.Update
	// MayRecreate: the pod is recreated if the API server refuses its update (IPU-184).
	MayRecreate bool
	// Unstored is the revision that the pod carries and the cache lacks, if that is why it is recreated: it
	// is looked for in the API server before.
	Unstored string
	// Patch is set for Patch and Recreate and Release, made for exactly this version of the pod.
	Patch *podpatch.Patch
	// Claims are made the pod's own before it is deleted, so that they go with it whatever happens (CS-061).
	Claims []*corev1.PersistentVolumeClaim
	// Prepares is what a patch prepares the pod for that only enters a lifecycle state: its hook may take the
	// pod out of service.
	Prepares disruption.Operation
	// Kept are the names of claims that must not go with the pod: the API server is asked before it is
	// deleted.
	Kept []string
}

// Creation is one pod to make, with the claims that it lacks.
type Creation struct {
	Name string
	// Revision is the name of the revision to make it from; empty if there are no revisions.
	Revision string
	// Node is the node for which alone the pod is meant; empty if the scheduler may choose.
	Node string
	// Reused are the names of the claims that the pod takes over.
	Reused []string
	// Pod and Claims are the documents to send.
	Pod    map[string]any
	Claims []map[string]any
}

// Decide decides about a pod; what was decided about it before does not hold any more.
func (p *Planner) Decide(pod *corev1.Pod, action Action, reason Reason, format string, args ...any) *Verdict {
	if len(p.room) == 0 { // one allocation for all pods, another for those that are decided twice
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

// words formats a message; one that is ready is taken as it is, since most pods of a large set share theirs.
func words(format string, args []any) string {
	if len(args) == 1 && format == "%s" {
		if text, ok := args[0].(string); ok {
			return text
		}
	}
	return fmt.Sprintf(format, args...)
}

// HoldAll lets all pods wait about which nothing is decided.
func (p *Planner) HoldAll(reason Reason, message string) {
	for _, pod := range p.in.Pods {
		if p.verdicts[pod] == nil {
			p.Decide(pod, Wait, reason, "%s", message)
		}
	}
}

// HoldDeleted lets all pods wait because their workload is being deleted. The reason names its kind, as
// "CloneSetDeleted".
func (p *Planner) HoldDeleted() {
	kind := p.Workload.Owner.Kind
	p.HoldAll(Reason(kind+"Deleted"), "the "+kind+" is being deleted")
}

// LookAgain has the plan made anew at that time; the earliest one counts, and one that has passed asks for
// nothing.
func (p *Planner) LookAgain(at time.Time) { again.At(&p.out.After, p.in.Now, at) }

// Say adds a sentence about the workload as a whole.
func (p *Planner) Say(format string, args ...any) {
	p.out.Sentences = append(p.out.Sentences, fmt.Sprintf(format, args...))
}
