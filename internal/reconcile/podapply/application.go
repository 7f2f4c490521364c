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

// attempts bounds how often one in-place update is retried on conflicts before a new plan decides again.
const attempts = 4

// errRecreated: the API server refused to update the pod in place, so that it will be recreated. It is no
// error of the user's either.
var errRecreated = errors.New("the pod will be recreated instead")

// Applier carries plans out.
type Applier struct {
	API    *reconcile.API
	Events reconcile.Recorder
}

// Application is the carrying out of one plan.
type Application struct {
	*reconcile.Writer
	Events   reconcile.Recorder
	owner    client.Object
	selector *metav1.LabelSelector
	plan     *podplan.Plan
	// owned asks once whether the owner lives; ownerErr is why nothing may be adopted.
	owned    sync.Once
	ownerErr error
	// Collided raises the collision count in the owner's status to the number.
	Collided func(ctx context.Context, count int32) error
}

// To begins to carry out the plan of an owner; its selector finds revisions without a controller.
func (a Applier) To(owner client.Object, selector *metav1.LabelSelector, plan *podplan.Plan) *Application {
	return &Application{Writer: a.API.For(owner.GetUID()), Events: a.Events, owner: owner, selector: selector, plan: plan}
}

// Result is what applying met.
type Result struct {
	// ScaleError and UpdateError are failures to create or delete, and to update.
	ScaleError, UpdateError error
	// CreateError is the failure to create pods alone; Refused is how the API server refused to update one in
	// place.
	CreateError, Refused error
	// RefusedObjects are the pods and claims about which the API server clearly refused a request.
	RefusedObjects []types.UID
	// GrowthError is the failure to grow claims alone.
	GrowthError error
	// Grew: claims were to grow.
	Grew bool
	// Updated: an update in place was begun.
	Updated bool
	// Pruned: the owner itself was written, so that the plan's version of it is not the newest.
	Pruned bool
	// PullError is a failure to pull images ahead, which stops nothing (CS-201).
	PullError error
	// Retry: something changed meanwhile; a new plan is due although no event may announce it.
	Retry bool
	// Unfinished: the time of the pass was over before all was done; what is left is planned anew.
	Unfinished bool
	// Done are the verdicts that were carried out, and Created is how many pods were created.
	Done    []*podplan.Verdict
	Created int
}

// Add adds a failure to one of the errors; what only says that the world changed calls for another plan.
func (r *Result) Add(target *error, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok { // each by itself: what is only to be tried again must not hide a failure
		for _, one := range several.Unwrap() {
			r.Add(target, one)
		}
		return
	}
	switch {
	case err == nil:
	case errors.Is(err, errRecreated):
	case reconcile.IsStalePlan(err):
		r.Retry = true
	default:
		*target = errors.Join(*target, err)
	}
}

// Say records a normal event about the owner.
func (a *Application) Say(reason, format string, args ...any) {
	a.Events.Event(a.owner, corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...))
}

// Warn records a warning about the owner.
func (a *Application) Warn(reason, format string, args ...any) {
	a.Events.Event(a.owner, corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}
