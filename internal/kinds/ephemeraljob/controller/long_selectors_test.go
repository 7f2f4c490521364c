package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	. "github.com/afloat-project/afloat/internal/kinds/ephemeraljob/ephemeraljobtest"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// jobLister lists jobs as the caches do: without copies.
type jobLister struct {
	client.Client
	jobs []appsv1alpha1.EphemeralJob
}

func (l *jobLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*appsv1alpha1.EphemeralJobList).Items = l.jobs
	return nil
}

// EJ-040 (part): a user has 300 jobs, each with the longest selector that is admitted, and changes a label of one pod again and again. The events of the pods
// of all other namespaces wait behind each of its events, since one goroutine handles them all: an event does not parse the selectors again.
func TestManyJobsDoNotHoldUpEventsOfOthersPods(t *testing.T) {
	lister := &jobLister{}
	for i := range 300 {
		job := Job(func(j *appsv1alpha1.EphemeralJob) {
			j.Name = fmt.Sprint("job-", i)
			j.UID = types.UID(j.Name)
			j.Spec.Selector = &metav1.LabelSelector{}
			for k := range 100 {
				j.Spec.Selector.MatchExpressions = append(j.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: fmt.Sprintf("example.com/key-%d", k), Operator: metav1.LabelSelectorOpNotIn, Values: []string{"v"}})
			}
		})
		if errs := ephemeraljob.Validate(nil, job, nil); len(errs) > 0 {
			t.Fatalf("the job is not admitted: %v", errs)
		}
		lister.jobs = append(lister.jobs, *job)
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	handler := podEvents(&reconcile.API{Client: lister})
	before, after := Pod("a"), Pod("a")
	after.Labels["changed"] = "true"
	events := func(n int) time.Duration {
		spent := cputime.Start(t)
		for range n {
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
		}
		return spent() / time.Duration(n)
	}
	first := events(1)
	if each := events(10); each > first/3 {
		t.Errorf("each event of a pod takes %s of the goroutine that handles the events of all pods, where the first took %s, which parses all selectors",
			each, first)
	}
}
