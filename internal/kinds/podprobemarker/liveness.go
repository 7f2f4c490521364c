package podprobemarker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// How long a container must have run before a failed probe restarts it: the first restart is immediate, later
// ones follow kubelet's back-off. The back-off of a container that ran for ranLong is reset.
const (
	firstPause, longestPause = 10 * time.Second, 5 * time.Minute
	ranLong                  = 10 * time.Minute
)

// lookAgain is how long after a restart was requested the node is planned again.
const lookAgain = 30 * time.Second

// Restart is a container whose liveness probe failed (PPM-121).
type Restart struct {
	Pod       *corev1.Pod
	Container string
	// Count is how often the container restarted before, so that there is one request for each restart.
	Count int32
	// Grace is the termination grace period in seconds, if the probe sets one.
	Grace *int64
}

// Name returns the name of the request for the restart.
func (r *Restart) Name() string {
	return fmt.Sprintf("liveness-%s-%s-%d", r.Pod.UID, r.Container, r.Count)
}

// Meant reports whether the container in this version of the pod is the one that failed.
func (r *Restart) Meant(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == r.Container && c.RestartCount == r.Count && c.State.Running != nil
	})
}

// Request returns the request for the restart. It is deleted with the pod, or a while after it has finished,
// so that another one can follow if it failed.
func (r *Restart) Request() *appsv1beta1.ContainerRecreateRequest {
	return &appsv1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Pod.Namespace,
			Name:      r.Name(),
			// The next container has not failed, and may run when the request is filled in.
			Annotations: map[string]string{pub.RecreateAfterRestarts: strconv.Itoa(int(r.Count))},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: r.Pod.Name, UID: r.Pod.UID, Controller: new(true)},
			},
		},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{
			PodName:    r.Pod.Name,
			Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: r.Container}},
			Strategy: &appsv1beta1.ContainerRecreateRequestStrategy{
				TerminationGracePeriodSeconds: r.Grace,
			},
			ActiveDeadlineSeconds:   new(restartTime + r.grace()),
			TTLSecondsAfterFinished: new(int32(60)),
		},
	}
}

// restartTime is how many seconds a container may take to end and start again, besides its grace period: no container is
// stopped for a request that has ended, so that one whose preStop hook hangs would never be. mostGrace is the most that counts of a grace period.
const restartTime, mostGrace = int64(600), int64(24 * 60 * 60)

// grace returns how many seconds the container may take to end.
func (r *Restart) grace() int64 {
	grace := r.Pod.Spec.TerminationGracePeriodSeconds
	if r.Grace != nil {
		grace = r.Grace
	}
	if grace == nil {
		return corev1.DefaultTerminationGracePeriodSeconds
	}
	return min(max(*grace, 0), mostGrace)
}

// stored is an entry of the annotation with liveness probes.
type stored struct {
	Name  string                          `json:"name"`
	Probe appsv1alpha1.ContainerProbeSpec `json:"livenessProbe"`
}

// Moved returns the value of the annotation with the liveness probes of a pod that asks for the enhanced
// liveness probe, and the indexes of the containers whose probes are moved to it (PPM-120). Probes that the
// node daemon cannot run stay with kubelet. Probes that were moved before stay in the annotation: two entries
// may send a pod, and sidecars are injected anew each time.
func Moved(pod *corev1.Pod) (context string, moved []int) {
	if pod.Annotations[pub.UsingEnhancedLiveness] != "true" || !owned(pod) {
		return "", nil
	}

	var before []struct {
		Name  string          `json:"name"`
		Probe json.RawMessage `json:"livenessProbe"`
	}
	if json.Unmarshal([]byte(pod.Annotations[pub.LivenessProbes]), &before) != nil {
		before = nil // somebody else wrote it, and maybe thousands of them
	}

	probes := map[string]json.RawMessage{}
	for i := range before {
		if probes[before[i].Name] == nil && len(before[i].Probe) > 0 { // the first entry counts
			probes[before[i].Name] = before[i].Probe
		}
	}

	var entries []map[string]any
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.LivenessProbe == nil {
			if probe := probes[c.Name]; probe != nil {
				entries = append(entries, map[string]any{"name": c.Name, "livenessProbe": probe})
			}
			continue
		}
		text, err := json.Marshal(c.LivenessProbe)
		var probe appsv1alpha1.ContainerProbeSpec
		if err != nil || json.Unmarshal(text, &probe) != nil || Fault(&probe) != "" {
			continue
		}
		entries, moved = append(entries,
			map[string]any{"name": c.Name, "livenessProbe": c.LivenessProbe}), append(moved, i)
	}

	text, err := json.Marshal(entries)
	if err != nil {
		return "", nil
	}

	return string(text), moved
}

// owned reports whether a workload of this project controls the pod. The caches keep annotations and
// containers of such pods only.
func owned(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && strings.HasPrefix(controller.APIVersion, appsv1beta1.GroupVersion.Group+"/")
}

