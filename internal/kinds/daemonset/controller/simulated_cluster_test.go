package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

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
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// simulated is a manager that looks after the DaemonSet agent in a simulated cluster.
type simulated struct {
	*simulationtest.Workload[*appsv1beta1.DaemonSet, *daemonset.Plan]
	kube       *Kube
	controller *Controller
	kind       *Kind
	// asked counts the templates that the API server was asked to complete.
	asked int
}

var setKey = simulation.Key{Kind: "DaemonSet", Name: "agent"}

func simulate(seed uint64, set *appsv1beta1.DaemonSet, features daemonset.Features, nodeNames ...string) *simulated {
	s := &simulated{
		Workload: simulationtest.NewWorkload[*appsv1beta1.DaemonSet, *daemonset.Plan](seed, setKey),
		kind:     &Kind{Features: features},
	}
	s.NewManager, s.Remember, s.Delivered = s.newManager, s.remember, s.wake
	s.Describe, s.EnvironmentStep = s.describe, s.environmentStep
	s.AddKubelets()
	s.Node.Schedule = s.schedule
	if err := podapply.IndexRevisions(context.Background(), s.Cluster); err != nil {
		panic(err)
	}
	for _, name := range nodeNames {
		s.addNode(name, nil)
	}
	s.Store(setKey, set)
	s.Start()
	return s
}

var podKey, nodeKey, revisionKey = simulationtest.PodKey, simulationtest.NodeKey, simulationtest.RevisionKey

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

func (s *simulated) newManager() {
	s.kube = &Kube{Reader: podapply.Reader{API: s.API(), Pods: s.Pods()}}
	s.kind = &Kind{Kube: s.kube, Features: s.kind.Features, Template: s.complete}
	s.controller = New(s.kind, s)
	s.Run, s.Forget = s.controller.Run, s.controller.Forget
}

func (s *simulated) remember() (restore func()) {
	kube, controller := s.kube, s.controller
	return func() { s.kube, s.controller = kube, controller }
}

func (s *simulated) set() *appsv1beta1.DaemonSet { return s.Object() }

func (s *simulated) nodes() []*corev1.Node {
	return simulationtest.All[*corev1.Node](s.Cluster, "Node", false)
}

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
	for _, pod := range s.AllPods() {
		if s.Node.Step(pod.Name) {
			moved = true
		}
	}
	return s.Others != nil && s.Others() || moved
}

// collectPods removes the pods of nodes that are gone, as the garbage collector of pods does.
func (s *simulated) collectPods() (moved bool) {
	for _, pod := range s.AllPods() {
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
	b.WriteString(s.DescribePods())
	for _, node := range s.nodes() {
		fmt.Fprintf(&b, "node %s %v cordoned %t taints %v %v\n", node.Name, node.Labels, node.Spec.Unschedulable, node.Spec.Taints,
			node.Status.Conditions)
	}
	fmt.Fprintf(&b, "spec %+v\nstatus %+v\n", s.set().Spec.UpdateStrategy.RollingUpdate, s.set().Status)
	return b.String()
}
