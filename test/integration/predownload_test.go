//go:build integration

package integration

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Images of a rollout are pulled ahead by jobs (CS-200, CS-201, CS-206, IMG-190). These are deleted when they
// are not needed any more (CS-207, IMG-191), also if they have a finalizer (IMG-080).
func TestImagesArePulledAhead(t *testing.T) {
	ctx := context.Background()
	set := cloneSet("v1beta1", "ahead",
		`spec: {replicas: 5, updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, partition: 4}}}`)
	if err := kube.Create(ctx, set); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kube.Delete(ctx, set) }()
	read := func() (*appsv1beta1.CloneSet, error) {
		got := &appsv1beta1.CloneSet{}
		return got, kube.Get(ctx, client.ObjectKeyFromObject(set), got)
	}
	revisions := func(equal bool) func() error {
		return func() error {
			got, err := read()
			if err == nil && (got.Status.ObservedGeneration != got.Generation || got.Status.UpdateRevision == "" ||
				(got.Status.CurrentRevision == got.Status.UpdateRevision) != equal) {
				err = fmt.Errorf("status %+v", got.Status)
			}
			return err
		}
	}
	if err := wait(revisions(true)); err != nil {
		t.Fatal(err)
	}
	change := func(image string) {
		t.Helper()
		patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
		if err := kube.Patch(ctx, set, client.RawPatch("application/json-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	first, err := read()
	if err != nil {
		t.Fatal(err)
	}
	image := first.Spec.Template.Spec.Containers[0].Image
	change(image + "-next")
	if err := wait(revisions(false)); err != nil {
		t.Fatal(err)
	}
	moving, err := read()
	if err != nil {
		t.Fatal(err)
	}
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "ImagePullJob"})
	key := client.ObjectKey{Namespace: moving.Namespace, Name: moving.Status.UpdateRevision + "-" +
		moving.Spec.Template.Spec.Containers[0].Name}
	if err := wait(func() error { return kube.Get(ctx, key, job) }); err != nil {
		t.Fatal(err)
	}
	if pulled, _, _ := unstructured.NestedString(job.Object, "spec", "image"); pulled != image+"-next" {
		t.Errorf("the job pulls %q", pulled)
	}
	if err := wait(func() error {
		revision := &appsv1.ControllerRevision{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: moving.Namespace, Name: moving.Status.UpdateRevision}, revision); err != nil {
			return err
		}
		if revision.Labels["apps.kruise.io/pre-predownload-created"] != "true" {
			return fmt.Errorf("labels %v", revision.Labels)
		}
		return nil
	}); err != nil {
		t.Errorf("the mark of the revision: %v", err)
	}
	change(image)
	if err := wait(func() error {
		if err := kube.Get(ctx, key, job); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the job is still there: %w", err)
		}
		return nil
	}); err != nil {
		t.Errorf("after the image changed back: %v", err)
	}
}
