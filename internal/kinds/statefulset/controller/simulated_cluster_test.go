package controller

import (
	"context"
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
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// simulated is a manager that looks after the StatefulSet web in a simulated cluster.
type simulated struct {
	simulation.Play
	kube       *Kube
	controller *Controller
	kind       *Kind
	node       *simulation.Node
	events     []string
	trace      bool
	// planned is told each plan that was carried out; nil means nobody is.
	planned func(*statefulset.Plan)
	// others acts beside kubelets and the garbage collector, and tells whether anything happened; nil means
	// nobody.
	others func() bool
}

var setKey = simulation.Key{Kind: "StatefulSet", Name: "web"}

func simulate(seed uint64, set *appsv1beta1.StatefulSet, features statefulset.Features) *simulated {
	s := &simulated{Play: simulation.Play{Cluster: simulation.New(seed)}}
	s.Reconcile, s.EnvironmentStep, s.Describe, s.Start = s.reconcile, s.environmentStep, s.describe, func() { s.startManager(features) }
	s.node = s.NewNode()
	s.node.Observes = s.Chance(0.5)
	s.Slim, s.Delivered = slim.Any, s.wake
	if err := podapply.IndexRevisions(context.Background(), s.Cluster); err != nil {
		panic(err)
	}
	s.Store(simulation.Key{Kind: "Node", Name: "node"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	s.Store(setKey, set)
	s.startManager(features)
	return s
}

// wake calls the manager for an event as its watches do.
func (s *simulated) wake(before, after client.Object) {
	if s.kube == nil { // the first manager begins with a list
		return
	}
	for _, object := range []client.Object{before, after} {
		var requests []ctrl.Request
		switch object.(type) {
		case *appsv1beta1.StatefulSet:
			requests = []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
		case *corev1.Pod:
			requests = s.kube.setsOf(context.Background(), object)
		case *corev1.PersistentVolumeClaim:
			requests = s.kube.setsOfClaim(context.Background(), object)
		case *appsv1.ControllerRevision:
			requests = ownerOf(context.Background(), object)
		}
		for _, request := range requests {
			if request.Name == setKey.Name {
				s.Queue.Add()
			}
		}
	}
}

// startManager starts a manager whose caches begin with a list.
func (s *simulated) startManager(features statefulset.Features) {
	s.Restart()
	s.beginManager(features)
}

// beginManager lets a manager begin with the caches as they are, as one does that stood by.
func (s *simulated) beginManager(features statefulset.Features) {
	s.Queue = simulation.NewQueue(s.Cluster, setKey.Name)
	api := s.API()
	s.kube = &Kube{podapply.Reader{API: api, Pods: s.Pods()}}
	s.kind = &Kind{Kube: s.kube, Features: features}
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

func (s *simulated) set() *appsv1beta1.StatefulSet {
	set, _ := s.Get(setKey).(*appsv1beta1.StatefulSet)
	return set
}

func (s *simulated) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range s.List("Pod", false) {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

func (s *simulated) pod(name string) *corev1.Pod {
	pod, _ := s.Get(podKey(name)).(*corev1.Pod)
	return pod
}

// change changes the set as a user does.
func (s *simulated) change(change func(*appsv1beta1.StatefulSet)) {
	s.Change(setKey, func(o client.Object) {
		set := o.(*appsv1beta1.StatefulSet)
		change(set)
		set.Generation++
	})
}

func podKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

func claimKey(name string) simulation.Key {
	return simulation.Key{Kind: "PersistentVolumeClaim", Name: name}
}

func number(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }

func setTemplate(set *appsv1beta1.StatefulSet, document string) {
	if err := set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		panic(err)
	}
}

func setClaims(set *appsv1beta1.StatefulSet, names []string, size string) {
	var documents []string
	for _, name := range names {
		documents = append(documents, fmt.Sprintf(
			`{"metadata":{"name":%q},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":%q}}}}`, name, size))
	}
	if err := set.Spec.VolumeClaimTemplates.UnmarshalJSON([]byte("[" + strings.Join(documents, ",") + "]")); err != nil {
		panic(err)
	}
}

// makeSet returns a set of pods of nginx:1; options change it.
func makeSet(replicas int32, options ...func(*appsv1beta1.StatefulSet)) *appsv1beta1.StatefulSet {
	set := &appsv1beta1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1}}
	set.Spec.Replicas, set.Spec.ServiceName = &replicas, "web"
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy = appsv1beta1.StatefulSetUpdateStrategy{Type: appsv1beta1.RollingUpdateStatefulSetStrategyType,
		RollingUpdate: &appsv1beta1.RollingUpdateStatefulSetStrategy{}}
	setTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
	for _, option := range options {
		option(set)
	}
	return set
}

// environmentStep lets the garbage collector, kubelets, and whoever else there is, act once.
func (s *simulated) environmentStep() bool {
	s.CollectGarbage()
	moved := false
	for _, pod := range s.pods() {
		if s.mountable(pod) && s.node.Step(pod.Name) {
			moved = true
		}
	}
	moved = s.unprotect() || moved
	moved = s.growVolumes() || moved
	return s.others != nil && s.others() || moved
}

// growVolumes gives every volume the size that is asked for.
func (s *simulated) growVolumes() bool {
	moved := false
	for _, object := range s.List("PersistentVolumeClaim", false) {
		claim := object.(*corev1.PersistentVolumeClaim)
		want, have := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
		if want.Cmp(have) != 0 && claim.DeletionTimestamp == nil {
			s.Change(claimKey(claim.Name), func(o client.Object) {
				o.(*corev1.PersistentVolumeClaim).Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: want}
			})
			moved = true
		}
	}
	return moved
}

func (s *simulated) describe() string {
	var b strings.Builder
	if snapshot, err := s.kube.Snapshot(context.Background(), s.set(), s.kind.Features); err == nil {
		snapshot.Now = s.Now()
		b.WriteString("\n" + statefulset.Make(*snapshot).String())
	}
	for _, pod := range s.pods() {
		fmt.Fprintf(&b, "%s %s labels %v deleted %v phase %s", pod.Name, pod.UID, pod.Labels, pod.DeletionTimestamp != nil,
			pod.Status.Phase)
		for i, c := range pod.Spec.Containers {
			fmt.Fprintf(&b, " %s", c.Image)
			if i < len(pod.Status.ContainerStatuses) {
				fmt.Fprintf(&b, " (runs %s ready %v)", pod.Status.ContainerStatuses[i].Image, pod.Status.ContainerStatuses[i].Ready)
			}
		}
		b.WriteString("\n")
	}
	for _, claim := range s.List("PersistentVolumeClaim", false) {
		fmt.Fprintf(&b, "%s of %v\n", claim.GetName(), claim.GetOwnerReferences())
	}
	return b.String()
}
