package controller

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// simulated is a manager that looks after the StatefulSet web in a simulated cluster.
type simulated struct {
	*simulationtest.Workload[*appsv1beta1.StatefulSet, *statefulset.Plan]
	kube       *Kube
	controller *Controller
	kind       *Kind
}

var setKey = simulation.Key{Kind: "StatefulSet", Name: "web"}

func simulate(seed uint64, set *appsv1beta1.StatefulSet, features statefulset.Features) *simulated {
	s := &simulated{
		Workload: simulationtest.NewWorkload[*appsv1beta1.StatefulSet, *statefulset.Plan](seed, setKey),
		kind:     &Kind{Features: features},
	}
	s.NewManager, s.Remember, s.Delivered = s.newManager, s.remember, s.wake
	s.Describe, s.EnvironmentStep = s.describe, s.environmentStep
	s.AddKubelets()
	if err := podapply.IndexRevisions(context.Background(), s.Cluster); err != nil {
		panic(err)
	}
	s.Store(simulationtest.NodeKey("node"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	s.Store(setKey, set)
	s.Start()
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

func (s *simulated) newManager() {
	s.kube = &Kube{podapply.Reader{API: s.API(), Pods: s.Pods()}}
	s.kind = &Kind{Kube: s.kube, Features: s.kind.Features}
	s.controller = New(s.kind, s)
	s.Run, s.Forget = s.controller.Run, s.controller.Forget
}

func (s *simulated) remember() (restore func()) {
	kube, controller := s.kube, s.controller
	return func() { s.kube, s.controller = kube, controller }
}

func (s *simulated) set() *appsv1beta1.StatefulSet { return s.Object() }

var podKey, claimKey = simulationtest.PodKey, simulationtest.ClaimKey

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
	for _, pod := range s.AllPods() {
		if s.mountable(pod) && s.Node.Step(pod.Name) {
			moved = true
		}
	}
	moved = s.unprotect() || moved
	moved = s.ProvisionVolumes() || moved
	return s.Others != nil && s.Others() || moved
}

func (s *simulated) describe() string {
	var b strings.Builder
	if snapshot, err := s.kube.Snapshot(context.Background(), s.set(), s.kind.Features); err == nil {
		snapshot.Now = s.Now()
		b.WriteString("\n" + statefulset.Make(*snapshot).String())
	}
	b.WriteString(s.DescribePods())
	for _, claim := range s.List("PersistentVolumeClaim", false) {
		fmt.Fprintf(&b, "%s of %v\n", claim.GetName(), claim.GetOwnerReferences())
	}
	return b.String()
}
