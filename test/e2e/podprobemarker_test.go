//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// TestPodProbeMarker: probes on real kubelets, by a command with a relative path in the working directory of
// a container with a user of its own and a read-only root, and by a connection: results become condition,
// label and annotation within seconds, also those that turn while the daemon is killed; a container that is
// replaced is not taken for the one before; probes that are not asked for any more leave the node
// (PPM-001 (part), PPM-003, PPM-057 (part), PPM-067 (part), PPM-071 (part), PPM-088 (part), PPM-089 (part)).
func TestPodProbeMarker(t *testing.T) {
	ns := namespace(t)
	p := manifest(t, ns, `
metadata: {name: game, labels: {app: game}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: srv, emptyDir: {}}]
  containers:
  - name: app
    image: app:v1
    imagePullPolicy: IfNotPresent
    workingDir: /srv
    securityContext: {runAsUser: 1000, readOnlyRootFilesystem: true}
    volumeMounts: [{name: srv, mountPath: /srv}]
    command: [sh, -c, "echo 'test ! -e busy && echo nobody plays' >idle.sh; trap 'exit 0' TERM; while true; do sleep 0.2; done"]
`, &corev1.Pod{})
	marker := manifest(t, ns, `
metadata: {name: game}
spec:
  selector: {matchLabels: {app: game}}
  probes:
  - name: idle
    containerName: app
    probe: {exec: {command: [sh, ./idle.sh]}, timeoutSeconds: 5, periodSeconds: 1}
    podConditionType: example.com/idle
    markerPolicy:
    - {state: Succeeded, labels: {idle: "true"}, annotations: {controller.kubernetes.io/pod-deletion-cost: "-10"}}
    - {state: Failed, labels: {idle: "false"}}
  - name: closed
    containerName: app
    probe: {tcpSocket: {port: 9}, periodSeconds: 1}
    podConditionType: example.com/closed
`, &appsv1alpha1.PodProbeMarker{})
	becomes := func(what string, idle corev1.ConditionStatus, label, cost string) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) string {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err.Error()
			}
			got := map[corev1.PodConditionType]corev1.PodCondition{}
			for _, c := range p.Status.Conditions {
				got[c.Type] = c
			}
			message := ""
			if idle == corev1.ConditionTrue {
				message = "nobody plays"
			}
			if c := got["example.com/idle"]; c.Status != idle || strings.TrimSpace(c.Message) != message && idle == corev1.ConditionTrue ||
				got["example.com/closed"].Status != corev1.ConditionFalse || p.Labels["idle"] != label ||
				p.Annotations["controller.kubernetes.io/pod-deletion-cost"] != cost {
				return fmt.Sprintf("%v %v %+v", p.Labels, p.Annotations, p.Status.Conditions)
			}
			return ""
		})
	}
	inside := func(command string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), os.Getenv("KUBECTL"), "exec", "-n", ns, p.Name, "--", "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	becomes("it is idle", corev1.ConditionTrue, "true", "-10")
	list := &appsv1alpha1.NodePodProbe{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: p.Spec.NodeName}, list); err != nil {
		t.Fatal(err)
	}
	told, answered := "", ""
	for _, of := range list.Spec.PodProbes {
		for i := range of.Probes {
			if of.UID == string(p.UID) && of.Probes[i].Name == "game#idle" {
				told = strings.Join(of.Probes[i].Probe.Exec.Command, " ")
			}
		}
	}
	for _, of := range list.Status.PodProbeStatuses {
		for i := range of.ProbeStates {
			if of.UID == string(p.UID) && of.ProbeStates[i].Name == "game#idle" {
				answered = string(of.ProbeStates[i].State)
			}
		}
	}
	if told != "sh ./idle.sh" || answered != "Succeeded" {
		t.Errorf("the node is told to run %q, and answers %q", told, answered)
	}
	if marker = reread(t, marker); marker.Status.MatchedPods != 1 || marker.Status.ObservedGeneration != marker.Generation {
		t.Errorf("%+v", marker.Status)
	}
	inside("touch busy")
	becomes("it is busy", corev1.ConditionFalse, "false", "")
	for _, command := range []string{"rm busy", "touch busy", "rm busy"} { // it turns while the daemon is away
		var daemons corev1.PodList
		if err := kube.List(t.Context(), &daemons, client.InNamespace("kruise-system"), client.MatchingLabels{"control-plane": "daemon"}); err != nil {
			t.Fatal(err)
		}
		for i := range daemons.Items {
			if daemons.Items[i].Spec.NodeName != p.Spec.NodeName {
				continue
			}
			if err := kube.Delete(t.Context(), &daemons.Items[i], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
		inside(command)
		if command == "rm busy" {
			becomes("it is idle again", corev1.ConditionTrue, "true", "-10")
		} else {
			becomes("it is busy again", corev1.ConditionFalse, "false", "")
		}
	}
	inside("touch busy; kill 1") // the container is replaced
	becomes("the new container is busy", corev1.ConditionFalse, "false", "")
	eventually(t, "the new container", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 ||
			p.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Sprint(err, p.Status.ContainerStatuses)
		}
		return ""
	})
	inside("rm busy")
	becomes("the new container is idle", corev1.ConditionTrue, "true", "-10")
	if err := kube.Delete(t.Context(), marker); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the PodProbeMarker goes, and its probes before it", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(marker), marker); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err, marker.Finalizers)
		}
		if err := kube.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, list); err != nil {
			return err.Error()
		}
		for _, of := range list.Spec.PodProbes {
			if of.UID == string(p.UID) {
				return fmt.Sprintf("%+v", of)
			}
		}
		return ""
	})
	becomes("what it wrote stays", corev1.ConditionTrue, "true", "-10") // PPM-058 (part)
}
