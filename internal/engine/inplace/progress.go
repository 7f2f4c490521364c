package inplace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/timing"
)

// Status describes how far the last update in place of a pod has come.
type Status struct {
	// Complete is true if nothing is left to be written and the changed containers run (IPU-121).
	Complete bool
	// InGrace is true if a grace period holds back the content. The period is over when After is 0.
	InGrace bool
	// GraceEnd is when it is over, or was; zero if the content will not be written any more.
	GraceEnd time.Time
	// After is the remaining time of the grace period (IPU-107).
	After time.Duration
	// Remaining is true if later batches have something to write.
	Remaining bool
	// Next is true if what was written is complete and the next batch may follow (IPU-103).
	Next bool
	// Resize is what kubelet reports about a resize that it has not carried out, nil if it reports nothing
	// (IPU-315).
	Resize *PendingResize
	// NoDaemonSince is the start of an update that waits for a node daemon, if no daemon has ever reported
	// the pod; zero otherwise (IPU-312).
	NoDaemonSince time.Time
	// SilentFrom is when the node daemon that has reported the pod counts as gone, if the update waits for it
	// to restart a container that is still running; zero otherwise.
	SilentFrom time.Time
	// Relabelled is the start of an update that changed labels and stopped no container, until the update is
	// found complete; zero otherwise.
	Relabelled time.Time
	// Waiting describes what is missing.
	Waiting string
}

// PendingResize is a resize that a node cannot carry out now or at all.
type PendingResize struct {
	// Infeasible is true if the resize will never fit. Otherwise it is deferred.
	Infeasible bool
	Message    string
	// Since is when kubelet started to report this; zero if it reports no time.
	Since time.Time
	// NotBefore is when the report starts to count, if kubelet does not report which size it is about: before
	// that time, kubelet may not have seen the last size yet. It is zero if kubelet reports the size.
	NotBefore time.Time
}

// resizePatience is how long kubelet may take to see a new size.
const resizePatience = 10 * time.Second

// Progress returns how far the pod's update has come. An unreadable annotation is an error (IPU-070).
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
			status.GraceEnd = state.UpdateTimestamp.Add(time.Duration(grace.GraceSeconds) * time.Second)
			if left := status.GraceEnd.Sub(now); left > 0 {
				status.After = (left + time.Second - 1).Truncate(time.Second)
				status.Waiting = fmt.Sprintf("grace period of %d s, %d s left",
					grace.GraceSeconds, int(status.After.Seconds()))
			}
		}
		return status, nil
	}

	if state == nil {
		return Status{Complete: true}, nil
	}

	remaining := state.remaining()
	status := Status{Remaining: !remaining.Empty()}
	if !status.Remaining && finished(pod) {
		return Status{Complete: true}, nil
	}

	var restart string
	if status.Waiting, restart = waiting(pod, state); restart != "" {
		if container := statusOf(pod, restart); !Reported(pod) {
			status.NoDaemonSince = state.UpdateTimestamp.Time
		} else if container != nil && container.State.Running != nil { // otherwise kubelet starts it
			status.SilentFrom = state.lastWrite().Add(daemonSilence + endsWithin(pod))
		}
	}

	if state.UpdateLabels {
		status.Relabelled = state.UpdateTimestamp.Time
	}
	if status.Waiting == "" {
		status.Complete, status.Next = !status.Remaining, status.Remaining
	}

	if state.PreCheckBeforeNext != nil && status.Next {
		for _, name := range state.PreCheckBeforeNext.ContainersRequiredReady {
			if !ready(pod, name) {
				status.Next, status.Waiting = false,
					fmt.Sprintf("container %s must be ready before the next batch", name)
				break
			}
		}
	}

	if len(state.ResizedContainers) > 0 && !status.Complete {
		status.Resize = pendingResize(pod, state)
	}

	return status, nil
}

// ready reports whether the container is up for the next batch. Ordinary init containers have completed: what
// is written to them is for the next start of the pod.
func ready(pod *corev1.Pod, name string) bool {
	status := statusOf(pod, name)
	return !runsOn(pod, name) || status != nil && status.Ready
}

// finished reports whether a controller has found the pod's last update complete: the pod is in lifecycle
// state Normal, or it has none, as pods of older releases of OpenKruise, and was made ready again. A record that is out of date, for
// example because a container restarted and no daemon reported it, must not hold or replace a serving pod.
func finished(pod *corev1.Pod) bool {
	switch lifecycle.State(pod) {
	case pub.LifecycleStateNormal:
		return true
	case "":
		held := readiness.Condition(pod, pub.InPlaceUpdateReady)
		return held != nil && held.Status == corev1.ConditionTrue
	}
	return false
}

