package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	own "github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// lateMapper knows the kind of jobs only from some time on.
type lateMapper struct {
	meta.RESTMapper
	jobs atomic.Bool
}

func (m *lateMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if gk == podplan.PullJobKind.GroupKind() && !m.jobs.Load() {
		return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
	}
	return m.RESTMapper.RESTMapping(gk, versions...)
}

// Nothing is known of jobs, and nothing is watched, until their kind is served; then the sets between two
// revisions are called for, and the jobs wake their owners (CS-200).
func TestPullJobsAreWatchedOnceTheirKindIsServed(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := appsv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	jobs := runtime.NewScheme() // where the informers of the test look up what is watched: metadata
	jobs.AddKnownTypeWithName(podplan.PullJobKind, &metav1.PartialObjectMetadata{})
	known := meta.NewDefaultRESTMapper(nil)
	known.Add(appsv1beta1.GroupVersion.WithKind(cloneset.Kind), meta.RESTScopeNamespace)
	known.Add(podplan.PullJobKind, meta.RESTScopeNamespace)
	mapper := &lateMapper{RESTMapper: known}
	moving, resting := clonesettest.Set(5), clonesettest.Set(5)
	moving.Status.CurrentRevision, moving.Status.UpdateRevision = "a", "b"
	resting.Name, resting.Status.CurrentRevision, resting.Status.UpdateRevision = "resting", "a", "a"
	reader := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(moving, resting).WithStatusSubresource().Build()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		informers := &informertest.FakeInformers{Scheme: jobs}
		kube := &Kube{podapply.Reader{API: &own.API{Client: reader}}}
		w, known := podapply.NewPullJobs(informers, mapper, nil).Watch(handler.EnqueueRequestForOwner(scheme, mapper, &appsv1beta1.CloneSet{},
			handler.OnlyControllerOwner()), kube.betweenRevisions)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		if err := w.Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if known() {
			t.Fatal("known(): got true, want false")
		}
		if len(informers.InformersByGVK) > 0 {
			t.Fatalf("informers: got %v, want none", informers.InformersByGVK)
		}
		if queue.Len() > 0 {
			t.Fatalf("queue.Len(): got %d, want 0", queue.Len())
		}
		mapper.jobs.Store(true)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if !known() {
			t.Fatal("known(): got false, want true")
		}
		if queue.Len() != 1 {
			t.Fatalf("queue.Len(): got %d, want 1", queue.Len())
		}
		next, _ := queue.Get()
		queue.Done(next)
		if next.NamespacedName != (types.NamespacedName{Namespace: "default", Name: "web"}) {
			t.Errorf("called for %s", next)
		}
		job := podapply.NewPullJob()
		owned := clonesettest.Set(1)
		owned.Name = "owner"
		job.Namespace, job.Name, job.OwnerReferences = "default", "job", []metav1.OwnerReference{cloneset.Reference(owned)}
		informer, err := informers.FakeInformerFor(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		informer.Delete(job)
		synctest.Wait()
		if next, _ = queue.Get(); next.Name != "owner" {
			t.Errorf("the end of a job calls for %s", next)
		}
		queue.Done(next)
	})
}
