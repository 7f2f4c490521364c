package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-114 (part), IMG-119 (part): the data of all copies, a MiB each and as many as tenants like, never are
// in the memory of a manager at once.
func TestTheDataOfCopiesAreNotListed(t *testing.T) {
	copied := login("config", corev1.SecretTypeDockerConfigJson)
	copied.Name, copied.Annotations = "copy", map[string]string{pub.SecretSource: "shop/login", pub.SecretReferences: "shop/warm",
		pub.SecretMode: pub.SecretModeBatch}
	c := interceptor.NewClient(fakeClient(t, login("shop", corev1.SecretTypeDockerConfigJson), copied, existing("shop", "warm")).(client.WithWatch),
		interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, data := list.(*corev1.SecretList); data {
					t.Error("secrets are listed with their data")
				}
				return c.List(ctx, list, opts...)
			}})
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Namespace, j.Spec.PullSecrets = "shop", []string{"login"} })
	s := secretsOn(c)
	if refs, _, err := s.Sync(t.Context(), job); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, refs)
	} else if len(refs) != 1 {
		t.Errorf("number of references: got %d, want 1\n%v\n%v", len(refs), refs, err)
	} else if refs[0].Name != "copy" {
		t.Errorf("name of the first reference: got %q, want %q\n%v\n%v", refs[0].Name, "copy", refs, err)
	}
	if err := s.Release(t.Context(), client.ObjectKeyFromObject(job)); err != nil {
		t.Errorf("releasing the copies: %v", err)
	}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(copied), &corev1.Secret{})
	if client.IgnoreNotFound(err) != nil {
		t.Errorf("reading the copy that nobody uses: %v", err)
	} else if err == nil {
		t.Error("the copy that nobody uses is still there")
	}
}
