package framework

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/featuregate"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/platform/watches"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Environment is what kinds are set up in. The first part is known everywhere, also where there is no manager; the
// second is there for controllers, and the third for webhooks.
type Environment struct {
	// Gates are the feature gates in effect, and Flags the flags of the kinds.
	Gates *features.Gates
	Flags Flags
	// Namespace is the install namespace, and DaemonNamespace the one from which node daemons read.
	Namespace, DaemonNamespace string
	// InPlace defines what may change under InPlaceOnly (CS-033).
	InPlace inplace.Options
	// Minor is the minor version of the API server.
	Minor uint
	// Resizes reports whether the gate is enabled and the API server has the subresource pods/resize.
	Resizes func(gate featuregate.Feature) (bool, error)

	Manager ctrl.Manager
	// Workers holds the numbers of workers by controller. Limiter returns a rate limiter for a controller.
	Workers map[string]*int
	Limiter func() workqueue.TypedRateLimiter[ctrl.Request]
	// Watches follows the informers of the caches.
	Watches *watches.Watches
	// Current waits until the caches show what was stored when this replica began to lead.
	Current func(context.Context) error
	// Pulse monitors whether the controllers work.
	Pulse *reconcile.Pulse
	// Flow bounds the tasks that controllers have in progress.
	Flow *reconcile.WriteLimiter
	// Index finds the pods of an owner.
	Index *podindex.Index
	// PullJobs holds the ImagePullJobs that the controllers of workloads read.
	PullJobs *podapply.PullJobs
	// Guard decides whether pods may be taken out of service. It is nil if nothing guards pods.
	Guard reconcile.Guard

	// Protect returns the handler of deletions of objects of a kind, nil for unprotected ones.
	Protect func(kind string, by Protection) admission.HandlerFunc
	// Validator has the API server validate and default pod templates.
	Validator TemplateValidator
	// Cache reads from the manager's caches, APIReader from the API server.
	Cache, APIReader client.Reader
	Mapper           meta.RESTMapper
	// Announcer is nil if created pods are not sent at all.
	Announcer  Announcer
	Namespaces *Namespaces
	// Writer writes to the API server; it is used for dry runs only.
	Writer client.Writer

	// shared holds what the parts of a kind share, see Shared.
	shared map[any]any
}

// Controller returns the options that all controllers have. name is the name in the flag with the number of
// workers.
func (e *Environment) Controller(name string) reconcile.Options {
	return reconcile.Options{
		Workers:     *e.Workers[name],
		RateLimiter: e.Limiter,
		Pods:        e.Index,
		Limit:       e.Flow,
		Guard:       e.Guard,
		Current:     e.Current,
		Pulse:       e.Pulse,
	}
}

// Shared is something that the parts of a kind share: its webhooks, its controller, and the webhooks of pods. A
// kind declares it as a variable, and sets it for an environment in Prepare, so that the environment does not know
// the kinds.
type Shared[T any] struct {
	_ byte // variables of no size could have one address
}

// In returns what is shared in an environment, or the zero value.
func (s *Shared[T]) In(e *Environment) T {
	value, _ := e.shared[s].(T)
	return value
}

// Set shares a value in an environment.
func (s *Shared[T]) Set(e *Environment, value T) {
	if e.shared == nil {
		e.shared = map[any]any{}
	}
	e.shared[s] = value
}
