//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
)

// A PodProbeMarker on a real API server, whose daemon is the test: the node is told what to probe, with the
// number of a named port; the pod gets condition, label and annotation of the result, and nothing else of it
// changes; what is not asked for any more goes from the node; a deleted PodProbeMarker goes after its probes,
// and what it wrote stays (PPM-003 (part), PPM-016, PPM-050, PPM-051, PPM-053 (part), PPM-054, PPM-057,
// PPM-058, PPM-059, PPM-065, PPM-066, PPM-067, PPM-071, PPM-074, PPM-142).
func TestPodProbeMarkerOnANode(t *testing.T) {
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probed"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probed", Labels: map[string]string{"app": "probed"}, Annotations: map[string]string{"theirs": "x"}},
		Spec: corev1.PodSpec{NodeName: "probed", Containers: []corev1.Container{{Name: "app", Image: "a", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}}}
	marker := &appsv1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
		Spec: appsv1alpha1.PodProbeMarkerSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probed"}},
			Probes: []appsv1alpha1.PodContainerProbe{{Name: "idle", ContainerName: "app", PodConditionType: "example.com/idle",
				Probe: appsv1alpha1.ContainerProbeSpec{ContainerProbeHandler: appsv1alpha1.ContainerProbeHandler{
					HTTPGet: &appsv1alpha1.HTTPGetAction{Path: "/idle", Port: intstr.FromString("http")}}, PeriodSeconds: 2},
				MarkerPolicy: []appsv1alpha1.ProbeMarkerPolicy{{State: appsv1alpha1.ProbeSucceeded, Labels: map[string]string{"idle": "true"},
					Annotations: map[string]string{pub.PodDeletionCost: "-10", "example.com/note": "idle"}}, {State: appsv1alpha1.ProbeFailed, Labels: map[string]string{"idle": "false"}}}}}}}
	second := marker.DeepCopy()
	second.Name, second.Spec.Probes[0].PodConditionType, second.Spec.Probes[0].MarkerPolicy = "ab", "example.com/other", nil
	for _, object := range []client.Object{node, pod, marker, second} {
		if err := kube.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = kube.Delete(t.Context(), object, client.GracePeriodSeconds(0)) }()
	}
	if marker.Spec.Probes[0].Probe.HTTPGet.Scheme != corev1.URISchemeHTTP {
		t.Errorf("PPM-013: %+v", marker.Spec)
	}
	bad := marker.DeepCopy()
	bad.ResourceVersion, bad.Name, bad.Spec.Probes[0].Probe.HTTPGet.Host = "", "bad", "169.254.169.254"
	if err := kube.Create(ctx, bad); !apierrors.IsBadRequest(err) {
		t.Errorf("a probe with a host: got %v, want it refused with code 400", err)
	} else if !strings.Contains(err.Error(), "host field in probes is not allowed") {
		t.Errorf("a probe with a host: refused with %q, want the field in it", err)
	}
	list := &appsv1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "probed"}}
	if err := kube.Get(ctx, client.ObjectKeyFromObject(list), list); !apierrors.IsNotFound(err) {
		t.Errorf("PPM-065: a node that never was ready: %v", err)
	}
	before := node.DeepCopy() // it becomes ready later
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if err := kube.Status().Patch(ctx, node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	kubelet := func(change func(*corev1.PodStatus)) {
		t.Helper()
		if err := kube.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		before := pod.DeepCopy()
		change(&pod.Status)
		if err := kube.Status().Patch(ctx, pod, client.StrategicMergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	kubelet(func(s *corev1.PodStatus) {
		s.Phase, s.PodIP, s.PodIPs = corev1.PodRunning, "10.9.8.7", []corev1.PodIP{{IP: "10.9.8.7"}}
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	probes := func(want ...string) {
		t.Helper()
		if err := wait(func() error {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(list), list); err != nil {
				return err
			}
			var got []string
			for _, of := range list.Spec.PodProbes {
				for _, probe := range of.Probes {
					port := "?"
					if get := probe.Probe.HTTPGet; get != nil {
						port = get.Port.String()
					}
					got = append(got, fmt.Sprint(of.Namespace, "/", of.Name, " ", of.UID == string(pod.UID), " ", of.IP, " ", probe.Name, " ", port))
				}
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	probes("default/probed true 10.9.8.7 ab#idle 8080", "default/probed true 10.9.8.7 b#idle 8080")
	counted := func(pods int64) {
		t.Helper()
		if err := wait(func() error {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(marker), marker); err != nil {
				return err
			}
			if marker.Status.MatchedPods != pods || marker.Status.ObservedGeneration != marker.Generation || !slices.Contains(marker.Finalizers, pub.ProbeCleanup) {
				return fmt.Errorf("%+v %v", marker.Status, marker.Finalizers)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	counted(1)
	tells := func(state appsv1alpha1.ProbeState, message string) {
		t.Helper()
		status := map[string]any{"podProbeStatuses": []appsv1alpha1.PodProbeStatus{{Namespace: "default", Name: "probed", UID: string(pod.UID),
			ProbeStates: []appsv1alpha1.ContainerProbeState{{Name: "b#idle", State: state, Message: message, LastProbeTime: metav1.Now(), LastTransitionTime: metav1.Now()}}}}}
		body, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			t.Fatal(err)
		}
		if err := kube.Status().Patch(ctx, list, client.RawPatch("application/merge-patch+json", body)); err != nil {
			t.Fatal(err)
		}
	}
	has := func(status corev1.ConditionStatus, message, label, cost string) {
		t.Helper()
		if err := wait(func() error {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			got := fmt.Sprint(pod.Labels["idle"], " ", pod.Annotations[pub.PodDeletionCost], " ", pod.Annotations["example.com/note"] != "", " ", pod.Annotations["theirs"])
			types := map[corev1.PodConditionType]corev1.PodCondition{}
			for _, c := range pod.Status.Conditions {
				types[c.Type] = c
			}
			c := types["example.com/idle"]
			if want := fmt.Sprint(label, " ", cost, " ", cost != "", " x"); got != want || c.Status != status || c.Message != message || c.LastProbeTime.IsZero() || len(types) < 3 {
				return fmt.Errorf("%s, %+v, want %s", got, pod.Status.Conditions, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	tells(appsv1alpha1.ProbeSucceeded, "nobody plays")
	has(corev1.ConditionTrue, "nobody plays", "true", "-10")
	tells(appsv1alpha1.ProbeFailed, "busy")
	has(corev1.ConditionFalse, "busy", "false", "")
	tells(appsv1alpha1.ProbeSucceeded, "idle again")
	has(corev1.ConditionTrue, "idle again", "true", "-10")
	kubelet(func(s *corev1.PodStatus) { s.PodIP, s.PodIPs = "10.9.8.8", []corev1.PodIP{{IP: "10.9.8.8"}} })
	probes("default/probed true 10.9.8.8 ab#idle 8080", "default/probed true 10.9.8.8 b#idle 8080")
	if err := kube.Delete(ctx, marker); err != nil {
		t.Fatal(err)
	}
	probes("default/probed true 10.9.8.8 ab#idle 8080")
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(marker), marker); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	}); err != nil {
		t.Errorf("deletion of the marker: %v", err)
	}
	has(corev1.ConditionTrue, "idle again", "true", "-10") // PPM-058
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"other"}}}`))
	if err := kube.Patch(ctx, pod, patch); err != nil {
		t.Fatal(err)
	}
	probes()
	if err := kube.Delete(ctx, node); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(list), list); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the NodePodProbe is still there: %w", err)
		}
		return nil
	}); err != nil {
		t.Errorf("after the node went: %v", err)
	}
}
