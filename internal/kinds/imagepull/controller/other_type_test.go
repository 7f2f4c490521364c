package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-114 (part), IMG-116 (part), IMG-120 (part): two jobs use the copy of a pull secret. The user replaces the secret by one of the other type, and one of the jobs
// is the first to notice. The other one, which looks at its secrets once a minute, gives nodes the copy that it knows until
// then: it is not taken away from it, or these nodes pull without credentials, fail, and never try again. When it has noticed,
// too, the old copy is gone.
func TestACopyIsNotTakenFromAJobBecauseTheSecretHasAnotherType(t *testing.T) {
	c := fakeClient(t, login("shop", corev1.SecretTypeDockerConfigJson))
	s := secretsOn(c)
	using := func(name string) *appsv1beta1.ImagePullJob {
		return imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Name, j.Spec.PullSecrets = name, []string{"login"} })
	}
	var known []appsv1beta1.ReferenceObject // of the other job
	for _, name := range []string{"warm", "other"} {
		refs, _, err := s.Sync(t.Context(), using(name))
		if err != nil || len(refs) != 1 {
			t.Fatalf("%s: got %v, %v", name, refs, err)
		}
		known = refs
	}
	if err := c.Delete(t.Context(), login("shop", corev1.SecretTypeDockerConfigJson)); err != nil {
		t.Fatal(err)
	}
	next := login("shop", corev1.SecretTypeDockercfg)
	next.UID, next.Data = "another", map[string][]byte{corev1.DockerConfigKey: []byte("{}")}
	if err := c.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if refs, _, err := s.Sync(t.Context(), using("warm")); err != nil || len(refs) != 1 || refs[0] == known[0] {
		t.Fatalf("the first to notice: got %v, %v, want another copy than %v", refs, err, known)
	}
	found := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: known[0].Namespace, Name: known[0].Name}, found); err != nil {
		t.Errorf("the copy that the other job knows: %v", err)
	} else if !slices.Contains(users(found), "shop/other") {
		t.Errorf("jobs that may use the copy that the other one knows: got %q", users(found))
	}
	refs, _, err := s.Sync(t.Context(), using("other"))
	if err != nil || len(refs) != 1 || refs[0] == known[0] {
		t.Fatalf("the other one: got %v, %v, want another copy than %v", refs, err, known)
	}
	var all corev1.SecretList
	if err := c.List(t.Context(), &all, client.InNamespace("config")); err != nil {
		t.Fatal(err)
	}
	if len(all.Items) != 1 || all.Items[0].Name != refs[0].Name || !slices.Equal(users(&all.Items[0]), []string{"shop/other", "shop/warm"}) {
		t.Errorf("copies at last: got %v, want %s alone, for both jobs", all.Items, refs[0].Name)
	}
}

// IMG-117 (part): somebody made a copy immutable, and its source changes. The copy has the name that a new one needs, and is
// replaced.
func TestACopyThatIsInTheWayIsReplaced(t *testing.T) {
	source := login("shop", corev1.SecretTypeDockerConfigJson)
	c := fakeClient(t, source)
	s := secretsOn(c)
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Spec.PullSecrets = []string{"login"} })
	refs, _, err := s.Sync(t.Context(), job)
	if err != nil || len(refs) != 1 {
		t.Fatalf("at first: got %v, %v", refs, err)
	}
	found, key := &corev1.Secret{}, client.ObjectKey{Namespace: refs[0].Namespace, Name: refs[0].Name}
	if err := c.Get(t.Context(), key, found); err != nil {
		t.Fatal(err)
	}
	found.Immutable = new(true)
	if err := c.Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(source), source); err != nil {
		t.Fatal(err)
	}
	source.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{}}`)
	if err := c.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if again, _, err := s.Sync(t.Context(), job); err != nil || !slices.Equal(again, refs) {
		t.Fatalf("when the source has changed: got %v, %v, want %v", again, err, refs)
	}
	if err := c.Get(t.Context(), key, found); err != nil || !sameData(found, source) {
		t.Errorf("the copy: got %v, %v, want what the source has", found.Data, err)
	}
}
