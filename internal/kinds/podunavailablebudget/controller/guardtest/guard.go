// Package guardtest keeps a PodUnavailableBudget in memory, for tests of controllers that ask.
package guardtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// Guard keeps one budget in memory, which covers the pods that its selector selects. It counts whenever
// somebody plans.
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
	s := podunavailablebudget.Snapshot{Rules: rules,
		Workloads: []podunavailablebudget.Workload{{Replicas: &replicas}}, Now: g.Now()}
	for _, pod := range g.Pods() {
		if rules.Selects(pod) {
			s.Pods = append(s.Pods, pod)
		}
	}

	g.Budget.Status = podunavailablebudget.Make(s).Status
	rules = podunavailablebudget.NewRules(g.Budget.DeepCopy())
	return podunavailablebudget.NewLimits(func(pod *corev1.Pod) ([]*podunavailablebudget.Rules, error) {
		if rules.Selects(pod) {
			return []*podunavailablebudget.Rules{rules}, nil
		}
		return nil, nil
	}, podunavailablebudgettest.AllGates, g.Now()), nil
}

// Ask implements reconcile.Guard.
func (g *Guard) Ask(_ context.Context, pod *corev1.Pod, by disruption.Operation) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	rules := podunavailablebudget.NewRules(g.Budget)
	if !rules.Selects(pod) {
		return nil
	}

	ledger := podunavailablebudget.NewLedger(rules, podunavailablebudgettest.AllGates, g.Now())
	answer := ledger.Book(pod, by)
	status, err := podunavailablebudgettest.Merged(&g.Budget.Status, ledger.Changes())
	if err != nil {
		return err
	}

	g.Budget.Status = status
	if g.Asked != nil {
		g.Asked(pod, by, answer)
	}
	if !answer.Allowed {
		return fmt.Errorf("%w: %s", reconcile.ErrStalePlan, answer.Reason)
	}

	return nil
}

// Tell implements reconcile.Guard; nobody is told.
func (g *Guard) Tell(func(namespace string)) {}

// Watch has Admit judge each write of the manager of a simulated cluster.
func (g *Guard) Watch(cluster *simulation.Cluster, failed func(error)) {
	cluster.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		was, found := before.(*corev1.Pod)
		if !found || was == nil {
			return
		}
		is, _ := after.(*corev1.Pod)
		if w.Verb != "delete" && is == nil {
			return
		}
		if w.Verb == "delete" {
			is = nil
		}
		if err := g.Admit(was, is); err != nil {
			failed(err)
		}
	}
}

// Admit judges a change of a pod, or its deletion if after is nil, as the webhooks do. It is an error if the
// budget refuses it, and also if it were booked only now: who changes pods has asked before.
func (g *Guard) Admit(before, after *corev1.Pod) error {
	by := policyv1beta1.Delete
	if after != nil {
		was, errWas := json.Marshal(before)
		is, errIs := json.Marshal(after)
		operation, err := podunavailablebudget.Changed(was, is)
		if err = errors.Join(errWas, errIs, err); err != nil || operation == "" {
			return err
		}
		by = operation
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	rules := podunavailablebudget.NewRules(g.Budget)
	if !rules.Selects(before) {
		return nil
	}

	answer := podunavailablebudget.NewLedger(rules, podunavailablebudgettest.AllGates,
		g.Now()).Book(before, by)
	if !answer.Allowed || answer.Booked {
		return fmt.Errorf("%s of pod %s: %s", by, before.Name, answer.Reason)
	}

	return nil
}
