//go:build integration

package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
)

// ephemeralJob makes an EphemeralJob of a spec, as it is written.
func ephemeralJob(t *testing.T, name, spec string) (*unstructured.Unstructured, error) {
	t.Helper()
	job := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("{apiVersion: apps.kruise.io/v1alpha1, kind: EphemeralJob, metadata: {name: "+name+", namespace: default}, spec: "+spec+"}"),
		&job.Object); err != nil {
		t.Fatal(err)
	}
	err := kube.Create(t.Context(), job)
	return job, err
}

// EJ-025, EJ-031 (part): what a real API server finds wrong with containers refuses the job, with 400 and all
// else that is wrong. EJ-010: fields that nobody knows come to the webhook.
func TestEphemeralJobsAreJudged(t *testing.T) {
	_, err := ephemeralJob(t, "wrong", `{selector: {matchLabels: {app: ejob}}, template: {ephemeralContainers: [
{name: Big, image: " a", env: [{name: "", value: x}], envFrom: [{configMapRef: {}}], securityContext: {runAsUser: -5}, ofTheFuture: 1}, {name: b, image: a, ports: [{containerPort: 80}]}, {name: b, image: a}]}}`)
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusBadRequest {
		t.Fatalf("a job with many faults: got %v, want it refused with code 400", err)
	}
	for _, part := range []string{"[0].name: Invalid", "[0].image: Invalid", "[0].env[0].name: Required", "[0].envFrom[0].configMapRef.name", "[0].securityContext.runAsUser: Invalid",
		"[0].ofTheFuture: Forbidden: cannot be set for an Ephemeral Container", "[1].ports: Forbidden", "[2].name: Duplicate"} {
		if !strings.Contains(err.Error(), "spec.template.ephemeralContainers"+part) {
			t.Errorf("%v\nlacks %s", err, part)
		}
	}
	odd, err := ephemeralJob(t, "odd", `{selector: {matchLabels: {app: none}}, template: {ephemeralContainers: [{name: a, image: "a:1", volumeMounts: [{name: of-pods, mountPath: /a}], securityContext: {ofTheFuture: 1}}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := unstructured.NestedSlice(odd.Object, "spec", "template", "ephemeralContainers")
	for _, part := range []string{"ofTheFuture:1", "imagePullPolicy:IfNotPresent"} {
		if got := fmt.Sprint(list); !strings.Contains(got, part) {
			t.Errorf("containers: got %s, want %s in them", got, part)
		}
	}
}

// A real API server takes the patch: behind the container of somebody else, which stays as it is; the result
// is counted, and the job is gone when it is deleted (EJ-018 (part), EJ-041 (part), EJ-045 (part),
// EJ-055 (part), EJ-058 (part)). A pod that lacks the volume counts as failed (EJ-048 (part)).
func TestEphemeralJobOnAServer(t *testing.T) {
	ctx := t.Context()
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"ejob-a", "ejob-b"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "ejob"}},
			Spec: corev1.PodSpec{NodeName: "none", Containers: []corev1.Container{{Name: "app", Image: "a"}}}}
		if name == "ejob-a" {
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}
		if err := kube.Create(ctx, pod); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = kube.Delete(ctx, pod, client.GracePeriodSeconds(0)) }()
		pods[name] = pod
	}
	a := pods["ejob-a"]
	a.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "shell", Image: "b"}}}
	if err := kube.SubResource("ephemeralcontainers").Update(ctx, a); err != nil {
		t.Fatal(err)
	}
	given, err := ephemeralJob(t, "dump", `{selector: {matchLabels: {app: ejob}}, parallelism: 2, template: {ephemeralContainers: [
{name: dump, image: "a:1", env: [{name: X, value: "1"}], volumeMounts: [{name: data, mountPath: /data}]}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	job := &appsv1alpha1.EphemeralJob{}
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
			return err
		}
		if c := a.Spec.EphemeralContainers; len(c) != 2 || c[0].Name != "shell" || c[1].Name != "dump" || len(c[1].Env) != 2 ||
			c[1].Env[1] != (corev1.EnvVar{Name: pub.EphemeralJobEnv, Value: string(given.GetUID())}) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	a.Status.Phase = corev1.PodRunning
	a.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "dump", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	if err := kube.Status().Update(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(given), job); err != nil {
			return err
		}
		if s := &job.Status; s.Phase != "Failed" || s.Succeeded != 1 || s.Failed != 1 || s.Matches != 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if last := job.Status.Conditions[len(job.Status.Conditions)-1]; !strings.Contains(last.Message, "refuses the containers in ejob-b") {
		t.Errorf("last condition: got %+v, want that the containers in ejob-b are refused", last)
	}
	if err := kube.Delete(ctx, job); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
