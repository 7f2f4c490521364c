package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// IMG-085, IMG-098: a node whose NodeImage does not accept the job holds up no other; it is tried again after
// them.
func TestRefusedNodesComeLast(t *testing.T) {
	job := imagepulltest.Job(imagepulltest.Parallelism(1), func(j *appsv1beta1.ImagePullJob) { j.ResourceVersion = "" })
	objects := []client.Object{job}
	for _, name := range []string{"a", "b", "c"} {
		node := imagepulltest.Blank(name)
		node.ResourceVersion = ""
		objects = append(objects, node)
	}
	refusal := error(apierrors.NewInvalid(appsv1beta1.GroupVersion.WithKind("NodeImage").GroupKind(), "a", nil))
	c := interceptor.NewClient(fakeClient(t, objects...).(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "a" && refusal != nil {
				return refusal
			}
			return c.Patch(ctx, o, p, opts...)
		}})
	r := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return imagepulltest.Noon }), Events: own.NewRecorder(&told{}),
		Secrets: secretsOn(c), Random: func() float64 { return 0 }}
	made := r.controller()
	loop := made.Loop(nil)
	pass := func() error {
		_, err := loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		return err
	}
	// pulled lets a node report, and tells whether it was asked.
	pulled := func(name string) bool {
		t.Helper()
		node := &appsv1beta1.NodeImage{}
		if err := c.Get(t.Context(), types.NamespacedName{Name: name}, node); err != nil {
			t.Fatal(err)
		}
		if len(node.Spec.Images["app"].Tags) == 0 {
			return false
		}
		imagepulltest.Result(appsv1beta1.ImagePhaseSucceeded, node.Spec.Images["app"].Tags[0].Version)(node)
		if err := c.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if err := pass(); !apierrors.IsInvalid(errors.Unwrap(err)) && !apierrors.IsInvalid(err) {
		t.Errorf("the refusal is told: %v", err)
	}
	for _, name := range []string{"b", "c"} {
		if err := pass(); err != nil {
			t.Fatalf("the pass: unexpected error: %v; %s waits: %v", err, name, err)
		} else if !pulled(name) {
			t.Fatalf("pulls of the job: got false, want true; %s waits: %v", name, err)
		}
	}
	if err := pass(); err == nil {
		t.Error("a was not tried again")
	}
	refusal = nil
	if err := pass(); err != nil {
		t.Errorf("a waits: the pass: unexpected error: %v", err)
	} else if !pulled("a") {
		t.Errorf("a waits: pulled for a: got false, want true\n%v", err)
	}
	kept := made.Kept(job.UID)
	if err := pass(); err != nil {
		t.Errorf("the pass: unexpected error: %v\n%v", err, kept)
	} else if len(kept.refused) != 0 {
		t.Errorf("number refused: got %d, want 0\n%v\n%v", len(kept.refused), err, kept)
	}
	if err := pass(); err != nil {
		t.Errorf("remembered of a job that has ended: the pass: unexpected error: %v\n%v", err, kept)
	} else if got := made.Kept(job.UID); got == kept {
		t.Errorf("remembered of a job that has ended: what is remembered of the job: got %+v, want another value\n%v\n%v", got, err, kept)
	}
}

// IMG-152, IMG-154: an image of a list that a policy refuses keeps neither the other images from being pulled
// nor the status from being written.
func TestARefusedImageHoldsUpNoOther(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all", UID: "l"},
		Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"forbidden", "b", "c"}}}
	refusal := error(apierrors.NewForbidden(appsv1beta1.GroupVersion.WithResource("imagepulljobs").GroupResource(), "",
		errors.New("not from there")))
	c := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(list).WithStatusSubresource(list).WithIndex(&appsv1beta1.ImagePullJob{}, childrenOf, indexChildren).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
			opts ...client.CreateOption) error {
			image := o.(*appsv1beta1.ImagePullJob).Spec.Image
			if image == "forbidden" && refusal != nil {
				return refusal
			}
			o.SetName("all-" + image)
			o.SetUID(types.UID(o.GetName()))
			return c.Create(ctx, o, opts...)
		}}).Build()
	r := &ListReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return imagepulltest.Noon }), Events: own.NewRecorder(&told{})}
	lists := r.controller()
	loop := lists.Loop(nil)
	pass := func() (made int, err error) {
		t.Helper()
		_, err = loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(list)})
		var jobs appsv1beta1.ImagePullJobList
		if e := errors.Join(c.List(t.Context(), &jobs), c.Get(t.Context(), client.ObjectKeyFromObject(list), list)); e != nil {
			t.Fatal(e)
		}
		return len(jobs.Items), err
	}
	if made, err := pass(); made != 0 {
		t.Errorf("jobs that were made: got %d, want 0; %d jobs, %v, %+v", made, made, err, list.Status)
	} else if !apierrors.IsForbidden(err) {
		t.Errorf("error: got %v, want one of kind Forbidden; %d jobs, %v, %+v", err, made, err, list.Status)
	} else if list.Status.StartTime == nil {
		t.Errorf("time of the start of the list: got nil, want a value; %d jobs, %v, %+v", made, err, list.Status)
	} else if list.Status.Desired != 3 {
		t.Errorf("desired: got %d, want 3; %d jobs, %v, %+v", list.Status.Desired, made, err, list.Status)
	}
	made, err := pass()
	if made != 2 {
		t.Errorf("jobs that were made: got %d, want 2", made)
	}
	if !apierrors.IsForbidden(err) {
		t.Errorf("error: got %v, want one of kind Forbidden", err)
	}
	job := &appsv1beta1.ImagePullJob{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "all-b"}, job); err != nil {
		t.Fatal(err)
	}
	job.Status = appsv1beta1.ImagePullJobStatus{StartTime: imagepulltest.At(0), CompletionTime: imagepulltest.At(0), Desired: 1, Succeeded: 1}
	if err := c.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if made, err := pass(); made != 2 {
		t.Errorf("jobs that were made: got %d, want 2; %d jobs, %v, %+v", made, made, err, list.Status)
	} else if !apierrors.IsForbidden(err) {
		t.Errorf("error: got %v, want one of kind Forbidden; %d jobs, %v, %+v", err, made, err, list.Status)
	} else if list.Status.Succeeded != 1 {
		t.Errorf("succeeded: got %d, want 1; %d jobs, %v, %+v", list.Status.Succeeded, made, err, list.Status)
	}
	refusal = nil
	if made, err := pass(); made != 3 {
		t.Errorf("jobs that were made: got %d, want 3; %d jobs, %v", made, made, err)
	} else if err != nil {
		t.Errorf("unexpected error: %v; %d jobs, %v", err, made, err)
	}
	if _, err := pass(); err != nil {
		t.Errorf("remembered: unexpected error: %v", err)
	} else if kept := lists.Kept(list.UID); kept != nil && len(*kept) != 0 {
		t.Errorf("remembered: number refused: got %d, want 0\n%v", len(*kept), *kept)
	}
}

