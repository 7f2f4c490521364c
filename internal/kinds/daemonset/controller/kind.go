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

// Kind is what DaemonSets do their own way; [podapply.Controller] does everything else.
type Kind struct {
	*Kube
	Features daemonset.Features
	// Template completes a pod template as the API server does. A template that it refuses comes back as it
	// is.
	Template func(ctx context.Context, namespace string, template []byte) ([]byte, error)
}

type (
	// Controller brings DaemonSets a step further.
	Controller = podapply.Controller[*appsv1beta1.DaemonSet, *daemonset.Plan, kept]
	session    = podapply.Session[*appsv1beta1.DaemonSet, *daemonset.Plan, kept]
)

// kept is what is kept of a set between passes, beside what is kept of every workload.
type kept struct {
	failures podapply.Failures
	// had are the nodes on which pods were, while partition says how many may have one; otherwise those whose pods went.
	had map[string]bool
	// incomplete is why the templates of the last plan could not be completed.
	incomplete error
}

// New returns a controller that reads and writes through the API of the kind.
func New(kind *Kind, events reconcile.Recorder) *Controller {
	c := podapply.New(kind.API, events, kind)
	c.Forgotten = func(name types.NamespacedName, _ types.UID) { kind.rules.Forget(name) }
	c.Absent = kind.rules.Absent
	return c
}

// Plan implements podapply.Kind.
func (k *Kind) Plan(ctx context.Context, s *session, now time.Time) (plan *daemonset.Plan, err error) {
	snapshot, err := k.Snapshot(ctx, s.Object, k.Features)
	if err != nil {
		return nil, err
	}
	snapshot.Now = now
	s.HoldBack(&snapshot.Snapshot, s.Object.Generation)
	snapshot.FailedUntil = s.Kept.failures.Until(s.Object.Generation, now)
	snapshot.Had = s.Kept.remember(snapshot)
	plan, s.Kept.incomplete = k.plan(ctx, *snapshot)
	return plan, nil
}

// plan makes a plan; what it has to know of templates is asked of the API server before (ADS-061). Templates
// that were completed are known to the next plans. After an error the plan says so, and does nothing else.
func (k *Kind) plan(ctx context.Context, snapshot daemonset.Snapshot) (plan *daemonset.Plan, err error) {
	for {
		if plan = daemonset.Make(snapshot); !plan.Incomplete() {
			return plan, err
		}
		for _, template := range plan.Templates {
			var completed []byte
			if completed, err = k.Template(ctx, snapshot.Set.Namespace, template); err == nil {
				err = snapshot.Known.Completed(template, completed)
			}
			if err != nil {
				snapshot.CompletionError = err.Error()
				break
			}
		}
	}
}

// Progress implements podapply.Kind.
func (k *Kind) Progress(plan *daemonset.Plan) waiting.Progress {
	return waiting.Progress{Arrived: plan.Arrived(), Complete: plan.Settled()}
}

// Status implements podapply.Kind.
func (k *Kind) Status(s *session, result *podapply.Result, now time.Time) (any, bool) {
	status, changed := s.Plan.FinalStatus(result.ScaleError, result.UpdateError, now)
	if !changed {
		return nil, false
	}
	return status, daemonset.OnlyNumbers(&s.Object.Status, status)
}

// Fields implements podapply.Kind.
func (k *Kind) Fields(set *appsv1beta1.DaemonSet) podapply.Fields {
	return podapply.Fields{
		Selector: set.Spec.Selector, Status: &set.Status, Collisions: &set.Status.CollisionCount,
	}
}

// announce records what the plan itself has to say, when it changes.
func announce(s *session) {
	all := ""
	if s.Plan.SelectsAll {
		all = "spec.selector selects all pods: the DaemonSet does nothing"
	}
	s.Once(corev1.EventTypeWarning, "SelectingAll", all)                          // ADS-042
	s.Once(corev1.EventTypeWarning, "FailedUpdatePodInPlace", s.Plan.UpdateError) // ADS-144
	s.Once(corev1.EventTypeWarning, "NodesLeftOut", s.Plan.LeftOut)               // ADS-136
}

// remember notes on which nodes pods are, so that one that loses its pod gets it back before another gets its
// first. Where partition does not bound that, only nodes are noted whose pods are being deleted, until they have another
// one: a node may be lost between the two. A node that is gone is forgotten. What a manager knew that is gone is
// lost with it: then nodes are taken in the order of their names.
func (k *kept) remember(s *daemonset.Snapshot) map[string]bool {
	partitioned, had := daemonset.Partitioned(s.Set), map[string]bool{}
	if len(k.had) > 0 {
		for _, node := range s.Nodes {
			if k.had[node.Name] {
				had[node.Name] = true
			}
		}
	}
	for _, pod := range s.Pods {
		if partitioned || pod.DeletionTimestamp != nil {
			had[nodes.Target(pod)] = true
		}
	}
	if !partitioned && len(had) > 0 {
		for _, pod := range s.Pods {
			if pod.DeletionTimestamp == nil {
				delete(had, nodes.Target(pod))
			}
		}
	}
	k.had = had
	return had
}

// learn notes the pods that were deleted because they ended, and tells of them.
func learn(s *session, result *podapply.Result) {
	if len(s.Plan.Failures) == 0 {
		return
	}
	deleted := result.Deleted()
	for _, of := range s.Plan.Failures {
		if !deleted[of.Pod.UID] {
			continue
		}
		s.Kept.failures.Learn(s.Object.Generation, of.Node, s.Now())
		if of.Pod.Status.Phase == corev1.PodSucceeded { // ADS-092
			s.Say("SucceededDaemonPod", "deleted pod %s on node %s, which had ended: another one takes its place", of.Pod.Name, of.Node)
		} else {
			s.Warn("FailedDaemonPod", "deleted pod %s on node %s, which had failed: another one takes its place", of.Pod.Name, of.Node)
		}
	}
}
