package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// simulated is a manager that looks after the DaemonSet agent in a simulated cluster.
type simulated struct {
	simulation.Play
	kube       *Kube
	controller *Controller
	kind       *Kind
	node       *simulation.Node
	events     []string
	trace      bool
	// planned is told each plan that was carried out; nil means nobody is.
	planned func(*daemonset.Plan)
	// others acts beside kubelets and the garbage collector, and tells whether anything happened; nil means
	// nobody.
	others func() bool
	// asked counts the templates that the API server was asked to complete.
	asked int
}

var setKey = simulation.Key{Kind: "DaemonSet", Name: "agent"}

func simulate(seed uint64, set *appsv1beta1.DaemonSet, features daemonset.Features, nodeNames ...string) *simulated {
	s := &simulated{Play: simulation.Play{Cluster: simulation.New(seed)}}
	s.Reconcile, s.EnvironmentStep, s.Describe, s.Start = s.reconcile, s.environmentStep, s.describe, func() { s.startManager(features) }
	s.node = s.NewNode()
	s.node.Observes, s.node.Schedule = s.Chance(0.5), s.schedule
	s.Slim, s.Delivered = slim.Any, s.wake
	if err := podapply.IndexRevisions(context.Background(), s.Cluster); err != nil {
		panic(err)
	}
	for _, name := range nodeNames {
		s.addNode(name, nil)
	}
	s.Store(setKey, set)
	s.startManager(features)
	return s
}

func nodeKey(name string) simulation.Key { return simulation.Key{Kind: "Node", Name: name} }

