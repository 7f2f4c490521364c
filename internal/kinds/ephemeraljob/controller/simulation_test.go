package controller

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob/ephemeraljobtest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

type quiet struct{}

func (quiet) Event(client.Object, string, string, string) {}

// jobRun is one random life of a job. The rules by which it judges the writes share nothing with the planner.
type jobRun struct {
	*simulation.Play
	seed    uint64
	failure string
	r       *Reconciler
	pods    int
	// bad are pods for which the API server finds the containers invalid.
	bad map[string]bool
	// most is the greatest parallelism that the manager may know; faulty: requests fail, and managers die.
	most   int
	faulty bool
	// eager: kubelets do all they have to at once.
	eager bool
	// truth is what became of each treated pod, by UID.
	truth map[types.UID]bool
}

var jobKey = simulation.Key{Kind: "EphemeralJob", Name: "dump"}

func podKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

func (r *jobRun) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf("SEED=%d at %s: ", r.seed, r.Now().Format("15:04:05")) + fmt.Sprintf(format, args...) + "\n" + r.describe()
	}
}

func (r *jobRun) describe() (text string) {
	if job := r.job(); job != nil {
		text = fmt.Sprintf("paused %t, finalizers %v\n", job.Spec.Paused, job.Finalizers)
		s := &job.Status
		text += fmt.Sprintf("%s match %d: %d+%d+%d+%d %v\n", s.Phase, s.Matches, s.Succeeded, s.Failed, s.Running, s.Waiting, s.CompletionTime)
	}
	for _, object := range r.List("Pod", false) {
		pod := object.(*corev1.Pod)
		treated, done := r.mine(pod)
		text += fmt.Sprintf("%s %s %s going %t node %s treated %t done %t succeeded %t\n", pod.Name, pod.Labels["app"], pod.Status.Phase,
			pod.DeletionTimestamp != nil, pod.Spec.NodeName, treated, done, r.truth[pod.UID])
	}
	return text
}

func (r *jobRun) job() *appsv1alpha1.EphemeralJob {
	job, _ := r.Get(jobKey).(*appsv1alpha1.EphemeralJob)
	return job
}

// start starts a manager that remembers nothing.
func (r *jobRun) start() {
	r.r = &Reconciler{API: r.API(), Events: quiet{}, Pods: r.Pods(), meters: newMeters()}
	c, name := r.r.controller(), types.NamespacedName{Namespace: "shop", Name: "dump"}
	r.Reconcile = func() (time.Duration, error) {
		job := &appsv1alpha1.EphemeralJob{}
		if err := r.r.Client.Get(context.Background(), name, job); err != nil {
			return 0, client.IgnoreNotFound(err)
		}
		done, err := c.Run(context.Background(), name, job.UID)
		if os.Getenv("TRACE") != "" && done.Headline != "" {
			fmt.Println(r.Now().Format("15:04:05.000"), done.Headline, err)
		}
		return done.After, err
	}
}

// mine tells whether a pod has the container of the job, and how it is.
func (r *jobRun) mine(pod *corev1.Pod) (treated, done bool) {
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name != "dump" || ephemeraljob.Mark(&c) != string("job") {
			continue
		}
		treated = true
		for _, s := range pod.Status.EphemeralContainerStatuses {
			done = done || s.Name == "dump" && s.State.Terminated != nil
		}
	}
	return treated, done || pod.Status.Phase == corev1.PodFailed
}

