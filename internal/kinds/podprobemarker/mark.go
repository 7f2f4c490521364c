package podprobemarker

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// PodPlan is the change to make to a pod. A label or annotation that is nil is removed.
type PodPlan struct {
	Pod                 *corev1.Pod
	Conditions          []corev1.PodCondition
	Labels, Annotations map[string]*string
	// Unseen means that the annotations of the pod are not known: the pod must be read before they are
	// changed.
	Unseen bool
}

// mostMessage is the maximum length of a condition's message, because the node decides what the status of a
// NodePodProbe contains.
const mostMessage = 1024

// mark plans the changes of pods from the results in the status.
func (s *Snapshot) mark(p *Plan, wishes map[types.UID][]wish) {
	pods := make(map[string]*corev1.Pod, len(s.Pods))
	for _, pod := range s.Pods {
		pods[string(pod.UID)] = pod
	}

	for i := range s.List.Status.PodProbeStatuses {
		status := &s.List.Status.PodProbeStatuses[i]
		pod := pods[status.UID]
		if pod == nil || pod.Namespace != status.Namespace || pod.Name != status.Name {
			continue
		}
		delete(pods, status.UID) // each pod once

		states := make(map[string]*appsv1alpha1.ContainerProbeState, len(status.ProbeStates))
		for j := range status.ProbeStates {
			states[status.ProbeStates[j].Name] = &status.ProbeStates[j]
		}

		m := s.marking(p, pod)
		for i := range wishes[pod.UID] { // no other results count
			w := &wishes[pod.UID][i]
			switch state := states[w.entry.Name]; {
			case w.marker == nil:
			case state == nil || w.fault != "":
				m.keeps(w.probe, false)
			default:
				m.condition(w, state)
				m.policies(w.probe, state.State)
			}
		}

		m.done()
		s.restarts(p, pod, states)
	}
}

// markVirtual plans the changes of pods on a virtual node from their conditions: others run the probes there.
func (s *Snapshot) markVirtual(p *Plan) {
	for _, pod := range s.Pods {
		if !Ready(pod) {
			continue
		}
		took, m := listed(pod), s.marking(p, pod)
		for _, marker := range s.Markers(pod.Namespace) {
			if !marker.Selects(pod.Labels) && !slices.Contains(took, marker.Name) {
				continue
			}
			for i := range marker.Spec.Probes {
				probe := &marker.Spec.Probes[i]
				c := conditionOf(pod, corev1.PodConditionType(probe.PodConditionType))
				switch {
				case probe.PodConditionType == "":
				case c != nil && c.Status == corev1.ConditionTrue:
					m.policies(probe, appsv1alpha1.ProbeSucceeded)
				case c != nil && c.Status == corev1.ConditionFalse:
					m.policies(probe, appsv1alpha1.ProbeFailed)
				default:
					m.keeps(probe, false)
				}
			}
		}
		m.done()
	}
}

// differing drops what pods already have.
func (p *Plan) differing() {
	p.Pods = slices.DeleteFunc(p.Pods, func(of PodPlan) bool {
		return of.Status(of.Pod).Empty() && of.Metadata(of.Pod).Empty() && !of.Unseen
	})
}

// marking collects the changes of one pod from all its probes, so that no probe removes what another one
// sets.
type marking struct {
	s   *Snapshot
	p   *Plan
	pod *corev1.Pod
	// by maps a condition to the PodProbeMarker that writes it.
	by                  map[string]string
	conditions          []corev1.PodCondition
	labels, annotations pairs
}

// pairs are labels or annotations: those to set, those to remove, and those to keep as they are. A later
// probe does not set those that are held.
type pairs struct {
	set              map[string]string
	drop, keep, held map[string]bool
}

