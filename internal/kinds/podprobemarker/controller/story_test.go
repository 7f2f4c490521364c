package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// PPM-001: a pod that is selected is probed again and again, its result becomes condition, label and
// annotation, and nothing else happens to it: it stays ready, and no container of it is restarted, though the
// probe has failed for an hour.
func TestAFailedProbeOnlyMarksItsPod(t *testing.T) {
	w := town(t, given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) {
		p.Probe.PeriodSeconds = 7
		p.MarkerPolicy[1].Annotations = map[string]string{pub.PodDeletionCost: "10"}
	}))
	w.Change(podKey("shop", "a"), func(o client.Object) {
		p := o.(*corev1.Pod)
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true}}
	})
	w.add("other", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} })
	w.quiet()
	list := w.list("n").Spec.PodProbes
	if got := w.names(); !slices.Equal(got, []string{"a m#idle"}) || list[0].Probes[0].ContainerName != "app" || list[0].Probes[0].Probe.PeriodSeconds != 7 {
		t.Fatalf("%v %+v", got, list)
	}
	before := len(w.Writes)
	for range 60 {
		w.result(appsv1alpha1.ProbeFailed, "somebody plays")
		w.Pass(time.Minute)
	}
	pod := w.pod("shop", "a")
	if c := w.condition("example.com/idle"); c == nil || c.Status != corev1.ConditionFalse || pod.Labels["idle"] != "false" || pod.Annotations[pub.PodDeletionCost] != "10" {
		t.Errorf("%+v %v %v", c, pod.Labels, pod.Annotations)
	}
	if ready := w.condition(corev1.PodReady); ready.Status != corev1.ConditionTrue || !pod.Status.ContainerStatuses[0].Ready || len(pod.Labels) != 2 {
		t.Errorf("%+v", pod)
	}
	for _, write := range w.Writes[before:] {
		if write.Key != podKey("shop", "a") || write.Verb != "patch" {
			t.Errorf("%+v", write)
		}
	}
}

// PPM-004, PPM-117: a pod of a virtual node carries its probes in an annotation, who provides the node
// carries them out and writes the condition, and the manager does nothing but to mark the pod. What is
// changed in the PodProbeMarker later does not come to the pod, and its policies do.
func TestAServerlessPodIsProbedByItsProvider(t *testing.T) {
	marker := given.Marker("m", given.Probe("idle"))
	w := newWorld(t, 1, Options{Serverless: true})
	node := given.Node("n")
	node.UID, node.Labels[pub.NodeType] = "", pub.VirtualNode
	w.Store(nodeKey("n"), node)
	w.put(marker)
	var carried string
	w.add("a", func(p *corev1.Pod) {
		probes, names := podprobemarker.Travelling(p, []*appsv1alpha1.PodProbeMarker{marker})
		p.Annotations = map[string]string{pub.PodProbes: probes, pub.PodProbeMarkers: names}
		carried = probes
	})
	w.quiet()
	var provider []appsv1alpha1.PodContainerProbe // which reads the annotation
	if err := json.Unmarshal([]byte(carried), &provider); err != nil || len(provider) != 1 || provider[0].Probe.Exec.Command[0] != "/idle" || len(provider[0].MarkerPolicy) > 0 {
		t.Fatal(carried, err)
	}
	tells := func(status corev1.ConditionStatus) {
		w.Change(podKey("shop", "a"), func(o client.Object) {
			p := o.(*corev1.Pod)
			p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return string(c.Type) == provider[0].PodConditionType })
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(provider[0].PodConditionType), Status: status, Message: "told by the provider"})
		})
		w.quiet()
	}
	marked := func(want string) {
		t.Helper()
		pod := w.pod("shop", "a")
		if c := w.condition("example.com/idle"); pod.Labels["idle"] != want || c.Message != "told by the provider" || pod.Annotations[pub.PodProbes] != carried {
			t.Errorf("%v %v %+v, want idle=%s", pod.Labels, pod.Annotations, c, want)
		}
	}
	tells(corev1.ConditionTrue)
	marked("true")
	changed := given.Marker("m", given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) {
		p.Probe = given.Exec("/other")
		p.MarkerPolicy[1].Labels["idle"] = "no"
	}))
	w.put(changed)
	w.quiet()
	tells(corev1.ConditionFalse)
	marked("no")
	if w.list("n") != nil {
		t.Error("a virtual node has a NodePodProbe")
	}
	for _, write := range w.Writes {
		if write.Key.Kind == "Pod" && write.Subresource != "" {
			t.Errorf("the manager writes the condition: %+v", write)
		}
	}
}

// PPM-146: each node is told of its own pods, by one object and one write, however many pods and nodes there
// are; nothing is probed by the manager.
func TestEachNodeProbesItsOwnPods(t *testing.T) {
	const nodes, pods = 20, 15
	w := newWorld(t, 1, Options{})
	for n := range nodes {
		node := given.Node(fmt.Sprint("n", n))
		node.UID = ""
		w.Store(nodeKey(node.Name), node)
		for i := range pods {
			w.add(fmt.Sprintf("n%d-%d", n, i), func(p *corev1.Pod) { p.Spec.NodeName = node.Name })
		}
	}
	w.put(given.Marker("m", given.Probe("idle")))
	w.quiet()
	for n := range nodes {
		list := w.list(fmt.Sprint("n", n)).Spec.PodProbes
		for i := range list {
			if !strings.HasPrefix(list[i].Name, fmt.Sprintf("n%d-", n)) {
				t.Errorf("n%d probes %s", n, list[i].Name)
			}
		}
		if len(list) != pods {
			t.Errorf("n%d probes %d pods", n, len(list))
		}
	}
	lists := 0
	for _, write := range w.Writes {
		if write.Key.Kind == "NodePodProbe" {
			lists++
		}
	}
	if lists > 2*nodes { // one creates it
		t.Errorf("%d writes for %d nodes", lists, nodes)
	}
}

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
		if slices.Contains(got, "n") != test.want || len(got) > 2 {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