// beforeWrite watches every write of the manager against the truth.
func (r *jobRun) beforeWrite(w simulation.Write, before, after client.Object) {
	if w.Key.Kind != "Pod" {
		if job, ok := after.(*appsv1alpha1.EphemeralJob); ok && w.Subresource == "status" {
			r.status(&before.(*appsv1alpha1.EphemeralJob).Status, &job.Status)
		}
		return
	}
	old, pod := before.(*corev1.Pod), after.(*corev1.Pod)
	if w.Subresource != subresource {
		r.fail("%s of pod %s, subresource %q", w.Verb, old.Name, w.Subresource)
	}
	if treated, _ := r.mine(old); treated || len(pod.Spec.EphemeralContainers) != len(old.Spec.EphemeralContainers)+1 {
		r.fail("pod %s is treated, and has %d containers", old.Name, len(old.Spec.EphemeralContainers))
	}
	for i, c := range old.Spec.EphemeralContainers {
		if c.Name != pod.Spec.EphemeralContainers[i].Name {
			r.fail("containers of others in %s changed", old.Name)
		}
	}
	if old.DeletionTimestamp != nil || old.Status.Phase == corev1.PodFailed || old.Spec.NodeName == "" || old.Labels["app"] != "web" {
		r.fail("pod %s is treated as it is", old.Name)
	}
	busy := 1
	for _, object := range r.List("Pod", false) {
		if treated, done := r.mine(object.(*corev1.Pod)); treated && !done {
			busy++
		}
	}
	if busy > r.most {
		r.fail("pod %s is treated, and %d pods have unfinished containers, of at most %d", old.Name, busy, r.most)
	}
	r.truth[old.UID] = false
}

// status judges the numbers: what a status has shown to have succeeded stays so, and an end is one.
func (r *jobRun) status(before, after *appsv1alpha1.EphemeralJobStatus) {
	if before.CompletionTime != nil {
		r.fail("a finished job gets another status: %+v", after)
	}
	if after.Succeeded < before.Succeeded || after.Failed < before.Failed {
		r.fail("results vanish: %d and %d, then %d and %d", before.Succeeded, before.Failed, after.Succeeded, after.Failed)
	}
	if after.Succeeded+after.Failed+after.Running+after.Waiting > after.Matches {
		r.fail("more results than matches: %+v", after)
	}
	if after.CompletionTime == nil || after.Conditions[len(after.Conditions)-1].Reason == "DeadlineExceeded" {
		return
	}
	if after.Running+after.Waiting > 0 || (after.Phase == appsv1alpha1.EphemeralJobSucceeded) != (after.Failed == 0) {
		r.fail("an end that is none: %+v", after)
	}
	succeeded := 0
	for _, ended := range r.truth {
		if ended {
			succeeded++
		}
	}
	// One that was not seen to succeed counts as failed. Of one that goes before the lost answer about it is
	// looked up nobody knows that it was treated.
	if int(after.Succeeded) > succeeded || !r.faulty && int(after.Succeeded+after.Failed) < len(r.truth) {
		r.fail("%d of %d succeeded, and the status says %+v", succeeded, len(r.truth), after)
	}
}

// answer refuses what a real API server would.
func (r *jobRun) answer(request *simulation.Request) error {
	if request.Subresource != subresource {
		return nil
	}
	if r.bad[request.Key.Name] {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, request.Key.Name, field.ErrorList{
			field.NotFound(field.NewPath("spec", "ephemeralContainers").Index(0).Child("volumeMounts").Index(0).Child("name"), "x")})
	}
	if r.Faults.Die+r.Faults.Refuse > 0 && r.Rand.IntN(8) == 0 {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, request.Key.Name, fmt.Errorf("a policy"))
	}
	return nil
}

func (r *jobRun) newPod() {
	name := fmt.Sprint("p", r.pods)
	r.pods++
	pod := ephemeraljobtest.Pod(name)
	pod.UID, pod.ResourceVersion = types.UID(fmt.Sprint("uid-", r.pods)), ""
	pod.CreationTimestamp = metav1.NewTime(r.Now())
	switch r.Rand.IntN(8) {
	case 0:
		pod.Spec.NodeName = ""
	case 1:
		ephemeraljobtest.Container("dump", "other", ephemeraljobtest.Runs())(pod)
	case 2:
		ephemeraljobtest.Container("shell", "", ephemeraljobtest.Runs())(pod)
	case 3:
		r.bad[name] = true
	}
	r.Store(podKey(name), pod)
}

