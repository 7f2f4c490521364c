package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// The manager of the earlier release has given up its lead, and its last pass makes a copy, which has no label yet, after the new
// manager has listed all copies. (The same holds if somebody takes the label off a copy.) The job finds the copy nevertheless.
func TestACopyThatTheEarlierReleaseMadeLastIsFound(t *testing.T) {
	source := login("shop", corev1.SecretTypeDockerConfigJson)
	source.UID = "uid-of-login"
	c := fakeClient(t, source)
	s := secretsOn(c)
	if err := s.Release(t.Context(), types.NamespacedName{Namespace: "other", Name: "job"}); err != nil { // it lists all copies
		t.Fatal(err)
	}
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Namespace, j.Spec.PullSecrets = "shop", []string{"login"} })

	// As the earlier release made it.
	before := secretsOn(c)
	made, err := before.create(t.Context(), source, []string{"shop/" + job.Name})
	if err != nil {
		t.Fatal(err)
	}
	made.Labels = map[string]string{pub.SecretCopy: "true"}
	if err := c.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}

	for range 20 {
		var refs []appsv1beta1.ReferenceObject
		if refs, _, err = s.Sync(t.Context(), job); err == nil && len(refs) == 1 {
			return
		}
	}
	t.Errorf("after 20 attempts the job has no secret yet: %v", err)
}
