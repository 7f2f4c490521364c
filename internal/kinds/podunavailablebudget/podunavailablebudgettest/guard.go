package podunavailablebudgettest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Guard keeps one budget in memory, which covers the pods that its selector selects. It counts whenever somebody plans.
type Guard struct {
	Budget *policyv1beta1.PodUnavailableBudget
	Now    func() time.Time
	// Pods are all pods as they are, and Replicas how many there shall be.
	Pods     func() []*corev1.Pod
	Replicas func() int32
	// Asked is called with what was asked, and with the answer; nil for nobody.
	Asked func(pod *corev1.Pod, by disruption.Operation, answer podunavailablebudget.Decision)

	mu sync.Mutex
}

var _ reconcile.Guard = (*Guard)(nil)

// Limits implements reconcile.Guard.
func (g *Guard) Limits(context.Context, []*corev1.Pod) (disruption.Limits, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rules, replicas := podunavailablebudget.NewRules(g.Budget.DeepCopy()), g.Replicas()
	s := podunavailablebudget.Snapshot{Rules: rules, Workloads: []podunavailablebudget.Workload{{Replicas: &replicas}}, Now: g.Now()}
	for _, pod := range g.Pods() {
		if rules.Selects(pod) {
			s.Pods = append(s.Pods, pod)
		}
	}
	g.Budget.Status = podunavailablebudget.Make(s).Status
	rules = podunavailablebudget.NewRules(g.Budget.DeepCopy())
	return podunavailablebudget.NewLimits(func(pod *corev1.Pod) []*podunavailablebudget.Rules {
		if rules.Selects(pod) {
			return []*podunavailablebudget.Rules{rules}
		}
		return nil
	}, AllGates, g.Now()), nil
}

// Ask implements reconcile.Guard.
func (g *Guard) Ask(_ context.Context, pod *corev1.Pod, by disruption.Operation) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	rules := podunavailablebudget.NewRules(g.Budget)
	if !rules.Selects(pod) {
		return nil
	}
	ledger := podunavailablebudget.NewLedger(rules, AllGates, g.Now())
	answer := ledger.Book(pod, by)
	status, err := Merged(&g.Budget.Status, ledger.Changes())
	if err != nil {
		return err
	}
	g.Budget.Status = status
	if g.Asked != nil {
		g.Asked(pod, by, answer)
	}
	if !answer.Allowed {
		return fmt.Errorf("%w: %s", reconcile.ErrChanged, answer.Reason)
	}
	return nil
}

// Tell implements reconcile.Guard; nobody is told.
func (g *Guard) Tell(func(namespace string)) {}

// Merged is a status after a JSON merge patch, as the API server stores it.
func Merged(status *policyv1beta1.PodUnavailableBudgetStatus, changes map[string]any) (after policyv1beta1.PodUnavailableBudgetStatus, err error) {
	var stored, patch map[string]any
	if err = reread(status, &stored); err == nil {
		err = reread(changes, &patch)
	}
	if err != nil {
		return after, err
	}
	merge(stored, patch)
	return after, reread(stored, &after)
}

func reread(from, into any) error {
	document, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(document, into)
}

func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap:
			below, found := into[key].(map[string]any)
			if !found {
				below = map[string]any{}
			}
			merge(below, inner)
			into[key] = below
		default:
			into[key] = value
		}
	}
}
