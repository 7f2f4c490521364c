// Package restart carries out ContainerRecreateRequests on the node (CRR-090 to CRR-131): it stops the
// containers that a request names and waits until they are running again.
//
// A request is processed in rounds. Each round compares the recorded states with the state of the runtime and
// takes the first of these steps that applies: record the states if they differ, complete the request, stop
// one container, or wait. All state is kept in the request and in the runtime, so the daemon may die between
// any two steps. With forceRecreate there is no recorded ID that shows whether this request stopped a
// container. Therefore the ID of the container is recorded in the message of its state before it is stopped.
// If another container is running in a later round, the recorded one has been stopped.
package restart

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

const (
	pending    = appsv1beta1.ContainerRecreateRequestPending
	recreating = appsv1beta1.ContainerRecreateRequestRecreating
	succeeded  = appsv1beta1.ContainerRecreateRequestSucceeded
	failed     = appsv1beta1.ContainerRecreateRequestFailed
	completed  = appsv1beta1.ContainerRecreateRequestCompleted

	// poll is the interval at which an active request is checked without an event.
	poll = 3 * time.Second
	// stopping is the prefix of the message that records which container is about to be stopped.
	stopping = "stopping container "
	notFound = "not found container on Node"
)

// State is the state of one container.
type State = appsv1beta1.ContainerRecreateRequestContainerRecreateState

// Snapshot is the input of a round's plan.
type Snapshot struct {
	Request *appsv1beta1.ContainerRecreateRequest
	// Containers are the containers of the pod in the runtime. Inspected holds the details of those that are
	// new or have ended, by ID.
	Containers []runtime.Container
	Inspected  map[string]runtime.Status
	// Pod is nil if it is not known.
	Pod *corev1.Pod
	// UnreadySince is when the daemon first saw that the pod had been made not ready. It is zero if it has
	// not. The time in the condition comes from another clock (CRR-086, CRR-161).
	UnreadySince time.Time
	// Seen is when the daemon first saw the request. Here its deadline counts from that time (CRR-129).
	Seen time.Time
	Now  time.Time
}

// Plan is what a round does: it records the states if Record is set, or else stops a container if Stop is
// set, or else waits.
type Plan struct {
	// Record means that phase, states, message and completion must be written.
	Record   bool
	Phase    appsv1beta1.ContainerRecreateRequestPhase
	States   []State
	Complete bool
	Message  string
	// Stop is the container to stop, or nil.
	Stop *runtime.Container
	// Waiting describes what the round waits for. After is when to check again.
	Waiting string
	After   time.Duration
	// ended are the containers of the request that do not run.
	ended map[string]bool
}

// closed returns why the request must not be processed any further, not considering its deadline. It is empty
// if the request may be processed.
func closed(request *appsv1beta1.ContainerRecreateRequest) string {
	switch {
	case request.Status.CompletionTime != nil:
		return "the request is completed"
	case request.DeletionTimestamp != nil:
		return "the request is being deleted"
	case request.Labels[pub.RecreateActive] != "true":
		return "the request is not active any more"
	}
	return ""
}

// finished returns why the request must not be processed any further. It is empty if the request may be
// processed. seen is when the daemon first saw the request.
func finished(request *appsv1beta1.ContainerRecreateRequest, seen, now time.Time) string {
	if why := closed(request); why != "" {
		return why
	}
	if deadline := request.Spec.ActiveDeadlineSeconds; deadline != nil &&
		now.Sub(seen) > timing.Seconds(*deadline) {
		return "the request has exceeded its activeDeadlineSeconds"
	}
	return ""
}

// sameRuntime checks that all containers of the request have the same runtime. Its error completes the
// request.
func sameRuntime(request *appsv1beta1.ContainerRecreateRequest) error {
	common := ""
	for _, c := range request.Spec.Containers {
		if c.StatusContext == nil {
			return fmt.Errorf("container %s has no status context", c.Name)
		}
		s, _, ok := runtime.SplitID(c.StatusContext.ContainerID)
		switch {
		case !ok:
			return fmt.Errorf("ID %q of container %s does not have the form <runtime>://<id>",
				c.StatusContext.ContainerID, c.Name)
		case common != "" && common != s:
			return fmt.Errorf("containers of both %s and %s", common, s)
		}
		common = s
	}

	if common == "" {
		return fmt.Errorf("the request names no container")
	}

	return nil
}

