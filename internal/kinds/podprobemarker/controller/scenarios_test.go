package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	if got := w.names(); !slices.Equal(got, []string{"a m#idle"}) {
		t.Fatalf("names: got %q, want %q\n%+v", got, []string{"a m#idle"}, list)
	} else if list[0].Probes[0].ContainerName != "app" {
		t.Fatalf("container name of the first probe of the first of the list: got %q, want %q\n%v\n%+v",
			list[0].Probes[0].ContainerName, "app", got, list)
	} else if list[0].Probes[0].Probe.PeriodSeconds != 7 {
		t.Fatalf("period in seconds of the probe of the first probe: got %d, want 7\n%v\n%+v",
			list[0].Probes[0].Probe.PeriodSeconds, got, list)
	}
	before := len(w.Writes)
	for range 60 {
		w.result(appsv1alpha1.ProbeFailed, "somebody plays")
		w.Pass(time.Minute)
	}
	pod := w.pod("shop", "a")
	if c := w.condition("example.com/idle"); c == nil {
		t.Errorf("condition example.com/idle: got nil, want a value\n%v\n%v", pod.Labels, pod.Annotations)
	} else if c.Status != corev1.ConditionFalse {
		t.Errorf("status: got %q, want %q\n%+v\n%v\n%v", c.Status, corev1.ConditionFalse, c, pod.Labels,
			pod.Annotations)
	} else if pod.Labels["idle"] != "false" {
		t.Errorf("label idle of the pod: got %q, want %q\n%+v\n%v\n%v", pod.Labels["idle"], "false", c, pod.Labels,
			pod.Annotations)
	} else if pod.Annotations[pub.PodDeletionCost] != "10" {
		t.Errorf("annotation pod deletion cost of the pod: got %q, want %q\n%+v\n%v\n%v",
			pod.Annotations[pub.PodDeletionCost], "10", c,
			pod.Labels, pod.Annotations)
	}
	if ready := w.condition(corev1.PodReady); ready.Status != corev1.ConditionTrue {
		t.Errorf("condition about readiness: got %q, want %q\n%+v", ready.Status, corev1.ConditionTrue, pod)
	} else if !pod.Status.ContainerStatuses[0].Ready {
		t.Errorf("first container of the pod is ready: got false, want true\n%+v", pod)
	} else if len(pod.Labels) != 2 {
		t.Errorf("number of labels of the pod: got %d, want 2\n%+v", len(pod.Labels), pod)
	}
	for _, write := range w.Writes[before:] {
		if want := podKey("shop", "a"); write.Key != want {
			t.Errorf("key of the write: got %+v, want %+v\n%+v", write.Key, want, write)
		}
		if write.Verb != "patch" {
			t.Errorf("verb of the write: got %q, want %q\n%+v", write.Verb, "patch", write)
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
	if err := json.Unmarshal([]byte(carried), &provider); err != nil {
		t.Fatalf("reading what is carried: unexpected error: %v\n%q", err, carried)
	} else if len(provider) != 1 {
		t.Fatalf("number of probes: got %d, want 1\n%q\n%v", len(provider), carried, err)
	} else if provider[0].Probe.Exec.Command[0] != "/idle" {
		t.Fatalf("first of the command of the exec of the probe: got %q, want %q\n%q\n%v",
			provider[0].Probe.Exec.Command[0], "/idle", carried, err)
	} else if len(provider[0].MarkerPolicy) > 0 {
		t.Fatalf("marker policy of the first of the provider: got %v, want none\n%q\n%v", provider[0].MarkerPolicy,
			carried, err)
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
		c := w.condition("example.com/idle")
		if pod.Labels["idle"] != want {
			t.Errorf(`label idle of the pod: got %q, want %q; %v %v %+v, want idle=%s`, pod.Labels["idle"], want,
				pod.Labels, pod.Annotations, c,
				want)
		}
		if c.Message != "told by the provider" {
			t.Errorf("message: got %q, want %q; %v %v %+v, want idle=%s", c.Message, "told by the provider",
				pod.Labels, pod.Annotations, c,
				want)
		}
		if pod.Annotations[pub.PodProbes] != carried {
			t.Errorf("annotation pod probes of the pod: got %q, want %q; %v %v %+v, want idle=%s",
				pod.Annotations[pub.PodProbes], carried,
				pod.Labels, pod.Annotations, c, want)
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
