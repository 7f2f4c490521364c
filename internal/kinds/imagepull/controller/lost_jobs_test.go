package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// IMG-119 (part), IMG-120 (part): while no manager ran, somebody took the finalizers off the jobs of a namespace, which could not be deleted
// otherwise. The copy of its pull secret refers to a job that is gone. A manager that starts deletes it: nobody else will,
// and the credentials would stay where node daemons read them.
func TestACopyWhoseJobIsGoneIsDeletedWhenAManagerStarts(t *testing.T) {
	left := login("config", corev1.SecretTypeDockerConfigJson)
	left.Name, left.Annotations = copyName(login("gone", corev1.SecretTypeDockerConfigJson), 0),
		map[string]string{pub.SecretSource: "gone/login", pub.SecretReferences: "gone/job", pub.SecretMode: pub.SecretModeBatch}
	left.Labels = map[string]string{pub.SecretCopy: "true", pub.SecretCopyOf: "gone"}
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.ResourceVersion, j.Status, j.Spec.PullSecrets = "", appsv1beta1.ImagePullJobStatus{}, []string{"login"}
	})
	now := imagepulltest.Noon
	c := fakeClient(t, job, left, login("shop", corev1.SecretTypeDockerConfigJson))
	r := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return now }), Events: own.NewRecorder(&told{}), Secrets: secretsOn(c),
		Random: func() float64 { return 0 }}
	loop := r.controller().Loop(nil)
	for range 5 {
		if _, err := loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * sourcesEvery)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(left), left); !apierrors.IsNotFound(err) {
		t.Errorf("the copy of the job that is gone: got %v, want it deleted; used by %q", err, users(left))
	}
}

// IMG-119 (part): the same, when no job is left at all.
func TestACopyWhoseJobIsGoneIsDeletedIfThereIsNoOtherJob(t *testing.T) {
	left := login("config", corev1.SecretTypeDockerConfigJson)
	left.Annotations = map[string]string{pub.SecretSource: "gone/login", pub.SecretReferences: "gone/job"}
	c := fakeClient(t, left)
	if err := secretsOn(c).start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(left), left); !apierrors.IsNotFound(err) {
		t.Errorf("the copy of the job that is gone: got %v, want it deleted; used by %q", err, users(left))
	}
}

// IMG-119 (part): the same, with a copy that others use as well. One of them was created just now, so the cache of the manager that
// starts lacks it, and of another one the API server does not tell: only what it says is gone leaves the copy.
func TestOnlyJobsThatAreGoneLeaveACopyWhenAManagerStarts(t *testing.T) {
	shared := login("config", corev1.SecretTypeDockerConfigJson)
	shared.Name, shared.Annotations = "copy", map[string]string{pub.SecretSource: "shop/login",
		pub.SecretReferences: "shop/a,shop/by/hand,shop/gone,shop/late,shop/unknown", pub.SecretMode: pub.SecretModeBatch}
	here, late := existing("shop", "a"), existing("shop", "late")
	down := true
	c := interceptor.NewClient(fakeClient(t, shared, here, late).(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			_, cached := object.(*appsv1beta1.ImagePullJob)
			switch {
			case cached && key.Name == late.Name:
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			case !cached && key.Name == here.Name:
				t.Error("a job in the cache is read from the API server")
			case !cached && key.Name == "unknown" && down:
				return errors.New("no answer")
			}
			return c.Get(ctx, key, object, opts...)
		}})
	s := secretsOn(c)
	for _, want := range []string{"shop/a,shop/by/hand,shop/late,shop/unknown", "shop/a,shop/by/hand,shop/late"} {
		if err := s.Release(t.Context(), types.NamespacedName{Namespace: "shop", Name: "other"}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(shared), shared); err != nil {
			t.Fatal(err)
		}
		if got := shared.Annotations[pub.SecretReferences]; got != want {
			t.Errorf("users of the copy: got %q, want %q", got, want)
		}
		down = false
	}
}

// The same, and somebody forbids to change the copy: the jobs of others go on.
func TestACopyThatAJobCannotLeaveHoldsUpNoOther(t *testing.T) {
	shared := login("config", corev1.SecretTypeDockerConfigJson)
	shared.Name, shared.Annotations = "copy", map[string]string{pub.SecretSource: "shop/login",
		pub.SecretReferences: "shop/gone,shop/warm", pub.SecretMode: pub.SecretModeBatch}
	c := interceptor.NewClient(fakeClient(t, shared, existing("shop", "warm"), login("other", corev1.SecretTypeDockerConfigJson)).(client.WithWatch),
		interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return apierrors.NewForbidden(corev1.Resource("secrets"), "copy", errors.New("no changes"))
			}})
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Namespace, j.Spec.PullSecrets = "other", []string{"login"} })
	if refs, _, err := secretsOn(c).Sync(t.Context(), job); err != nil || len(refs) != 1 {
		t.Errorf("another job: got %v, %v, want a copy", refs, err)
	}
}