// IMG-085 (part): a refusal leaves no doubt, so that nodes which refuse a job are not read from the API
// server, one after the other, at each of its passes; a lost answer is looked up.
func TestRefusalsAreNotLookedUp(t *testing.T) {
	for reads, failure := range map[int]error{0: apierrors.NewInvalid(appsv1beta1.GroupVersion.WithKind("NodeImage").GroupKind(), "n", nil),
		1: apierrors.NewTimeoutError("lost", 1)} {
		node, got := imagepulltest.Blank("n"), 0
		node.ResourceVersion = ""
		c := interceptor.NewClient(fakeClient(t, node).(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return failure
			}})
		live := interceptor.NewClient(c, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
			o client.Object, opts ...client.GetOption) error {
			got++
			return c.Get(ctx, key, o, opts...)
		}})
		r := &JobReconciler{API: own.NewAPI(c, live, slim.Any, func() time.Time { return imagepulltest.Noon })}
		job := imagepulltest.Job()
		assigner := imagepull.Assigner{Job: job, Now: imagepulltest.Noon, Random: func() float64 { return 0 }}
		if err := r.change(t.Context(), job.UID, node, assigner.Assign); !errors.Is(err, failure) {
			t.Fatalf("change of the node: got %v, want %v", err, failure)
		}
		if err := r.Own.Settle(t.Context(), job.UID, imagepulltest.Noon); err != nil {
			t.Errorf("%v: settling: unexpected error: %v; %d live reads, %v", failure, err, got,
				err)
		} else if got != reads {
			t.Errorf("%v: got %d, want %d; %d live reads, %v", failure, got, reads, got, err)
		}
	}
}

// Nothing is remembered of the writes of a list that is gone, or that another of its name has replaced.
func TestAListThatIsGoneIsForgotten(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all", UID: "uid"},
		Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"a"}}}
	for _, next := range []types.UID{"", "another"} {
		c := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(list.DeepCopy()).WithStatusSubresource(list).WithIndex(&appsv1beta1.ImagePullJob{}, childrenOf, indexChildren).Build()
		r := &ListReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return imagepulltest.Noon }), Events: own.NewRecorder(&told{})}
		loop := r.controller().Loop(nil)
		pass := func() {
			t.Helper()
			if _, err := loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(list)}); err != nil {
				t.Fatal(err)
			}
		}
		pass()
		r.Own.Created("uid", &appsv1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "made"}}, imagepulltest.Noon)
		if pass(); r.Own.Again("uid") == 0 {
			t.Error("forgotten while it is there")
		}
		if err := c.Delete(t.Context(), list.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		if next != "" {
			other := list.DeepCopy()
			other.UID = next
			if err := c.Create(t.Context(), other); err != nil {
				t.Fatal(err)
			}
		}
		if pass(); r.Own.Again("uid") != 0 {
			t.Errorf("it is remembered when there is %q", next)
		}
	}
}

// A NodeImage that has grown too large for the store comes after the others, as one that refuses for another
// reason.
func TestTooLargeIsRefused(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var r refusals
	r.took("n", fmt.Errorf("patching: %w", apierrors.NewInternalError(errors.New("etcdserver: request is too large"))), noon)
	r.took("busy", apierrors.NewInternalError(errors.New("etcdserver: request timed out")), noon)
	r.took("n", apierrors.NewForbidden(schema.GroupResource{}, "n", errors.New("by a policy")), noon.Add(time.Hour))
	if diff := cmp.Diff(refusals{"n": noon}, r); diff != "" {
		t.Errorf("r (-want +got):\n%s", diff)
	}
}
