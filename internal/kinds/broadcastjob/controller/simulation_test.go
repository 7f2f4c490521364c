package controller

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// jobRun is one random life of a job. The rules by which it judges every write share nothing with the planner
// but what a node is to a pod (package nodes).
type jobRun struct {
	*simulated
	seed         uint64
	failure      string
	staleLeaders bool
	nodes        int
	// calm: nobody deletes pods, and none fails.
	calm bool
}

func (r *jobRun) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf("SEED=%d at %s: ", r.seed, r.Now().Format("15:04:05")) + fmt.Sprintf(format, args...) + r.describe()
	}
}

// seen is the job as the manager sees it: the answers of its own writes may be newer than the cache.
func (r *jobRun) seen() *appsv1beta1.BroadcastJob {
	job, err := reconcile.Find[*appsv1beta1.BroadcastJob](context.Background(), r.kube.API, client.ObjectKeyFromObject(r.Cached(jobKey)))
	if err != nil || job == nil {
		panic(err)
	}
	return job
}

func mine(job *appsv1beta1.BroadcastJob, pod *corev1.Pod) bool {
	return metav1.IsControlledBy(pod, job) // whatever became of its labels
}

func hasEnded(job *appsv1beta1.BroadcastJob) bool { return job.Status.CompletionTime != nil }

// beforeWrite watches every write of the manager against the truth.
func (r *jobRun) beforeWrite(w simulation.Write, before, after client.Object) {
	switch job := r.seen(); {
	case w.Key.Kind == "Pod" && w.Verb == "create":
		r.creation(job, after.(*corev1.Pod))
	case w.Key.Kind == "Pod" && w.Verb == "delete":
		r.deletion(job, before.(*corev1.Pod))
	case w.Key.Kind == "Pod":
		r.fail("%s of pod %s", w.Verb, w.Key.Name)
	case w.Verb == "delete":
		r.expiry(before.(*appsv1beta1.BroadcastJob))
	case w.Subresource == "status":
		r.status(&before.(*appsv1beta1.BroadcastJob).Status, &after.(*appsv1beta1.BroadcastJob).Status, after.(*appsv1beta1.BroadcastJob))
	}
}

// creation judges a new pod (BJ-003 (part), BJ-071 (part), BJ-080 (part)).
func (r *jobRun) creation(job *appsv1beta1.BroadcastJob, pod *corev1.Pod) {
	target := nodes.Target(pod)
	switch {
	case hasEnded(job):
		r.fail("pod %s is created although the job has ended", pod.Name)
	case job.Spec.Paused || job.DeletionTimestamp != nil:
		r.fail("pod %s is created for a job that is paused, or going", pod.Name)
	}
	node, _ := r.Cached(nodeKey(target)).(*corev1.Node)
	if node == nil || !nodes.ForJob(&job.Spec.Template.Spec).Judge(node).Eligible {
		r.fail("pod %s is created for node %s, which is not eligible", pod.Name, target)
	}
	active := 1
	for _, other := range r.AllPods() {
		if !mine(job, other) {
			continue
		}
		if nodes.Target(other) == target {
			r.fail("pod %s is created for node %s, where pod %s is", pod.Name, target, other.Name)
		}
		if state(job, other) == "active" {
			active++
		}
	}
	if limit := r.limit(job); active > limit && !r.staleLeaders {
		r.fail("pod %s is created: %d active, limit %d", pod.Name, active, limit)
	}
}

// limit is what parallelism says at most.
func (r *jobRun) limit(job *appsv1beta1.BroadcastJob) int {
	if value := job.Spec.Parallelism; value.Type == intstr.Int {
		return int(value.IntVal)
	}
	var percent int
	_, _ = fmt.Sscanf(job.Spec.Parallelism.StrVal, "%d%%", &percent)
	return (percent*len(r.List("Node", true)) + 99) / 100
}

