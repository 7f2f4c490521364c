package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// simulated is a manager on a simulated cluster, with a Deployment, the pod webhooks, and a scheduler.
type simulated struct {
	*simulationtest.World[*appsv1beta1.WorkloadSpread]
	reader simReader
	pass   *Pass
	window time.Duration
	told   func(*workloadspread.Plan)

	// full are the zones that have no room for pods.
	full map[string]bool
	// coming are pods that were admitted and are not stored yet; going are pods whose deletion was admitted.
	coming []*corev1.Pod
	going  []string
	pods   int
	// admitted is called with each pod that is booked, before it is.
	admitted func(version, subset string, quota int32)
}

var (
	spreadKey     = simulation.Key{Kind: "WorkloadSpread", Name: "ws"}
	deploymentKey = simulation.Key{Kind: "Deployment", Name: "web"}
)

var podKey = simulationtest.PodKey

const latestVersion = "latest"

// simulate begins with a Deployment of so many pods that no webhook has seen.
func simulate(seed uint64, spread *appsv1beta1.WorkloadSpread, replicas int32) *simulated {
	s := &simulated{
		World:  simulationtest.NewWorld[*appsv1beta1.WorkloadSpread](seed, spreadKey),
		window: workloadspread.UnschedulableWindow,
		full:   map[string]bool{},
	}
	s.NewManager, s.Reconcile = s.newManager, s.reconcile
	s.Describe, s.EnvironmentStep = s.describe, s.environmentStep
	s.Slim = func(object any) (any, error) {
		if _, deployment := object.(*appsv1.Deployment); deployment { // it tells its latest version
			return object, nil
		}
		return slim.Any(object)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
		Annotations: map[string]string{latestVersion: "v1"}}}
	deployment.Spec.Replicas = &replicas
	s.Store(deploymentKey, deployment)
	for _, zone := range []string{"a", "b", "c"} {
		s.Store(simulation.Key{Kind: "Node", Name: "node-" + zone}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + zone,
			Labels: map[string]string{"zone": zone}}})
	}
	for len(s.active()) < int(replicas) {
		s.store(s.newPod("v1"))
		s.kubelet()
	}
	spread = spread.DeepCopy()
	spread.UID, spread.ResourceVersion = "", ""
	s.Store(spreadKey, spread)
	s.Start()
	return s
}

func (s *simulated) newManager() {
	api := s.API()
	s.reader = simReader{&kubeReader{&Kube{API: api, Pods: s.Pods()}}, s}
	s.pass = &Pass{controller: controller{API: api, Events: s}, Reader: s.reader, Versioned: versioned, Window: s.window,
		Applier: Applier{API: api, Booker: NewBooker(api.Client, api.Live, nil, nil, logr.Discard(), s.Now)}}
}

// Event implements Recorder.
func (s *simulated) Event(about client.Object, eventType, reason, message string) {
	s.World.Event(about, eventType, reason+":", message)
}

// run makes a pass, as the loop does.
func (s *simulated) run() (Outcome, error) {
	owner, err := reconcile.UIDs[*appsv1beta1.WorkloadSpread](s.reader.API)(context.Background(), wsName)
	if err != nil || owner == "" {
		return Outcome{}, err
	}
	of, err := s.pass.Begin(context.Background(), wsName, owner)
	if err != nil || of == nil {
		return Outcome{}, err
	}
	return s.pass.run(context.Background(), of)
}

