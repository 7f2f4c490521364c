package controller

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
)

// nodeEvents calls for a pass over those jobs for which the change of a node matters (BJ-130). What it costs
// does not depend on how many pods or nodes there are, nor on how many jobs have ended.
func (k *Kube) nodeEvents() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	tell := func(ctx context.Context, q queue, before, after *corev1.Node) {
		for _, request := range k.jobsOfNode(ctx, before, after) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if node, ok := e.Object.(*corev1.Node); ok && !e.IsInInitialList { // at the start every job gets a pass
				tell(ctx, q, nil, node)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*corev1.Node)
			if after, is := e.ObjectNew.(*corev1.Node); ok && is {
				tell(ctx, q, before, after)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if node, ok := e.Object.(*corev1.Node); ok {
				tell(ctx, q, node, nil)
			}
		},
	}
}

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
		if k.Rules.of(&jobs.Items[i]).matters(before, after) {
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

// Rules are what the templates of jobs ask of nodes, which is read once for each generation of a job.
type Rules struct {
	mu   sync.Mutex
	jobs map[types.UID]*rules
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

// of returns the rules of a job.
func (r *Rules) of(job *appsv1beta1.BroadcastJob) *rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.jobs[job.UID]
	if known == nil || known.generation != job.Generation {
		read := &rules{generation: job.Generation, Rules: nodes.ForJob(&job.Spec.Template.Spec)}
		if known != nil {
			read.counted, read.planned = known.counted, known.planned
		}
		if known = read; r.jobs == nil {
			r.jobs = map[types.UID]*rules{}
		}
		r.jobs[job.UID] = known
	}
	return known
}

// plan notes which nodes count although they are not eligible.
func (r *Rules) plan(job *appsv1beta1.BroadcastJob, counted []string) {
	known := r.of(job)
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *known
	next.counted, next.planned = sets.New(counted...), true
	r.jobs[job.UID] = &next
}

func (r *Rules) forget(job types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, job)
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
