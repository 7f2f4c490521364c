package controller

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// IMG-052, IMG-054, IMG-096: the caches of nodes and of jobs are behind that of NodeImages. What users asked
// of a new node stays, and what a job of a name that is in use again asked for; a job that is gone is looked
// up once, however many nodes had it.
func TestNodeImagesAgainstStaleCaches(t *testing.T) {
	again := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.UID, j.ResourceVersion = "uid-again", "" })
	before := imagepulltest.Job()
	objects := []client.Object{again}
	for i := range 20 {
		name := fmt.Sprint("n", i)
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			imagepulltest.Tagged(name, func(n *appsv1beta1.NodeImage) {
				n.ResourceVersion = ""
				tag := &n.Spec.Images["app"].Tags[0]
				tag.OwnerReferences[0].UID = "uid-again"
				tag.OwnerReferences = append(tag.OwnerReferences, imagepulltest.Owner("gone"))
			}))
	}
	api := fakeClient(t, objects...)
	reads := 0
	live := interceptor.NewClient(api.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
		key client.ObjectKey, o client.Object, opts ...client.GetOption) error { //nolint:forcetypeassert // fakes watch
		if key.Name == "gone" {
			reads++
		}
		return c.Get(ctx, key, o, opts...)
	}})
	cached := interceptor.NewClient(api.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
		key client.ObjectKey, o client.Object, opts ...client.GetOption) error { //nolint:forcetypeassert // fakes watch
		switch object := o.(type) {
		case *corev1.Node:
			return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
		case *appsv1beta1.ImagePullJob:
			if key.Name == before.Name {
				before.DeepCopyInto(object)
				return nil
			}
		}
		return c.Get(ctx, key, o, opts...)
	}})
	r := &NodeReconciler{API: &own.API{Client: cached, Live: live, Now: imagepulltest.Noon.Local}, Events: &told{},
		Options: Options{Namespace: "config",
			Jobs: true}, Random: func() float64 { return 0 }}
	for i := range 20 {
		key := client.ObjectKey{Name: fmt.Sprint("n", i)}
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		node := &appsv1beta1.NodeImage{}
		if err := api.Get(t.Context(), key, node); err != nil {
			t.Fatalf("IMG-052: %v", err)
		}
		if tags := node.Spec.Images["app"].Tags; len(tags) != 1 {
			t.Fatalf("IMG-054: number of tags: got %d, want 1\n%+v", len(tags), tags)
		} else if len(tags[0].OwnerReferences) != 1 {
			t.Fatalf("IMG-054: number of owners of the first tag: got %d, want 1\n%+v", len(tags[0].OwnerReferences),
				tags)
		} else if tags[0].OwnerReferences[0].UID != "uid-again" {
			t.Fatalf("IMG-054: UID of the first owner of the first tag: got %q, want %q\n%+v",
				tags[0].OwnerReferences[0].UID, "uid-again", tags)
		}
	}
	if reads != 1 {
		t.Errorf("IMG-096: %d reads of one job", reads)
	}
}
