package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// listing is a client that counts lists.
func listing(t *testing.T, lists *int, objects ...client.Object) client.Client {
	return interceptor.NewClient(fakeClient(t, objects...).(client.WithWatch), //nolint:forcetypeassert // fakes watch
		interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				*lists++
				return c.List(ctx, list, opts...)
			}})
}

// IMG-120 (part): a tenant creates and deletes jobs that name no pull secret. What becomes of them needs no list of the
// copies of the secrets of all tenants: there may be tens of thousands, and each list is read from the API server, whole.
// A job that was deleted while no manager ran, and others that used copies, are released all the same.
func TestJobsWithoutSecretsListNoCopies(t *testing.T) {
	copied := login("config", corev1.SecretTypeDockerConfigJson)
	copied.Name, copied.Annotations = "copy", map[string]string{pub.SecretSource: "shop/login",
		pub.SecretReferences: "shop/earlier", pub.SecretMode: pub.SecretModeBatch}
	lists := 0
	c := listing(t, &lists, login("shop", corev1.SecretTypeDockerConfigJson), copied)
	r := &JobReconciler{API: &own.API{Client: c, Live: c, Now: time.Now}, Secrets: secretsOn(c)}
	absent := func(name string) {
		t.Helper()
		if _, err := r.absent(t.Context(), types.NamespacedName{Namespace: "shop", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	left := func() bool { return c.Get(t.Context(), client.ObjectKeyFromObject(copied), &corev1.Secret{}) == nil }

	for i := range 100 {
		absent(fmt.Sprint("job-", i))
	}
	if lists > 1 {
		t.Errorf("100 deleted jobs that named no secret: %d lists of all copies, want 1, by which the jobs that use copies are known", lists)
	}

	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.Namespace, j.Name, j.Spec.PullSecrets = "shop", "later", []string{"login"}
	})
	if _, _, err := r.Secrets.Sync(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	absent("earlier")
	if !left() {
		t.Fatal("the copy is gone, which a job still uses")
	}
	if absent("later"); left() {
		t.Error("the copy is left when nobody uses it any more")
	}
	lists = 0
	if absent("later"); lists > 0 {
		t.Errorf("a job that was released: %d lists, want none", lists)
	}
}
