package sidecarset

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
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
	told     func(*Plan)
	trace    bool
	tells    bool // passes are made also where they are due only to tell of a wait
	features Features
	// others acts for whoever else acts on pods, and tells whether it did; nil for nobody.
	others func() bool
}

// namespaces are the labels of the one namespace.
var namespaces = map[string]map[string]string{"default": {"team": "a"}}

var setKey = simulation.Key{Kind: kind, Name: "mesh"}

func podKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

func simulate(seed uint64, set *appsv1beta1.SidecarSet, pods int, options ...func(*corev1.Pod)) *simulated {
	s := &simulated{Play: simulation.Play{Cluster: simulation.New(seed)}, features: Features{NativeSidecars: true}}
	s.Reconcile, s.Others, s.Describe, s.Start = s.reconcile, s.everybodyElse, s.describe, s.startManager
	s.node = &simulation.Node{Cluster: s.Cluster, Digests: map[string]string{}, Observes: s.Chance(0.5)}
	stamp(set)
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
	pod := makePod(s.set(), name, options...)
	s.Store(podKey(name), pod)
}

func (s *simulated) startManager() {
	s.Restart()
	s.Queue = simulation.NewQueue(s.Cluster, setKey.Name)
	api := s.API()
	s.kube = &Kube{API: api, Pods: s.Pods(), Namespace: "kruise-system"}
	s.pass = &Pass{Kube: s.kube, Features: s.features, Applier: Applier{API: api, Events: s}}
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
	owner, err := reconcile.UIDs[appsv1beta1.SidecarSet](s.kube.API)(context.Background(), name)
	if err != nil {
		return Outcome{}, err
	}
	return s.pass.Run(context.Background(), name, owner)
}

// reconcile makes one pass.
func (s *simulated) reconcile() (time.Duration, error) {
	outcome, err := s.run()
	if s.tells {
		reconcile.Sooner(&outcome.After, outcome.Tell)
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
		stamp(set)
		set.Generation++
	})
}

// stamp writes what the webhook writes (SS-016).
func stamp(set *appsv1beta1.SidecarSet) {
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	var err error
	if set.Annotations[pub.SidecarSetHash], err = Hash(&set.Spec); err != nil {
		panic(err)
	}
	if set.Annotations[pub.SidecarSetHashWithoutImage], err = HashWithoutImage(&set.Spec); err != nil {
		panic(err)
	}
}

func revisionKey(name string) simulation.Key {
	return simulation.Key{Kind: "ControllerRevision", Name: name}
}

// everybodyElse lets the garbage collector, kubelets, and whoever else there is, act once.
func (s *simulated) everybodyElse() bool {
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
		b.WriteString("\n" + Make(*snapshot).String())
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

// makeSet is a SidecarSet with one cold sidecar, proxy:1; options change it.
func makeSet(options ...func(*appsv1beta1.SidecarSet)) *appsv1beta1.SidecarSet {
	set := &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: setKey.Name, Generation: 1}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateSidecarSetStrategyType
	set.Spec.Containers = []appsv1beta1.SidecarContainer{cold("proxy", "proxy:1")}
	for _, option := range options {
		option(set)
	}
	return set
}

func cold(name, image string) appsv1beta1.SidecarContainer {
	c := appsv1beta1.SidecarContainer{}
	c.Name, c.Image = name, image
	c.UpgradeStrategy.UpgradeType = appsv1beta1.SidecarContainerColdUpgrade
	return c
}

func hot(name, image string) appsv1beta1.SidecarContainer {
	c := cold(name, image)
	c.UpgradeStrategy = appsv1beta1.SidecarContainerUpgradeStrategy{UpgradeType: appsv1beta1.SidecarContainerHotUpgrade,
		HotUpgradeEmptyImage: "empty:1"}
	return c
}

func nativeSidecar(image string) appsv1beta1.SidecarContainer {
	c := cold("net", image)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func containers(all ...appsv1beta1.SidecarContainer) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { set.Spec.Containers = all }
}

func inits(all ...appsv1beta1.SidecarContainer) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { set.Spec.InitContainers = all }
}

func strategy(change func(*appsv1beta1.SidecarSetUpdateStrategy)) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { change(&set.Spec.UpdateStrategy) }
}

func number(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }

func text(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

// sized gives the first sidecar a request of cpu.
func sized(cpu string) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) {
		set.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

// imageNow sets the image of every sidecar of that name.
func imageNow(name, image string) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) {
		for _, list := range [][]appsv1beta1.SidecarContainer{set.Spec.Containers, set.Spec.InitContainers} {
			for i := range list {
				if list[i].Name == name {
					list[i].Image = image
				}
			}
		}
	}
}

// makePod is a pod of the application as the webhook leaves it.
func makePod(set *appsv1beta1.SidecarSet, name string, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{}}}
	marked := []corev1.EnvVar{{Name: pub.SidecarInjectedEnv, Value: "true"}}
	add := func(c *appsv1beta1.SidecarContainer, name, image string) {
		resources := *c.Resources.DeepCopy()
		if resources.Requests == nil { // as the API server defaults it
			resources.Requests = resources.Limits.DeepCopy()
		}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: image, Env: marked, Resources: resources})
	}
	working := WorkingContainers{}
	for i := range set.Spec.Containers {
		c := &set.Spec.Containers[i]
		if !IsHot(c) {
			add(c, c.Name, c.Image)
			continue
		}
		first, second := HotNames(c.Name)
		add(c, first, c.Image)
		add(c, second, c.UpgradeStrategy.HotUpgradeEmptyImage)
		working[c.Name] = first
		for key, value := range map[string]string{pub.SidecarSetVersionPrefix + first: "1", pub.SidecarSetVersionAltPrefix + first: "0",
			pub.SidecarSetVersionPrefix + second: "0", pub.SidecarSetVersionAltPrefix + second: "1"} {
			pod.Annotations[key] = value
		}
	}
	for i := range set.Spec.InitContainers {
		c := set.Spec.InitContainers[i].Container
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: c.Name, Image: c.Image,
			RestartPolicy: c.RestartPolicy, Env: marked})
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "app", Image: "app:1"})
	if len(working) > 0 {
		pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer] = working.String()
	}
	record := pub.SidecarSetRecord{Hash: set.Annotations[pub.SidecarSetHash], SidecarSetName: set.Name, SidecarList: Names(&set.Spec),
		ControllerRevision: set.Status.LatestRevision, UpdateTimestamp: metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	pod.Annotations[pub.SidecarSetHash] = Records{set.Name: record}.String()
	record.Hash, record.ControllerRevision = set.Annotations[pub.SidecarSetHashWithoutImage], ""
	pod.Annotations[pub.SidecarSetHashWithoutImage] = Records{set.Name: record}.String()
	pod.Annotations[pub.SidecarSetInjectedList] = set.Name
	for _, option := range options {
		option(pod)
	}
	return pod
}