// reconcile makes one pass.
func (s *simulated) reconcile() (time.Duration, error) {
	outcome, err := s.run()
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

func (s *simulated) spread() *appsv1beta1.WorkloadSpread { return s.Object() }

func (s *simulated) active() []*corev1.Pod {
	return slices.DeleteFunc(s.AllPods(), func(p *corev1.Pod) bool { return !readiness.Active(p) })
}

func (s *simulated) scale(replicas int32) {
	s.Change(deploymentKey, func(o client.Object) { o.(*appsv1.Deployment).Spec.Replicas = &replicas })
}

func (s *simulated) rollOut(version string) {
	s.Change(deploymentKey, func(o client.Object) { o.SetAnnotations(map[string]string{latestVersion: version}) })
}

func targetFrom(object client.Object) *workloadspread.Target {
	target := &workloadspread.Target{Reference: workloadspread.Reference{GroupKind: workloadkind.Deployment, Name: "web"}, Exists: true,
		Costs:       true,
		Controllers: []types.UID{"uid-web-v1"}}
	deployment, ok := object.(*appsv1.Deployment)
	if !ok {
		return &workloadspread.Target{Reference: target.Reference}
	}
	target.Desired, target.Latest = *deployment.Spec.Replicas, deployment.Annotations[latestVersion]
	return target
}

func (s *simulated) newPod(v string) *corev1.Pod {
	s.pods++
	pod := workloadspreadtest.Pod(fmt.Sprintf("web-%s-%03d", v, s.pods), workloadspreadtest.Version(v), workloadspreadtest.Homeless)
	pod.UID, pod.ResourceVersion, pod.CreationTimestamp = "", "", metav1.Time{}
	return pod
}

func (s *simulated) store(pod *corev1.Pod) { s.Store(podKey(pod.Name), pod) }

// admit is the webhook of creations: it books, and the pod comes some time later, or never.
func (s *simulated) admit(version string) {
	pod := s.newPod(version)
	if spread := s.spread(); spread != nil {
		creation := workloadspread.Creation{Key: "id-" + pod.Name, Generated: true, Version: version}
		target := targetFrom(s.Get(deploymentKey))
		ledger := workloadspread.NewLedger(spread, target, s.Now())
		ledger.Going = func(booked []workloadspread.BookedDeletion) []bool {
			answers := make([]bool, len(booked))
			for i, b := range booked {
				pod, _ := s.Get(podKey(b.Pod)).(*corev1.Pod)
				answers[i] = pod == nil || !readiness.Active(pod)
			}
			return answers
		}
		decision, commit := ledger.Create(creation)
		commit()
		if decision.Subset != nil {
			workloadspreadtest.Note(pub.MatchedWorkloadSpread, decision.Placement(spread.Name, creation).String())(pod)
		}
		if decision.Booked && s.admitted != nil {
			quota, err := workloadspread.Quota(decision.Subset.MaxReplicas, target.Desired)
			if err != nil {
				panic(err)
			}
			s.admitted(version, decision.Subset.Name, quota)
		}
		s.book(version, ledger)
	}
	s.coming = append(s.coming, pod)
}

func (s *simulated) book(version string, ledger *workloadspread.Ledger) {
	if list := ledger.Changed()[version]; list != nil {
		s.Change(spreadKey, func(o client.Object) {
			status := &o.(*appsv1beta1.WorkloadSpread).Status
			if status.VersionedSubsetStatuses == nil {
				status.VersionedSubsetStatuses = map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{}
			}
			status.VersionedSubsetStatuses[version] = list
		})
	}
}

// admitDeletion is the webhook of deletions.
func (s *simulated) admitDeletion(pod *corev1.Pod) {
	placed, ok := pub.ParsePlacement(pod.Annotations)
	if spread := s.spread(); ok && spread != nil && readiness.Active(pod) {
		version := versioned.Of(pod)
		ledger := workloadspread.NewLedger(spread, targetFrom(s.Get(deploymentKey)), s.Now())
		_, commit := ledger.Delete(workloadspread.Deletion{Name: pod.Name, Version: version, Subset: placed.Subset})
		commit()
		s.book(version, ledger)
	}
}

// workload is the Deployment's controller: it creates pods of the latest version, one more than there shall
// be at most, and deletes what is too much, former versions first, those of the lowest cost first.
func (s *simulated) workload() bool {
	target := targetFrom(s.Get(deploymentKey))
	latest, former, total := 0, 0, 0
	var removable []*corev1.Pod
	for _, pod := range s.active() {
		if slices.Contains(s.going, pod.Name) {
			continue
		}
		total++
		removable = append(removable, pod)
		if versioned.Of(pod) == target.Latest {
			latest++
		} else {
			former++
		}
	}
	for _, pod := range s.coming {
		total++
		if versioned.Of(pod) == target.Latest {
			latest++
		} else {
			former++
		}
	}
	surge := 0
	if former > 0 {
		surge = 1
	}
	switch {
	case latest < int(target.Desired) && total < int(target.Desired)+surge:
		s.admit(target.Latest)
		return true
	case total <= int(target.Desired) || len(removable) == 0:
		return false
	}
	slices.SortStableFunc(removable, func(a, b *corev1.Pod) int {
		rank := func(p *corev1.Pod) int {
			if versioned.Of(p) == target.Latest {
				return 1 << 20
			}
			return 0
		}
		return rank(a) + costOf(a) - rank(b) - costOf(b)
	})
	if former > 0 && versioned.Of(removable[0]) == target.Latest {
		return false // the former ones are still coming
	}
	s.admitDeletion(removable[0])
	s.going = append(s.going, removable[0].Name)
	return true
}

func costOf(pod *corev1.Pod) int {
	var cost int
	_, _ = fmt.Sscan(pod.Annotations[pub.PodDeletionCost], &cost)
	return cost
}

// requests ends those that were admitted.
func (s *simulated) requests() bool {
	moved := len(s.coming)+len(s.going) > 0
	for _, pod := range s.coming {
		s.store(pod)
	}
	for _, name := range s.going {
		if s.Get(podKey(name)) != nil {
			s.EndGracefully(podKey(name))
		}
	}
	s.coming, s.going = nil, nil
	return moved
}

// zoneOf is where the pod is scheduled to, empty if there is no room.
func (s *simulated) zoneOf(pod *corev1.Pod) string {
	zones := []string{"a", "b", "c"}
	if placed, ok := pub.ParsePlacement(pod.Annotations); ok {
		zones = []string{placed.Subset}
	} else if s.Chance(0.5) {
		slices.Reverse(zones)
	}
	for _, zone := range zones {
		if !s.full[zone] {
			return zone
		}
	}
	return ""
}

// kubelet schedules, starts and ends pods.
func (s *simulated) kubelet() bool {
	moved := false
	for _, pod := range s.AllPods() {
		switch {
		case !readiness.Active(pod): // at its end, or collected as garbage
			s.Remove(podKey(pod.Name))
			moved = true
		case pod.Spec.NodeName == "":
			zone := s.zoneOf(pod)
			if zone == "" && len(pod.Status.Conditions) > 0 {
				continue
			}
			moved = true
			s.Change(podKey(pod.Name), func(o client.Object) {
				if zone == "" {
					workloadspreadtest.Unschedulable(o.(*corev1.Pod))
					return
				}
				running(s.Now(), zone)(o.(*corev1.Pod))
			})
		}
	}
	return moved
}

func running(now time.Time, zone string) workloadspreadtest.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.Phase = "node-"+zone, corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}}
	}
}

