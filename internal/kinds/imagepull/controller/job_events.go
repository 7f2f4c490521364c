package controller

import (
	"cmp"
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// coalesce is how long the results of many nodes are gathered into one pass over a job.
const coalesce = 300 * time.Millisecond

// jobEvents maps events to the jobs that they concern.
type jobEvents struct {
	reader client.Reader
	rooms  *imagepull.Rooms
	// selectors are those of jobs, of which each event of a NodeImage or a pod needs many.
	selectors reconcile.Selectors
}

type queue = reconcile.Queue

// ofNodeImages maps events of NodeImages to jobs. At the start each job is reconciled anyway, when all
// NodeImages are knreconcile.
func (j *jobEvents) ofNodeImages() handler.EventHandler {
	return reconcile.Changes(false, func(ctx context.Context, q queue, before, after *appsv1beta1.NodeImage) {
		switch {
		case after == nil:
			j.rooms.Forget(before.Name)
		case before != nil:
			for _, job := range concerned(before, after) {
				q.AddAfter(ctrl.Request{NamespacedName: job}, coalesce)
			}
			if maps.Equal(before.Labels, after.Labels) {
				return
			}
		}
		was, is := withName(before), withName(after)
		j.unfinished(ctx, "", func(job *appsv1beta1.ImagePullJob) {
			if job.Spec.PodSelector != nil || j.selects(job, was) != j.selects(job, is) {
				add(q, job.Namespace, job.Name)
			}
		})
	})
}

// withName returns the labels of a NodeImage, with its name under a key that no object can have. It returns
// nil for one that does not exist.
func withName(node *appsv1beta1.NodeImage) labels.Set {
	if node == nil {
		return nil
	}
	set := labels.Set{nameKey: node.Name}
	maps.Copy(set, node.Labels)
	return set
}

const nameKey = " name"

// selects reports whether the job's own selector selects a NodeImage with these labels.
func (j *jobEvents) selects(job *appsv1beta1.ImagePullJob, node labels.Set) bool {
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

	matching, err := j.selectors.Of(job, "selector", &selector.LabelSelector)
	return err == nil && matching.Matches(node)
}

// concerned returns the jobs that own or owned a tag that changed, or whose status changed.
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

// sameResult compares the fields of a status that jobs read.
func sameResult(a, b *appsv1beta1.ImageTagStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version && a.Phase == b.Phase
}

// ofPods maps events of pods to the jobs that select their nodes by pods, if the pod starts or stops being
// selected. Other changes of a pod, such as a label with every step of a rollout, may change the order of
// nodes, which each pass determines again.
func (j *jobEvents) ofPods() handler.EventHandler {
	return reconcile.Changes(false, func(ctx context.Context, q queue, before, after *corev1.Pod) {
		if before != nil && after != nil && hasNode(before) == hasNode(after) &&
			maps.Equal(before.Labels, after.Labels) {
			return
		}
		was := before != nil && (hasNode(before) || after == nil && before.Spec.NodeName != "")
		is := after != nil && hasNode(after)
		if !was && !is {
			return
		}
		j.unfinished(ctx, cmp.Or(after, before).Namespace, func(job *appsv1beta1.ImagePullJob) {
			if job.Spec.PodSelector == nil {
				return
			}
			matching, err := j.selectors.Of(job, "podSelector", &job.Spec.PodSelector.LabelSelector)
			if err == nil && (was && matching.Matches(labels.Set(before.Labels))) !=
				(is && matching.Matches(labels.Set(after.Labels))) {
				add(q, job.Namespace, job.Name)
			}
		})
	})
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
	q.AddAfter(reconcile.Request(namespace, name), coalesce)
}
