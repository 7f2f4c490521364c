package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Pass brings one BroadcastJob a step further.
type Pass struct {
	Kube    *Kube
	Applier podapply.Applier
	// Binds: pods are bound to their nodes here, not by the scheduler.
	Binds bool

	memory reconcile.Memory[memory]
}

// Outcome is what a pass did, with the plan that was carried out; nil if there was nothing to plan.
type Outcome struct {
	podapply.Outcome
	Plan *broadcastjob.Plan
}

// memory is what a pass keeps of a job for the next ones.
type memory struct {
	podapply.Memory
	status reconcile.StatusThrottle
	// batch is how large the first batch of creations is (BJ-073).
	batch int
	// failed are the nodes for which a pod could not be created, and when last.
	failed map[string]time.Time
	// template is a hash of the last template; 0 before the first pass.
	template uint64
}

// Once is Run, with what all workloads have in common.
func (p *Pass) Once(ctx context.Context, name types.NamespacedName, owner types.UID) (*podplan.Plan, podapply.Outcome, error) {
	outcome, err := p.Run(ctx, name, owner)
	if outcome.Plan == nil {
		return nil, outcome.Outcome, err
	}
	return &outcome.Plan.Plan, outcome.Outcome, err
}

// Run makes one pass over a job: it plans, applies, and writes the status last, unless the job ends: then
// nothing else is done before that is written. An error means that something failed that trying again may
// mend (BJ-065).
func (p *Pass) Run(ctx context.Context, name types.NamespacedName, owner types.UID) (Outcome, error) {
	now := p.Kube.Now()
	job, err := reconcile.Begin[appsv1beta1.BroadcastJob](ctx, p.Kube.API, name, owner)
	if err != nil || job == nil {
		return Outcome{}, err
	}
	begun := p.Kube.Now()
	snapshot, err := p.Kube.Snapshot(ctx, job, p.Binds)
	if err != nil {
		return Outcome{}, err
	}
	kept := p.memory.Of(owner)
	kept.HoldBack(&snapshot.Snapshot, job.Generation)
	snapshot.Now, snapshot.Failed = now, kept.failedNodes(now)
	plan := broadcastjob.Make(*snapshot)
	planning := p.Kube.Now().Sub(begun)
	p.Kube.Rules.plan(job, plan.Counted)
	a := p.Applier.To(job, &metav1.LabelSelector{}, &plan.Plan)
	kept.announce(a, plan)
	result := &podapply.Result{}
	ended, err := kept.first(ctx, a, plan, result)
	if err == nil && !ended {
		kept.batch = a.SlowStart(ctx, result, kept.batch, func(node string) { kept.fails(node, now) })
		result.Unfinished = result.Unfinished || plan.More && result.Created > 0
	}
	if err != nil { // the caches may have to show first what has changed
		result.Unfinished = false
		result.Add(&result.UpdateError, err)
	}
	skip := ended || err != nil
	progress := waiting.Progress{Arrived: plan.Done, Complete: plan.Settled()}
	outcome, err := kept.Finish(a, result, planning, progress, func() (time.Duration, error) {
		status, changed := plan.FinalStatus(result.Created, result.Done)
		if !changed || skip {
			return 0, nil
		}
		return kept.status.Write(ctx, a.Writer, job, &job.Status, status, broadcastjob.OnlyNumbers(&job.Status, status))
	})
	return Outcome{outcome, plan}, err
}

// first does what is done alone, and tells whether there was any: annotations are written, the job is
// deleted, or its end is written. Another plan is due at once: what follows from the end is decided from what
// is written.
func (m *memory) first(ctx context.Context, a *podapply.Application, plan *broadcastjob.Plan, result *podapply.Result) (bool, error) {
	job := plan.Job
	result.Unfinished = true
	switch {
	case plan.Annotations != nil:
		_, err := reconcile.Merge(ctx, a.Writer, job, map[string]any{"annotations": plan.Annotations}, nil, "")
		return true, wrapped("writing annotations", err)
	case plan.Expired:
		result.Unfinished = false
		return true, wrapped("deleting the job", a.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	case plan.Ends:
		status, _ := plan.FinalStatus(0, nil)
		err := a.PatchStatus(ctx, job, &job.Status, status)
		m.status.Wait(a.Now(), false)
		return true, err
	}
	result.Unfinished = false
	return false, nil
}

func wrapped(doing string, err error) error {
	if err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("%s: %w", doing, err))
	}
	return nil
}

// Forget drops what is remembered of a job that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Kube.Own.Forget(owner)
	p.Kube.Rules.forget(owner)
	p.memory.Forget(owner)
}

// announce records what the plan itself has to say, once for each time that it has it to say; and that a new
// template changes nothing of what there is (BJ-025).
func (m *memory) announce(a *podapply.Application, plan *broadcastjob.Plan) {
	for _, reason := range broadcastjob.Told {
		told := plan.Tell[reason]
		m.Once(a, told.Type, reason, told.Message)
	}
	status := &plan.Job.Status
	template := nodes.Hash(string(plan.Job.Spec.Template.Raw())) | 1
	if m.template != 0 && m.template != template && (status.CompletionTime != nil || status.Active+status.Succeeded+status.Failed > 0) {
		a.Warn("SpecChangeIgnored", "%s", "spec.template changed: pods that were created before stay as they are, "+
			"and a job that has ended does not start again")
	}
	m.template = template
}

// failureLasts is how long a node comes after others because a pod could not be created for it, and
// mostFailed is of how many that is known.
const failureLasts, mostFailed = 10 * time.Minute, 1000

// failedNodes are the nodes for which a pod could not be created a moment ago.
func (m *memory) failedNodes(now time.Time) map[string]bool {
	if len(m.failed) == 0 {
		return nil
	}
	nodes := make(map[string]bool, len(m.failed))
	for node, at := range m.failed {
		if now.Sub(at) > failureLasts {
			delete(m.failed, node)
			continue
		}
		nodes[node] = true
	}
	return nodes
}

// fails notes that a pod could not be created for a node.
func (m *memory) fails(node string, now time.Time) {
	if m.failed == nil || len(m.failed) >= mostFailed {
		m.failed = map[string]time.Time{}
	}
	m.failed[node] = now
}
