package broadcastjob

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

const kind = "BroadcastJob"

// Snapshot is everything that a plan is made from.
type Snapshot struct {
	// Job is the BroadcastJob.
	Job *appsv1beta1.BroadcastJob
	podplan.Snapshot
	// Nodes are all nodes, in any order. They are not needed if the job has ended and its counters are final
	// (see [Ended]).
	Nodes []*corev1.Node
	// Taken reports whether a pod of somebody else has the given name. If it is nil, none has.
	Taken func(pod string) bool
	// Binds makes the manager bind pods to their nodes instead of the scheduler (flag
	// --assign-bcj-pods-by-scheduler=false, BJ-041).
	Binds bool
}

// Mine reports whether a pod belongs to the job (BJ-043). Labels are ignored, because a policy may strip
// them, and then the job would create pods for the node without end.
func Mine(job *appsv1beta1.BroadcastJob, pod *corev1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && controller.UID == job.UID && pod.Namespace == job.Namespace
}

// Ended reports whether the job has ended, so that nothing of it starts any more (BJ-025, BJ-061). counted
// reports that its counters nevertheless continue to follow its pods and the nodes (BJ-090).
func Ended(job *appsv1beta1.BroadcastJob) (ended, counted bool) {
	failed := job.Status.Phase == appsv1beta1.BroadcastJobFailed
	if !failed && job.Status.Phase != appsv1beta1.BroadcastJobCompleted && condition(&job.Status) == nil {
		return false, false
	}
	return true, job.Spec.CompletionPolicy.Type == appsv1beta1.CompletionNever && failed
}

// condition returns the condition that says that the job has ended, or nil if there is none.
func condition(status *appsv1beta1.BroadcastJobStatus) *appsv1beta1.JobCondition {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Status == corev1.ConditionTrue &&
			(c.Type == appsv1beta1.JobComplete || c.Type == appsv1beta1.JobFailed) {
			return c
		}
	}
	return nil
}

// State is the state of a pod with regard to its job.
type State string

// States of pods (BJ-050).
const (
	Succeeded State = "succeeded"
	Failed    State = "failed"
	// Restarting is a pod that has not ended but counts as failed, because its containers restarted too
	// often.
	Restarting State = "restarting"
	Active     State = "active"
	// Leaving is a pod that is being deleted, whatever its state was. Its node gets another pod when it is
	// gone (BJ-053).
	Leaving State = "leaving"
)

// finished reports whether the node of a pod in this state is finished.
func (s State) finished() bool { return s == Succeeded || s == Failed || s == Restarting }

// failed reports whether a pod in this state counts as failed.
func (s State) failed() bool { return s == Failed || s == Restarting }

// StateOf returns the state of a pod of the job (BJ-050 to BJ-052).
func StateOf(job *appsv1beta1.BroadcastJob, pod *corev1.Pod) State {
	switch {
	case pod.DeletionTimestamp != nil:
		return Leaving
	case pod.Status.Phase == corev1.PodSucceeded:
		return Succeeded
	case pod.Status.Phase == corev1.PodFailed:
		return Failed
	case pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure &&
		restarts(pod) > int64(max(job.Spec.FailurePolicy.RestartLimit, 0)):
		return Restarting
	}
	return Active
}

// restarts returns how often containers of the pod restarted.
func restarts(pod *corev1.Pod) (n int64) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses} {
		for i := range list {
			n += int64(list[i].RestartCount)
		}
	}
	return n
}

// placement returns a hash of what a template requires of nodes. Pods record it, because later requirements
// apply to later pods only.
func placement(spec *corev1.PodSpec) (string, error) {
	var required *corev1.NodeSelector
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		required = spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	text, err := json.Marshal(struct { // empty fields count as absent
		Node        string               `json:",omitempty"`
		Selector    map[string]string    `json:",omitempty"`
		Required    *corev1.NodeSelector `json:",omitempty"`
		Tolerations []corev1.Toleration  `json:",omitempty"`
	}{spec.NodeName, spec.NodeSelector, required, spec.Tolerations})
	if err != nil {
		return "", fmt.Errorf("encoding what the template asks of nodes: %w", err)
	}

	return strconv.FormatUint(nodes.Hash(string(text)), 36), nil
}
