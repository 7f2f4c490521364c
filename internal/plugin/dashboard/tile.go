package dashboard

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
)

// tileState is what a pod is shown as.
type tileState string

// States of tiles.
const (
	tileOld      tileState = "old"
	tileUpdating tileState = "updating" // it is being updated in place
	tileNotReady tileState = "notReady"
	tileNew      tileState = "new"
	tileHeld     tileState = "held" // something is left to do, and a rule holds it back
	tileDeleting tileState = "deleting"
)

// tile is what the page shows of a pod.
type tile struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	Revision  string    `json:"revision,omitempty"`
	New       bool      `json:"new"`
	State     tileState `json:"state"`
	Ready     string    `json:"ready"`
	Restarts  int32     `json:"restarts"`
	Node      string    `json:"node,omitempty"`
	Phase     string    `json:"phase,omitempty"`
	Lifecycle string    `json:"lifecycle,omitempty"`
	Subset    string    `json:"subset,omitempty"`
	Images    []string  `json:"images,omitempty"`
	// Since is a time of Kubernetes, because its comparison of values knows no other.
	Since metav1.Time `json:"since"`
	// Reason, Message and Until are what the planner says.
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Until   *metav1.Time `json:"until,omitempty"`
}

// equal reports whether two tiles show the same.
func (t tile) equal(other tile) bool {
	return equality.Semantic.DeepEqual(t, other)
}

// idOf identifies a pod among all namespaces.
func idOf(pod metav1.Object) string { return pod.GetNamespace() + "/" + pod.GetName() }

// tileOf returns the tile of a pod. label has the revision of the pod, update is the revision that pods are moved
// to, and verdict what the planner last said about the pod, or nil.
func tileOf(pod *corev1.Pod, label, update string, verdict *explain.Pod) tile {
	t := tile{
		ID:        idOf(pod),
		Name:      pod.Name,
		Namespace: pod.Namespace,
		Revision:  pod.Labels[label],
		Node:      pod.Spec.NodeName,
		Phase:     string(pod.Status.Phase),
		Lifecycle: pod.Labels[pub.LifecycleState],
		Subset:    pod.Labels[uniteddeployment.SubsetName],
		Since:     pod.CreationTimestamp,
	}
	if placement, ok := pub.ParsePlacement(pod.Annotations); ok {
		t.Subset = placement.Subset
	}
	for i := range pod.Spec.Containers {
		t.Images = append(t.Images, pod.Spec.Containers[i].Image)
	}

	ready := 0
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		t.Restarts += status.RestartCount
		if status.Ready {
			ready++
		}
		if status.State.Waiting != nil {
			t.Phase = cmp.Or(status.State.Waiting.Reason, t.Phase)
		}
	}
	t.Ready = fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers))

	t.New = sameRevision(t.Revision, update)
	if verdict != nil {
		t.Reason, t.Message, t.Until = verdict.Reason, verdict.Message, verdict.Until
		if update == "" { // SidecarSets: the pods belong to somebody else, and so does their revision
			t.New = verdict.State == explain.Done
		}
	}
	t.State = stateOf(pod, &t, verdict)
	return t
}

// stateOf returns the state of a tile. What a person should look at first wins.
func stateOf(pod *corev1.Pod, t *tile, verdict *explain.Pod) tileState {
	switch {
	case pod.DeletionTimestamp != nil:
		return tileDeleting
	case updating(pod):
		return tileUpdating
	case !podutils.IsPodReady(pod) && pod.Status.Phase != corev1.PodSucceeded:
		return tileNotReady
	case verdict != nil && verdict.State == explain.Waiting:
		return tileHeld
	case t.New:
		return tileNew
	}
	return tileOld
}

// updating reports whether a pod is being updated in place.
func updating(pod *corev1.Pod) bool {
	switch pub.LifecycleStateType(pod.Labels[pub.LifecycleState]) {
	case pub.LifecycleStatePreparingUpdate, pub.LifecycleStateUpdating, pub.LifecycleStateUpdated:
		return true
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; string(c.Type) == pub.InPlaceUpdateReady {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

// sameRevision reports whether two names mean the same revision: either may have the name of the workload before
// its hash.
func sameRevision(a, b string) bool {
	return a != "" && b != "" &&
		(a == b || strings.HasSuffix(a, "-"+b) || strings.HasSuffix(b, "-"+a))
}

// slimPod removes the parts of a pod that tiles do not show, so that thousands of pods take little memory.
func slimPod(object runtime.Object) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	slim := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              pod.Name,
			Namespace:         pod.Namespace,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			Labels:            pod.Labels,
			OwnerReferences:   pod.OwnerReferences,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase:      pod.Status.Phase,
			Conditions: pod.Status.Conditions,
		},
	}
	for _, key := range []string{pub.MatchedWorkloadSpread, pub.SidecarSetInjectedList} {
		if value, ok := pod.Annotations[key]; ok {
			if slim.Annotations == nil {
				slim.Annotations = map[string]string{}
			}
			slim.Annotations[key] = value
		}
	}
	for i := range pod.Spec.Containers {
		slim.Spec.Containers = append(slim.Spec.Containers, corev1.Container{
			Name: pod.Spec.Containers[i].Name, Image: pod.Spec.Containers[i].Image,
		})
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		slim.Status.ContainerStatuses = append(slim.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: status.Name, Ready: status.Ready, RestartCount: status.RestartCount,
			State: corev1.ContainerState{Waiting: status.State.Waiting},
		})
	}
	*pod = slim
}