func newPairs() pairs {
	return pairs{map[string]string{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
}

func (s *Snapshot) marking(p *Plan, pod *corev1.Pod) *marking {
	return &marking{
		s:           s,
		p:           p,
		pod:         pod,
		by:          map[string]string{},
		labels:      newPairs(),
		annotations: newPairs(),
	}
}

// condition plans the pod's condition for a result.
func (m *marking) condition(w *wish, state *appsv1alpha1.ContainerProbeState) {
	of := w.probe.PodConditionType
	if of == "" {
		return
	}
	if by, taken := m.by[of]; taken {
		m.p.Warnings = append(m.p.Warnings, Warning{
			Marker: w.marker.PodProbeMarker,
			Reason: ConditionConflict,
			Message: fmt.Sprintf("condition %s of pod %s is written by PodProbeMarker %s", of, m.pod.Name,
				by),
		})
		return
	}

	m.by[of] = w.marker.Name
	c := corev1.PodCondition{
		Type:               corev1.PodConditionType(of),
		Status:             corev1.ConditionFalse,
		Message:            bounded(state.Message),
		LastProbeTime:      state.LastProbeTime,
		LastTransitionTime: state.LastTransitionTime,
	}

	switch state.State {
	case appsv1alpha1.ProbeSucceeded:
		c.Status = corev1.ConditionTrue
	case appsv1alpha1.ProbeFailed:
	default:
		before := conditionOf(m.pod, c.Type)
		if before == nil || before.Status != corev1.ConditionTrue ||
			!m.s.Replaced(m.pod, w.probe.ContainerName, probed(before)) {
			return
		}
		c.Message = fmt.Sprintf("container %s was replaced, and there is no result of the new one yet",
			w.probe.ContainerName)
		c.LastProbeTime, c.LastTransitionTime = metav1.Time{}, metav1.NewTime(m.s.Now)
	}
	m.conditions = append(m.conditions, c)
}

// probed returns the last time at which a condition was certainly true of the container.
func probed(c *corev1.PodCondition) time.Time {
	if c.LastProbeTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return c.LastProbeTime.Time
}

// bounded truncates a message at a character boundary.
func bounded(text string) string {
	if len(text) <= mostMessage {
		return text
	}
	return strings.ToValidUTF8(text[:mostMessage], "")
}

// policies plans labels and annotations for a result. Without a result they stay as they are.
func (m *marking) policies(probe *appsv1alpha1.PodContainerProbe, state appsv1alpha1.ProbeState) {
	if state != appsv1alpha1.ProbeSucceeded && state != appsv1alpha1.ProbeFailed {
		m.keeps(probe, true)
		return
	}
	for i := range probe.MarkerPolicy {
		policy := &probe.MarkerPolicy[i]
		m.labels.take(policy.Labels, policy.State == state)
		m.annotations.take(policy.Annotations, policy.State == state)
	}
}

// keeps leaves the keys of a probe as they are: no other probe removes them. If holds is set, because the
// probe has no result at the moment, no later probe sets them either.
func (m *marking) keeps(probe *appsv1alpha1.PodContainerProbe, holds bool) {
	for i := range probe.MarkerPolicy {
		m.labels.keeps(probe.MarkerPolicy[i].Labels, holds)
		m.annotations.keeps(probe.MarkerPolicy[i].Annotations, holds)
	}
}

func (p *pairs) keeps(of map[string]string, holds bool) {
	for key := range of {
		p.keep[key], p.held[key] = true, p.held[key] || holds
	}
}

// take sets the keys of a policy that applies, and drops those of one that does not. The first PodProbeMarker
// that sets a key wins.
func (p *pairs) take(of map[string]string, applies bool) {
	for key, value := range of {
		if _, taken := p.set[key]; applies && !taken && !p.held[key] {
			p.set[key] = value
		} else if !applies {
			p.drop[key] = true
		}
	}
}

// changes returns the keys to set and, with a nil value, those to remove.
func (p *pairs) changes() map[string]*string {
	changes := map[string]*string{}
	for key := range p.drop {
		if !p.keep[key] {
			changes[key] = nil
		}
	}
	for key, value := range p.set {
		changes[key] = &value
	}
	return changes
}

// done adds the collected changes to the plan.
func (m *marking) done() {
	labels, annotations := m.labels.changes(), m.annotations.changes()
	if len(m.conditions)+len(labels)+len(annotations) == 0 {
		return
	}

	of := m.p.of(m.pod)
	for i := range m.conditions {
		of.condition(m.conditions[i], true)
	}
	of.Labels, of.Annotations = labels, annotations
	of.Unseen = len(annotations) > 0 && !m.s.Whole(m.pod)
}

// condition adds a condition; an existing one of its type stays unless override is set.
func (p *PodPlan) condition(c corev1.PodCondition, override bool) {
	for i := range p.Conditions {
		if p.Conditions[i].Type == c.Type {
			if override {
				p.Conditions[i] = c
			}
			return
		}
	}
	p.Conditions = append(p.Conditions, c)
}

// Status returns the patch of the conditions that differ from those of the pod (PPM-069, PPM-074).
func (p *PodPlan) Status(pod *corev1.Pod) *podpatch.Patch {
	patch := &podpatch.Patch{}
	for _, c := range p.Conditions {
		before := conditionOf(pod, c.Type)
		if before != nil && before.Status == c.Status && before.Message == c.Message {
			continue
		}
		patch.Condition(c)
	}
	return patch
}

// Metadata returns the patch of the labels and annotations that differ from those of the pod (PPM-074,
// PPM-075).
func (p *PodPlan) Metadata(pod *corev1.Pod) *podpatch.Patch {
	patch := &podpatch.Patch{}
	each(p.Labels, pod.Labels, patch.Label, patch.RemoveLabel)
	if !p.Unseen {
		each(p.Annotations, pod.Annotations, patch.Annotation, patch.RemoveAnnotation)
	}
	return patch
}

func each(
	changes map[string]*string, have map[string]string, set func(key, value string), remove func(key string),
) {
	for key, value := range changes {
		switch before, there := have[key]; {
		case value == nil && there:
			remove(key)
		case value != nil && (!there || before != *value):
			set(key, *value)
		}
	}
}

// Sum returns a checksum of the planned changes of annotations: as long as it is the same, a pod that already
// had them is not read again.
func (p *PodPlan) Sum() uint64 {
	sum := fnv.New64a()
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		value := "-"
		if of := p.Annotations[key]; of != nil {
			value = "+" + *of
		}
		fmt.Fprintf(sum, "%q %q\n", key, value)
	}
	return sum.Sum64()
}
