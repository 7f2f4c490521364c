package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// A registry's token is renewed each hour by deleting its secret and making it again (each has another UID, so its copy
// another name, IMG-113), in thousands of namespaces, or a tenant does so in a loop. Copies that are gone are not
// remembered, with the list of their users, for as long as the manager lives.
func TestCopiesThatAreGoneAreNotRemembered(t *testing.T) {
	const rotations = 50
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.ResourceVersion = "" })
	image := imagepulltest.Tagged("n", func(n *appsv1beta1.NodeImage) { n.ResourceVersion = "" })
	c, now := fakeClient(t, node, job, image), imagepulltest.Noon
	r := &NodeReconciler{API: &own.API{Client: c, Live: c, Now: func() time.Time { return now }}, Events: &told{},
		Options: Options{Namespace: "config", Jobs: true}, Random: func() float64 { return 0 }}
	key := types.NamespacedName{Name: "n"}
	pass := func() {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, image); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rotations {
		copied := login("config", corev1.SecretTypeDockerConfigJson)
		copied.Name = fmt.Sprintf("login-%d", i)
		copied.Annotations = map[string]string{pub.SecretSource: "shop/login", pub.SecretReferences: "shop/warm",
			pub.SecretMode: pub.SecretModeBatch}
		if err := c.Create(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
		app := image.Spec.Images["app"]
		app.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "config", Name: copied.Name, Mode: pub.SecretModeBatch}}
		image.Spec.Images["app"] = app
		if err := c.Update(t.Context(), image); err != nil {
			t.Fatal(err)
		}
		pass()
		if n := len(image.Spec.Images["app"].PullSecrets); n != 1 {
			t.Fatalf("secrets of the image: got %d, want 1", n)
		}
		if err := c.Delete(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		pass() // the copy is gone, and so is the reference
		if n := len(image.Spec.Images["app"].PullSecrets); n != 0 {
			t.Fatalf("secrets of the image once the copy is gone: got %d, want none", n)
		}
	}
	if n := len(r.used); n > 2 {
		t.Errorf("copies that are remembered: got %d, but none exists any more", n)
	}
}
