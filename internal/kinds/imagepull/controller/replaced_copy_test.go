package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-114 (part), IMG-117 (part): two jobs use a copy that somebody made immutable, and its source changes. The first job to notice
// replaces the copy under its name. The other one, which looks at its secrets once a minute, may use it meanwhile: nodes
// that pull for it find the copy, read that it is for somebody else, pull without credentials, fail, and never try again.
func TestACopyThatIsReplacedUnderItsNameIsNotTakenFromOtherJobs(t *testing.T) {
	source := login("shop", corev1.SecretTypeDockerConfigJson)
	c := fakeClient(t, source)
	s := secretsOn(c)
	using := func(name string) *appsv1beta1.ImagePullJob {
		return imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Name, j.Spec.PullSecrets = name, []string{"login"} })
	}
	var refs []appsv1beta1.ReferenceObject
	for _, name := range []string{"warm", "other"} {
		var err error
		if refs, _, err = s.Sync(t.Context(), using(name)); err != nil || len(refs) != 1 {
			t.Fatalf("%s: got %v, %v", name, refs, err)
		}
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
	if again, _, err := s.Sync(t.Context(), using("warm")); err != nil || !slices.Equal(again, refs) {
		t.Fatalf("when the source has changed: got %v, %v, want %v", again, err, refs)
	}
	if err := c.Get(t.Context(), key, found); err != nil {
		t.Fatal(err)
	}
	if got, want := users(found), []string{"shop/other", "shop/warm"}; !slices.Equal(got, want) {
		t.Errorf("jobs that may use the copy: got %q, want %q", got, want)
	}
}
