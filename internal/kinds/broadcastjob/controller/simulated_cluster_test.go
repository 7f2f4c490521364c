package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// simulated is a manager that looks after the BroadcastJob check in a simulated cluster.
type simulated struct {
	*simulationtest.Workload[*appsv1beta1.BroadcastJob, *broadcastjob.Plan]
	kube       *Kube
	controller *Controller
	kind       *Kind
	binds      bool
	guard      reconcile.Guard
	// ends says how a pod ends that runs: empty if it does not yet. Nil lets all succeed.
	ends func(*corev1.Pod) corev1.PodPhase
}

var jobKey = simulation.Key{Kind: "BroadcastJob", Name: "check"}

func simulate(seed uint64, job *appsv1beta1.BroadcastJob, nodeNames ...string) *simulated {
	s := &simulated{
		Workload: simulationtest.NewWorkload[*appsv1beta1.BroadcastJob, *broadcastjob.Plan](seed, jobKey),
	}
	s.NewManager, s.Remember, s.Delivered = s.newManager, s.remember, s.wake
	s.Describe, s.EnvironmentStep = s.describe, s.environmentStep
	if err := s.IndexField(context.Background(), &appsv1beta1.BroadcastJob{}, unfinishedIndex, indexUnfinished); err != nil {
		panic(err)
	}
	for _, name := range nodeNames {
		s.addNode(name)
	}
	s.Store(jobKey, job)
	s.Start()
	return s
}

var podKey, nodeKey = simulationtest.PodKey, simulationtest.NodeKey

func (s *simulated) addNode(name string) {
	s.Store(nodeKey(name), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10"),
			corev1.ResourceCPU: resource.MustParse("1")}}})
}

// wake calls the manager for an event as its watches do.
func (s *simulated) wake(before, after client.Object) {
	if s.kube == nil { // the first manager begins with a list
		return
	}
	ctx := context.Background()
	was, isNode := before.(*corev1.Node)
	is, stillNode := after.(*corev1.Node)
	if isNode || stillNode {
		if len(s.kube.jobsOfNode(ctx, was, is)) > 0 {
			s.Queue.Add()
		}
		return
	}
	for _, object := range []client.Object{before, after} {
		var requests []ctrl.Request
		switch object.(type) {
		case *appsv1beta1.BroadcastJob:
			s.Queue.Add()
		case *corev1.Pod:
			requests = jobOf(ctx, object)
		}
		if len(requests) > 0 {
			s.Queue.Add()
		}
	}
}

func (s *simulated) newManager() {
	api := s.API()
	api.Guard = s.guard
	s.kube = &Kube{Reader: podapply.Reader{API: api, Pods: s.Pods()}}
	s.kind = &Kind{Kube: s.kube, Binds: s.binds}
	s.controller = New(s.kind, s)
	s.Run = s.controller.Run
}

func (s *simulated) remember() (restore func()) {
	kube, controller := s.kube, s.controller
	return func() { s.kube, s.controller = kube, controller }
}

// countEvents counts the events of a reason.
func (s *simulated) countEvents(reason string) (n int) {
	for _, event := range s.Recorded {
		if strings.Fields(event)[1] == reason {
			n++
		}
	}
	return n
}

// job is the job as it is in the API server; nil if it is gone.
func (s *simulated) job() *appsv1beta1.BroadcastJob { return s.Object() }

func (s *simulated) nodesOf(cached bool) []*corev1.Node {
	return simulationtest.All[*corev1.Node](s.Cluster, "Node", cached)
}

// change changes the job as a user does, with what the webhook adds.
func (s *simulated) change(change func(*appsv1beta1.BroadcastJob)) {
	s.Edit(func(job *appsv1beta1.BroadcastJob) {
		paused := job.Spec.Paused
		change(job)
		if paused && !job.Spec.Paused && job.Spec.FailurePolicy.Type == appsv1beta1.FailurePolicyPause {
			if job.Annotations == nil {
				job.Annotations = map[string]string{}
			}
			job.Annotations["apps.kruise.io/broadcastjob-resumed"] = s.Now().UTC().Format(time.RFC3339)
		}
	})
}

func number(n int) *intstr.IntOrString        { v := intstr.FromInt32(int32(n)); return &v }
func percent(text string) *intstr.IntOrString { v := intstr.FromString(text); return &v }
func toPod(change func(*corev1.Pod)) func(client.Object) {
	return func(o client.Object) { change(o.(*corev1.Pod)) }
}
func toNode(change func(*corev1.Node)) func(client.Object) {
	return func(o client.Object) { change(o.(*corev1.Node)) }
}

const never = `{"metadata":{"labels":{"app":"check"}},"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"check:1"}]}}`

func setTemplate(job *appsv1beta1.BroadcastJob, document string) {
	if err := job.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		panic(err)
	}
}

type option = func(*appsv1beta1.BroadcastJob)

// makeJob returns a job with the defaults; options change it.
func makeJob(options ...option) *appsv1beta1.BroadcastJob {
	job := &appsv1beta1.BroadcastJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "check", Generation: 1}}
	job.Spec.Parallelism = number(1<<31 - 1)
	job.Spec.CompletionPolicy.Type = appsv1beta1.CompletionAlways
	job.Spec.FailurePolicy.Type = appsv1beta1.FailurePolicyFailFast
	setTemplate(job, never)
	for _, option := range options {
		option(job)
	}
	return job
}