// deletion judges the end of a pod by the manager (BJ-132 (part), BJ-133 (part)).
func (r *jobRun) deletion(job *appsv1beta1.BroadcastJob, pod *corev1.Pod) {
	if hasEnded(r.job()) {
		if s := state(job, pod); s != "active" && s != "restarting" && !r.staleLeaders {
			r.fail("pod %s, which is %s, is deleted after the end", pod.Name, s)
		}
		return
	}
	if job.Spec.Paused {
		r.fail("pod %s is deleted while the job is paused", pod.Name)
	}
	target := nodes.Target(pod)
	better := slices.ContainsFunc(r.PodsOn(target), func(other *corev1.Pod) bool {
		finished := func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		}
		return mine(job, other) && other.Name != pod.Name && (finished(other) || !finished(pod))
	})
	node, _ := r.Cached(nodeKey(target)).(*corev1.Node)
	switch {
	case better:
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		r.fail("pod %s is deleted, which has finished", pod.Name)
	case node == nil && pod.Spec.NodeName == "":
	case pod.Spec.NodeName == "" && asks(pod.Spec.NodeSelector) != asks(job.Spec.Template.Spec.NodeSelector):
	case node == nil:
		r.fail("pod %s is deleted, whose node is gone", pod.Name)
	case pod.Spec.NodeName != "" && asks(pod.Spec.NodeSelector) != asks(job.Spec.Template.Spec.NodeSelector):
		r.fail("pod %s is deleted, which was made by other rules and is bound", pod.Name)
	default:
		verdict := nodes.ForJob(&job.Spec.Template.Spec).Judge(node)
		if verdict.Eligible || pod.Spec.NodeName != "" && verdict.Tolerable {
			r.fail("pod %s is deleted, which may run on %s: %+v", pod.Name, target, verdict)
		}
	}
}

func asks(selector map[string]string) string { return selector["pool"] }

// expiry judges the end of the job (BJ-120 (part)).
func (r *jobRun) expiry(job *appsv1beta1.BroadcastJob) {
	ttl := job.Spec.CompletionPolicy.TTLSecondsAfterFinished
	if ttl == nil || !hasEnded(job) || r.Now().Before(job.Status.CompletionTime.Add(time.Duration(*ttl)*time.Second)) {
		r.fail("the job is deleted before its time")
	}
}

// status judges what the manager says (BJ-018 (part), BJ-110 (part), BJ-141 (part)).
func (r *jobRun) status(before, after *appsv1beta1.BroadcastJobStatus, job *appsv1beta1.BroadcastJob) {
	if after.Active < 0 || after.Succeeded < 0 || after.Failed < 0 || len(after.Conditions) > 1 {
		r.fail("status %+v", *after)
	}
	if before.StartTime != nil && !before.StartTime.Equal(after.StartTime) {
		r.fail("the start changed from %s to %s", before.StartTime, after.StartTime)
	}
	if before.CompletionTime != nil && (after.Phase != before.Phase || after.CompletionTime == nil || !after.CompletionTime.Equal(before.CompletionTime) ||
		len(after.Conditions) != 1 || after.Succeeded != before.Succeeded && job.Spec.CompletionPolicy.Type == appsv1beta1.CompletionAlways) {
		r.fail("the end changed from %+v to %+v", *before, *after)
	}
	if before.CompletionTime != nil || after.CompletionTime == nil {
		return
	}
	seen := r.seen()
	switch after.Phase {
	case appsv1beta1.BroadcastJobCompleted:
		r.completion(seen)
	case appsv1beta1.BroadcastJobFailed:
		deadline := seen.Spec.CompletionPolicy.ActiveDeadlineSeconds
		late := deadline != nil && !r.Now().Before(after.StartTime.Add(time.Duration(*deadline)*time.Second))
		failed := slices.ContainsFunc(r.known(seen), func(pod *corev1.Pod) bool {
			s := state(seen, pod)
			return s == "failed" || s == "restarting"
		})
		if !late && (!failed || seen.Spec.FailurePolicy.Type != appsv1beta1.FailurePolicyFailFast) {
			r.fail("the job fails without a reason")
		}
	default:
		r.fail("the job ends in phase %s", after.Phase)
	}
	if seen.Spec.Paused {
		r.fail("the job ends while it is paused")
	}
}