// daemonSilence is how long a node daemon that has reported the pod may take to restart a container, in
// addition to the time that the container may take to terminate.
const daemonSilence = 5 * time.Minute

func endsWithin(pod *corev1.Pod) time.Duration {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return timing.Seconds(*own)
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// waiting describes what is missing until all containers run what was written so far; it is empty if nothing
// is. If that can only be completed by a node daemon, restart is the name of the container. A container whose
// image a later batch changes again is not waited for, since it may never come up.
func waiting(pod *corev1.Pod, state *State) (words, restart string) {
	for _, name := range state.written(pod) {
		if _, again := state.NextContainerImages[name]; again {
			continue
		}
		switch words, daemon := state.lacks(pod, name); {
		case words != "" && daemon:
			return words, name
		case words != "":
			return words, ""
		}
	}
	return "", ""
}

// written returns the names of the pod's containers into which the update has written something, sorted.
func (s *State) written(pod *corev1.Pod) []string {
	var names []string
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			name := containers[i].Name
			_, replaced := s.LastContainerStatuses[name]
			_, restarted := s.RestartContainers[name]
			_, resized := s.ResizedContainers[name]
			if replaced || restarted || resized || s.changesEnv(pod, name) {
				names = append(names, name)
			}
		}
	}

	slices.Sort(names)
	return names
}

// changesEnv reports whether the environment of the container changed. OpenKruise does not record which
// containers changed; then all regular containers count.
func (s *State) changesEnv(pod *corev1.Pod, name string) bool {
	if !s.UpdateEnvFromMetadata || s.EnvContainers != nil {
		_, ok := s.EnvContainers[name]
		return ok
	}
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
}

// lacks describes what is missing until the container runs what was written into it; it is empty if nothing
// is. daemon is true if only a node daemon can bring that about.
func (s *State) lacks(pod *corev1.Pod, name string) (words string, daemon bool) {
	if record, ok := s.LastContainerStatuses[name]; ok {
		if words := replaced(pod, name, record, s); words != "" {
			return words, false
		}
	}
	if s.changesEnv(pod, name) {
		if words := environment(pod, name, s); words != "" {
			return words, true
		}
	}
	if words := restarted(pod, name, s); words != "" {
		return words, true
	}
	return resized(pod, name, s), false
}

// environment describes what is missing until the container has the environment that the pod's metadata gives
// it now; it is empty if nothing is. The hash of the daemon decides if there is one. Otherwise a container
// that was started since the change counts as having the new environment.
func environment(pod *corev1.Pod, name string, state *State) string {
	container, status := containerOf(pod, name), statusOf(pod, name)
	if container == nil || status == nil || status.ContainerID == "" || !ReadsMetadata(container) {
		return "" // a container that starts later will have it
	}
	// A hash of 0 means that the daemon cannot read the environment.
	if meta := state.reported(pod, status); meta != nil && meta.Hashes.ExtractedEnvFromMetadataHash != 0 {
		if strconv.FormatUint(meta.Hashes.ExtractedEnvFromMetadataHash, 10) == EnvHash(pod, container) {
			return ""
		}
		return fmt.Sprintf("container %s has not been restarted with its new environment yet", name)
	}

	switch before, recorded := state.EnvContainers[name]; {
	case recorded && before != status.ContainerID:
		return ""
	case !recorded && startedAt(status).After(state.UpdateTimestamp.Time):
		// OpenKruise does not record which container ran.
		return ""
	}

	return fmt.Sprintf("container %s: the node daemon has not reported its environment yet", name)
}

// restarted describes what is missing until another container than the recorded one runs; it is empty if
// nothing is.
func restarted(pod *corev1.Pod, name string, state *State) string {
	if status := statusOf(pod, name); status != nil && status.ContainerID != "" &&
		status.ContainerID == state.RestartContainers[name] {
		return fmt.Sprintf("container %s has not been restarted yet", name)
	}
	return ""
}

// resized describes what is missing until the container has the wanted quantities; it is empty if nothing is.
// Other containers and other quantities do not matter.
func resized(pod *corev1.Pod, name string, state *State) string {
	want := state.ResizedContainers[name]
	container, status := containerOf(pod, name), statusOf(pod, name)
	if container == nil || status == nil || status.State.Running == nil ||
		!none(Lacking(want, container.Resources)) {
		return "" // it will start with them, or somebody else has changed them since
	}
	if status.Resources == nil {
		return ""
	}
	if missing := Lacking(want, *status.Resources); !none(missing) {
		words := ""
		if pending := pendingResize(pod, state); pending != nil {
			words = ": " + pending.Message
		} else if c := readiness.Condition(pod, corev1.PodResizeInProgress); c != nil &&
			c.Status == corev1.ConditionTrue && c.Reason != "" {
			// It fits the node but cannot be carried out, for example if a limit is below the present usage.
			words = ": " + reasonAndMessage(c)
		}
		return fmt.Sprintf("container %s is not resized to %s yet%s", name, resourceWords(missing), words)
	}

	return ""
}