// kubelet brings the container of the job one step further in one pod.
func (r *jobRun) kubelet() bool {
	for _, object := range r.List("Pod", false) {
		pod := object.(*corev1.Pod)
		if pod.DeletionTimestamp != nil {
			if r.eager || r.Rand.IntN(2) == 0 {
				r.Remove(podKey(pod.Name))
			}
			return true
		}
		if pod.Spec.NodeName == "" && (r.eager || r.Rand.IntN(3) == 0) {
			r.Change(podKey(pod.Name), func(o client.Object) { o.(*corev1.Pod).Spec.NodeName = "node" })
			return true
		}
		if treated, done := r.mine(pod); !treated || done || !r.eager && r.Rand.IntN(3) > 0 {
			continue
		}
		r.Change(podKey(pod.Name), func(o client.Object) {
			status := &o.(*corev1.Pod).Status
			if i := len(status.EphemeralContainerStatuses) - 1; i >= 0 && status.EphemeralContainerStatuses[i].Name == "dump" {
				if status.EphemeralContainerStatuses[i].State.Waiting != nil {
					status.EphemeralContainerStatuses[i].State = *ephemeraljobtest.Runs()
					return
				}
				code := int32(r.Rand.IntN(4) / 3)
				status.EphemeralContainerStatuses[i].State = *ephemeraljobtest.Ended(code)
				if code == 0 {
					r.truth[pod.UID] = true
				}
				return
			}
			status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: "dump",
				State: *ephemeraljobtest.Waits("ContainerCreating")})
		})
		return true
	}
	return false
}

// user does something that users do, or that happens to pods.
func (r *jobRun) user() {
	pods := r.List("Pod", false)
	change := func(do func(*appsv1alpha1.EphemeralJob)) {
		if r.job() != nil {
			r.Change(jobKey, func(o client.Object) {
				o.SetGeneration(o.GetGeneration() + 1)
				do(o.(*appsv1alpha1.EphemeralJob))
			})
			r.Queue.Add()
		}
	}
	var pod *corev1.Pod
	if len(pods) > 0 {
		pod = pods[r.Rand.IntN(len(pods))].(*corev1.Pod)
	}
	switch n := r.Rand.IntN(12); {
	case n < 3:
		r.newPod()
	case n == 3 && pod != nil:
		r.EndGracefully(podKey(pod.Name))
	case n == 4 && pod != nil:
		r.Change(podKey(pod.Name), func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
	case n == 5 && pod != nil:
		r.Change(podKey(pod.Name), func(o client.Object) {
			o.SetLabels(map[string]string{"app": []string{"web", "other"}[r.Rand.IntN(2)]})
		})
	case n == 6 && pod != nil:
		r.Remove(podKey(pod.Name))
	case n == 7:
		parallelism := int32(r.Rand.IntN(4))
		r.most = max(r.most, int(parallelism))
		change(func(job *appsv1alpha1.EphemeralJob) { job.Spec.Parallelism = &parallelism })
	case n == 8:
		replicas := int32(r.Rand.IntN(8))
		change(func(job *appsv1alpha1.EphemeralJob) { job.Spec.Replicas = &replicas })
	case n == 9:
		change(func(job *appsv1alpha1.EphemeralJob) { job.Spec.Paused = !job.Spec.Paused })
	case n == 10:
		r.Pass(time.Duration(r.Rand.IntN(20)) * time.Second)
	}
}

func newJobRun(seed uint64) *jobRun {
	r := &jobRun{Play: &simulation.Play{Cluster: simulation.New(seed)}, seed: seed, bad: map[string]bool{}, truth: map[types.UID]bool{}}
	job := ephemeraljobtest.Job()
	job.Finalizers, job.CreationTimestamp, job.ResourceVersion = nil, metav1.NewTime(r.Now()), ""
	r.most = 1 + r.Rand.IntN(4)
	job.Spec.Parallelism, job.Spec.TTLSecondsAfterFinished = new(int32(r.most)), new(int32(600))
	if r.Rand.IntN(2) == 0 {
		job.Spec.Replicas = new(int32(1 + r.Rand.IntN(6)))
	}
	if r.Rand.IntN(4) == 0 {
		job.Spec.ActiveDeadlineSeconds = new(int64(60))
	}
	r.Slim = slim.Any
	r.Apart = r.Rand.IntN(2) == 0
	r.Store(jobKey, job)
	for range r.Rand.IntN(8) {
		r.newPod()
	}
	_ = r.IndexField(context.Background(), &appsv1alpha1.EphemeralJob{}, unfinished, indexUnfinished)
	events := podEvents(&reconcile.API{Client: r.Client()})
	r.Delivered = func(before, after client.Object) {
		called := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer called.ShutDown()
		for _, object := range []client.Object{before, after} {
			if _, ok := object.(*appsv1alpha1.EphemeralJob); ok && (before == nil || after == nil ||
				jobEvents.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})) {
				r.Queue.Add()
			}
		}
		switch {
		case before == nil:
			events.Create(context.Background(), event.CreateEvent{Object: after}, called)
		case after == nil:
			events.Delete(context.Background(), event.DeleteEvent{Object: before}, called)
		default:
			events.Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, called)
		}
		if called.Len() > 0 {
			r.Queue.Add()
		}
	}
	r.BeforeWrite, r.Answer = r.beforeWrite, r.answer
	r.Queue = simulation.NewQueue(r.Cluster, "dump")
	r.Start = func() {
		r.Restart()
		r.Queue = simulation.NewQueue(r.Cluster, "dump")
		r.start()
	}
	r.EnvironmentStep = r.kubelet
	r.Describe = r.describe
	if r.Rand.IntN(3) > 0 {
		r.faulty, r.Faults = true, simulation.Faults{Refuse: 0.05, Lose: 0.05, Die: 0.03}
	}
	r.start()
	return r
}

