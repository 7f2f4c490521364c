// Package podprobemarkertest builds PodProbeMarkers, pods and NodePodProbes for tests of the plans and of the
// controllers.
package podprobemarkertest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// Noon is the time of the tests.
var Noon = metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

// Exec returns a probe that runs a command.
func Exec(command ...string) appsv1alpha1.ContainerProbeSpec {
	return appsv1alpha1.ContainerProbeSpec{
		ContainerProbeHandler: appsv1alpha1.ContainerProbeHandler{Exec: &corev1.ExecAction{Command: command}},
	}
}

// Probe returns a probe of container app whose result is written to the condition example.com/NAME and to
// label NAME, as true or false.
func Probe(name string, changes ...func(*appsv1alpha1.PodContainerProbe)) appsv1alpha1.PodContainerProbe {
	p := appsv1alpha1.PodContainerProbe{
		Name:             name,
		ContainerName:    "app",
		Probe:            Exec("/" + name),
		PodConditionType: "example.com/" + name,
		MarkerPolicy: []appsv1alpha1.ProbeMarkerPolicy{
			{State: appsv1alpha1.ProbeSucceeded, Labels: map[string]string{name: "true"}},
			{State: appsv1alpha1.ProbeFailed, Labels: map[string]string{name: "false"}},
		},
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

// Marker returns a PodProbeMarker of namespace shop that selects app=web.
func Marker(name string, probes ...appsv1alpha1.PodContainerProbe) *appsv1alpha1.PodProbeMarker {
	return &appsv1alpha1.PodProbeMarker{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  "shop",
			Name:       name,
			UID:        types.UID("uid-" + name),
			Generation: 1,
		},
		Spec: appsv1alpha1.PodProbeMarkerSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Probes:   probes,
		},
	}
}

// Pod returns a pod of namespace shop with label app=web that runs on node n.
func Pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      name,
			UID:       types.UID("uid-" + name),
			Labels:    map[string]string{"app": "web"},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			PodIP:      "10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// Node returns a node that is ready.
func Node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// Result returns the result of a probe as a node reports it.
func Result(name string, state appsv1alpha1.ProbeState, message string) appsv1alpha1.ContainerProbeState {
	return appsv1alpha1.ContainerProbeState{
		Name:               name,
		State:              state,
		Message:            message,
		LastProbeTime:      Noon,
		LastTransitionTime: Noon,
	}
}

// Results returns the results of a pod.
func Results(pod *corev1.Pod, states ...appsv1alpha1.ContainerProbeState) appsv1alpha1.PodProbeStatus {
	return appsv1alpha1.PodProbeStatus{
		Namespace:   pod.Namespace,
		Name:        pod.Name,
		UID:         string(pod.UID),
		ProbeStates: states,
	}
}
