package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
)

// +kubebuilder:rbac:groups=policy.kruise.io,roleName=kruise-manager-budget-role,resources=podunavailablebudgets,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy.kruise.io,roleName=kruise-manager-budget-role,resources=podunavailablebudgets/status,verbs=get;patch

type desk = booking.StatusBatcher[policyv1beta1.PodUnavailableBudget, *policyv1beta1.PodUnavailableBudget,
	*podunavailablebudget.Ledger]

// The attempts of one booking and the waits between them.
var bookingBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 3, Jitter: 0.5, Steps: 4,
	Cap: 500 * time.Millisecond}

const (
	bookingBatch   = 500
	bookingWaiting = podunavailablebudget.MaxBookings
)

// Guard books disruptions of pods in the budgets that cover them. The pod webhooks call it for all clients
// (PUB-080 to PUB-091), and our own controllers before they touch a pod (PUB-100, PUB-101).
type Guard struct {
	index   *Index
	owners  *Owners
	desk    *desk
	options podunavailablebudget.Options
	now     func() time.Time
	// known blocks until all budgets are known.
	known  func(context.Context) error
	writes *prometheus.CounterVec

	mu   sync.Mutex
	told []func(namespace string)
}

var _ reconcile.Guard = (*Guard)(nil)

// NewGuard returns a Guard for the budgets of an index. known blocks until the index has all budgets.
func NewGuard(
	c client.Client, live client.Reader, index *Index, owners *Owners, options podunavailablebudget.Options,
	known func(context.Context) error, now func() time.Time,
) *Guard {
	g := &Guard{index: index, owners: owners, options: options, now: now, known: known,
		writes: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "afloat_podunavailablebudget_booking_writes_total",
				Help: "Attempts to write bookings into the status of a PodUnavailableBudget, by result: written, conflict, failed."},
			[]string{"result"})}
	g.desk = booking.New(booking.Options[policyv1beta1.PodUnavailableBudget,
		*policyv1beta1.PodUnavailableBudget, *podunavailablebudget.Ledger]{
		Client: c, Live: live, Cached: index.Get, Now: now,
		Begin: func(_ context.Context,
			budget *policyv1beta1.PodUnavailableBudget) *podunavailablebudget.Ledger {
			return podunavailablebudget.NewLedger(g.rulesOf(budget), options, now())
		},
		Changes: (*podunavailablebudget.Ledger).Changes,
		Backoff: bookingBackoff, Batch: bookingBatch, Waiting: bookingWaiting, Writes: g.writes})
	return g
}

// Metrics returns the collectors to be registered.
func (g *Guard) Metrics() []prometheus.Collector { return []prometheus.Collector{g.writes} }

// rulesOf returns the rules of a version of a budget. It reuses those of the index if they are the same.
func (g *Guard) rulesOf(budget *policyv1beta1.PodUnavailableBudget) *podunavailablebudget.Rules {
	for _, r := range g.index.In(budget.Namespace) {
		if r.Same(budget) {
			return r.With(budget)
		}
	}
	return podunavailablebudget.NewRules(budget)
}

// Request is a request to disrupt a pod.
type Request struct {
	Pod *corev1.Pod
	By  disruption.Operation
	// DryRun asks for a decision without a booking (PUB-091).
	DryRun bool
}

// Answer is the decision of a budget about a request.
type Answer struct {
	podunavailablebudget.Decision
	// Budget is the budget that decided, or nil if no budget covers the pod.
	Budget *policyv1beta1.PodUnavailableBudget
}

// FreeTime is how long a request about a pod that is out of service waits for its booking, and for what is read for that.
const FreeTime = time.Second