// liveness returns the liveness probes of a pod that the node daemon runs. Their names differ from those of
// all PodProbeMarkers' probes, which contain a separator.
func (s *Snapshot) liveness(pod *corev1.Pod) (all []wish) {
	if !s.Liveness || !Ready(pod) || pod.Annotations[pub.LivenessProbes] == "" || !owned(pod) {
		return nil
	}

	var entries []stored
	if err := json.Unmarshal([]byte(pod.Annotations[pub.LivenessProbes]), &entries); err != nil {
		return nil // somebody else wrote it
	}

	open := map[string]bool{}
	for i := range pod.Spec.Containers {
		open[pod.Spec.Containers[i].Name] = true
	}

	for i := range entries {
		e := &entries[i]
		if !open[e.Name] { // somebody else wrote it, and maybe thousands of them
			continue
		}

		open[e.Name] = false // the first entry counts
		w := wish{
			pod:   pod,
			entry: appsv1alpha1.ContainerProbe{Name: pod.Name + "-" + e.Name, ContainerName: e.Name},
		}
		w.entry.Probe, w.fault = s.resolved(pod, e.Name, &e.Probe)

		for _, number := range []struct {
			of      *int32
			usually int32
		}{{&w.entry.Probe.PeriodSeconds, 10}, {&w.entry.Probe.FailureThreshold, 3}} { // kubelet's defaults

			if *number.of == 0 {
				*number.of = number.usually
			}
		}
		all = append(all, w)
	}

	return all
}

// unwatched warns of liveness probes on a node without a daemon: neither kubelet nor anybody else runs them.
func (s *Snapshot) unwatched(p *Plan) {
	for _, pod := range s.Pods {
		for _, w := range s.liveness(pod) {
			w.fault = "no node daemon runs on a virtual node"
			p.leaves(&w, nil, s.Now)
		}
	}
}

// restarts requests restarts of the containers of a pod whose liveness probes failed.
func (s *Snapshot) restarts(p *Plan, pod *corev1.Pod, states map[string]*appsv1alpha1.ContainerProbeState) {
	for _, w := range s.liveness(pod) {
		state := states[w.entry.Name]
		if state == nil || state.State != appsv1alpha1.ProbeFailed {
			continue
		}

		at := slices.IndexFunc(pod.Status.ContainerStatuses,
			func(c corev1.ContainerStatus) bool { return c.Name == w.entry.ContainerName })
		if at < 0 {
			continue
		}

		c := &pod.Status.ContainerStatuses[at]
		if c.State.Running == nil || !c.State.Running.StartedAt.Before(&state.LastTransitionTime) {
			// The probe failed before this container started: no probe runs within a second of the start.
			continue
		}

		if c.Started != nil && !*c.Started { // its startup probe has not succeeded yet
			p.again(lookAgain)
			continue
		}

		// The clock of the node may be ahead of ours. By its own clock, the container ran at least until the
		// last result was seen.
		ran := max(s.Now.Sub(c.State.Running.StartedAt.Time),
			state.LastProbeTime.Sub(c.State.Running.StartedAt.Time))
		wait := pause(c.RestartCount)
		switch {
		case ran < wait && ran < ranLong:
			p.again(wait - ran)
		default:
			p.Restarts = append(p.Restarts, Restart{
				Pod:       pod,
				Container: c.Name,
				Count:     c.RestartCount,
				Grace:     w.entry.Probe.TerminationGracePeriodSeconds,
			})
			p.again(lookAgain)
		}
	}
}

// pause returns how long a container that restarted so often must have run before the next restart.
func pause(restarts int32) time.Duration {
	if restarts == 0 {
		return 0
	}
	wait := firstPause
	for i := int32(1); i < restarts && wait < longestPause; i++ {
		wait *= 2
	}
	return min(wait, longestPause)
}

// again asks for the node to be planned again after a while.
func (p *Plan) again(after time.Duration) {
	if p.After == 0 || after < p.After {
		p.After = after
	}
}

// Restarted reports whether containers have started or ended in a pod that has liveness probes of the node
// daemon, or a condition that may belong to a container that was replaced (PPM-072).
func Restarted(before, after *corev1.Pod) bool {
	if after.Annotations[pub.LivenessProbes] == "" &&
		!slices.ContainsFunc(after.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Status == corev1.ConditionTrue && !slices.Contains(reserved, string(c.Type))
		}) {
		return false
	}

	// The caches keep only a checksum of the containers of most pods.
	if before.Status.Message != after.Status.Message {
		return true
	}

	was := map[string]string{}
	for i := range before.Status.ContainerStatuses {
		was[before.Status.ContainerStatuses[i].Name] = running(&before.Status.ContainerStatuses[i])
	}

	return slices.ContainsFunc(after.Status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return was[c.Name] != running(&c) })
}

// running identifies the container instance if it runs, and is empty otherwise.
func running(c *corev1.ContainerStatus) string {
	if c.State.Running == nil {
		return ""
	}
	return c.ContainerID + " " + c.State.Running.StartedAt.String()
}