// NewPlan makes the plan of one round of a request.
func NewPlan(s Snapshot) Plan {
	if why := finished(s.Request, s.Seen, s.Now); why != "" {
		return Plan{Waiting: why, After: poll}
	}

	plan := Plan{Phase: recreating, States: make([]State, len(s.Request.Spec.Containers)), After: poll, ended: map[string]bool{}}
	for i := range s.Request.Spec.Containers {
		plan.States[i] = s.state(&s.Request.Spec.Containers[i], &plan)
		name := plan.States[i].Name
		current := runtime.Newest(s.Containers, name)
		plan.ended[name] = current == nil || !current.Running
	}

	if s.Request.Status.Phase != recreating ||
		!slices.Equal(plan.States, s.Request.Status.ContainerRecreateStates) {
		plan.Record = true
		plan.Waiting = "the states are recorded first"
		return plan
	}

	s.proceed(&plan)
	return plan
}

func (s *Snapshot) strategy() appsv1beta1.ContainerRecreateRequestStrategy {
	if s.Request.Spec.Strategy != nil {
		return *s.Request.Spec.Strategy
	}
	return appsv1beta1.ContainerRecreateRequestStrategy{}
}

// recorded returns the recorded state of the container.
func (s *Snapshot) recorded(name string) State {
	for _, state := range s.Request.Status.ContainerRecreateStates {
		if state.Name == name {
			return state
		}
	}
	return State{Name: name}
}

// intended returns the ID of the container that was about to be stopped.
func intended(state State) string {
	id, ok := strings.CutPrefix(state.Message, stopping)
	if !ok {
		return ""
	}
	return id
}

// state evaluates one container. The first rule that applies decides.
func (s *Snapshot) state(c *appsv1beta1.ContainerRecreateRequestContainer, plan *Plan) State {
	before := s.recorded(c.Name)
	if before.Phase == succeeded || before.Phase == failed {
		return before
	}

	current := runtime.Newest(s.Containers, c.Name)
	after := State{Name: c.Name, Phase: pending, IsKilled: before.IsKilled}
	if id := intended(before); id != "" && (current == nil || current.ID != id || current.Exited) {
		after.IsKilled = true
	}

	switch {
	case current == nil:
		after.Message = notFound
		return after
	// The container must belong to the pod of the request.
	case current.PodNamespace != s.Request.Namespace || current.PodName != s.Request.Spec.PodName ||
		current.PodUID != s.Request.Labels[pub.RecreatePodUID]:
		after.Phase = failed
		after.Message = fmt.Sprintf("the container belongs to pod %s/%s, which is not that of the request",
			current.PodNamespace, current.PodName)
		return after
	case current.Exited:
		if stays := s.stays(c.Name, current); stays != "" {
			after.Phase, after.Message = succeeded, stays
			return after
		}
		after.Phase = recreating
		return after
	case s.strategy().ForceRecreate && !after.IsKilled:
		if intended(before) == current.ID {
			after.Message = before.Message
		}
		return after
	case current.ID != c.StatusContext.ContainerID || current.RestartCount > c.StatusContext.RestartCount:
		after.Phase = recreating
		if s.back(current, plan) {
			after.Phase = succeeded
		}
		return after
	}

	return after
}

// back reports whether the new container is ready and has run long enough.
func (s *Snapshot) back(current *runtime.Container, plan *Plan) bool {
	ready := slices.ContainsFunc(s.Request.Status.ContainerStatusSnapshot,
		func(k appsv1beta1.ContainerRecreateRequestContainerStatus) bool {
			return k.Name == current.Name && k.ContainerID == current.ID && k.Ready
		})
	started := s.Inspected[current.ID].StartedAt
	if !ready || !current.Running || started.IsZero() {
		return false
	}

	// The clock of the node was set back since. As far as known, the request existed before the container.
	if started.After(s.Now) {
		started = s.Seen
	}
	left := started.Add(time.Duration(s.strategy().MinStartedSeconds) * time.Second).Sub(s.Now)
	if left > 0 {
		plan.After = min(plan.After, max(left, time.Millisecond))
		return false
	}

	return true
}

