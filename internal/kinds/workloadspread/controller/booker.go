package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
)

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-workloadspread-role,resources=workloadspreads,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-workloadspread-role,resources=workloadspreads/status,verbs=get;patch

// Booker writes decisions into the status of WorkloadSpreads (WS-110 to WS-115).
//
// A booking whose answer was lost is found again by its key, which is kept for all attempts of one request. A
// pod without a name of its own has another key when its controller tries again: the booking of the first try
// then expires by time (WS-152).
type Booker struct {
	*desk
	workloads Workloads
	log       logr.Logger
	now       func() time.Time
	writes    *prometheus.CounterVec
	booked    *prometheus.CounterVec
}

type desk = booking.Desk[appsv1beta1.WorkloadSpread, *appsv1beta1.WorkloadSpread, *workloadspread.Ledger]

// NewBooker returns a Booker. c patches, live reads from the API server, cached returns what the informer
// has, which is not changed.
func NewBooker(
	c client.Client, live client.Reader, cached func(types.NamespacedName) *appsv1beta1.WorkloadSpread,
	workloads Workloads, log logr.Logger, now func() time.Time,
) *Booker {
	b := &Booker{workloads: workloads, log: log, now: now,
		writes: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "afloat_workloadspread_booking_writes_total",
				Help: "Attempts to write bookings into the status of a WorkloadSpread, by result: written, conflict, failed."},
			[]string{"result"}),
		booked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afloat_workloadspread_bookings_total",
			Help: "Pods whose creation or deletion was booked, and creations whose place was given back (release)."},
			[]string{"kind"}),
	}
	b.desk = booking.New(booking.Options[appsv1beta1.WorkloadSpread, *appsv1beta1.WorkloadSpread,
		*workloadspread.Ledger]{
		Client: c, Live: live, Cached: cached, Now: now, Writes: b.writes, Batch: 250,
		// Waits are spread by chance. They end with the time of who asks.
		Backoff: wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 12,
			Cap: 300 * time.Millisecond},
		Begin: func(ctx context.Context, spread *appsv1beta1.WorkloadSpread) *workloadspread.Ledger {
			return workloadspread.NewLedger(spread, b.target(ctx, spread), b.now())
		},
		Changes: func(l *workloadspread.Ledger) map[string]any {
			if changed := l.Changed(); len(changed) > 0 {
				return map[string]any{"versionedSubsetStatuses": changed}
			}
			return nil
		},
	})
	return b
}

// Metrics are for the registry.
func (b *Booker) Metrics() []prometheus.Collector { return []prometheus.Collector{b.writes, b.booked} }

// Create chooses a subset and books the pod there (WS-076). The decision has no subset if none has a free
// place (WS-077), or if the WorkloadSpread is gone (WS-113). prepare is told what is decided before that is
// written; its error refuses the pod, and nothing is booked.
func (b *Booker) Create(ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation,
	prepare func(workloadspread.Decision) error) (workloadspread.Decision, error) {
	decision := workloadspread.Decision{Subset: workloadspread.Alone(spread)} // WS-056
	if workloadspread.Ordinal(workloadspread.TargetOf(spread).GroupKind) && decision.Subset == nil {
		var err error
		if decision, err = b.byOrdinal(ctx, spread, pod); err != nil || decision.Subset == nil {
			return decision, err
		}
	}
	if decision.Subset != nil {
		return decision, prepare(decision)
	}

	return b.settle(ctx, spread, "creation", prepare,
		func(l *workloadspread.Ledger) (workloadspread.Decision, func()) { return l.Create(pod) })
}

// byOrdinal chooses without booking. Whether subsets can be scheduled to is what was written here last, if
// that is newer than the cache.
func (b *Booker) byOrdinal(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation,
) (workloadspread.Decision, error) {
	name := pod.Key
	if pod.Generated {
		name = ""
	}
	newest := b.Newest(spread)
	target, err := b.workload(ctx, newest)
	if err != nil {
		return workloadspread.Decision{}, fmt.Errorf("reading the StatefulSet: %w", err)
	}
	return workloadspread.ByOrdinal(newest, target, name), nil
}

// Delete books the deletion of a pod, if there is something to book (WS-102, WS-103).
func (b *Booker) Delete(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Deletion,
) (workloadspread.Decision, error) {
	if reason := workloadspread.Unbookable(spread, pod.Subset); reason != "" {
		return workloadspread.Decision{Reason: reason}, nil
	}
	return b.settle(ctx, spread, "deletion", nil,
		func(l *workloadspread.Ledger) (workloadspread.Decision, func()) { return l.Delete(pod) })
}

// Release gives back the place of a pod whose creation was refused for certain, so that another one need not
// wait until its booking expires (WS-152). Who does not know that for certain must not: two pods would have
// the place.
func (b *Booker) Release(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation,
) error {
	if workloadspread.Ordinal(workloadspread.TargetOf(spread).GroupKind) ||
		workloadspread.Alone(spread) != nil {
		return nil
	}
	_, err := b.settle(ctx, spread, "release", nil,
		func(l *workloadspread.Ledger) (workloadspread.Decision, func()) { return l.Release(pod) })
	return err
}

// settle decides, and books what decide's other result says. A pod that finds no subset, or no booking to be
// given back, is decided about again if the object may be older than its request. prepare may be nil.
func (b *Booker) settle(ctx context.Context, spread *appsv1beta1.WorkloadSpread, kind string,
	prepare func(workloadspread.Decision) error,
	decide func(*workloadspread.Ledger) (workloadspread.Decision, func())) (decision workloadspread.Decision,
	err error) {
	err = b.Do(ctx, spread, func(l *workloadspread.Ledger, age time.Duration) error {
		var commit func()
		decision, commit = decide(l)
		if decision.Subset == nil && kind != "deletion" && age > 0 {
			return booking.ErrStale
		}
		if decision.Subset != nil && prepare != nil {
			if err := prepare(decision); err != nil {
				return err
			}
		}
		commit()
		return nil
	})
	switch {
	case errors.Is(err, booking.ErrGone):
		return workloadspread.Decision{Gone: true, Reason: "the WorkloadSpread is gone"}, nil // WS-113
	case err != nil && ctx.Err() != nil: // nobody knows what became of the decision
		return workloadspread.Decision{}, err
	case err == nil && decision.Made:
		b.booked.WithLabelValues(kind).Inc()
	}

	return decision, err
}

// target is read only for quotas that depend on it. What cannot be read must not block pods: these quotas
// then count 0.
func (b *Booker) target(ctx context.Context, spread *appsv1beta1.WorkloadSpread) *workloadspread.Target {
	if !workloadspread.ReadsTarget(spread) {
		return nil
	}

	target, err := b.workload(ctx, spread)
	if err == nil && target.DesiredError != nil {
		err = target.DesiredError
	}
	if err != nil {
		b.log.Error(err, "The replicas of a workload cannot be told, percentages of them count 0",
			"workloadspread", client.ObjectKeyFromObject(spread))
		return nil
	}

	return target
}

// workload reads the target from the API server: pods come because their workload was scaled, which the cache
// may show later than they come. The cache is asked only where the API server does not answer.
func (b *Booker) workload(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread,
) (*workloadspread.Target, error) {
	target, err := b.workloads.Target(ctx, spread, true)
	if err == nil {
		return target, nil
	}
	cached, errCached := b.workloads.Target(ctx, spread, false)
	if errCached != nil || !cached.Exists {
		return nil, err
	}
	b.log.V(2).Info("The workload is read from the cache",
		"workloadspread", client.ObjectKeyFromObject(spread), "why", err.Error())
	return cached, nil
}
