package launchpriority

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
)

// Snapshot is the input of a plan.
type Snapshot struct {
	Pod *corev1.Pod
	// Barrier is the metadata of the ConfigMap with the barrier's name, or nil if it does not exist.
	Barrier *metav1.PartialObjectMetadata
}

// Action is what to do to the ConfigMap.
type Action string

// Actions. Reset turns the ConfigMap of an earlier pod into that of this one. Refuse leaves a ConfigMap alone
// that belongs to nobody or somebody else.
const (
	None    Action = ""
	Create  Action = "Create"
	Release Action = "Release"
	Reset   Action = "Reset"
	Refuse  Action = "Refuse"
)

// Plan defines what to do for a pod.
type Plan struct {
	Action Action
	// Keys are all keys of the ConfigMap after the plan, from the highest priority to the lowest.
	Keys []string
	// Added are the keys that it did not have before.
	Added []string
	// Restores means that the plan writes keys below the highest priority to restore an earlier state.
	Restores bool
	// Complete marks the pod as completed afterwards.
	Complete bool
	// Why explains what is done and what waits for what.
	Why string
	// Blocked is why containers will never start without intervention, or ""; it becomes an event.
	Blocked string
	// After is when to plan again even if nothing happens; 0 means never.
	After time.Duration
}

// Idle reports whether there is nothing to write.
func (p *Plan) Idle() bool { return p.Action == None && !p.Complete }

// Times to plan again when there is no event.
const (
	whileRefused = 30 * time.Second
	whileDeleted = 2 * time.Second
)

// held is a container with a barrier.
type held struct {
	name     string
	priority int
	// ran means that it was released once, failed that it ended with an error and will not be restarted.
	started, ran, failed, running bool
}

// Held reports whether containers of the pod have barriers of this project.
func Held(pod *corev1.Pod) bool { return len(heldBy(pod)) > 0 }

// heldBy returns the containers with a barrier, from the highest priority to the lowest. A reference to
// another ConfigMap, or a key of another form, is not a barrier.
func heldBy(pod *corev1.Pod) []held {
	var all []held
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		priority, ok := barrierOf(pod.Name, container)
		if !ok {
			continue
		}

		h := held{name: container.Name, priority: priority}
		for j := range pod.Status.ContainerStatuses {
			status := &pod.Status.ContainerStatuses[j]
			if status.Name != container.Name {
				continue
			}
			ended := status.State.Terminated
			final := ended != nil && !restart.StartsAgain(pod, container, ended.ExitCode)
			h.running = status.State.Running != nil
			h.started = status.Ready || final && ended.ExitCode == 0
			h.failed = final && ended.ExitCode != 0
			h.ran = h.running || ended != nil || status.RestartCount > 0
		}

		all = append(all, h)
	}

	slices.SortStableFunc(all, func(a, b held) int { return cmp.Compare(b.priority, a.priority) })
	return all
}

func barrierOf(pod string, container *corev1.Container) (int, bool) {
	for i := range container.Env {
		env := &container.Env[i]
		if env.Name != pub.ContainerBarrierEnv || env.ValueFrom == nil ||
			env.ValueFrom.ConfigMapKeyRef == nil ||
			env.ValueFrom.ConfigMapKeyRef.Name != pub.LaunchBarrierName(pod) {
			continue
		}
		if priority, ok := pub.LaunchBarrierPriority(env.ValueFrom.ConfigMapKeyRef.Key); ok {
			return priority, true
		}
	}

	return 0, false
}

// Concerns reports whether the pod has containers that may wait for a key (ND-135, ND-142, ND-143).
func Concerns(pod *corev1.Pod) bool { return len(remaining(pod, heldBy(pod))) > 0 }

// remaining returns the containers that may wait for a key: those that have not started. In a completed pod,
// only those that do not run count.
func remaining(pod *corev1.Pod, all []held) []held {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed {
		return nil
	}

	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.ContainersReady &&
			pod.Status.Conditions[i].Status == corev1.ConditionTrue {
			return nil
		}
	}

	var rest []held
	for _, h := range all {
		if !h.started && (!completed(pod) || !h.running && !h.failed) {
			rest = append(rest, h)
		}
	}

	return rest
}

func completed(pod *corev1.Pod) bool { return pod.Annotations[pub.LaunchCompleted] == "true" }

