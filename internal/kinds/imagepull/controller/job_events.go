package controller

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
)

// coalesce is for how long the results of many nodes are gathered into one pass over a job.
const coalesce = 300 * time.Millisecond

// jobEvents finds the jobs that an event concerns.
type jobEvents struct {
	reader client.Reader
	rooms  *imagepull.Rooms
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (j *jobEvents) ofNodeImages() handler.EventHandler {
	selection := func(ctx context.Context, q queue, before, after labels.Set) {
		j.unfinished(ctx, "", func(job *appsv1beta1.ImagePullJob) {
			if job.Spec.PodSelector != nil || selects(job, before) != selects(job, after) {
				add(q, job.Namespace, job.Name)
			}
		})
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			// at the start each job is looked at anyway, when all NodeImages are known
			if !e.IsInInitialList {
				selection(ctx, q, nil, withName(e.Object))
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			j.rooms.Forget(e.Object.GetName())
			selection(ctx, q, withName(e.Object), nil)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*appsv1beta1.NodeImage)
			after, same := e.ObjectNew.(*appsv1beta1.NodeImage)
			if !ok || !same {
				return
			}
			for _, job := range concerned(before, after) {
				q.AddAfter(reconcile.Request{NamespacedName: job}, coalesce)
			}
			if !maps.Equal(before.Labels, after.Labels) {
				selection(ctx, q, withName(before), withName(after))
			}
		},
	}
}

// withName are the labels of a NodeImage, and its name as one that no object can have.
func withName(object client.Object) labels.Set {
	set := labels.Set{nameKey: object.GetName()}
	maps.Copy(set, object.GetLabels())
	return set
}

const nameKey = " name"

// selects tells whether the job selects a NodeImage with the labels by its own selector.
func selects(job *appsv1beta1.ImagePullJob, node labels.Set) bool {
	if node == nil {
		return false
	}
	selector := job.Spec.Selector
	if selector == nil {
		return true
	}
	for _, name := range selector.Names {
		if name == node[nameKey] {
			return true
		}
	}
	if len(selector.Names) > 0 {
		return false
	}
	matching, err := metav1.LabelSelectorAsSelector(&selector.LabelSelector)
	return err == nil && matching.Matches(node)
}

// concerned are the jobs that own, or owned, a tag that changed, or whose status did.
func concerned(before, after *appsv1beta1.NodeImage) []types.NamespacedName {
	found := map[types.NamespacedName]bool{}
	visit := func(of, other *appsv1beta1.NodeImage) {
		for name, image := range of.Spec.Images {
			theirs := map[string]*appsv1beta1.ImageTagSpec{}
			counterpart := other.Spec.Images[name]
			for i := range counterpart.Tags {
				theirs[counterpart.Tags[i].Tag] = &counterpart.Tags[i]
			}
			secrets := equality.Semantic.DeepEqual(image.PullSecrets, counterpart.PullSecrets)
			for i := range image.Tags {
				tag := &image.Tags[i]
				peer := theirs[tag.Tag]
				if secrets && peer != nil && equality.Semantic.DeepEqual(tag, peer) &&
					sameResult(imagepull.TagStatus(of, name, tag.Tag),
						imagepull.TagStatus(other, name, tag.Tag)) {
					continue
				}
				for _, ref := range tag.OwnerReferences {
					if imagepull.IsJob(ref) {
						found[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] = true
					}
				}
			}
		}
	}
	visit(after, before)
	visit(before, after)
	jobs := make([]types.NamespacedName, 0, len(found))
	for job := range found {
		jobs = append(jobs, job)
	}
	return jobs
}

// sameResult compares what jobs read of a status.
func sameResult(a, b *appsv1beta1.ImageTagStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version && a.Phase == b.Phase
}

// ofPods finds the jobs that select their nodes by a pod that they select now, or do not any more. What else
// changes of a pod, such as a label with every step of a rollout, may change the order of nodes, which each
// pass reads anew.
func (j *jobEvents) ofPods() handler.EventHandler {
	// before or after is nil if there was or is no pod on a node.
	notify := func(ctx context.Context, q queue, before, after *corev1.Pod) {
		pod := after
		if pod == nil {
			pod = before
		}
		j.unfinished(ctx, pod.Namespace, func(job *appsv1beta1.ImagePullJob) {
			if job.Spec.PodSelector == nil {
				return
			}
			matching, err := metav1.LabelSelectorAsSelector(&job.Spec.PodSelector.LabelSelector)
			selected := func(pod *corev1.Pod) bool {
				return pod != nil && matching.Matches(labels.Set(pod.Labels))
			}
			if err == nil && selected(before) != selected(after) {
				add(q, job.Namespace, job.Name)
			}
		})
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if pod, ok := e.Object.(*corev1.Pod); ok && hasNode(pod) && !e.IsInInitialList {
				notify(ctx, q, nil, pod)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if pod, ok := e.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				notify(ctx, q, pod, nil)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*corev1.Pod)
			after, same := e.ObjectNew.(*corev1.Pod)
			if !ok || !same || hasNode(before) == hasNode(after) && maps.Equal(before.Labels, after.Labels) {
				return
			}
			if !hasNode(before) {
				before = nil
			}
			if !hasNode(after) {
				after = nil
			}
			if before != nil || after != nil {
				notify(ctx, q, before, after)
			}
		},
	}
}

func (j *jobEvents) unfinished(ctx context.Context, namespace string, visit func(*appsv1beta1.ImagePullJob)) {
	var list appsv1beta1.ImagePullJobList
	if err := j.reader.List(ctx, &list, client.InNamespace(namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing ImagePullJobs")
		return
	}
	for i := range list.Items {
		if job := &list.Items[i]; job.Status.CompletionTime == nil && job.DeletionTimestamp == nil {
			visit(job)
		}
	}
}

func add(q queue, namespace, name string) {
	q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}},
		coalesce)
}
