package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// jobLister lists jobs as the caches do: without copies.
type jobLister struct {
	client.Reader
	jobs []appsv1beta1.ImagePullJob
}

func (l *jobLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*appsv1beta1.ImagePullJobList).Items = l.jobs //nolint:forcetypeassert // nothing else is listed
	return nil
}

// IMG-034 (part), IMG-035 (part): a tenant has 300 jobs that select their nodes by pods, or by labels, each with the
// longest selector that is admitted, and changes a label of one pod again and again. The events of the pods of all other
// namespaces wait behind each of its events, since one goroutine handles them all: an event does not parse the selectors
// again.
func TestManyJobsDoNotHoldUpEventsOfOthersPods(t *testing.T) {
	long := metav1.LabelSelector{}
	for k := range 100 {
		long.MatchExpressions = append(long.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: fmt.Sprintf("example.com/key-%d", k), Operator: metav1.LabelSelectorOpNotIn, Values: []string{"v"}})
	}
	byPods, byNodes := &jobLister{}, &jobLister{}
	for i := range 300 {
		job := func(change func(*appsv1beta1.ImagePullJob)) appsv1beta1.ImagePullJob {
			job := imagepulltest.Job(change, func(j *appsv1beta1.ImagePullJob) {
				j.Name = fmt.Sprint("job-", i)
				j.UID, j.Generation = types.UID(j.Name), 1
			})
			if err := imagepull.CheckJob(job, nil); err != nil {
				t.Fatalf("the job is not admitted: %v", err)
			}
			return *job
		}
		byPods.jobs = append(byPods.jobs, job(func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PodSelector = &appsv1beta1.ImagePullJobPodSelector{LabelSelector: long}
		}))
		byNodes.jobs = append(byNodes.jobs, job(func(j *appsv1beta1.ImagePullJob) {
			j.Spec.Selector = &appsv1beta1.ImagePullJobNodeSelector{LabelSelector: long}
		}))
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	pod := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: labels}, Spec: corev1.PodSpec{NodeName: "n1"}}
	}
	node := func(labels map[string]string) *appsv1beta1.NodeImage {
		return imagepulltest.Tagged("n1", func(n *appsv1beta1.NodeImage) { n.Labels = labels })
	}
	changed := map[string]string{"changed": "true"}
	pods, nodes := (&jobEvents{reader: byPods, rooms: &imagepull.Rooms{}}).ofPods(), (&jobEvents{reader: byNodes, rooms: &imagepull.Rooms{}}).ofNodeImages()
	for name, update := range map[string]func(){
		"a pod": func() { pods.Update(t.Context(), event.UpdateEvent{ObjectOld: pod(nil), ObjectNew: pod(changed)}, q) },
		"a NodeImage": func() {
			nodes.Update(t.Context(), event.UpdateEvent{ObjectOld: node(nil), ObjectNew: node(changed)}, q)
		},
	} {
		events := func(n int) time.Duration {
			spent := cputime.Start(t)
			for range n {
				update()
			}
			return spent() / time.Duration(n)
		}
		first := events(1)
		if each := events(10); each > first/3 {
			t.Errorf("each event of %s takes %s of the goroutine that handles the events of all, where the first took %s, which parses all selectors",
				name, each, first)
		}
	}
}