func (s *simulated) addNode(name string, labels map[string]string) {
	s.Store(nodeKey(name), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
}

// schedule binds a pod to the node for which it is meant, if that exists and the pod tolerates its taints.
func (s *simulated) schedule(pod *corev1.Pod) string {
	target := nodes.Target(pod)
	node, ok := s.Get(nodeKey(target)).(*corev1.Node)
	if !ok || !nodes.ForDaemon(&corev1.PodSpec{Tolerations: pod.Spec.Tolerations}).Judge(node).Eligible {
		return ""
	}
	return target
}

// complete completes a template as an API server would that has two defaults.
func (s *simulated) complete(_ context.Context, _ string, template []byte) ([]byte, error) {
	s.asked++
	if s.Chance(s.Faults.Refuse) {
		return nil, fmt.Errorf("the API server is busy")
	}
	var document map[string]any
	if err := json.Unmarshal(template, &document); err != nil {
		return nil, err
	}
	spec, _ := document["spec"].(map[string]any)
	for key, value := range map[string]any{"dnsPolicy": "ClusterFirst", "restartPolicy": "Always"} {
		if spec[key] == nil {
			spec[key] = value
		}
	}
	return json.Marshal(document)
}

// wake calls the manager for an event as its watches do.
func (s *simulated) wake(before, after client.Object) {
	if s.kube == nil { // the first manager begins with a list
		return
	}
	ctx := context.Background()
	var requests []ctrl.Request
	if _, ok := before.(*corev1.Node); ok {
		node, _ := after.(*corev1.Node)
		requests = s.kube.setsOfNode(ctx, before.(*corev1.Node), node)
	} else if node, ok := after.(*corev1.Node); ok {
		requests = s.kube.setsOfNode(ctx, nil, node)
	}
	for _, object := range []client.Object{before, after} {
		switch object.(type) {
		case *appsv1beta1.DaemonSet:
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		case *corev1.Pod:
			requests = append(requests, s.kube.setsOf(ctx, object)...)
		case *appsv1.ControllerRevision:
			requests = append(requests, ownerOf(ctx, object)...)
		}
	}
	for _, request := range requests {
		if request.Name == setKey.Name {
			s.Queue.Add()
		}
	}
}

// startManager starts a manager whose caches begin with a list.
func (s *simulated) startManager(features daemonset.Features) {
	s.Restart()
	s.beginManager(features)
}

// beginManager lets a manager begin with the caches as they are, as one does that stood by.
func (s *simulated) beginManager(features daemonset.Features) {
	s.Queue = simulation.NewQueue(s.Cluster, setKey.Name)
	api := s.API()
	s.kube = &Kube{Reader: podapply.Reader{API: api, Pods: s.Pods()}}
	s.kind = &Kind{Kube: s.kube, Features: features, Template: s.complete}
	s.controller = New(s.kind, s)
}

// Event implements reconcile.Recorder.
func (s *simulated) Event(_ client.Object, eventType, reason, message string) {
	s.events = append(s.events, fmt.Sprintf("%s %s %s", eventType, reason, message))
	if s.trace {
		fmt.Println("event", eventType, reason, message)
	}
}

func (s *simulated) reconcile() (time.Duration, error) {
	set := s.Cached(setKey)
	if set == nil {
		return 0, nil
	}
	plan, outcome, err := s.controller.Run(context.Background(), client.ObjectKeyFromObject(set), set.GetUID())
	if s.trace {
		fmt.Printf("--- %s after %s err %v\n", s.Now().Format("15:04:05"), outcome.After, err)
		if plan != nil {
			fmt.Print(plan)
		}
	}
	if s.planned != nil && plan != nil {
		s.planned(plan)
	}
	reconcile.MinRequeue(&outcome.After, outcome.ReportAfter)
	return outcome.After, err
}

func (s *simulated) set() *appsv1beta1.DaemonSet {
	set, _ := s.Get(setKey).(*appsv1beta1.DaemonSet)
	return set
}

func (s *simulated) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range s.List("Pod", false) {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

// on are the pods that are meant for a node.
func (s *simulated) on(node string) (pods []*corev1.Pod) {
	for _, pod := range s.pods() {
		if nodes.Target(pod) == node {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (s *simulated) nodes() []*corev1.Node {
	var all []*corev1.Node
	for _, object := range s.List("Node", false) {
		all = append(all, object.(*corev1.Node))
	}
	return all
}

// change changes the set as a user does.
func (s *simulated) change(change func(*appsv1beta1.DaemonSet)) {
	s.Change(setKey, func(o client.Object) {
		set := o.(*appsv1beta1.DaemonSet)
		change(set)
		set.Generation++
	})
}

func podKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

func number(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }

func percent(text string) *intstr.IntOrString { v := intstr.FromString(text); return &v }

func setTemplate(set *appsv1beta1.DaemonSet, document string) {
	if err := set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		panic(err)
	}
}

// makeSet returns a set of pods of agent:1; options change it.
func makeSet(options ...func(*appsv1beta1.DaemonSet)) *appsv1beta1.DaemonSet {
	set := &appsv1beta1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", Generation: 1}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	set.Spec.UpdateStrategy = appsv1beta1.DaemonSetUpdateStrategy{Type: appsv1beta1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1beta1.RollingUpdateDaemonSet{MaxUnavailable: number(1)}}
	setTemplate(set, `{"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"agent","image":"agent:1"}]}}`)
	for _, option := range options {
		option(set)
	}
	return set
}

// environmentStep lets the garbage collectors, kubelets, and whoever else there is, act once.
func (s *simulated) environmentStep() bool {
	s.CollectGarbage()
	moved := s.collectPods()
	for _, pod := range s.pods() {
		if s.node.Step(pod.Name) {
			moved = true
		}
	}
	return s.others != nil && s.others() || moved
}

// collectPods removes the pods of nodes that are gone, as the garbage collector of pods does.
func (s *simulated) collectPods() (moved bool) {
	for _, pod := range s.pods() {
		if pod.Spec.NodeName != "" && s.Get(nodeKey(pod.Spec.NodeName)) == nil && len(pod.Finalizers) == 0 {
			s.Remove(podKey(pod.Name))
			moved = true
		}
	}
	return moved
}

func (s *simulated) describe() string {
	var b strings.Builder
	if snapshot, err := s.kube.Snapshot(context.Background(), s.set(), s.kind.Features); err == nil {
		snapshot.Now = s.Now()
		snapshot.Known = &podplan.Knowledge{}
		s.Faults = simulation.Faults{}
		plan, _ := s.kind.plan(context.Background(), *snapshot)
		b.WriteString("\n" + plan.String())
	}
	for _, pod := range s.pods() {
		fmt.Fprintf(&b, "%s on %s %s labels %v deleted %v phase %s", pod.Name, nodes.Target(pod), pod.UID, pod.Labels,
			pod.DeletionTimestamp != nil, pod.Status.Phase)
		for i, c := range pod.Spec.Containers {
			fmt.Fprintf(&b, " %s", c.Image)
			if i < len(pod.Status.ContainerStatuses) {
				fmt.Fprintf(&b, " (runs %s ready %v)", pod.Status.ContainerStatuses[i].Image, pod.Status.ContainerStatuses[i].Ready)
			}
		}
		b.WriteString("\n")
	}
	for _, node := range s.nodes() {
		fmt.Fprintf(&b, "node %s %v cordoned %t taints %v %v\n", node.Name, node.Labels, node.Spec.Unschedulable, node.Spec.Taints,
			node.Status.Conditions)
	}
	fmt.Fprintf(&b, "spec %+v\nstatus %+v\n", s.set().Spec.UpdateStrategy.RollingUpdate, s.set().Status)
	return b.String()
}
