package containerrecreate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/engine/timing"
)

const (
	answerWithin = time.Minute
	pollEvery    = 3 * time.Second
)

// Snapshot is the input of a plan.
type Snapshot struct {
	Request *appsv1beta1.ContainerRecreateRequest
	// Pod is the pod of the name in the request, or nil if it does not exist.
	Pod *corev1.Pod
	Now time.Time
}

// Result is how a request ended.
type Result string

// Results of requests (CRR-138).
const (
	Succeeded        Result = "Succeeded"
	Failed           Result = "Failed"
	DeadlineExceeded Result = "DeadlineExceeded"
	NoAnswer         Result = "NoAnswer"
	PodGone          Result = "PodGone"
)

// Plan defines what to do for a request. Writes are made in the order of the fields; the first that fails
// ends the pass.
type Plan struct {
	// AddFinalizer adds the finalizer, before the pod is held (CRR-080).
	AddFinalizer bool
	// Pod is the patch of the pod's status, or nil.
	Pod *podpatch.Patch
	// RemoveFinalizer comes after the pod is released (CRR-083). It and RemoveActive (CRR-057) are one patch.
	RemoveFinalizer, RemoveActive bool
	// Status holds the fields of the status to write, or is nil (CRR-068).
	Status map[string]any
	// Delete deletes the request (CRR-058).
	Delete bool
	// Ended is how the request ended, if this pass reports it.
	Ended Result
	// After is when to plan again; 0 means when something changes.
	After time.Duration
	// Why explains what happens, or what the request waits for.
	Why string
}

// Idle reports whether there is nothing to write.
func (p *Plan) Idle() bool {
	return !p.AddFinalizer && p.Pod.Empty() && !p.RemoveFinalizer && !p.RemoveActive && p.Status == nil &&
		!p.Delete
}

// String formats the plan as one sentence.
func (p *Plan) String() string {
	text := p.Why
	if p.After > 0 {
		text += fmt.Sprintf("; again in %s", p.After)
	}
	return text
}

// NewPlan makes the plan of a request (CRR-056 to CRR-064).
func NewPlan(s Snapshot) *Plan {
	p := &Plan{}
	request := s.Request
	if request.DeletionTimestamp != nil || restart.Completed(request) {
		p.finish(s)
		return p
	}

	wait := func(until time.Time) time.Duration { return until.Sub(s.Now) }
	p.After = -1
	soonest := func(d time.Duration) {
		if p.After < 0 || d < p.After {
			p.After = d
		}
	}
	if gone(s) {
		p.complete(s, restart.MessagePodGone)
		return p
	}

	if request.Status.Phase == "" {
		left := wait(request.CreationTimestamp.Add(answerWithin))
		if left <= 0 {
			p.complete(s, restart.MessageNoAnswer)
			return p
		}
		soonest(left)
		p.Why = fmt.Sprintf("waiting for the daemon of node %s to answer",
			request.Labels[pub.RecreateNodeName])
		if Unfilled(request) {
			p.Why = "waiting for the facts about the pod to be filled in"
		}
	}

	if deadline := request.Spec.ActiveDeadlineSeconds; deadline != nil {
		left := wait(request.CreationTimestamp.Add(timing.Seconds(*deadline)))
		if left <= 0 {
			p.complete(s, restart.MessageDeadline)
			return p
		}
		soonest(left)
	}

	if request.Status.Phase == appsv1beta1.ContainerRecreateRequestRecreating {
		soonest(pollEvery)
		p.recreating(s)
	} else if p.Why == "" {
		p.Why = fmt.Sprintf("waiting for its turn, phase %s", request.Status.Phase)
	}

	p.After = max(p.After, 0)
	return p
}

// gone reports whether the pod that the request was made for no longer exists, or is being deleted.
func gone(s Snapshot) bool {
	return s.Pod == nil || s.Pod.DeletionTimestamp != nil || s.Pod.UID != restart.PodUID(s.Request)
}

// complete completes the request early.
func (p *Plan) complete(s Snapshot, message string) {
	p.Status = Completion(s.Request, message, s.Now)
	p.Why, p.After = message, 0
}

// Completion returns the status of a request that is completed early.
func Completion(request *appsv1beta1.ContainerRecreateRequest, message string, now time.Time) map[string]any {
	return map[string]any{
		"phase":                   appsv1beta1.ContainerRecreateRequestCompleted,
		"completionTime":          metav1.NewTime(now),
		"message":                 message,
		"containerRecreateStates": restart.Abandon(request, message),
	}
}