// environmentStep lets the Deployment's controller, requests that are under way, scheduler and kubelets act
// once.
func (s *simulated) environmentStep() bool {
	moved := s.workload()
	moved = s.requests() || moved
	return s.kubelet() || moved
}

func (s *simulated) describe() string {
	var b strings.Builder
	spread := s.spread()
	of := &session{Writer: s.pass.Applier.API.For(spread.UID), Object: spread, Kept: &memory{}, Begun: s.Now()}
	if snapshot, _, err := s.pass.snapshot(context.Background(), of); err == nil {
		b.WriteString("\n" + workloadspread.Make(*snapshot).String())
	}
	for _, pod := range s.AllPods() {
		fmt.Fprintf(&b, "%s %s %s %v\n", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Annotations)
	}
	return b.String()
}

// simReader is the manager's reader, but for workloads: the Deployment tells its latest version itself, and
// all pods are its own.
type simReader struct {
	*kubeReader
	s *simulated
}

func (r simReader) Target(context.Context, *appsv1beta1.WorkloadSpread) (*workloadspread.Target, bool, error) {
	return targetFrom(r.s.Cached(deploymentKey)), true, nil
}

func (r simReader) Pods(_ context.Context, spread *appsv1beta1.WorkloadSpread, _ *workloadspread.Target) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	r.Kube.Pods.All(func(pod *corev1.Pod) bool { pods = append(pods, pod); return true })
	return reconcile.Overlay(r.Own, spread.UID, pods, func(*corev1.Pod) bool { return true }), nil
}

// versioned are the kinds whose pods are told apart by version.
var versioned = workloadspread.ParseVersioned("deployment")
