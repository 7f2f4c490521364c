package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// simulated is a manager on a simulated cluster.
type simulated struct {
	simulation.Play
	node       *simulation.Node
	controller *Controller
	kind       *Kind
	events     []string
	// eventsMu guards events while requests run in parallel.
	eventsMu sync.Mutex
	// told is called with what every pass did.
	told func(Outcome)
	kube *Kube
	// others acts for whoever else acts on pods, and tells whether it did; nil for nobody.
	others func() bool
	// servesJobs: the cluster has the kind ImagePullJob.
	servesJobs bool
	// trace prints every pass.
	trace bool
	// tells: passes are made also where they are due only to tell of a wait.
	tells bool
}

// Outcome is the outcome of a pass, with the plan that was carried out.
type Outcome struct {
	podapply.Outcome
	Plan *cloneset.Plan
}

var setKey = simulation.Key{Kind: "CloneSet", Name: "web"}

func simulate(seed uint64, set *appsv1beta1.CloneSet, features cloneset.Features) *simulated {
	s := &simulated{Play: simulation.Play{Cluster: simulation.New(seed)}}
	s.Reconcile, s.EnvironmentStep, s.Describe, s.Start = s.reconcile, s.environmentStep, s.describe, func() { s.startManager(s.kind.Features) }
	s.node = s.NewNode()
	s.node.Observes = s.Chance(0.5)
	set.Name, set.Namespace = setKey.Name, "default"
	s.Slim = slim.Any
	if err := errors.Join(Index(context.Background(), s.Cluster), podapply.IndexRevisions(context.Background(), s.Cluster),
		s.IndexField(context.Background(), podapply.NewPullJob(),
			podapply.OwnerIndex, podapply.IndexByController)); err != nil {
		panic(err)
	}
	s.Store(nodeKey("node"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	s.Store(setKey, set)
	s.startManager(features)
	return s
}

func (s *simulated) startManager(features cloneset.Features) {
	s.Restart()
	s.Queue = simulation.NewQueue(s.Cluster, setKey.Name)
	api := s.API()
	s.kube = &Kube{podapply.Reader{API: api, Pods: s.Pods()}}
	s.serveJobs(s.servesJobs)
	s.kind = &Kind{Kube: s.kube, Features: features, Random: s.Rand.IntN}
	s.controller = New(s.kind, s)
}

// serveJobs lets the cluster have the kind ImagePullJob, or not.
func (s *simulated) serveJobs(yes bool) {
	s.servesJobs, s.kube.PullJobs = yes, func() bool { return yes }
}

func (s *simulated) Event(_ client.Object, eventType, reason, message string) {
	s.eventsMu.Lock() // creations run in parallel
	defer s.eventsMu.Unlock()
	s.events = append(s.events, eventType+" "+reason+" "+message)
}

// reconcile makes one pass.
func (s *simulated) reconcile() (time.Duration, error) {
	outcome, err := s.run()
	if s.told != nil && outcome.Plan != nil {
		s.told(outcome)
	}
	if s.trace {
		fmt.Printf("--- %s after %s err %v\n", s.Now().Format("15:04:05"), outcome.After, err)
		if outcome.Plan != nil {
			fmt.Print(outcome.Plan)
		}
	}
	if s.tells {
		reconcile.MinRequeue(&outcome.After, outcome.ReportAfter)
	}
	return outcome.After, err
}

// run makes a pass, if the manager knows the set.
func (s *simulated) run() (Outcome, error) {
	set := s.Cached(setKey)
	if set == nil {
		return Outcome{}, nil
	}
	plan, outcome, err := s.controller.Run(context.Background(), client.ObjectKeyFromObject(set), set.GetUID())
	return Outcome{outcome, plan}, err
}

func (s *simulated) set() *appsv1beta1.CloneSet {
	set, _ := s.Get(setKey).(*appsv1beta1.CloneSet)
	return set
}

func (s *simulated) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range s.List("Pod", false) {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

func (s *simulated) active() []*corev1.Pod {
	return slices.DeleteFunc(s.pods(), func(pod *corev1.Pod) bool { return !readiness.Active(pod) })
}

// change changes the set as a user does.
func (s *simulated) change(change func(*appsv1beta1.CloneSet)) {
	s.Change(setKey, func(o client.Object) {
		set := o.(*appsv1beta1.CloneSet)
		change(set)
		set.Generation++
	})
}

func nodeKey(name string) simulation.Key { return simulation.Key{Kind: "Node", Name: name} }

func podKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

func claimKey(name string) simulation.Key {
	return simulation.Key{Kind: "PersistentVolumeClaim", Name: name}
}

func revisionKey(name string) simulation.Key {
	return simulation.Key{Kind: "ControllerRevision", Name: name}
}

func jobKey(name string) simulation.Key { return simulation.Key{Kind: "ImagePullJob", Name: name} }

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
		snapshot.Now, snapshot.Random, snapshot.Features = s.Now(), s.Rand.IntN, s.kind.Features
		b.WriteString("\n" + cloneset.Make(*snapshot).String())
	}
	for _, pod := range s.pods() {
		fmt.Fprintf(&b, "%s labels %v deleted %v images", pod.Name, pod.Labels[pub.ControllerRevisionHash], pod.DeletionTimestamp != nil)
		for i, c := range pod.Spec.Containers {
			fmt.Fprintf(&b, " %s", c.Image)
			if i < len(pod.Status.ContainerStatuses) {
				fmt.Fprintf(&b, " (runs %s ready %v)", pod.Status.ContainerStatuses[i].Image, pod.Status.ContainerStatuses[i].Ready)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
