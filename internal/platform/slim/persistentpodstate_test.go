package slim

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// PPS-013 (part), PPS-050 (part), PPS-051 (part): of pods with stable names, whoever controls them, is kept
// what is remembered: whether they are ready, and their short annotations; of a StatefulSet which
// PersistentPodState it asks for.
func TestWhatIsRememberedOfPodsIsKept(t *testing.T) {
	pod := func(name string, controlled bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"ip": "1", "long": strings.Repeat("x", MostRemembered+1),
			corev1.LastAppliedConfigAnnotation: "{}"}}, Spec: corev1.PodSpec{NodeName: "a"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
		if controlled {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "u", Controller: new(true)}}
		}
		if _, err := Pod(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := pod("web-10", true)
	if len(p.Annotations) != 1 {
		t.Errorf("annotations that are kept: got %v, want 1", p.Annotations)
	}
	if p.Annotations["ip"] != "1" {
		t.Errorf("annotations that are kept: got %v, want that of the address", p.Annotations)
	}
	if len(p.Status.Conditions) != 1 {
		t.Errorf("conditions that are kept: got %+v, want 1", p.Status.Conditions)
	}
	if p.Spec.NodeName != "a" {
		t.Errorf("node that is kept: got %q, want \"a\"", p.Spec.NodeName)
	}
	for name, controlled := range map[string]bool{"web-x1": true, "web-": true, "10": true, "web-1": false} {
		if p := pod(name, controlled); len(p.Annotations) > 0 || !p.Status.Conditions[0].LastTransitionTime.IsZero() {
			t.Errorf("%s: annotations and conditions that are kept: got %v, %+v, want none but whether it is ready",
				name, p.Annotations, p.Status.Conditions)
		}
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"x": "y", pub.AutoGeneratePersistentPodState: "true", pub.PersistentPodAnnotations: "ip"}}}
	if _, err := Workload(set); err != nil {
		t.Errorf("slimming the StatefulSet: %v", err)
	}
	if len(set.Annotations) != 2 {
		t.Errorf("annotations of the StatefulSet that are kept: got %v, want 2", set.Annotations)
	}
}
