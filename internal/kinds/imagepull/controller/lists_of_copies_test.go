package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// listing is a client that counts lists, and what they contain.
func listing(t *testing.T, lists, items *int, objects ...client.Object) client.Client {
	return interceptor.NewClient(fakeClient(t, objects...).(client.WithWatch), //nolint:forcetypeassert // fakes watch
		interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				*lists++
				err := c.List(ctx, list, opts...)
				*items += meta.LenList(list)
				return err
			}})
}

// existing returns a job of this name.
func existing(namespace, name string) *appsv1beta1.ImagePullJob {
	return imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.Namespace, j.Name, j.ResourceVersion, j.Finalizers = namespace, name, "", nil
	})
}

// IMG-120 (part): a tenant creates and deletes jobs that name no pull secret. What becomes of them needs no list of the
// copies of the secrets of all tenants: there may be tens of thousands, and each list is read from the API server, whole.
// Jobs that used copies are released all the same.
func TestJobsWithoutSecretsListNoCopies(t *testing.T) {
	copied := login("config", corev1.SecretTypeDockerConfigJson)
	copied.Name, copied.Annotations = "copy", map[string]string{pub.SecretSource: "shop/login",
		pub.SecretReferences: "shop/earlier", pub.SecretMode: pub.SecretModeBatch}
	lists, items := 0, 0
	earlier := existing("shop", "earlier")
	c := listing(t, &lists, &items, login("shop", corev1.SecretTypeDockerConfigJson), copied, earlier)
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
	if err := c.Delete(t.Context(), earlier); err != nil {
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

// IMG-120 (part): a manager that led before made a copy for a job a moment ago, which this one does not know. The job names
// secrets, and they are released when it is deleted.
func TestAJobThatNamesSecretsIsReleasedAnyway(t *testing.T) {
	c := fakeClient(t, login("shop", corev1.SecretTypeDockerConfigJson))
	r := &JobReconciler{API: &own.API{Client: c, Live: c, Now: time.Now}, Secrets: secretsOn(c)}
	if _, err := r.absent(t.Context(), types.NamespacedName{Namespace: "shop", Name: "other"}); err != nil { // it lists the copies
		t.Fatal(err)
	}
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.Namespace, j.Name, j.Spec.PullSecrets = "shop", "late", []string{"login"}
	})
	copied := login("config", corev1.SecretTypeDockerConfigJson)
	copied.Name, copied.Labels = "copy", map[string]string{pub.SecretCopyOf: "shop"}
	copied.Annotations = map[string]string{pub.SecretSource: "shop/login", pub.SecretReferences: "shop/late", pub.SecretMode: pub.SecretModeBatch}
	if err := c.Create(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	_ = r.apply(t.Context(), &jobMemory{}, &imagepull.JobSnapshot{Job: job}, &imagepull.JobPlan{Finish: true})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(copied), copied); !apierrors.IsNotFound(err) {
		t.Errorf("the copy after the end of its job: got %v, want it to be gone", err)
	}
}

// IMG-114 (part), IMG-119: copies that an earlier release or somebody else made are found, too. All are listed once, and
// then those of the namespace of a job; copies that no job refers to are deleted, and foreign secrets are not touched.
func TestJobsListTheCopiesOfTheirNamespace(t *testing.T) {
	copyOf := func(source, references string) *corev1.Secret {
		name := fmt.Sprintf("copy-of-%s", strings.ReplaceAll(source, "/", "-"))
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "config", Name: name, Annotations: map[string]string{
			pub.SecretSource: source, pub.SecretReferences: references, pub.SecretMode: pub.SecretModeBatch}},
			Type: corev1.SecretTypeDockerConfigJson, Data: login("", "").Data}
	}
	foreign := login("config", corev1.SecretTypeOpaque)
	objects := []client.Object{login("shop", corev1.SecretTypeDockerConfigJson), foreign, existing("shop", "other"), existing("other", "job"),
		copyOf("shop/login", "shop/other"), copyOf("gone/login", ""), copyOf("no.namespace/login", "")}
	for i := range 50 {
		objects = append(objects, copyOf(fmt.Sprintf("other/login-%d", i), "other/job"))
	}
	lists, items := 0, 0
	c := listing(t, &lists, &items, objects...)
	m := newMeters()
	s := secretsOn(c)
	s.Copies = m.copies
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Namespace, j.Spec.PullSecrets = "shop", []string{"login"} })
	sync := func() {
		t.Helper()
		refs, problems, err := s.Sync(t.Context(), job)
		if err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		if len(refs) != 1 || refs[0].Name != "copy-of-shop-login" {
			t.Errorf("references: got %v, want the copy that was there", refs)
		}
		if got := testutil.ToFloat64(m.copies); got != 51 {
			t.Errorf("copies: got %v, want 51", got)
		}
	}
	sync()
	lists, items = 0, 0
	if sync(); lists != 1 || items != 1 {
		t.Errorf("then: got %d lists of %d secrets, want 1 of 1", lists, items)
	}
	for name, want := range map[string]bool{"copy-of-gone-login": false, "copy-of-no.namespace-login": true, "login": true} {
		if there := c.Get(t.Context(), client.ObjectKey{Namespace: "config", Name: name}, &corev1.Secret{}) == nil; there != want {
			t.Errorf("secret %s: got there: %t, want %t", name, there, want)
		}
	}
	if err := s.Release(t.Context(), client.ObjectKey{Namespace: "other", Name: "job"}); err != nil {
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(m.copies); got != 1 {
		t.Errorf("copies when the other job is gone: got %v, want 1", got)
	}
}

// A copy that cannot be labelled, such as one that somebody forbids to change, does not hold up jobs with secrets.
func TestACopyWithoutALabelHoldsUpNoJob(t *testing.T) {
	copied := login("config", corev1.SecretTypeDockerConfigJson)
	copied.Name, copied.Annotations = "copy", map[string]string{pub.SecretSource: "shop/login",
		pub.SecretReferences: "shop/warm", pub.SecretMode: pub.SecretModeBatch}
	c := interceptor.NewClient(fakeClient(t, login("shop", corev1.SecretTypeDockerConfigJson), copied, existing("shop", "warm")).(client.WithWatch),
		interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return apierrors.NewForbidden(corev1.Resource("secrets"), "copy", errors.New("no changes"))
			}})
	s := secretsOn(c)
	for range 2 {
		for _, job := range []*appsv1beta1.ImagePullJob{
			imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Spec.PullSecrets = []string{"login"} }),
			imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Namespace, j.Spec.PullSecrets = "other", []string{"none"} }),
		} {
			if refs, _, err := s.Sync(t.Context(), job); err != nil {
				t.Errorf("%s: %v", job.Namespace, err)
			} else if job.Namespace == "shop" && (len(refs) != 1 || refs[0].Name != "copy") {
				t.Errorf("references: got %v, want the copy that was there", refs)
			}
		}
	}
	if err := s.Release(t.Context(), client.ObjectKey{Namespace: "shop", Name: "warm"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(copied), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the copy that nobody uses any more: got %v, want that it is gone", err)
	}
}