// NewPlan makes the plan of a pod.
func NewPlan(s Snapshot) *Plan {
	all := heldBy(s.Pod)
	rest := remaining(s.Pod, all)
	if len(rest) == 0 {
		return &Plan{Why: "no container waits for its launch priority"}
	}

	due, first := rest[0].priority, all[0].priority
	lets := func(h held) bool { return completed(s.Pod) || h.priority >= due || h.ran }
	p := &Plan{}
	let := map[int]bool{}
	var released, waiting []held

	for _, h := range all {
		if !lets(h) {
			waiting = append(waiting, h)
			continue
		}
		released = append(released, h)
		if let[h.priority] {
			continue
		}
		let[h.priority] = true
		p.Keys = append(p.Keys, pub.LaunchBarrierKey(h.priority))
		p.Restores = p.Restores || h.priority < first
	}

	// A waiting container may have the priority of one that ran, whose key is written.
	waiting = slices.DeleteFunc(waiting, func(h held) bool { return let[h.priority] })
	p.Why = fmt.Sprintf("%s may start", names(released))
	if len(waiting) > 0 {
		higher := slices.DeleteFunc(slices.Clone(rest), func(h held) bool { return !let[h.priority] })
		p.Why += fmt.Sprintf(", %s wait for %s to be ready", names(waiting), names(higher))
		if dead := slices.DeleteFunc(higher, func(h held) bool { return !h.failed }); len(dead) > 0 {
			p.Blocked = fmt.Sprintf("%s never start: %s failed and will not be restarted",
				names(waiting), names(dead))
		}
	}

	p.barrier(s)
	p.Complete = p.Action != Refuse && p.After == 0 && len(waiting) == 0 && !completed(s.Pod)
	return p
}

// barrier decides what to do to the ConfigMap.
func (p *Plan) barrier(s Snapshot) {
	name := pub.LaunchBarrierName(s.Pod.Name)
	if s.Barrier == nil {
		p.Action, p.Added = Create, p.Keys
		p.Why = fmt.Sprintf("ConfigMap %s comes with %s: %s", name, strings.Join(p.Keys, ", "), p.Why)
		return
	}

	mine, former := owners(s.Pod, s.Barrier)
	switch {
	case !mine && !former:
		p.Action, p.After = Refuse, whileRefused
		p.Blocked = fmt.Sprintf(
			"ConfigMap %s is not of this pod, and is not written to: delete it, and the containers start",
			name,
		)
		p.Why = p.Blocked
	case s.Barrier.DeletionTimestamp != nil:
		p.After = whileDeleted
		p.Why = fmt.Sprintf("ConfigMap %s is being deleted and comes again after that: %s", name, p.Why)
	case !mine:
		p.Action, p.Added = Reset, p.Keys
		p.Why = fmt.Sprintf("ConfigMap %s is left from an earlier pod and starts anew with %s: %s", name,
			strings.Join(p.Keys, ", "), p.Why)
	default:
		present := keysOf(s.Barrier)
		for _, key := range p.Keys {
			if !slices.Contains(present, key) {
				p.Added = append(p.Added, key)
			}
		}
		p.Restores = false // only keys of this pod are added
		if len(p.Added) > 0 || s.Barrier.Labels[pub.LaunchBarrier] != "true" {
			p.Action = Release
			p.Keys = append(present, p.Added...)
			p.Why = fmt.Sprintf("ConfigMap %s gets %s: %s", name, strings.Join(p.Added, ", "), p.Why)
		}
	}
}

// owners reports whether the ConfigMap belongs to the pod, and whether to an earlier one of the same name.
func owners(pod *corev1.Pod, barrier *metav1.PartialObjectMetadata) (mine, former bool) {
	for i := range barrier.OwnerReferences {
		owner := &barrier.OwnerReferences[i]
		if owner.APIVersion != "v1" || owner.Kind != "Pod" || owner.Name != pod.Name {
			continue
		}
		mine = mine || owner.UID == pod.UID
		former = former || owner.UID != pod.UID
	}
	return mine, former
}

// keysOf returns the keys that the annotation of a ConfigMap lists. The annotation is missing if OpenKruise
// wrote the ConfigMap; writing its keys again changes nothing.
func keysOf(barrier *metav1.PartialObjectMetadata) []string {
	text := barrier.Annotations[pub.LaunchReleased]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// names formats containers with their priorities.
func names(all []held) string {
	texts := make([]string, len(all))
	for i, h := range all {
		texts[i] = fmt.Sprintf("%s (%d)", h.name, h.priority)
	}
	return strings.Join(texts, ", ")
}
