package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// simulated is a manager that looks after the SidecarSet mesh in a simulated cluster.
type simulated struct {
	*simulationtest.World[*appsv1beta1.SidecarSet]
	kube     *Kube
	pass     *Pass
	told     func(*sidecarset.Plan)
	tells    bool // passes are made also where they are due only to tell of a wait
	features sidecarset.Features
}

// namespaces are the labels of the one namespace.
var namespaces = map[string]map[string]string{"default": {"team": "a"}}

var setKey = simulation.Key{Kind: sidecarset.Kind, Name: "mesh"}

var podKey, revisionKey = simulationtest.PodKey, simulationtest.RevisionKey

func simulate(seed uint64, set *appsv1beta1.SidecarSet, pods int, options ...func(*corev1.Pod)) *simulated {
	s := &simulated{
		World:    simulationtest.NewWorld[*appsv1beta1.SidecarSet](seed, setKey),
		features: sidecarset.Features{NativeSidecars: true},
	}
	s.NewManager, s.Reconcile, s.Describe = s.newManager, s.reconcile, s.describe
	s.AddKubelets()
	sidecarsettest.Stamp(set)
	namespace := namespaceMetadata()
	namespace.Name, namespace.Labels = "default", namespaces["default"]
	s.Store(simulation.Key{Kind: "Namespace", Name: namespace.Name}, namespace)
	s.Store(setKey, set)
	for i := range pods {
		s.inject(fmt.Sprintf("web-%d", i), options...)
	}
	for range 20 {
		for _, pod := range s.AllPods() {
			s.Node.Step(pod.Name)
		}
	}
	s.Start()
	return s
}

// inject makes a pod as the webhook would, from the SidecarSet as it is now.
func (s *simulated) inject(name string, options ...func(*corev1.Pod)) {
	pod := sidecarsettest.Pod(s.set(), name, options...)
	s.Store(podKey(name), pod)
}

func (s *simulated) newManager() {
	s.kube = &Kube{API: s.API(), Pods: s.Pods(), Namespace: "kruise-system"}
	s.pass = New(s.kube, s.features, s)
}

// Event implements reconcile.Recorder.
func (s *simulated) Event(about client.Object, eventType, reason, message string) {
	if pod, ok := about.(*corev1.Pod); ok {
		eventType = "pod " + pod.Name + " " + eventType
	}
	s.World.Event(about, eventType, reason, message)
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
	if outcome.Plan == nil {
		s.Print(nil, outcome.After, err)
	} else {
		s.Print(outcome.Plan, outcome.After, err)
		if s.told != nil {
			s.told(outcome.Plan)
		}
	}
	return outcome.After, err
}

func (s *simulated) set() *appsv1beta1.SidecarSet { return s.Object() }

// change changes the set as a user does: it goes through the webhook, which writes the hashes.
func (s *simulated) change(changes ...func(*appsv1beta1.SidecarSet)) {
	s.Edit(func(set *appsv1beta1.SidecarSet) {
		for _, change := range changes {
			change(set)
		}
		sidecarsettest.Stamp(set)
	})
}

func (s *simulated) describe() string {
	var b strings.Builder
	if snapshot, err := s.kube.Snapshot(context.Background(), s.set()); err == nil {
		snapshot.Now, snapshot.Features = s.Now(), s.features
		b.WriteString("\n" + sidecarset.Make(*snapshot).Headline())
	}
	return b.String() + s.DescribePods()
}
