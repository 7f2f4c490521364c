package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Pass brings one DaemonSet a step further.
type Pass struct {
	Kube     *Kube
	Applier  podapply.Applier
	Features daemonset.Features
	// Template completes a pod template as the API server does. A template that it refuses comes back as it
	// is.
	Template func(ctx context.Context, namespace string, template []byte) ([]byte, error)

	memory reconcile.Memory[memory]
}

// Outcome is what a pass did, with the plan that was carried out; nil if there was nothing to plan, or not
// yet.
type Outcome struct {
	podapply.Outcome
	Plan *daemonset.Plan
}

// memory is what a pass keeps of a set for the next ones.
type memory struct {
	podapply.Memory
	status   reconcile.StatusThrottle
	failures podapply.Failures
	// had are the nodes on which pods were, while partition says how many may have one.
	had map[string]bool
}

// Run makes one pass over a set: it plans, applies, and writes the status last (ADS-043, ADS-192). An error
// means that something failed that trying again may mend; it is on the set's conditions and events too.
func (p *Pass) Run(ctx context.Context, name types.NamespacedName, owner types.UID) (Outcome, error) {
	now := p.Kube.Now()
	set, err := reconcile.Begin[appsv1beta1.DaemonSet](ctx, p.Kube.API, name, owner)
	if err != nil || set == nil {
		return Outcome{}, err
	}
	begun := p.Kube.Now()
	snapshot, err := p.Kube.Snapshot(ctx, set, p.Features)
	if err != nil {
		return Outcome{}, err
	}
	snapshot.Now = now
	kept := p.memory.Of(owner)
	kept.HoldBack(&snapshot.Snapshot, set.Generation)
	snapshot.FailedUntil = kept.failures.Until(set.Generation, now)
	snapshot.Had = kept.remember(snapshot)
	plan, lacks := p.plan(ctx, *snapshot)
	planning := p.Kube.Now().Sub(begun)
	applying := p.applying(plan)
	result := applying.apply(ctx)
	result.Add(&result.UpdateError, lacks)
	kept.announce(applying)
	kept.learn(applying, result, p.Kube.Now())
	progress := waiting.Progress{Arrived: plan.Arrived(), Complete: plan.Settled()}
	outcome, err := kept.Finish(applying.Application, result, planning, progress, func() (time.Duration, error) {
		status, changed := plan.FinalStatus(result.ScaleError, result.UpdateError, p.Kube.Now())
		if !changed || plan.NewRevision != nil && result.Retry { // what this pass has outdated itself is written by the next one
			return 0, nil
		}
		return kept.status.Write(ctx, applying.Writer, set, &set.Status, status, daemonset.OnlyNumbers(&set.Status, status))
	})
	return Outcome{outcome, plan}, err
}

// plan makes a plan; what it has to know of templates is asked of the API server before (ADS-061). Templates
// that were completed are known to the next plans. After an error the plan says so, and does nothing else.
func (p *Pass) plan(ctx context.Context, snapshot daemonset.Snapshot) (plan *daemonset.Plan, err error) {
	for {
		if plan = daemonset.Make(snapshot); !plan.Incomplete() {
			return plan, err
		}
		for _, template := range plan.Templates {
			var completed []byte
			if completed, err = p.Template(ctx, snapshot.Set.Namespace, template); err == nil {
				err = snapshot.Known.Completed(template, completed)
			}
			if err != nil {
				snapshot.CompletionError = err.Error()
				break
			}
		}
	}
}

// Forget drops what is remembered of a set that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Kube.Own.Forget(owner)
	p.memory.Forget(owner)
}

// announce records what the plan itself has to say, when it changes.
func (m *memory) announce(a *application) {
	all := ""
	if a.plan.SelectsAll {
		all = "spec.selector selects all pods: the DaemonSet does nothing"
	}
	m.Once(a.Application, corev1.EventTypeWarning, "SelectingAll", all)                          // ADS-042
	m.Once(a.Application, corev1.EventTypeWarning, "FailedUpdatePodInPlace", a.plan.UpdateError) // ADS-144
	m.Once(a.Application, corev1.EventTypeWarning, "NodesLeftOut", a.plan.LeftOut)               // ADS-136
}

// remember notes on which nodes pods are, so that one that loses its pod gets it back before another gets its
// first. A node that is gone is forgotten. What a manager knew that is gone is lost with it: then nodes are
// taken in the order of their names.
func (m *memory) remember(s *daemonset.Snapshot) map[string]bool {
	if !daemonset.Partitioned(s.Set) {
		m.had = nil
		return nil
	}
	had := map[string]bool{}
	for _, node := range s.Nodes {
		if m.had[node.Name] {
			had[node.Name] = true
		}
	}
	for _, pod := range s.Pods {
		had[nodes.Target(pod)] = true
	}
	m.had = had
	return had
}

// learn notes the pods that were deleted because they ended, and tells of them.
func (m *memory) learn(a *application, result *podapply.Result, now time.Time) {
	if len(a.plan.Failures) == 0 {
		return
	}
	deleted := result.Deleted()
	for _, of := range a.plan.Failures {
		if !deleted[of.Pod.UID] {
			continue
		}
		m.failures.Learn(a.plan.Set.Generation, of.Node, now)
		if of.Pod.Status.Phase == corev1.PodSucceeded { // ADS-092
			a.Say("SucceededDaemonPod", "deleted pod %s on node %s, which had ended: another one takes its place", of.Pod.Name, of.Node)
		} else {
			a.Warn("FailedDaemonPod", "deleted pod %s on node %s, which had failed: another one takes its place", of.Pod.Name, of.Node)
		}
	}
}