// TestSimulatedEphemeralJobs plays jobs against caches that lag, lost answers, conflicts, pods that come and
// go, and managers that die between any two writes: never more pods at once than allowed, no pod twice, no
// container of others changed, no result that vanishes; in the end the job is finished and gone, and nothing
// is written at rest (EJ-037 (part), EJ-038 (part), EJ-044 (part), EJ-047 (part)).
func TestSimulatedEphemeralJobs(t *testing.T) {
	simulationtest.Seeds(t, 30, func(t *testing.T, seed uint64) {
		r := newJobRun(seed)
		for range 150 {
			switch n := r.Rand.IntN(10); {
			case r.Dead():
				r.Start()
			case n < 3:
				r.Events(1 + r.Rand.IntN(3))
			case n < 6:
				r.Manage()
			case n < 9:
				r.kubelet()
			default:
				r.user()
			}
			if r.failure != "" {
				t.Fatalf("failure: got %q, want %q", r.failure, "")
			}
		}
		if job := r.job(); job != nil && job.Status.CompletionTime == nil { // let it end
			r.Change(jobKey, func(o client.Object) {
				job := o.(*appsv1alpha1.EphemeralJob)
				job.SetGeneration(job.GetGeneration() + 1)
				job.Spec.Paused, job.Spec.Parallelism, job.Spec.Replicas, job.Spec.ActiveDeadlineSeconds = false, new(int32(2)), nil, nil
			})
			r.most = max(r.most, 2)
			r.pods = 1000
			pod := ephemeraljobtest.Pod("last")
			pod.ResourceVersion = ""
			r.Store(podKey("last"), pod)
			r.Queue.Add()
		}
		r.eager = true
		if err := r.Settle(3000); err != nil {
			t.Fatalf("coming to rest: unexpected error: %v\n%s", err, r.failure)
		} else if r.failure != "" {
			t.Fatalf("failure: got %q, want %q\n%v", r.failure, "", err)
		}
		if job := r.job(); job != nil {
			t.Fatalf("SEED=%d: the job stays: %s", seed, r.describe())
		}
	})
}

var _ reconcile.Recorder = quiet{}