// Book decides about a request, and books it if that is needed. If it returns an error, nothing is decided,
// and the pod must be left alone.
func (g *Guard) Book(ctx context.Context, request Request) (Answer, error) {
	why, free := podunavailablebudget.Free(request.Pod, g.now())
	if !free {
		return g.ask(ctx, request)
	}
	if podunavailablebudget.MayServeAgain(request.Pod, request.By) {
		// It is allowed, whatever becomes of the booking.
		ctx, cancel := context.WithTimeout(ctx, FreeTime)
		defer cancel()
		if answer, err := g.ask(ctx, request); err == nil && answer.Allowed {
			return answer, nil
		}
	}
	return Answer{Decision: podunavailablebudget.Decision{Allowed: true, Free: true, Reason: why}}, nil
}

// ask asks the budget that covers the pod.
func (g *Guard) ask(ctx context.Context, request Request) (Answer, error) {
	pod := request.Pod
	if err := g.known(ctx); err != nil {
		return Answer{}, err
	}

	covering, err := g.covering(ctx, pod)
	if err != nil {
		return Answer{}, err
	}

	for gone := ""; ; {
		rules := podunavailablebudget.Related(pod, covering)
		switch {
		case rules == nil && gone != "": // another one may have been made before it went
			return Answer{}, fmt.Errorf("PodUnavailableBudget %s is gone, and it is not known here yet whether another one covers the pod: %w", gone, booking.ErrBehind)
		case rules == nil:
			return Answer{Decision: podunavailablebudget.Decision{Allowed: true,
				Reason: "no budget covers the pod"}}, nil
		}

		answer, err := g.decide(ctx, rules, request)
		if !errors.Is(err, booking.ErrGone) || errors.Is(err, booking.ErrReplaced) {
			return answer, err // a new budget of this name counts as soon as it is known here
		}
		gone = rules.Budget.Name
		covering = slices.DeleteFunc(covering, func(r *podunavailablebudget.Rules) bool { return r == rules })
	}
}

// freeAge is how long a budget that was read or written here is trusted when it allows a disruption without a
// booking, and thus without a write that would detect a change. So a budget is read at most that often,
// however many pods are asked about.
const freeAge = 2 * time.Second

// decide lets one budget decide about a request. It returns booking.ErrGone if the budget no longer exists.
func (g *Guard) decide(
	ctx context.Context, rules *podunavailablebudget.Rules, request Request,
) (Answer, error) {
	answer := Answer{Budget: rules.Budget}
	if request.DryRun {
		ledger := podunavailablebudget.NewLedger(g.rulesOf(g.desk.Newest(rules.Budget)), g.options, g.now())
		answer.Decision = ledger.Book(request.Pod, request.By)
		return answer, nil
	}

	err := g.desk.Decide(ctx, rules.Budget, func(ledger *podunavailablebudget.Ledger, age time.Duration) error {
		answer.Decision = ledger.Book(request.Pod, request.By)
		written := answer.Booked || answer.Renewed // a write detects whether the budget has changed
		trusted := answer.Free || age <= freeAge
		// Another replica, or the controller, may have counted meanwhile.
		if !written && age > 0 && (!answer.Allowed || !trusted) {
			return booking.ErrStale
		}
		return nil
	})
	if err != nil {
		return Answer{}, fmt.Errorf("PodUnavailableBudget %s: %w", rules.Budget.Name, err)
	}

	return answer, nil
}

// Covering returns the budget that decides about a pod, or nil if there is none.
func (g *Guard) Covering(ctx context.Context, pod *corev1.Pod) (*policyv1beta1.PodUnavailableBudget, error) {
	if err := g.known(ctx); err != nil {
		return nil, err
	}
	covering, err := g.covering(ctx, pod)
	if rules := podunavailablebudget.Related(pod, covering); err == nil && rules != nil {
		return rules.Budget, nil
	}
	return nil, err
}

// covering returns the budgets that cover a pod.
func (g *Guard) covering(ctx context.Context, pod *corev1.Pod) ([]*podunavailablebudget.Rules, error) {
	candidates := g.index.In(pod.Namespace)
	var chain Chain
	if slices.ContainsFunc(candidates, (*podunavailablebudget.Rules).Targets) {
		var err error
		if chain, err = g.owners.Above(ctx, pod); err != nil {
			found := covering(candidates, pod, chain)
			if slices.ContainsFunc(found, (*podunavailablebudget.Rules).Targets) {
				return found, nil // regardless of what controls its workload
			}
			return nil, fmt.Errorf("finding out what controls pod %s: %w", pod.Name, err)
		}
	}

	return covering(candidates, pod, chain), nil
}

