package ephemeraljob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
)

// Result is what became of the containers of a job in a pod (EJ-055).
type Result string

// Results of pods. Unknown: the kubelet has not reported yet.
const (
	Unknown   Result = "Unknown"
	Waiting   Result = "Waiting"
	Running   Result = "Running"
	Succeeded Result = "Succeeded"
	Failed    Result = "Failed"
)

// hopeless are reasons for which a container waits that nothing but a change outside of the pod can heal, and
// hopelessAfter is how long they are given.
var hopeless = []string{"ErrImageNeverPull", "InvalidImageName", "CreateContainerError"}

const hopelessAfter = time.Minute

// runError is the reason for which a container waits that was made and could not be started; ephemeral
// containers are made once.
const runError = "RunContainerError"

// outcome is how far the containers of a job in a pod are.
type outcome struct {
	result Result
	// done: none of them is going to run any more.
	done bool
	// stuck: one waits for what cannot heal.
	stuck bool
	why   string
}

// Owns tells whether the job with that UID added the container (EJ-018). The last of several variables is the
// one that counts.
func Owns(container *corev1.EphemeralContainer, job types.UID) bool {
	return job != "" && Mark(container) == string(job)
}

// Mark is the UID of the job that added the container, empty if none did.
func Mark(container *corev1.EphemeralContainer) string {
	for i := len(container.Env) - 1; i >= 0; i-- {
		if container.Env[i].Name == pub.EphemeralJobEnv {
			return container.Env[i].Value
		}
	}
	return ""
}

// Treated tells whether the pod has a container of the job (EJ-044).
func Treated(pod *corev1.Pod, job types.UID) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers,
		func(c corev1.EphemeralContainer) bool { return Owns(&c, job) })
}

// ended tells whether a pod has ended: nothing in it runs any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// active tells whether a pod may be treated.
func active(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !ended(pod) }

// judge tells how far the containers of the job in a treated pod are. lost tells that those which wait for
// what cannot heal have waited long enough.
func judge(pod *corev1.Pod, job types.UID, lost bool) outcome {
	o := outcome{result: Succeeded, done: true}
	worse := map[Result]int{Succeeded: 0, Unknown: 1, Waiting: 2, Running: 3, Failed: 4}
	take := func(result Result, done bool, format string, args ...any) {
		o.done = o.done && done
		if worse[result] > worse[o.result] {
			o.result, o.why = result, fmt.Sprintf(format, args...)
		}
	}
	states := map[string]*corev1.ContainerState{}
	for i := range pod.Status.EphemeralContainerStatuses {
		states[pod.Status.EphemeralContainerStatuses[i].Name] = &pod.Status.EphemeralContainerStatuses[i].State
	}

	for i := range pod.Spec.EphemeralContainers {
		container := &pod.Spec.EphemeralContainers[i]
		if !Owns(container, job) {
			continue
		}
		state := cmp.Or(states[container.Name], &corev1.ContainerState{})
		switch {
		case state.Terminated != nil && state.Terminated.ExitCode != 0:
			take(Failed, true, "container %s ended with %d", container.Name, state.Terminated.ExitCode)
		case state.Terminated != nil:
		case ended(pod):
			take(Failed, true, "the pod ended before container %s", container.Name)
		case state.Running != nil:
			take(Running, false, "container %s runs", container.Name)
		case state.Waiting != nil && state.Waiting.Reason == runError:
			take(Failed, true, "container %s could not be started: %s", container.Name, runError)
		case state.Waiting != nil && slices.Contains(hopeless, state.Waiting.Reason):
			o.stuck = true
			if lost {
				take(Failed, true, "container %s waits for more than a minute: %s", container.Name,
					state.Waiting.Reason)
			} else {
				take(Waiting, false, "container %s waits: %s", container.Name, state.Waiting.Reason)
			}
		case state.Waiting != nil:
			take(Waiting, false, "container %s waits: %s", container.Name, state.Waiting.Reason)
		default:
			take(Unknown, false, "the kubelet has not reported about container %s", container.Name)
		}
	}

	if o.result == Succeeded {
		o.why = "all containers ended with 0"
	}

	return o
}
