//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/story"
)

// TestEnhancedLiveness: the liveness probes of a CloneSet's pods move from kubelet to the node daemon. A
// container that fails is restarted in its pod, once, and not while a budget has nothing left
// (PPM-120 (part), PPM-121 (part)).
func TestEnhancedLiveness(t *testing.T) {
	w := create(t, "alive", `
replicas: 2
template:
  metadata: {annotations: {apps.kruise.io/using-enhanced-liveness: "true"}}
  spec:
    terminationGracePeriodSeconds: 1
    containers:
    - name: app
      image: app:v1
      imagePullPolicy: IfNotPresent
      `+runForever+`
      livenessProbe: {exec: {command: [sh, -c, "test ! -e /dead"]}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 5}
`)
	pods := w.pods()
	var names []string
	for name, p := range pods {
		names = append(names, name)
		if p.Spec.Containers[0].LivenessProbe != nil || !strings.Contains(p.Annotations[pub.LivenessProbes], "test ! -e /dead") {
			t.Fatalf("%+v %v", p.Spec.Containers[0], p.Annotations)
		}
	}
	inside := func(pod, command string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), os.Getenv("KUBECTL"), "exec", "-n", w.key.Namespace, pod, "--", "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	told := func(pod string, state appsv1alpha1.ProbeState) {
		t.Helper()
		p := pods[pod]
		eventually(t, "the daemon tells that the probe has "+string(state), func(ctx context.Context) string {
			list := &appsv1alpha1.NodePodProbe{}
			if err := kube.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, list); err != nil {
				return err.Error()
			}
			for _, of := range list.Status.PodProbeStatuses {
				if of.UID == string(p.UID) && len(of.ProbeStates) == 1 && of.ProbeStates[0].State == state {
					return ""
				}
			}
			return fmt.Sprintf("%+v", list.Status)
		})
	}
	restarts := func(pod string, want int32) {
		t.Helper()
		eventually(t, "the container is restarted in its pod", func(ctx context.Context) string {
			p := pods[pod]
			if err := kube.Get(ctx, client.ObjectKeyFromObject(&p), &p); err != nil {
				return err.Error()
			}
			if p.UID != pods[pod].UID || len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].RestartCount != want || !story.Ready(&p) {
				return fmt.Sprintf("%+v", p.Status)
			}
			return ""
		})
	}
	first, second := names[0], names[1]
	told(first, appsv1alpha1.ProbeSucceeded)
	inside(first, "touch /dead")
	told(first, appsv1alpha1.ProbeFailed)
	restarts(first, 1)
	told(first, appsv1alpha1.ProbeSucceeded)

	told(second, appsv1alpha1.ProbeSucceeded)
	w.budgeted(`targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: alive}, maxUnavailable: 0`, 2)
	inside(second, "touch /dead")
	told(second, appsv1alpha1.ProbeFailed)
	eventually(t, "the refusal is told", func(ctx context.Context) string {
		out, err := exec.CommandContext(ctx, os.Getenv("KUBECTL"), "get", "events", "-n", w.key.Namespace, "-o", "jsonpath={range .items[*]}{.involvedObject.name} {.reason} {.message}{\"\\n\"}{end}").Output()
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, second+" ") && strings.Contains(line, "not restarted yet") && strings.Contains(line, "PodUnavailableBudget alive") {
				return ""
			}
		}
		return fmt.Sprintf("%s %v", out, err)
	})
	if p := w.pods()[second]; p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("it was restarted although the budget has nothing left")
	}
	budget := &policyv1beta1.PodUnavailableBudget{}
	budget.Name, budget.Namespace = w.key.Name, w.key.Namespace
	if err := kube.Patch(t.Context(), budget, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"maxUnavailable":1}}`))); err != nil {
		t.Fatal(err)
	}
	restarts(second, 1)
}