// covering returns the candidates that cover a pod. If there are none, it returns the one that the pod names,
// provided that its target is of a kind that may also have pods by the selector of its scale subresource. The
// controller has checked that; writing another name into a pod does not take it out of a budget. Pods of a
// workload that is gone do not belong to a new one of the same name.
func covering(
	candidates []*podunavailablebudget.Rules, pod *corev1.Pod, chain Chain,
) []*podunavailablebudget.Rules {
	var found []*podunavailablebudget.Rules
	var named *podunavailablebudget.Rules
	living := chain.living()
	for _, r := range candidates {
		switch {
		case r.Budget.DeletionTimestamp != nil:
		case r.Covers(pod, living):
			found = append(found, r)
		case r.Targets() && !counted(r.Target.GroupKind) &&
			podunavailablebudget.RelatedName(pod) == r.Budget.Name &&
			!slices.Contains(chain.References, r.Target):
			named = r
		}
	}

	if len(found) == 0 && named != nil {
		found = append(found, named)
	}

	return found
}

// Limits implements reconcile.Guard. If the controllers of a pod cannot be read, only that pod has to wait,
// since the plan may be for pods of many namespaces.
func (g *Guard) Limits(ctx context.Context, pods []*corev1.Pod) (disruption.Limits, error) {
	chains, unknown := map[parentKey]Chain{}, map[parentKey]error{}
	newest := map[string][]*podunavailablebudget.Rules{}
	for _, pod := range pods {
		candidates, seen := newest[pod.Namespace]
		if !seen {
			for _, r := range g.index.In(pod.Namespace) {
				candidates = append(candidates, g.rulesOf(g.desk.Newest(r.Budget)))
			}
			newest[pod.Namespace] = candidates
		}

		owner := parentKey{pod.Namespace, controllerOf(pod)}
		if owner.controller == (controller{}) ||
			!slices.ContainsFunc(candidates, (*podunavailablebudget.Rules).Targets) {
			continue
		}
		if _, known := chains[owner]; known {
			continue
		}

		if chains[owner], unknown[owner] = g.owners.Above(ctx, pod); ctx.Err() != nil {
			return nil, fmt.Errorf("finding out what controls pod %s: %w", pod.Name, ctx.Err())
		}
	}

	empty := true
	for _, candidates := range newest {
		empty = empty && len(candidates) == 0
	}

	if empty {
		return nil, nil
	}

	return podunavailablebudget.NewLimits(func(pod *corev1.Pod) ([]*podunavailablebudget.Rules, error) {
		owner := parentKey{pod.Namespace, controllerOf(pod)}
		if err := unknown[owner]; err != nil {
			return nil, fmt.Errorf("finding out what controls it: %w", err)
		}
		return covering(newest[pod.Namespace], pod, chains[owner]), nil
	}, g.options, g.now()), nil
}

// Ask implements reconcile.Guard.
func (g *Guard) Ask(ctx context.Context, pod *corev1.Pod, by disruption.Operation) error {
	answer, err := g.Book(ctx, Request{Pod: pod, By: by})
	switch {
	case err != nil:
		return err
	case !answer.Allowed:
		return fmt.Errorf("%w: %s", reconcile.ErrStalePlan, answer.Reason)
	}
	return nil
}

// Tell implements reconcile.Guard.
func (g *Guard) Tell(do func(namespace string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = append(g.told, do)
}

// tell reports that a budget of the namespace may allow more than before.
func (g *Guard) tell(namespace string) {
	g.mu.Lock()
	told := g.told
	g.mu.Unlock()
	for _, do := range told {
		do(namespace)
	}
}