func onFailure(policy appsv1beta1.FailurePolicyType) option {
	return func(job *appsv1beta1.BroadcastJob) { job.Spec.FailurePolicy.Type = policy }
}

func parallelism(value *intstr.IntOrString) option {
	return func(job *appsv1beta1.BroadcastJob) { job.Spec.Parallelism = value }
}

// environmentStep lets the garbage collectors, the scheduler and kubelets act once.
func (s *simulated) environmentStep() (moved bool) {
	s.CollectGarbage()
	moved = s.collectPods()
	for _, pod := range s.AllPods() {
		moved = s.step(pod) || moved
	}
	return moved
}

// collectPods removes the pods of nodes that are gone, as the garbage collector of pods does: it lets them
// fail first.
func (s *simulated) collectPods() (moved bool) {
	for _, pod := range s.AllPods() {
		if pod.Spec.NodeName == "" || s.Get(nodeKey(pod.Spec.NodeName)) != nil {
			continue
		}
		if pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning {
			s.Change(podKey(pod.Name), toPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
		} else {
			s.Remove(podKey(pod.Name))
		}
		moved = true
	}
	return moved
}

// step lets scheduler and kubelet bring one pod one step further.
func (s *simulated) step(pod *corev1.Pod) bool {
	key := podKey(pod.Name)
	running := pod.Status.Phase == corev1.PodRunning
	switch {
	case pod.DeletionTimestamp != nil && running && s.Chance(0.5): // kubelet tells the end before the pod goes
		s.Change(key, toPod(func(p *corev1.Pod) {
			p.Status.Phase = []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded}[s.Rand.IntN(2)]
		}))
	case pod.DeletionTimestamp != nil:
		s.Remove(key)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return false
	case pod.Spec.NodeName == "":
		target := nodes.Target(pod)
		node, ok := s.Get(nodeKey(target)).(*corev1.Node)
		if !ok || !nodes.ForJob(&pod.Spec).Judge(node).Eligible {
			return false
		}
		s.Change(key, toPod(func(p *corev1.Pod) { p.Spec.NodeName = target }))
	case !running:
		s.Change(key, toPod(func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}}
		}))
	default:
		phase := corev1.PodSucceeded
		if s.ends != nil {
			phase = s.ends(pod)
		}
		if phase == "" {
			return false
		}
		s.end(pod.Name, phase)
	}
	return true
}

// end ends the container of a pod: with restart policy OnFailure one that fails is started again.
func (s *simulated) end(pod string, phase corev1.PodPhase) {
	s.Change(podKey(pod), toPod(func(p *corev1.Pod) {
		if phase == corev1.PodFailed && p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
			p.Status.ContainerStatuses[0].RestartCount++
			return
		}
		p.Status.Phase = phase
		if len(p.Status.ContainerStatuses) > 0 {
			p.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(s.Now())}
		}
	}))
}

// state is what a pod is to the job in the API server, or as it was seen.
func state(job *appsv1beta1.BroadcastJob, pod *corev1.Pod) string {
	switch restarted := len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > job.Spec.FailurePolicy.RestartLimit; {
	case pod.DeletionTimestamp != nil:
		return "leaving"
	case pod.Status.Phase == corev1.PodSucceeded:
		return "succeeded"
	case pod.Status.Phase == corev1.PodFailed:
		return "failed"
	case pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && restarted:
		return "restarting"
	}
	return "active"
}

func (s *simulated) describe() string {
	var b strings.Builder
	job := s.job()
	if job == nil {
		return "the job is gone"
	}
	if snapshot, err := s.kube.Snapshot(context.Background(), job, s.binds); err == nil {
		snapshot.Now = s.Now()
		b.WriteString("\n" + broadcastjob.Make(*snapshot).String())
	}
	for _, pod := range s.AllPods() {
		fmt.Fprintf(&b, "%s %s on %q (%q) %s %s labels %v\n", pod.Name, pod.UID, nodes.Target(pod), pod.Spec.NodeName, pod.Status.Phase,
			state(job, pod), pod.Labels)
	}
	for _, node := range s.nodesOf(false) {
		fmt.Fprintf(&b, "node %s %v cordoned %t taints %v\n", node.Name, node.Labels, node.Spec.Unschedulable, node.Spec.Taints)
	}
	spec := job.Spec
	fmt.Fprintf(&b, "annotations %v parallelism %v paused %t completion %+v failure %+v\nstatus %+v\n", job.Annotations, spec.Parallelism, spec.Paused,
		spec.CompletionPolicy, spec.FailurePolicy, job.Status)
	return b.String()
}

// counts are the pods of the job by state, as the API server has them, in words.
func (s *simulated) counts() string {
	by := map[string]int{}
	for _, pod := range s.AllPods() {
		by[state(s.job(), pod)]++
	}
	var words []string
	for _, state := range []string{"active", "succeeded", "failed", "restarting", "leaving"} {
		if by[state] > 0 {
			words = append(words, fmt.Sprint(by[state], " ", state))
		}
	}
	return strings.Join(words, ", ")
}