// finish releases everything that the request holds.
func (p *Plan) finish(s Snapshot) {
	request := s.Request
	p.Why = "being deleted"
	if slices.Contains(request.Finalizers, pub.RecreateUnreadyAcquired) {
		if !gone(s) {
			p.Pod = &podpatch.Patch{}
			readiness.Share(p.Pod, s.Pod, nil, []readiness.Holder{restart.Holder(request)}, s.Now)
		}
		p.RemoveFinalizer = true
	}

	if request.DeletionTimestamp != nil {
		return
	}

	p.Why = "completed"
	if _, ok := request.Labels[pub.RecreateActive]; ok {
		p.RemoveActive = true
		p.Ended = ResultOf(request)
	}

	if ttl := request.Spec.TTLSecondsAfterFinished; ttl != nil {
		left := request.Status.CompletionTime.Add(time.Duration(*ttl) * time.Second).Sub(s.Now)
		if left > 0 {
			p.After = left
			p.Why = fmt.Sprintf("completed, to be deleted %d s after that", *ttl)
		} else {
			p.Delete = true
		}
	}
}

// recreating informs the daemon, and makes the pod unready if the request asks for that.
func (p *Plan) recreating(s Snapshot) {
	request := s.Request
	p.Why = "containers are being recreated"
	status := map[string]any{}
	if snapshot := restart.Snapshot(request,
		s.Pod); !equality.Semantic.DeepEqual(snapshot, request.Status.ContainerStatusSnapshot) {
		status["containerStatusSnapshot"] = snapshot
	}

	strategy := request.Spec.Strategy
	grace := appsv1beta1.ContainerRecreateRequestPreRecreateGrace
	if strategy != nil && strategy.UnreadyGracePeriodSeconds != nil &&
		!meta.IsStatusConditionTrue(request.Status.Conditions, grace) {
		message := "the pod has no readiness gate " + pub.KruisePodReady + ", so it stays as ready as it is"
		if slices.Contains(s.Pod.Spec.ReadinessGates,
			corev1.PodReadinessGate{ConditionType: pub.KruisePodReady}) {
			message = "the pod is not ready for this request"
			p.AddFinalizer = !slices.Contains(request.Finalizers, pub.RecreateUnreadyAcquired)
			p.Pod = &podpatch.Patch{}
			readiness.Share(p.Pod, s.Pod, []readiness.Holder{restart.Holder(request)}, nil, s.Now)
		}
		conditions := slices.Clone(request.Status.Conditions)
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type:               grace,
			Status:             metav1.ConditionTrue,
			Reason:             grace,
			Message:            message,
			LastTransitionTime: metav1.NewTime(s.Now),
		})
		status["conditions"] = conditions
		p.Why = fmt.Sprintf("containers are stopped %d s from now: %s",
			*strategy.UnreadyGracePeriodSeconds, message)
	}

	if len(status) > 0 {
		p.Status = status
	}
}

// ResultOf returns how a completed request ended (CRR-015, CRR-137).
func ResultOf(request *appsv1beta1.ContainerRecreateRequest) Result {
	switch request.Status.Message {
	case restart.MessageDeadline:
		return DeadlineExceeded
	case restart.MessageNoAnswer:
		return NoAnswer
	case restart.MessagePodGone:
		return PodGone
	case "":
		if !slices.ContainsFunc(request.Spec.Containers,
			func(c appsv1beta1.ContainerRecreateRequestContainer) bool {
				return !slices.ContainsFunc(request.Status.ContainerRecreateStates,
					func(state appsv1beta1.ContainerRecreateRequestContainerRecreateState) bool {
						return state.Name == c.Name &&
							state.Phase == appsv1beta1.ContainerRecreateRequestSucceeded
					})
			}) {
			return Succeeded
		}
	}

	return Failed
}

// Event returns the event that reports the end of a request (CRR-137).
func Event(request *appsv1beta1.ContainerRecreateRequest, result Result) (kind, reason, note string) {
	if result == Succeeded {
		return corev1.EventTypeNormal, "Completed", "all containers were recreated"
	}

	reason, note = "Failed", request.Status.Message
	switch result {
	case DeadlineExceeded:
		reason = "DeadlineExceeded"
	case NoAnswer:
		note += ": look whether the node daemon runs on node " + request.Labels[pub.RecreateNodeName]
	}

	if failed := restart.Failed(request); len(failed) > 0 {
		note = strings.TrimPrefix(note+"; failed containers: "+strings.Join(failed, ", "), "; ")
	}

	return corev1.EventTypeWarning, reason, note
}
