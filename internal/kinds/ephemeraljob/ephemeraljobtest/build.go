// Package ephemeraljobtest builds EphemeralJobs and their pods for tests of the plans and of the controller.
package ephemeraljobtest

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
)

// Noon is when things happen in tests.
var Noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Containers is the list of one container of the jobs.
const Containers = `[{"name":"dump","image":"tools:1"}]`

// Job is a job that adds container dump to pods with label app=web, with the finalizer of the manager.
func Job(changes ...func(*appsv1alpha1.EphemeralJob)) *appsv1alpha1.EphemeralJob {
	job := &appsv1alpha1.EphemeralJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dump",
		UID: "job", ResourceVersion: "1", Generation: 1, CreationTimestamp: metav1.NewTime(Noon),
		Finalizers: []string{pub.EphemeralContainersCleanup}}}
	job.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	With(Containers)(job)
	for _, change := range changes {
		change(job)
	}
	return job
}

// With sets the list of containers.
func With(containers string) func(*appsv1alpha1.EphemeralJob) {
	return func(job *appsv1alpha1.EphemeralJob) {
		if err := json.Unmarshal([]byte(containers), &job.Spec.Template.EphemeralContainers); err != nil {
			panic(err)
		}
	}
}

// Pod is a running pod that the jobs select.
func Pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
		UID: types.UID("uid-" + name), ResourceVersion: "1", CreationTimestamp: metav1.NewTime(Noon),
		Labels: map[string]string{"app": "web"}},
		Spec:   corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// Treated adds container dump of the job, in that state; nil is none yet.
func Treated(job types.UID, state *corev1.ContainerState) func(*corev1.Pod) {
	return Container("dump", job, state)
}

// Container adds a container of the job, in that state; nil is none yet.
func Container(name string, job types.UID, state *corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		container := corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}}
		if job != "" {
			container.Env = []corev1.EnvVar{{Name: pub.EphemeralJobEnv, Value: string(job)}}
		}
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, container)
		if state != nil {
			pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses,
				corev1.ContainerStatus{Name: name, State: *state})
		}
	}
}

// Runs is the state of a container that runs.
func Runs() *corev1.ContainerState {
	return &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

// Ended is the state of a container that ended with that code.
func Ended(code int32) *corev1.ContainerState {
	return &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
}

// Waits is the state of a container that waits.
func Waits(reason string) *corev1.ContainerState {
	return &corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}
