package simulationtest

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// Plan is a pointer to the type of plans of a workload.
type Plan interface {
	podapply.Plan
	String() string
}

// Workload is a [World] whose object is a workload with pods from one template. P is a pointer to the type of
// its plans.
type Workload[O client.Object, P Plan] struct {
	*World[O]
	// Run makes one pass of the present manager. NewManager sets it.
	Run func(ctx context.Context, name types.NamespacedName, uid types.UID) (P, podapply.Outcome, error)
	// Forget drops what the present manager keeps of an object that was replaced by another one. NewManager
	// sets it, or it is nil.
	Forget func(name types.NamespacedName, uid types.UID)
	// Quiet means that no passes are made that are due only to report a wait.
	Quiet bool
	// Planned is called with each plan that was carried out. It may be nil.
	Planned func(P, podapply.Outcome)
	// Remember returns a function that puts back what NewManager made besides Run. Only worlds with stale
	// leaders need it.
	Remember func() (restore func())

	stale *staleLeader
	// owner is the UID of the object at the last pass.
	owner types.UID
}

// NewWorkload is like [NewWorld] for a workload, and sets Reconcile.
func NewWorkload[O client.Object, P Plan](seed uint64, key simulation.Key) *Workload[O, P] {
	w := &Workload[O, P]{World: NewWorld[O](seed, key)}
	w.Reconcile = w.reconcile
	return w
}

// Once makes one pass, if the manager knows the workload.
func (w *Workload[O, P]) Once() (plan P, outcome podapply.Outcome, err error) {
	object := w.Cached(w.Key)
	if object == nil {
		return plan, outcome, nil
	}
	name, uid := client.ObjectKeyFromObject(object), object.GetUID()
	if w.Forget != nil && w.owner != uid {
		w.Forget(name, w.owner)
	}
	w.owner = uid
	return w.Run(context.Background(), name, uid)
}

func (w *Workload[O, P]) reconcile() (time.Duration, error) {
	plan, outcome, err := w.Once()
	if plan == *new(P) {
		w.Print(nil, outcome.After, err)
	} else {
		w.Print(plan, outcome.After, err)
		if w.Planned != nil {
			w.Planned(plan, outcome)
		}
	}
	if !w.Quiet {
		reconcile.MinRequeue(&outcome.After, outcome.ReportAfter)
	}
	return outcome.After, err
}

// staleLeader is a manager that goes on although another one has taken over. It knows what it wrote itself,
// and hears late of what happens.
type staleLeader struct {
	view    *simulation.View
	restore func()
}

// RunStaleLeader lets a stale leader act, makes one now and then, and ends it some time later.
func (w *Workload[O, P]) RunStaleLeader() {
	switch leader := w.stale; {
	case leader == nil && !w.Dead() && w.Chance(0.05):
		w.stale = &staleLeader{w.Fork(), w.remember()}
		w.Start()
	case leader == nil:
	case w.Chance(0.05):
		w.EndStaleLeader()
	case w.Chance(0.3):
		dead := w.Dead()
		w.As(leader.view, func() {
			restore := w.remember()
			leader.restore()
			w.Deliver(w.Rand.IntN(4))
			_, _ = w.reconcile()
			restore()
		})
		if w.Dead() && !dead { // it was the stale leader that died
			w.EndStaleLeader()
			w.Revive()
		}
	}
}

// remember returns a function that puts the present manager back into its place.
func (w *Workload[O, P]) remember() func() {
	run, forget, owner, restore := w.Run, w.Forget, w.owner, w.Remember()
	return func() { w.Run, w.Forget, w.owner = run, forget, owner; restore() }
}

// EndStaleLeader ends the stale leader, if there is one.
func (w *Workload[O, P]) EndStaleLeader() {
	if w.stale != nil {
		w.End(w.stale.view)
		w.stale = nil
	}
}
