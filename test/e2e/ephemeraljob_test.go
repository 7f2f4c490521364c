//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
)

// ejob makes an EphemeralJob for pods with label app=web, with one container, as YAML.
func ejob(t *testing.T, namespace, name, spec, container string) *appsv1alpha1.EphemeralJob {
	t.Helper()
	return manifest(t, namespace, "metadata: {name: "+name+"}\nspec:\n  selector: {matchLabels: {app: web}}\n"+indent(spec)+
		"\n  template:\n    ephemeralContainers:\n    - {image: \"app:v1\", imagePullPolicy: IfNotPresent, "+container+"}\n", &appsv1alpha1.EphemeralJob{})
}

// becomes waits until the status of the job is that: phase, and the numbers of pods that match, succeeded,
// failed and run.
func becomes(t *testing.T, job *appsv1alpha1.EphemeralJob, want string) {
	t.Helper()
	eventually(t, "job "+job.Name, func(context.Context) string {
		s := &reread(t, job).Status
		if got := fmt.Sprintf("%s %d %d %d %d", s.Phase, s.Matches, s.Succeeded, s.Failed, s.Running); got != want {
			return got + ", not " + want
		}
		return ""
	})
}

// TestEphemeralJob: real kubelets run the containers, a few at a time; a mixture of results ends the job;
// results of pods that are gone stay; a job of names that are taken finds no pods; deletion leaves the
// containers in the pods, ended and running ones (EJ-001, EJ-003; EJ-002 (part), EJ-018 (part),
// EJ-036 (part), EJ-038 (part), EJ-044 (part), EJ-045 (part), EJ-055 (part), EJ-058 (part), EJ-080 (part)).
func TestEphemeralJob(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	for i := range 3 {
		manifest(t, ns, fmt.Sprintf(`
metadata: {name: web-%d, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "app:v1", imagePullPolicy: IfNotPresent, %s}]
`, i, runForever), &corev1.Pod{})
	}
	job := ejob(t, ns, "dump", "parallelism: 3", `name: dump, targetContainerName: app, command: [sh, -c, "case $HOSTNAME in web-1) exit 3;; esac"]`)
	becomes(t, job, "Failed 3 2 1 0")
	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if c := p.Spec.EphemeralContainers; len(c) != 1 || c[0].Env[0] != (corev1.EnvVar{Name: pub.EphemeralJobEnv, Value: string(job.UID)}) {
			t.Errorf("pod %s: %+v", p.Name, c)
		}
		if p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s has restarted", p.Name)
		}
	}
	again := ejob(t, ns, "again", "parallelism: 3", `name: dump, command: ["true"]`)
	becomes(t, again, "Waiting 0 0 0 0")

	wait := ejob(t, ns, "wait", "parallelism: 2", `name: wait, command: [sh, -c, "sleep 3600"]`)
	becomes(t, wait, "Running 3 0 0 2")
	treated := 0
	if err := kube.List(t.Context(), &pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		treated += len(p.Spec.EphemeralContainers) - 1
	}
	if treated != 2 {
		t.Errorf("%d pods have the containers, parallelism is 2", treated)
	}
	if err := kube.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-0"}}); err != nil {
		t.Fatal(err)
	}
	becomes(t, wait, "Running 3 0 1 2")
	if err := kube.Delete(t.Context(), wait); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job goes", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(wait), wait); client.IgnoreNotFound(err) == nil && err != nil {
			return ""
		}
		return fmt.Sprint(wait.Finalizers)
	})
	if err := kube.List(t.Context(), &pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Name == "web-0" {
			continue
		}
		running, ended := 0, 0
		for _, s := range p.Status.EphemeralContainerStatuses {
			if s.State.Running != nil {
				running++
			} else if s.State.Terminated != nil {
				ended++
			}
		}
		if running != 1 || ended != 1 || len(p.Spec.EphemeralContainers) != 2 {
			t.Errorf("pod %s: %+v", p.Name, p.Status.EphemeralContainerStatuses)
		}
	}
}