// stays returns why kubelet will not start the terminated container again. It is empty if kubelet will, or if
// that is not known.
func (s *Snapshot) stays(name string, current *runtime.Container) string {
	inspected, known := s.Inspected[current.ID]
	if s.Pod == nil || !known {
		return ""
	}
	if phase := s.Pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return fmt.Sprintf("the container stays stopped: the pod has ended (%s)", phase)
	}

	for _, list := range [][]corev1.Container{s.Pod.Spec.Containers, s.Pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name && !restart.StartsAgain(s.Pod, &list[i], inspected.ExitCode) {
				return fmt.Sprintf(
					"the container stays stopped: it ended with exit code %d and its restart policy does not start it again",
					inspected.ExitCode)
			}
		}
	}

	return ""
}

// proceed decides the next step by checking the containers in order. All states must have been recorded
// before.
func (s *Snapshot) proceed(plan *Plan) {
	ordered, policy := s.strategy().OrderedRecreate, s.strategy().FailurePolicy
	for _, state := range plan.States {
		if state.Phase == failed && policy != appsv1beta1.ContainerRecreateRequestFailurePolicyIgnore {
			plan.end(state.Name)
			return
		}
	}

	open := ""
	for i := range plan.States {
		state := &plan.States[i]
		current := runtime.Newest(s.Containers, state.Name)
		switch {
		case state.Phase == succeeded || state.Phase == failed:
			continue
		case state.Phase == recreating && !state.IsKilled:
			state.IsKilled = true
			plan.Record, plan.Waiting = true, "the states are recorded first"
			return
		case state.Phase == recreating:
			note(&open, "container %s has to come back ready", state.Name)
		case current == nil:
			note(&open, "container %s is not on the node", state.Name)
		case state.IsKilled:
			note(&open, "container %s has to end", state.Name)
		case s.strategy().ForceRecreate && !current.Running: // a runtime says of one that was only created that it has stopped it
			note(&open, "container %s has to start", state.Name)
		default:
			s.stop(state, current, plan)
			return
		}
		if ordered {
			break
		}
	}

	plan.Waiting = open
	if open == "" {
		plan.Record, plan.Complete, plan.Phase = true, true, completed
	}
}

func note(open *string, format, name string) {
	if *open == "" {
		*open = fmt.Sprintf(format, name)
	}
}

// graceBegan reports whether the manager has made the pod not ready, or found that the pod has no readiness
// gate for that.
func graceBegan(request *appsv1beta1.ContainerRecreateRequest) bool {
	return meta.IsStatusConditionTrue(request.Status.Conditions,
		appsv1beta1.ContainerRecreateRequestPreRecreateGrace)
}

// stop decides whether the container may be stopped now. It records the container's ID first if the request
// does not have it.
func (s *Snapshot) stop(state *State, current *runtime.Container, plan *Plan) {
	if grace := s.strategy().UnreadyGracePeriodSeconds; grace != nil {
		if !graceBegan(s.Request) {
			plan.Waiting = "the pod has not been made not ready yet"
			return
		}
		if left := s.UnreadySince.Add(timing.Seconds(*grace)).Sub(s.Now); left > 0 {
			plan.Waiting, plan.After = fmt.Sprintf(
				"the pod is not ready for %d s before containers are stopped", *grace), min(plan.After, left)
			return
		}
	}
	if s.strategy().ForceRecreate && intended(*state) != current.ID {
		state.Message = stopping + current.ID
		plan.Record, plan.Waiting = true, "the container to stop is recorded first"
		return
	}

	plan.Stop = current
}

// end completes the request because a container failed. The unfinished containers fail too.
func (p *Plan) end(culprit string) {
	p.Record, p.Complete, p.Phase = true, true, completed
	for i := range p.States {
		if state := &p.States[i]; state.Phase != succeeded && state.Phase != failed {
			state.Phase, state.Message = failed, fmt.Sprintf("given up because container %s failed", culprit)
		}
	}
}

// order sorts the unfinished requests of a pod: those that have begun, and then the others. Each waits for those before it as [earlier] says.
func order(requests []*appsv1beta1.ContainerRecreateRequest, begun func(*appsv1beta1.ContainerRecreateRequest) bool) {
	of := func(r *appsv1beta1.ContainerRecreateRequest) int {
		switch {
		case begun(r):
			return 0
		case r.Status.Phase == pending:
			return 1
		}
		return 2
	}
	slices.SortFunc(requests, func(a, b *appsv1beta1.ContainerRecreateRequest) int {
		if n := of(a) - of(b); n != 0 {
			return n
		}
		if n := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
}
