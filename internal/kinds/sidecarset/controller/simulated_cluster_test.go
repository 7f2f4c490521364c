package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// simulated is a manager on a simulated cluster.
type simulated struct {
	simulation.Play
	node     *simulation.Node
	kube     *Kube
	pass     *Pass
	mu       sync.Mutex // guards events while requests run in parallel
	events   []string
	told     func(*sidecarset.Plan)
	trace    bool
	tells    bool // passes are made also where they are due only to tell of a wait
	features sidecarset.Features
	// others acts for whoever else acts on pods, and tells whether it did; nil for nobody.
	others func() bool
}

// namespaces are the labels of the one namespace.
var namespaces = map[string]map[string]string{"default": {"team": "a"}}

var setKey = simulation.Key{Kind: sidecarset.Kind, Name: "mesh"}

func podKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

func simulate(seed uint64, set *appsv1beta1.SidecarSet, pods int, options ...func(*corev1.Pod)) *simulated {
	s := &simulated{Play: simulation.Play{Cluster: simulation.New(seed)}, features: sidecarset.Features{NativeSidecars: true}}
	s.Reconcile, s.EnvironmentStep, s.Describe, s.Start = s.reconcile, s.environmentStep, s.describe, s.startManager
	s.node = s.NewNode()
	s.node.Observes = s.Chance(0.5)
	sidecarsettest.Stamp(set)
	s.Slim = slim.Any
	namespace := namespaceMetadata()
	namespace.Name, namespace.Labels = "default", namespaces["default"]
	s.Store(simulation.Key{Kind: "Namespace", Name: namespace.Name}, namespace)
	s.Store(setKey, set)
	for i := range pods {
		s.inject(fmt.Sprintf("web-%d", i), options...)
	}
	for range 20 {
		for _, pod := range s.pods() {
			s.node.Step(pod.Name)
		}
	}
	s.startManager()
	return s
}

// inject makes a pod as the webhook would, from the SidecarSet as it is now.
func (s *simulated) inject(name string, options ...func(*corev1.Pod)) {
	pod := sidecarsettest.Pod(s.set(), name, options...)
	s.Store(podKey(name), pod)
}

func (s *simulated) startManager() {
	s.Restart()
	s.Queue = simulation.NewQueue(s.Cluster, setKey.Name)
	s.kube = &Kube{API: s.API(), Pods: s.Pods(), Namespace: "kruise-system"}
	s.pass = New(s.kube, s.features, s)
}

func (s *simulated) Event(about client.Object, eventType, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := eventType + " " + reason + " " + message
	if pod, ok := about.(*corev1.Pod); ok {
		event = "pod " + pod.Name + " " + event
	}
	s.events = append(s.events, event)
}

// run makes a pass, as the loop does.
func (s *simulated) run() (Outcome, error) {
	name := types.NamespacedName{Name: setKey.Name}
	owner, err := reconcile.UIDs[*appsv1beta1.SidecarSet](s.kube.API)(context.Background(), name)
	if err != nil {
		return Outcome{}, err
	}
	return s.pass.Run(context.Background(), name, owner)
}

// reconcile makes one pass.
func (s *simulated) reconcile() (time.Duration, error) {
	outcome, err := s.run()
	if s.tells {
		reconcile.MinRequeue(&outcome.After, outcome.Tell)
	}
	if s.told != nil && outcome.Plan != nil {
		s.told(outcome.Plan)
	}
	if s.trace {
		fmt.Printf("--- %s after %s err %v\n", s.Now().Format("15:04:05"), outcome.After, err)
		if outcome.Plan != nil {
			fmt.Print(outcome.Plan)
		}
	}
	return outcome.After, err
}

func (s *simulated) set() *appsv1beta1.SidecarSet {
	set, _ := s.Get(setKey).(*appsv1beta1.SidecarSet)
	return set
}

func (s *simulated) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range s.List("Pod", false) {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

// change changes the set as a user does: it goes through the webhook, which writes the hashes.
func (s *simulated) change(changes ...func(*appsv1beta1.SidecarSet)) {
	s.Change(setKey, func(o client.Object) {
		set := o.(*appsv1beta1.SidecarSet)
		for _, change := range changes {
			change(set)
		}
		sidecarsettest.Stamp(set)
		set.Generation++
	})
}

func revisionKey(name string) simulation.Key {
	return simulation.Key{Kind: "ControllerRevision", Name: name}
}

// environmentStep lets the garbage collector, kubelets, and whoever else there is, act once.
func (s *simulated) environmentStep() bool {
	s.CollectGarbage()
	moved := false
	for _, pod := range s.pods() {
		if s.node.Step(pod.Name) {
			moved = true
		}
	}
	return s.others != nil && s.others() || moved
}

func (s *simulated) describe() string {
	var b strings.Builder
	if snapshot, err := s.kube.Snapshot(context.Background(), s.set()); err == nil {
		snapshot.Now, snapshot.Features = s.Now(), s.features
		b.WriteString("\n" + sidecarset.Make(*snapshot).Headline())
	}
	for _, pod := range s.pods() {
		fmt.Fprintf(&b, "%s %s", pod.Name, pod.Annotations)
		for i, c := range pod.Spec.Containers {
			fmt.Fprintf(&b, " %s=%s", c.Name, c.Image)
			if i < len(pod.Status.ContainerStatuses) {
				fmt.Fprintf(&b, " (runs %s ready %v)", pod.Status.ContainerStatuses[i].Image, pod.Status.ContainerStatuses[i].Ready)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
