package inplace

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Status says how far the last in-place update of a pod has come.
type Status struct {
	// Complete: nothing is left to be written and the changed containers run (IPU-121).
	Complete bool
	// InGrace: a grace period holds the content back. It is over when After is 0.
	InGrace bool
	// After is how long the grace period still lasts (IPU-107).
	After time.Duration
	// Waiting says in words what is missing.
	Waiting string
}

// Progress looks at a pod. An unreadable annotation is an error (IPU-070).
func Progress(pod *corev1.Pod, now time.Time) (Status, error) {
	grace, err := GraceOf(pod)
	if err != nil {
		return Status{}, err
	}
	state, err := StateOf(pod)
	if err != nil {
		return Status{}, err
	}
	if grace != nil {
		status := Status{InGrace: true}
		if carries(pod, grace.Revision) && state != nil {
			end := state.UpdateTimestamp.Add(time.Duration(grace.GraceSeconds) * time.Second)
			if left := end.Sub(now); left > 0 {
				status.After = (left + time.Second - 1).Truncate(time.Second)
				status.Waiting = fmt.Sprintf("grace period of %d s, %d s left", grace.GraceSeconds, int(status.After.Seconds()))
			}
		}
		return status, nil
	}
	if state == nil {
		return Status{Complete: true}, nil
	}
	for _, name := range slices.Sorted(maps.Keys(state.LastContainerStatuses)) {
		if waiting := replaced(pod, name, state.LastContainerStatuses[name], state); waiting != "" {
			return Status{Waiting: waiting}, nil
		}
	}
	return Status{Complete: true}, nil
}

// replaced returns what is missing until the container runs its new image (IPU-127, IPU-300, IPU-328), or nothing.
func replaced(pod *corev1.Pod, name string, before ContainerRecord, state *State) string {
	container, status := containerOf(pod, name), statusOf(pod, name)
	if container == nil {
		return "" // not in the pod's spec any more: nothing can be waited for
	}
	if status == nil {
		return fmt.Sprintf("container %s has no status yet", name)
	}
	if status.ContainerID == "" {
		if pod.Status.Phase == corev1.PodRunning {
			return fmt.Sprintf("container %s has not been created with %s yet%s", name, container.Image, why(status))
		}
		return "" // the pod has not started: it will, with the new image (IPU-087)
	}
	imageMatches := SameImage(status.Image, container.Image)
	// Newer kubelets tell which generation of the spec they have taken up; where they do, that settles doubtful image names.
	tells := pod.Status.ObservedGeneration > 0
	observed := tells && pod.Status.ObservedGeneration >= pod.Generation
	switch {
	case status.ImageID != "" && status.ImageID != before.ImageID:
		// Another image runs. It may be the one of an update that this one overtook, or one that was on its way when this one began;
		// then the right one is still to come. A name that fits neither says nothing.
		stale := before.Image != "" && SameImage(status.Image, before.Image)
		if imageMatches || !stale && (before.ImageID != "" || observed || !tells) {
			return ""
		}
	case before.ContainerID != "" && status.ContainerID != before.ContainerID:
		// The same digest under another name: the container is a new one. Runtimes report any of the digest's names, so that a
		// name that does not match says nothing; a container that crashed meanwhile runs the right digest, too.
		if imageMatches || observed || !tells {
			return ""
		}
	case before.ContainerID != "" && before.RunningImage == container.Image && before.Image != container.Image:
		// The update was taken back before kubelet acted: what ran goes on running.
		if observed || !tells {
			return ""
		}
	case before.ContainerID == "" && imageMatches && !startedAt(status).Before(state.UpdateTimestamp.Time):
		// Recorded by the reference, which keeps no container ID.
		return ""
	}
	return fmt.Sprintf("container %s does not run %s yet%s", name, container.Image, why(status))
}

func startedAt(status *corev1.ContainerStatus) time.Time {
	switch {
	case status.State.Running != nil:
		return status.State.Running.StartedAt.Time
	case status.State.Terminated != nil:
		return status.State.Terminated.StartedAt.Time
	}
	return time.Time{}
}

func why(status *corev1.ContainerStatus) string {
	if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" {
		return " (" + waiting.Reason + ")"
	}
	return ""
}

// SameImage tells whether two image references mean the same: registry, library prefix and tag are filled in as runtimes do (IPU-301).
func SameImage(a, b string) bool {
	if a == b {
		return true
	}
	namedA, errA := reference.ParseDockerRef(a)
	namedB, errB := reference.ParseDockerRef(b)
	return errA == nil && errB == nil && namedA.String() == namedB.String()
}

func carries(pod *corev1.Pod, revisionName string) bool {
	return revision.SameLabel(pod.Labels[pub.ControllerRevisionHash], revisionName)
}
