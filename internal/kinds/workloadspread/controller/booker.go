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
// A booking whose response was lost is found again by its key, which is the same for all attempts of one
// request. A pod with a generated name gets a new key when its controller retries; the booking of the first
// attempt then expires (WS-152).
type Booker struct {
	*desk
	workloads Workloads
	log       logr.Logger
	now       func() time.Time
	deletions *deletions
	writes    *prometheus.CounterVec
	booked    *prometheus.CounterVec
}

type desk = booking.StatusBatcher[appsv1beta1.WorkloadSpread, *appsv1beta1.WorkloadSpread, *workloadspread.Ledger]

// NewBooker returns a Booker. c writes patches, live reads from the API server, and cached returns the object
// of the informer, which must not be changed.
func NewBooker(
	c client.Client, live client.Reader, cached func(types.NamespacedName) *appsv1beta1.WorkloadSpread,
	workloads Workloads, log logr.Logger, now func() time.Time,
) *Booker {
	b := &Booker{workloads: workloads, log: log, now: now,
		deletions: &deletions{live: live, now: now, answers: map[types.NamespacedName]answer{}},
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
		// Jitter spreads the retries. They end when the context of the caller ends.
		Backoff: wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 12,
			Cap: 300 * time.Millisecond},
		Begin: func(ctx context.Context, spread *appsv1beta1.WorkloadSpread) *workloadspread.Ledger {
			ledger := workloadspread.NewLedger(spread, b.target(ctx, spread), b.now())
			b.deletions.ask(ctx, ledger, spread.Namespace)
			return ledger
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

// Metrics returns the collectors to be registered.
func (b *Booker) Metrics() []prometheus.Collector { return []prometheus.Collector{b.writes, b.booked} }

// Create chooses a subset and books the pod there (WS-076). The decision has no subset if none has room
// (WS-077), or if the WorkloadSpread is gone (WS-113). prepare is called with the decision before it is
// written; if it returns an error, nothing is booked and the error is returned.
func (b *Booker) Create(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation,
	prepare func(workloadspread.Decision) error,
) (workloadspread.Decision, error) {
	decision := workloadspread.Decision{Subset: workloadspread.Alone(spread)}
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
		func(l *workloadspread.Ledger) (workloadspread.Decision, func()) {
			decision, book := l.Create(pod)
			pod.At = decision.At // a write whose answer was lost is found again by that
			return decision, book
		})
}

// byOrdinal chooses a subset without booking. Whether pods can be scheduled to a subset is taken from the
// last own write if that is newer than the cache.
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

// Delete books the deletion of a pod, if there is anything to book (WS-102, WS-103).
func (b *Booker) Delete(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Deletion,
) (workloadspread.Decision, error) {
	if reason := workloadspread.Unbookable(spread, pod.Subset); reason != "" {
		return workloadspread.Decision{Reason: reason}, nil
	}
	return b.settle(ctx, spread, "deletion", nil,
		func(l *workloadspread.Ledger) (workloadspread.Decision, func()) {
			decision, book := l.Delete(pod)
			if decision.Made {
				b.deletions.booked(types.NamespacedName{Namespace: spread.Namespace, Name: pod.Name})
			}
			return decision, book
		})
}

// Release gives back the place of a pod whose creation was certainly refused, so that another pod need not
// wait until the booking expires (WS-152). It must not be called if that is not certain, since two pods would
// then have the same place.
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

// settle makes a decision with decide, and commits it by calling the function that decide returned. If the
// pod finds no subset, or no booking to give back, the decision is made again if the object may be older than
// the request. prepare may be nil.
func (b *Booker) settle(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, kind string,
	prepare func(workloadspread.Decision) error,
	decide func(*workloadspread.Ledger) (workloadspread.Decision, func()),
) (decision workloadspread.Decision, err error) {
	err = b.Decide(ctx, spread, func(l *workloadspread.Ledger, age time.Duration) error {
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
		return workloadspread.Decision{Gone: true, Reason: "the WorkloadSpread is gone"}, nil
	case err != nil && ctx.Err() != nil: // it is unknown what became of the decision
		return workloadspread.Decision{}, err
	case err == nil && decision.Made:
		b.booked.WithLabelValues(kind).Inc()
	}

	return decision, err
}

// target returns the target if quotas depend on it, and nil otherwise. It also returns nil if the target
// cannot be read, since that must not block pods: these quotas then count as 0.
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

// workload reads the target from the API server. New pods often come because their workload was scaled, and
// the cache may show that later than the pods. The cache is read only if the API server does not answer.
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
