//go:build integration

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
)

// PPM-004 (part), PPM-110 (part), PPM-114 (part): with its gate, with the shipped rights and a provider that
// is the test, a pod takes its probes along when it is created, the provider writes the condition, and the
// pod gets the label.
func TestServerlessPodsAreMarked(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.narrow()
	i.replica("--feature-gates=EnablePodProbeMarkerOnServerless=true").becomesReady()
	i.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: map[string]string{pub.NodeType: pub.VirtualNode}}})
	marker := &appsv1alpha1.PodProbeMarker{}
	if err := yaml.Unmarshal([]byte(`{metadata: {namespace: default, name: game}, spec: {selector: {matchLabels: {app: game}}, probes: [{name: idle, containerName: c,
		podConditionType: example.com/idle, probe: {httpGet: {path: /idle, port: 80}}, markerPolicy: [{state: Succeeded, labels: {idle: "true"}}, {state: Failed, labels: {idle: "false"}}]}]}}`), marker); err != nil {
		t.Fatal(err)
	}
	i.create(marker)
	pod := &corev1.Pod{}
	i.eventually("a pod that takes its probes along", func() error { // the API server is told which pods to send
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "game-", Labels: map[string]string{"app": "game"}},
			Spec: corev1.PodSpec{NodeName: "virtual", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		i.create(pod)
		if got := pod.Annotations[pub.PodProbes]; pod.Annotations[pub.PodProbeMarkers] != "game" || !strings.Contains(got, `"podConditionType":"example.com/idle"`) ||
			!strings.Contains(got, `"scheme":"HTTP"`) || strings.Contains(got, "markerPolicy") {
			return fmt.Errorf("%v", pod.Annotations)
		}
		return nil
	})
	for status, label := range map[corev1.ConditionStatus]string{corev1.ConditionTrue: "true", corev1.ConditionFalse: "false"} {
		patch := fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"example.com/idle","status":%q,"message":"by the provider"}]}}`, status)
		if err := i.kube.Status().Patch(t.Context(), pod, client.RawPatch("application/strategic-merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
		i.eventually("its label", func() error {
			err := i.kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)
			if pod.Labels["idle"] != label || len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Message != "by the provider" {
				err = errors.Join(err, fmt.Errorf("%v %+v", pod.Labels, pod.Status.Conditions))
			}
			return err
		})
	}
	if err := i.kube.Get(t.Context(), client.ObjectKey{Name: "virtual"}, &appsv1alpha1.NodePodProbe{}); !apierrors.IsNotFound(err) {
		t.Errorf("a virtual node has a NodePodProbe: %v", err)
	}
}
