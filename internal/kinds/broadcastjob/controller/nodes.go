package controller

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
)

// jobsOfNode are the jobs for which it matters that a node came (before is nil), went (after is nil), or
// changed.
func (k *Kube) jobsOfNode(ctx context.Context, before, after *corev1.Node) []ctrl.Request {
	if before != nil && after != nil && sameForJobs(before, after) {
		return nil
	}
	var jobs appsv1beta1.BroadcastJobList
	if err := k.Client.List(ctx, &jobs, client.MatchingFields{unfinishedIndex: unfinished}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the caches hold them
	}
	var requests []ctrl.Request
	for i := range jobs.Items {
		if k.rulesOf(&jobs.Items[i]).matters(before, after) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
		}
	}
	return requests
}

// sameForJobs tells whether nothing changed that any job looks at.
func sameForJobs(before, after *corev1.Node) bool {
	return maps.Equal(before.Labels, after.Labels) && before.Spec.Unschedulable == after.Spec.Unschedulable &&
		slices.EqualFunc(before.Spec.Taints, after.Spec.Taints, func(a, b corev1.Taint) bool { return equality.Semantic.DeepEqual(a, b) }) &&
		equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable)
}

// rules are what one job asks of nodes.
type rules struct {
	generation int64
	*nodes.Rules
	// counted are the nodes that are not eligible and count nevertheless, since the job has a pod there;
	// planned tells whether they are known.
	counted sets.Set[string]
	planned bool
}

// rulesOf returns the rules of a job, which are read once for each generation of it.
func (k *Kube) rulesOf(job *appsv1beta1.BroadcastJob) *rules {
	return k.rules.Of(job, func(present *rules) *rules {
		if present != nil && present.generation == job.Generation {
			return present
		}
		read := &rules{generation: job.Generation, Rules: nodes.ForJob(&job.Spec.Template.Spec)}
		if present != nil {
			read.counted, read.planned = present.counted, present.planned
		}
		return read
	})
}

// recordCounted records which nodes count although they are not eligible.
func (k *Kube) recordCounted(job *appsv1beta1.BroadcastJob, counted []string) {
	known := k.rulesOf(job)
	k.rules.Of(job, func(*rules) *rules {
		next := *known
		next.counted, next.planned = sets.New(counted...), true
		return &next
	})
}

// matters tells whether the change of a node matters to the job.
func (r *rules) matters(before, after *corev1.Node) bool {
	switch {
	case before == nil:
		return r.Judge(after).Tolerable
	case after == nil:
		return !r.planned || r.counted.Has(before.Name) || r.Judge(before).Eligible
	case broadcastjob.Suffers(before) || broadcastjob.Suffers(after): // what pods there may do is not told by a verdict alone
		return true
	}
	is, was := r.Judge(after), r.Judge(before)
	return is.Eligible != was.Eligible || is.Tolerable != was.Tolerable
}
