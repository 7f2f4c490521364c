package judge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// place is what a PersistentPodState remembers of a pod.
type place struct {
	NodeName string            `json:"nodeName"`
	Labels   map[string]string `json:"nodeTopologyLabels"`
}

// memory is a place that was remembered of a pod until a time.
type memory struct {
	pod   string
	place place
	until time.Time
}

// noteMemories keeps what a PersistentPodState forgets.
func (s *state) noteMemories(c *change) {
	if c.Resource != "persistentpodstates" || c.before == nil || c.after == nil {
		return
	}
	names := maps.Clone(c.before.status.PodStates)
	for name := range c.after.status.PodStates {
		if _, ok := names[name]; !ok {
			if names == nil {
				names = map[string]place{}
			}
			names[name] = place{}
		}
	}
	for name := range names {
		was, is := c.before.status.PodStates[name], c.after.status.PodStates[name]
		if !maps.Equal(was.Labels, is.Labels) {
			s.memories[c.key()] = append(s.memories[c.key()], memory{name, was, c.Time})
		}
	}
}

// places are what PersistentPodStates are for (PPS-032, PPS-033, PPS-038).
var places = rule{
	name:    "places",
	promise: "a pod that is made again is bound to the node labels that were remembered of it",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil {
			return false, ""
		}
		for k, o := range s.objects {
			if k.resource != "persistentpodstates" || k.namespace != c.Namespace || !o.spec.targets(c.after) {
				continue
			}
			is := o.status.PodStates[c.Name]
			may := []place{is}
			for _, m := range s.memories[k] {
				if m.pod == c.Name && s.now.Sub(m.until) <= Lag {
					may = append(may, m.place)
				}
			}
			if len(is.Labels) == 0 && len(may) == 1 {
				return false, "" // a pod that is new
			}
			if !slices.ContainsFunc(may, func(p place) bool { return o.spec.bound(c.after.pod, p) }) {
				return true, fmt.Sprintf("%s remembers %v, and the pod is bound to %v", k, is.Labels, c.after.pod.Spec.NodeSelector)
			}
			return true, ""
		}
		return false, ""
	},
}

// targets reports whether a PersistentPodState is of the workload of a pod.
func (s *spec) targets(pod *object) bool {
	c := metav1.GetControllerOf(&pod.ObjectMeta)
	return c != nil && c.Kind == s.TargetRef.Kind && c.Name == s.TargetRef.Name
}

// bound reports whether a pod must and wants to be where it was.
func (s *spec) bound(pod *corev1.Pod, at place) bool {
	for _, k := range s.Required.Keys {
		if value, ok := at.Labels[k]; ok && pod.Spec.NodeSelector[k] != value {
			return false
		}
	}
	for _, p := range s.Preferred {
		for _, k := range p.Preference.Keys {
			if value, ok := at.Labels[k]; ok && !wants(pod, k, value) {
				return false
			}
		}
	}
	return true
}

func wants(pod *corev1.Pod, label, value string) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return false
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		for _, e := range term.Preference.MatchExpressions {
			if e.Key == label && e.Operator == corev1.NodeSelectorOpIn && slices.Equal(e.Values, []string{value}) {
				return true
			}
		}
	}
	return false
}

// placesEnd says what is wrong with a PersistentPodState at the end (PPS-051, PPS-054, PPS-060).
func (s *state) placesEnd(o *object) string {
	keys := slices.Clone(o.spec.Required.Keys)
	for _, p := range o.spec.Preferred {
		keys = append(keys, p.Preference.Keys...)
	}
	there := map[string]bool{}
	for k, pod := range s.objects {
		if k.resource != "pods" || k.namespace != o.Namespace || !active(pod) || !o.spec.targets(pod) {
			continue
		}
		there[k.name] = true
		on, is := s.objects[key{resource: "nodes", name: pod.pod.Spec.NodeName}], o.status.PodStates[k.name]
		if is.NodeName != pod.pod.Spec.NodeName || on == nil {
			return fmt.Sprintf("%s is on node %q, and %q is remembered", k, pod.pod.Spec.NodeName, is.NodeName)
		}
		for _, label := range keys {
			if is.Labels[label] != on.Labels[label] {
				return fmt.Sprintf("label %s of the node of %s is %q, and %q is remembered", label, k, on.Labels[label],
					is.Labels[label])
			}
		}
	}
	for name := range o.status.PodStates {
		if !there[name] {
			return fmt.Sprintf("%s is remembered, and is not there", name)
		}
	}
	return ""
}