// known are the pods of the job as the manager knows them: live reads and answers may be newer than the
// cache.
func (r *jobRun) known(job *appsv1beta1.BroadcastJob) []*corev1.Pod {
	snapshot, err := r.kube.Snapshot(context.Background(), job, r.binds)
	if err != nil {
		panic(err)
	}
	return snapshot.Pods
}

// completion: each eligible node has a finished pod, as far as the manager can know.
func (r *jobRun) completion(job *appsv1beta1.BroadcastJob) {
	if job.Spec.CompletionPolicy.Type == appsv1beta1.CompletionNever {
		r.fail("a job of type Never completes")
	}
	done := 0
	for _, node := range r.nodesOf(true) {
		eligible, finished, there := nodes.ForJob(&job.Spec.Template.Spec).Judge(node).Eligible, false, false
		for _, pod := range r.known(job) {
			if nodes.Target(pod) == node.Name {
				s := state(job, pod)
				there = there || s != "leaving"
				finished = finished || s == "succeeded" || s == "failed" || s == "restarting"
			}
		}
		if finished {
			done++
		}
		if eligible && !finished {
			r.fail("the job completes, and node %s is not done (has a pod: %t)", node.Name, there)
		}
	}
	if done == 0 {
		r.fail("the job completes without a node")
	}
}