// pendingResize returns the pending resize in the pod's condition, or in the status field of servers before
// 1.33. What kubelet reported about an earlier size of the pod does not count.
func pendingResize(pod *corev1.Pod, state *State) *PendingResize {
	notBefore := state.lastWrite().Add(resizePatience)
	if condition := readiness.Condition(pod, corev1.PodResizePending); condition != nil &&
		condition.Status == corev1.ConditionTrue {
		switch {
		case condition.ObservedGeneration > 0 && condition.ObservedGeneration < pod.Generation:
			return nil
		case condition.ObservedGeneration > 0:
			notBefore = time.Time{}
		}
		return &PendingResize{
			Infeasible: condition.Reason == corev1.PodReasonInfeasible,
			Since:      condition.LastTransitionTime.Time,
			NotBefore:  notBefore,
			Message:    reasonAndMessage(condition),
		}
	}

	switch pod.Status.Resize {
	case corev1.PodResizeStatusInfeasible, corev1.PodResizeStatusDeferred:
		return &PendingResize{
			Infeasible: pod.Status.Resize == corev1.PodResizeStatusInfeasible,
			Message:    string(pod.Status.Resize), NotBefore: notBefore,
		}
	}

	return nil
}

func reasonAndMessage(c *corev1.PodCondition) string {
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
}

// lastWrite returns when the last batch was written.
func (s *State) lastWrite() time.Time {
	if n := len(s.ContainerBatchesRecord); n > 0 {
		return s.ContainerBatchesRecord[n-1].Timestamp.Time
	}
	return s.UpdateTimestamp.Time
}

// Replaced describes what is missing until the container runs the image that was written into the pod's spec
// at the time changed; it is empty if nothing is. before is what the container ran then (SS-215, SS-D03).
func Replaced(pod *corev1.Pod, name string, before ContainerRecord, changed time.Time) string {
	return replaced(pod, name, before, &State{UpdateTimestamp: metav1.NewTime(changed)})
}

// replaced describes what is missing until the container runs its new image; it is empty if nothing is.
func replaced(pod *corev1.Pod, name string, before ContainerRecord, state *State) string {
	container, status := containerOf(pod, name), statusOf(pod, name)
	if container == nil {
		return "" // it is not in the pod's spec any more, so nothing can be waited for
	}
	if status == nil {
		return fmt.Sprintf("container %s has no status yet", name)
	}
	if status.ContainerID == "" {
		if pod.Status.Phase == corev1.PodRunning {
			return fmt.Sprintf("container %s has not been created with %s yet%s",
				name, container.Image, why(status))
		}
		return "" // the pod has not started, and will start with the new image
	}

	if meta := state.reported(pod, status); meta != nil &&
		strconv.FormatUint(meta.Hashes.PlainHash, 10) == PlainHash(name, container.Image) {
		return "" // kubelet started it from exactly this image
	}

	imageMatches := SameImage(status.Image, container.Image)
	// Newer kubelets report which generation of the spec they have observed. This decides if image names
	// cannot be compared.
	tells := pod.Status.ObservedGeneration > 0
	observed := tells && pod.Status.ObservedGeneration >= pod.Generation

	switch {
	case status.ImageID != "" && status.ImageID != before.ImageID:
		// Another image runs. It may be that of an earlier update, or one that was already being started when
		// this update started; then the right one is still to come. A name that is neither of these proves
		// nothing.
		stale := slices.ContainsFunc(
			append(before.Overtaken[:len(before.Overtaken):len(before.Overtaken)], before.Image),
			func(image string) bool { return image != "" && SameImage(status.Image, image) })
		if imageMatches || !stale && (observed || !tells) {
			return ""
		}
	case before.ContainerID != "" && status.ContainerID != before.ContainerID:
		// The same digest runs under another name, and the container is a new one. Runtimes report any name
		// of the digest, so a different name proves nothing. A container that crashed meanwhile runs the
		// right digest, too.
		if imageMatches || observed || !tells {
			return ""
		}
	case before.ContainerID != "" && before.RunningImage == container.Image:
		// The image was changed back before kubelet acted, or a webhook wrote the former image again: the
		// same container continues to run.
		if observed || !tells {
			return ""
		}
	case before.ContainerID == "" && imageMatches && !startedAt(status).Before(state.UpdateTimestamp.Time):
		// OpenKruise wrote this record; it stores no container ID.
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

// SameImage reports whether two image references mean the same image. Registry, library prefix and tag are
// completed as container runtimes do (IPU-301).
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
