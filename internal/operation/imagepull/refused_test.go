package imagepull

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
)

// IMG-086: whatever version a node has written into its own status, and whoever wrote the one in the spec, the next one is accepted.
func TestVersionsOfAnySortAreFollowed(t *testing.T) {
	for before, want := range map[int64]int64{-5: 0, -1: 0, 0: 1, 7: 8, math.MaxInt64 - 1: math.MaxInt64, math.MaxInt64: 0, math.MinInt64: 0} {
		reported := tagged("n", result(appsv1beta1.ImagePhaseFailed, before), func(n *appsv1beta1.NodeImage) { n.Spec.Images = nil })
		others := tagged("n", func(n *appsv1beta1.NodeImage) {
			n.Spec.Images["app"].Tags[0].Version, n.Spec.Images["app"].Tags[0].OwnerReferences = before, nil
		})
		for name, node := range map[string]*appsv1beta1.NodeImage{"status": reported, "spec": others} {
			images, err := Assigner{Job: warm(), Now: noon, Random: func() float64 { return 0 }}.Assign(node)
			if err != nil || images["app"].Tags[0].Version != want {
				t.Fatalf("%s %d: %+v %v", name, before, images["app"], err)
			}
			node.Spec.Images = map[string]appsv1beta1.ImageSpec{"app": *images["app"]}
			if err := CheckNodeImage(node, nil); err != nil {
				t.Errorf("%s %d: %v", name, before, err)
			}
		}
	}
}

// IMG-085, IMG-098: a node whose NodeImage does not accept the job holds up no other; it is tried again after them.
func TestRefusedNodesComeLast(t *testing.T) {
	job := warm(width(1), func(j *appsv1beta1.ImagePullJob) { j.ResourceVersion = "" })
	objects := []client.Object{job}
	for _, name := range []string{"a", "b", "c"} {
		node := blank(name)
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
	r := &JobReconciler{Client: c, Live: c, Events: &told{}, Secrets: &Secrets{Client: c, Live: c, Namespace: "config"}, Own: ownwrites.NewTracker(),
		Now: func() time.Time { return noon }, Random: func() float64 { return 0 }}
	pass := func() error {
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
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
		result(appsv1beta1.ImagePhaseSucceeded, node.Spec.Images["app"].Tags[0].Version)(node)
		if err := c.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if err := pass(); !apierrors.IsInvalid(errors.Unwrap(err)) && !apierrors.IsInvalid(err) {
		t.Errorf("the refusal is told: %v", err)
	}
	for _, name := range []string{"b", "c"} {
		if err := pass(); err != nil || !pulled(name) {
			t.Fatalf("%s waits: %v", name, err)
		}
	}
	if err := pass(); err == nil {
		t.Error("a was not tried again")
	}
	refusal = nil
	if err := pass(); err != nil || !pulled("a") {
		t.Errorf("a waits: %v", err)
	}
	if err := pass(); err != nil || len(r.refused[job.UID]) != 0 {
		t.Errorf("%v %v", err, r.refused)
	}
	if err := pass(); err != nil || len(r.refused) != 0 {
		t.Errorf("remembered of a job that has ended: %v %v", err, r.refused)
	}
}
