package podapply

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// attempts is how often an update in place is tried if it meets conflicts, before a new plan decides again.
const attempts = 4

// errRecreated means that the API server refused to update the pod in place, so that it will be recreated.
// Nothing is reported to the user as an error.
var errRecreated = errors.New("the pod will be recreated instead")

// errEnding means that nothing can be created any more, because the owner is deleted with its namespace. It is reported
// nowhere, but the next attempt waits longer each time: a namespace may take long to end, or never does.
var errEnding = errors.New(podplan.NamespaceEnds)

// Execution carries out one plan.
type Execution struct {
	*reconcile.Writer
	Events   reconcile.Recorder
	owner    client.Object
	selector *metav1.LabelSelector
	plan     *podplan.Plan
	// owned makes sure that the owner is looked up only once; ownerErr is the reason why nothing may be
	// adopted.
	owned    sync.Once
	ownerErr error
	// Collided raises the collision count in the owner's status to the given number.
	Collided func(ctx context.Context, count int32) error
}

// NewExecution returns an Execution of the plan of an owner; selector finds revisions without a controller.
func NewExecution(
	w *reconcile.Writer, events reconcile.Recorder, owner client.Object, selector *metav1.LabelSelector, plan *podplan.Plan,
) *Execution {
	return &Execution{Writer: w, Events: events, owner: owner, selector: selector, plan: plan}
}

// Result is the outcome of carrying out a plan.
type Result struct {
	// ScaleError and UpdateError are failures to create or delete, and to update.
	ScaleError, UpdateError error
	// CreateError is the failure to create pods alone, or [errEnding]. Refused is the error with which the update of a pod in
	// place failed.
	CreateError, Refused error
	// RefusedObjects are the pods for which a request failed, with what was tried, and the claims for which one
	// was refused.
	RefusedObjects map[types.UID]podplan.Action
	// GrowthError is the failure to grow claims alone.
	GrowthError error
	// Grew is true if claims were to grow.
	Grew bool
	// Updated is true if a pod got the content of an update in place.
	Updated bool
	// OwnerWritten is true if the owner itself was written, so that the plan's version of it is stale.
	OwnerWritten bool
	// PullError is a failure to pull images ahead. It does not stop the rollout (CS-201).
	PullError error
	// Retry is true if the state changed meanwhile: a new plan is due although no event may announce it.
	Retry bool
	// Unfinished is true if the pass ran out of time. What is left is planned anew.
	Unfinished bool
	// Nodes are the nodes for which pods were to be created, and whether they were.
	Nodes map[string]bool
	// Done are the verdicts that were carried out, and Created is how many pods were created.
	Done    []*podplan.Verdict
	Created int
}

func (r *Result) refused(object types.UID, action podplan.Action) {
	if r.RefusedObjects == nil {
		r.RefusedObjects = map[types.UID]podplan.Action{}
	}
	r.RefusedObjects[object] = action
}

// Add adds a failure to one of the errors. An error that only means that the plan is stale requests another
// plan instead.
func (r *Result) Add(target *error, err error) {
	// Each error is added by itself, because one that only calls for a retry must not hide a failure.
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			r.Add(target, one)
		}
		return
	}

	switch {
	case err == nil:
	case errors.Is(err, errRecreated):
	case errors.Is(err, errEnding):
		r.CreateError = errEnding
	case reconcile.IsStalePlan(err):
		r.Retry = true
	default:
		*target = errors.Join(*target, err)
	}
}

// Say records a normal event about the owner.
func (a *Execution) Say(reason, format string, args ...any) {
	a.Events.Event(a.owner, corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...))
}

// Warn records a warning about the owner.
func (a *Execution) Warn(reason, format string, args ...any) {
	a.Events.Event(a.owner, corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}
