package rollouts

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/afloat-project/afloat/api/pub"
)

// keptJobs is how many jobs stay; older ones are deleted.
const keptJobs = 3

// broadcastJob is one of the BroadcastJobs.
func broadcastJob(number int) workload {
	return workload{resource: resource("broadcastjobs"), name: fmt.Sprintf("job-%d", number), spec: `
parallelism: 2
template:
  metadata: {labels: {job: "yes"}}
  spec:
    restartPolicy: Never
    containers: [{name: main, image: "app:v1"}]
completionPolicy: {type: Always}
`}
}

// ephemeralJob is one of the EphemeralJobs. They look into pods that are rolled out meanwhile.
func ephemeralJob(number int) workload {
	return workload{resource: schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "ephemeraljobs"},
		name: fmt.Sprintf("look-%d", number), spec: fmt.Sprintf(`
selector: {matchLabels: {app: logged}}
parallelism: 2
template:
  ephemeralContainers: [{name: look-%d, image: "tools:v1"}]
`, number)}
}

// jobOver reports whether a job has come to its end.
func jobOver(object *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	return slices.Contains([]string{"completed", "Completed", "Succeeded", "Failed"}, phase) || completed(object)
}

// playJobs makes one job after the other.
func (r *Rollouts) playJobs(ctx context.Context, job func(int) workload) {
	for number := 1; ctx.Err() == nil; number++ {
		w := job(number)
		if err := r.create(ctx, w); err != nil {
			return
		}
		// A job that takes too long stays beside the next one.
		r.settled(ctx, w, Patience, false, jobOver)
		if number > keptJobs && r.remove(ctx, job(number-keptJobs)) != nil {
			return
		}
		waitFor(ctx, w.pace)
	}
}

func (r *Rollouts) remove(ctx context.Context, w workload) error {
	return r.again(ctx, "deleting "+w.name, func(ctx context.Context) error {
		background := metav1.DeletePropagationBackground
		err := r.client(w).Delete(ctx, w.name, metav1.DeleteOptions{PropagationPolicy: &background})
		if apierrors.IsNotFound(err) {
			return nil // an answer was lost
		}
		return err
	})
}

// cron makes a BroadcastJob each minute. One takes nearly a minute, and longer with faults, so that it holds up
// the next one.
var cron = workload{resource: resource("advancedcronjobs"), name: "each-minute", spec: `
schedule: "* * * * *"
concurrencyPolicy: Forbid
successfulJobsHistoryLimit: 1
template:
  broadcastJobTemplate:
    spec:
      parallelism: 2
      template:
        metadata: {labels: {job: "yes", lasts: long}}
        spec:
          restartPolicy: Never
          containers: [{name: main, image: "app:v1"}]
      completionPolicy: {type: Always}
`}

// playCron waits for run after run of the AdvancedCronJob, and pauses it for a while now and then.
func (r *Rollouts) playCron(ctx context.Context) {
	draw := rand.New(rand.NewPCG(r.seed, 0xc0)) //nolint:gosec // chance that can be repeated
	for ctx.Err() == nil {
		if r.pauseCron(ctx, false) != nil {
			return
		}
		begin := time.Now()
		r.settled(ctx, cron, 3*time.Minute, false, func(object *unstructured.Unstructured) bool {
			last, _, _ := unstructured.NestedString(object.Object, "status", "lastScheduleTime")
			active, _, _ := unstructured.NestedSlice(object.Object, "status", "active")
			at, err := time.Parse(time.RFC3339, last)
			return err == nil && at.After(begin) && len(active) == 0
		})
		if draw.IntN(3) > 0 {
			continue
		}
		length := time.Duration(10+draw.IntN(60)) * time.Second
		if r.pauseCron(ctx, true) != nil {
			return
		}
		waitFor(ctx, length)
	}
}

func (r *Rollouts) pauseCron(ctx context.Context, paused bool) error {
	return r.again(ctx, "pausing "+cron.name, func(ctx context.Context) error {
		_, err := r.client(cron).Patch(ctx, cron.name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"paused":%t}}`, paused), metav1.PatchOptions{})
		return err
	})
}

// Rest stops what would not come to rest by itself, or not soon.
func (r *Rollouts) Rest(ctx context.Context) error {
	if r.real {
		return nil
	}
	if err := r.pauseCron(ctx, true); err != nil {
		return err
	}
	return r.again(ctx, "deleting slow pods", func(ctx context.Context) error {
		return r.cluster.Kube.CoreV1().Pods(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: slow})
	})
}

// FinishPods plays what the simulated nodes do not: pods of jobs come to their end, and ephemeral containers
// run. It returns when the context ends.
func (r *Rollouts) FinishPods(ctx context.Context) {
	if r.real {
		return
	}
	all := r.cluster.Kube.CoreV1().Pods(Namespace)
	// What fails is tried again a second later.
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		list, err := all.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // tried again
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if status := finished(pod, time.Now()); status != "" {
				_, _ = all.Patch(ctx, pod.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":%s}`, pod.UID, status), metav1.PatchOptions{}, "status")
			}
		}
		return false, nil
	})
}

// finished returns what becomes of the status of a pod by and by.
func finished(pod *corev1.Pod, now time.Time) string {
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
		return ""
	}
	if pod.Labels[pub.BroadcastJobName] != "" {
		if pod.Labels["lasts"] == "long" && pod.Status.StartTime != nil && now.Sub(pod.Status.StartTime.Time) < 25*time.Second {
			return ""
		}
		return `{"phase":"Succeeded","conditions":[{"type":"Ready","status":"False","reason":"PodCompleted"}]}`
	}
	statuses, changed := looks(pod, now)
	if !changed {
		return ""
	}
	text, err := json.Marshal(statuses)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(`{"ephemeralContainerStatuses":%s}`, text)
}

// looks returns the statuses of the ephemeral containers of a pod, each of which runs for some seconds, and whether
// any is not what it was.
func looks(pod *corev1.Pod, now time.Time) ([]corev1.ContainerStatus, bool) {
	was, changed := map[string]corev1.ContainerStatus{}, false
	for _, status := range pod.Status.EphemeralContainerStatuses {
		was[status.Name] = status
	}
	var all []corev1.ContainerStatus
	for _, c := range pod.Spec.EphemeralContainers {
		status, ok := was[c.Name]
		running := status.State.Running
		switch {
		case !ok:
			status = corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}}
			changed = true
		case running != nil && now.Sub(running.StartedAt.Time) > 3*time.Second:
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed",
				StartedAt: running.StartedAt, FinishedAt: metav1.NewTime(now)}}
			changed = true
		}
		all = append(all, status)
	}
	return all, changed
}