// newRun draws a job and a cluster from the seed.
func newRun(seed uint64) *jobRun {
	draw := simulation.New(seed).Rand
	job := makeJob()
	job.Spec.Parallelism = []*intstr.IntOrString{number(1 << 30), number(1), number(2), percent("40%"), percent("100%")}[draw.IntN(5)]
	job.Spec.FailurePolicy.Type = policies[draw.IntN(3)]
	if draw.IntN(3) == 0 {
		job.Spec.CompletionPolicy.Type = appsv1beta1.CompletionNever
	} else {
		if draw.IntN(5) == 0 {
			deadline := int64(draw.IntN(600))
			job.Spec.CompletionPolicy.ActiveDeadlineSeconds = &deadline
		}
		if draw.IntN(4) == 0 {
			ttl := int32(draw.IntN(200))
			job.Spec.CompletionPolicy.TTLSecondsAfterFinished = &ttl
		}
	}
	if draw.IntN(3) == 0 {
		setTemplate(job, templateOf("OnFailure", `{}`))
		job.Spec.FailurePolicy.RestartLimit = int32(draw.IntN(3))
	}
	var names []string
	n := draw.IntN(7)
	for i := range n {
		names = append(names, fmt.Sprint("n", i))
	}
	r := &jobRun{seed: seed, nodes: n, simulated: simulate(seed, job, names...)}
	r.binds = draw.IntN(4) == 0
	r.calm = draw.IntN(3) == 0
	r.Start()
	r.BeforeWrite = r.beforeWrite
	slow := draw.Float64()
	r.ends = func(*corev1.Pod) corev1.PodPhase {
		switch {
		case !r.Chance(slow):
			return ""
		case !r.calm && r.Chance(0.15):
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	}
	if draw.IntN(3) > 0 {
		r.Faults = simulation.Faults{Refuse: 0.03, Lose: 0.03, Die: 0.02}
	}
	return r
}

func templateOf(policy, selector string) string {
	return fmt.Sprintf(`{"spec":{"restartPolicy":%q,"nodeSelector":%s,"containers":[{"name":"main","image":"check:1"}]}}`, policy, selector)
}

var policies = []appsv1beta1.FailurePolicyType{appsv1beta1.FailurePolicyFailFast, appsv1beta1.FailurePolicyContinue,
	appsv1beta1.FailurePolicyPause}

// user does something that users do, or that happens to nodes.
func (r *jobRun) user() {
	switch n := r.Rand.IntN(16); {
	case n < 6:
		r.toNode()
	case n < 9:
		if pods := r.AllPods(); len(pods) > 0 && !r.calm {
			r.EndGracefully(podKey(pods[r.Rand.IntN(len(pods))].Name))
		}
	case n == 9:
		if pods := r.AllPods(); len(pods) > 0 && r.Chance(0.3) {
			r.Change(podKey(pods[0].Name), func(o client.Object) { o.SetLabels(nil) })
		}
	default:
		r.change(func(job *appsv1beta1.BroadcastJob) {
			switch n {
			case 10, 11:
				job.Spec.Paused = !job.Spec.Paused
			case 12:
				job.Spec.Parallelism = []*intstr.IntOrString{number(0), number(1), number(3), percent("50%")}[r.Rand.IntN(4)]
			case 13:
				job.Spec.FailurePolicy.Type = policies[r.Rand.IntN(3)]
			case 14:
				job.Spec.FailurePolicy.RestartLimit = int32(r.Rand.IntN(3))
			case 15:
				setTemplate(job, templateOf(string(job.Spec.Template.Spec.RestartPolicy), []string{`{}`, `{"pool":"a"}`}[r.Rand.IntN(2)]))
			}
		})
	}
}

// toNode lets something happen to a node.
func (r *jobRun) toNode() {
	all := r.nodesOf(false)
	if len(all) == 0 || len(all) < 8 && r.Chance(0.2) {
		r.addNode(fmt.Sprint("n", r.nodes))
		r.nodes++
		return
	}
	key := nodeKey(all[r.Rand.IntN(len(all))].Name)
	switch n := r.Rand.IntN(6); n {
	case 0:
		r.Remove(key)
		if r.Chance(0.3) {
			r.addNode(key.Name)
		}
	case 1:
		r.Change(key, toNode(func(node *corev1.Node) { node.Spec.Unschedulable = !node.Spec.Unschedulable }))
	case 5:
		r.Change(key, toNode(func(node *corev1.Node) {
			node.Labels = map[string]string{"pool": []string{"a", "b"}[r.Rand.IntN(2)]}
		}))
	default:
		taint := []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}, {Key: "k", Effect: corev1.TaintEffectNoExecute},
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}[r.Rand.IntN(3)]
		r.Change(key, toNode(func(node *corev1.Node) {
			if len(node.Spec.Taints) > 0 && r.Chance(0.7) {
				node.Spec.Taints = nil
			} else {
				node.Spec.Taints = append(node.Spec.Taints, taint)
			}
		}))
	}
}

// play lets everybody act in random order.
func (r *jobRun) play(steps int) {
	for range steps {
		if r.failure != "" || r.job() == nil {
			return
		}
		r.Pass(time.Duration(r.Rand.IntN(1500)) * time.Millisecond)
		r.Recover()
		if r.staleLeaders {
			r.RunStaleLeader()
		}
		switch n := r.Rand.IntN(100); {
		case n < 5:
			r.user()
		case n < 40:
			r.Events(1 + r.Rand.IntN(6))
		case n < 68:
			if pods := r.AllPods(); len(pods) > 0 {
				r.step(pods[r.Rand.IntN(len(pods))])
			}
		case n < 72:
			r.CollectGarbage()
			r.collectPods()
		default:
			if !r.Dead() {
				r.Manage()
			}
		}
	}
}

