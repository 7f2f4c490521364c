package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// PPM-056: what asks for a pass over a node, and what does not, though it happens all the time.
func TestEventsThatPlanANodeAnew(t *testing.T) {
	w := newWorld(t, 1, Options{})
	w.add("a")
	pod := func(changes ...func(*corev1.Pod)) *corev1.Pod { return given.Pod("a", changes...) }
	condition := func(of corev1.PodConditionType, status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: of, Status: status})
		}
	}
	uninitialized := func(p *corev1.Pod) { p.Status.Phase, p.Status.Conditions = corev1.PodPending, nil }
	marker := func(generation int64) *appsv1alpha1.PodProbeMarker {
		m := given.Marker("m", given.Probe("idle"))
		m.Generation = generation
		return m
	}
	virtual := given.Node("n")
	virtual.Labels[pub.NodeType] = pub.VirtualNode
	labelled := given.Node("n")
	labelled.Labels["zone"] = "a"
	w.Deliver(1 << 20)
	for name, test := range map[string]struct {
		before, after client.Object
		serverless    bool
		want          bool
	}{
		"a PodProbeMarker is created":       {nil, marker(1), false, true},
		"it is changed":                     {marker(1), marker(2), false, true},
		"its status is":                     {marker(1), marker(1), false, false},
		"a pod is there, after a restart":   {nil, pod(), false, true},
		"a pod is initialized":              {pod(uninitialized), pod(), false, true},
		"it has another address":            {pod(), pod(func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" }), false, true},
		"it has another label":              {pod(), pod(func(p *corev1.Pod) { p.Labels["a"] = "b" }), false, true},
		"it has another annotation":         {pod(), pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }), false, false},
		"a condition of it turns":           {pod(), pod(condition("example.com/idle", "True")), false, false},
		"the same, with serverless pods":    {pod(), pod(condition("example.com/idle", "True")), true, true},
		"only the time of a condition does": {pod(), pod(func(p *corev1.Pod) { p.Status.Conditions[0].LastProbeTime = metav1.Now() }), true, false},
		"a node becomes a virtual one":      {given.Node("n"), virtual, false, true},
		"a node has another label":          {given.Node("n"), labelled, false, false},
		"a NodePodProbe is created":         {nil, &appsv1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, false, true},
	} {
		w.r.Nodes.Serverless = test.serverless
		var got []string
		add := func(request ctrl.Request, _ time.Duration) { got = append(got, request.Name) }
		switch after := test.after.(type) {
		case *corev1.Node:
			if nodeChanged(event.UpdateEvent{ObjectOld: test.before, ObjectNew: after}) {
				add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(after)}, 0)
			}
		case *appsv1alpha1.NodePodProbe: // the controller is For it, without a predicate
			clear(w.nodes)
			w.delivered(nil, after)
			for key := range w.nodes {
				add(ctrl.Request{NamespacedName: key}, 0)
			}
		case *appsv1alpha1.PodProbeMarker:
			w.r.NodesOfMarker(t.Context(), test.before, after, add)
		case *corev1.Pod:
			w.r.NodesOfPod(t.Context(), test.before, after, add)
		}
		if slices.Contains(got, "n") != test.want {
			t.Errorf(`%s: node n is concerned: got %t, want %t; %v, want %v`, name, slices.Contains(got, "n"),
				test.want, got, test.want)
		}
		if len(got) > 2 {
			t.Errorf("%s: number of results: got %d, want at most 2; %v, want %v", name, len(got), got, test.want)
		}
	}
}
