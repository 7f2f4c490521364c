//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// A job of the old version, with a secret, on a node: its tag, its secret's copy, its result, and nothing is
// left after its deletion (IMG-080, IMG-086, IMG-096, IMG-110, IMG-120 (part), IMG-196).
func TestImagePullJobOnANode(t *testing.T) {
	ctx := t.Context()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "images", Labels: map[string]string{"pool": "images"}}}
	image := &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "images", Labels: map[string]string{"pool": "images"}}}
	secret := &corev1.Secret{ObjectMeta: meta("login"), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{}}`)}}
	job := &appsv1alpha1.ImagePullJob{ObjectMeta: meta("warm"),
		Spec: appsv1beta1.ImagePullJobSpec{Image: "registry.example.com/shop/app:2.4",
			ImagePullJobTemplate: appsv1beta1.ImagePullJobTemplate{
				Selector: &appsv1beta1.ImagePullJobNodeSelector{
					LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "images"}}},
				PullSecrets: []string{"login"}}}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pub.DaemonConfigNamespace}}
	for _, object := range []client.Object{namespace, secret, node, image, job} {
		if err := kube.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = kube.Delete(ctx, node) }()
	if job.Spec.ImagePullPolicy != appsv1beta1.PullIfNotPresent {
		t.Errorf("IMG-031, IMG-032: pull policy %s, want IfNotPresent", job.Spec.ImagePullPolicy)
	}
	if seconds := *job.Spec.PullPolicy.TimeoutSeconds; seconds != 600 {
		t.Errorf("IMG-031, IMG-032: timeout %d s, want 600 s", seconds)
	}
	if len(job.Finalizers) != 1 {
		t.Errorf("IMG-031, IMG-032: finalizers %v, want one", job.Finalizers)
	}
	old := &appsv1alpha1.NodeImage{}
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(image), image); err != nil {
			return err
		}
		if secrets := image.Spec.Images["registry.example.com/shop/app"].PullSecrets; len(secrets) != 1 || secrets[0].Mode != "batch" {
			return fmt.Errorf("images %+v", image.Spec.Images)
		}
		return kube.Get(ctx, client.ObjectKeyFromObject(image), old)
	}); err != nil {
		t.Fatal(err)
	}
	if old.Annotations[pub.ConversionData] == "" {
		t.Errorf("IMG-196: annotations in v1alpha1: got %v, want what was converted", old.Annotations)
	}
	if image.Annotations[pub.ConversionData] != "" {
		t.Errorf("IMG-196: annotations in v1beta1: got %v, want nothing that was converted", image.Annotations)
	}
	before := image.DeepCopy()
	image.Status = appsv1beta1.NodeImageStatus{Desired: 1, Succeeded: 1, ImageStatuses: map[string]appsv1beta1.ImageStatus{
		"registry.example.com/shop/app": {Tags: []appsv1beta1.ImageTagStatus{{Tag: "2.4", Phase: appsv1beta1.ImagePhaseSucceeded}}}}}
	if err := kube.Status().Patch(ctx, image, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if job.Status.CompletionTime == nil || job.Status.Succeeded != 1 || len(job.Finalizers) != 0 {
			return fmt.Errorf("%+v %v", job.Status, job.Finalizers)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var copied corev1.SecretList
	if err := kube.List(ctx, &copied, client.InNamespace(namespace.Name)); err != nil {
		t.Errorf("IMG-120: %v", err)
	}
	if n := len(copied.Items); n != 0 {
		t.Errorf("IMG-120: got %d copies, want none", n)
	}
	if err := kube.Delete(ctx, job); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(image), image); err != nil {
			return err
		}
		if len(image.Spec.Images) != 0 {
			return fmt.Errorf("IMG-096: %+v", image.Spec.Images)
		}
		return nil
	}); err != nil {
		t.Errorf("the images of the node after the job went: %v", err)
	}
	if err := kube.Delete(ctx, node); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(image), image); !apierrors.IsNotFound(err) {
			return fmt.Errorf("IMG-052: the NodeImage is still there: %w", err)
		}
		return nil
	}); err != nil {
		t.Errorf("after the node went: %v", err)
	}
}

// IMG-150, IMG-152, IMG-155: a list makes a job for each image, and ends with them.
func TestImageListPullJob(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "several"},
		Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"a:1", "b:1"},
			ImagePullJobTemplate: appsv1beta1.ImagePullJobTemplate{
				Selector: &appsv1beta1.ImagePullJobNodeSelector{Names: []string{"nowhere"}}}}}
	if err := kube.Create(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		var jobs appsv1beta1.ImagePullJobList
		err := kube.List(t.Context(), &jobs, client.InNamespace("default"),
			client.MatchingLabels{pub.ControllerRevisionHash: list.Labels[pub.ControllerRevisionHash]})
		if err == nil {
			err = kube.Get(t.Context(), client.ObjectKeyFromObject(list), list)
		}
		if err == nil && (list.Status.CompletionTime == nil || list.Status.Completed != 2 || len(jobs.Items) != 2) {
			err = fmt.Errorf("%d jobs, %+v", len(jobs.Items), list.Status)
		}
		return err
	}); err != nil {
		t.Errorf("the jobs of the list: %v", err)
	}
}

// CRR-087, OPS-067: a pod of a workload of ours gets the readiness gate, and no other pod is sent to the
// webhook. The pod is of a kind whose controller is not served: those that are open the gate themselves, of
// pods that they know.
func TestPodsGetTheirGate(t *testing.T) {
	for name, want := range map[string]bool{"apps.kruise.io/v1beta1": true, "apps/v1": false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: strings.NewReplacer("/", "-", ".", "-").Replace(name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: name, Kind: "BroadcastJob", Name: "x", UID: "x", Controller: new(true)}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := kube.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if got := len(pod.Spec.ReadinessGates) == 1; got != want {
			t.Errorf("an owner in %s: got readiness gates %v, want one: %t", name, pod.Spec.ReadinessGates, want)
		}
		if want {
			if err := wait(func() error {
				if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
					return err
				}
				for _, c := range pod.Status.Conditions {
					if c.Type == pub.KruisePodReady && c.Status == corev1.ConditionTrue {
						return nil
					}
				}
				return fmt.Errorf("%+v", pod.Status.Conditions)
			}); err != nil {
				t.Errorf("readiness of pod %s: %v", name, err)
			}
		}
		if err := kube.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Errorf("deleting pod %s: %v", name, err)
		}
	}
}