// finish ends the disturbances and checks what must hold at rest.
func (r *jobRun) finish() {
	r.EndStaleLeader()
	for _, node := range r.nodesOf(false) {
		if !r.calm && node.Name == "n1" { // a cluster may end with one that takes no new pods
			continue
		}
		r.Change(nodeKey(node.Name), toNode(func(node *corev1.Node) { node.Spec = corev1.NodeSpec{} }))
	}
	if r.job() != nil {
		r.change(func(job *appsv1beta1.BroadcastJob) {
			job.Spec.Paused = false
			job.Spec.FailurePolicy.Type = appsv1beta1.FailurePolicyContinue
			job.Spec.Parallelism = []*intstr.IntOrString{number(1), percent("100%")}[r.Rand.IntN(2)]
		})
	}
	if r.failure != "" {
		return
	}
	r.ends = func(pod *corev1.Pod) corev1.PodPhase {
		if r.job() != nil && state(r.job(), pod) == "restarting" {
			return "" // it is in its back-off
		}
		return corev1.PodSucceeded
	}
	if err := r.Settle(1200); err != nil {
		r.fail("%v", err)
		return
	}
	if r.check(); r.failure == "" {
		r.rests()
	}
}

func (r *jobRun) check() {
	job := r.job()
	if job == nil {
		if len(r.AllPods()) > 0 {
			r.fail("the job is gone, and pods are there")
		}
		return
	}
	ttl := job.Spec.CompletionPolicy.TTLSecondsAfterFinished
	eligible, desired := 0, 0
	by := map[string]int{}
	for _, pod := range r.AllPods() {
		if mine(job, pod) {
			by[state(job, pod)]++
		}
	}
	for _, node := range r.nodesOf(false) {
		fits := nodes.ForJob(&job.Spec.Template.Spec).Judge(node).Eligible
		pods := slices.DeleteFunc(r.PodsOn(node.Name), func(pod *corev1.Pod) bool { return !mine(job, pod) })
		if fits {
			eligible++
		}
		if fits || len(pods) > 0 {
			desired++
		}
		if len(pods) > 1 {
			r.fail("%d pods on node %s", len(pods), node.Name)
		}
		if !hasEnded(job) && fits && (len(pods) != 1 || state(job, pods[0]) == "active") {
			r.fail("node %s is not done", node.Name)
		}
	}
	status := job.Status
	always := job.Spec.CompletionPolicy.Type == appsv1beta1.CompletionAlways
	switch {
	case hasEnded(job) && ttl != nil:
		r.fail("the job is there after its time")
	case hasEnded(job) && by["active"] > 0, status.Phase == appsv1beta1.BroadcastJobCompleted && by["restarting"] > 0:
		r.fail("pods run after the end: %v", by)
	case always && !hasEnded(job) && desired > 0:
		r.fail("the job does not end")
	case !hasEnded(job) && (status.Phase != appsv1beta1.BroadcastJobRunning || int(status.Desired) != desired ||
		int(status.Succeeded) != by["succeeded"] || int(status.Failed) != by["failed"]+by["restarting"] || status.Active != 0):
		r.fail("status %+v does not tell the truth: %d desired, %v", status, desired, by)
	case hasEnded(job) && status.Active != 0:
		r.fail("status %+v after the end", status)
	}
}

// rests checks that nothing is written when nothing happens.
func (r *jobRun) rests() {
	if extra := r.WrittenAtRest(); len(extra) > 0 {
		r.fail("written at rest: %v", extra)
	}
}

func playJob(t *testing.T, seed uint64, staleLeaders bool) {
	r := newRun(seed)
	r.Trace, r.Apart, r.staleLeaders = os.Getenv("TRACE") != "", seed%5 > 1, staleLeaders
	r.play(150 + r.Rand.IntN(250))
	if r.finish(); r.failure != "" {
		t.Errorf("the simulated job: %s", r.failure)
	}
}

// TestSimulatedBroadcastJobs plays random lives of jobs.
func TestSimulatedBroadcastJobs(t *testing.T) {
	simulationtest.Seeds(t, 2000, func(t *testing.T, seed uint64) { playJob(t, seed, false) })
}

// TestSimulatedStaleLeaders plays lives in which managers go on for a while after others took over from them.
func TestSimulatedStaleLeaders(t *testing.T) {
	simulationtest.Some(t, 500, 4, func(t *testing.T, seed uint64) { playJob(t, seed, true) })
}
