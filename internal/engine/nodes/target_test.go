package nodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTarget(t *testing.T) {
	term := func(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: requirements}
	}
	is := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	for name, test := range map[string]struct {
		node  string
		terms []corev1.NodeSelectorTerm
		want  string
	}{
		"the node that it is on":         {"a", []corev1.NodeSelectorTerm{term(is("metadata.name", "In", "b"))}, "a"},
		"the node that it asks for":      {"", []corev1.NodeSelectorTerm{term(is("metadata.name", "In", "b"))}, "b"},
		"the same node twice":            {"", []corev1.NodeSelectorTerm{term(is("metadata.name", "In", "b")), term(is("metadata.name", "In", "b"))}, "b"},
		"one of several nodes":           {"", []corev1.NodeSelectorTerm{term(is("metadata.name", "In", "b", "c"))}, ""},
		"one node or another":            {"", []corev1.NodeSelectorTerm{term(is("metadata.name", "In", "b")), term(is("metadata.name", "In", "c"))}, ""},
		"all nodes but one":              {"", []corev1.NodeSelectorTerm{term(is("metadata.name", "NotIn", "b"))}, ""},
		"another field":                  {"", []corev1.NodeSelectorTerm{term(is("metadata.uid", "In", "b"))}, ""},
		"two requirements in one term":   {"", []corev1.NodeSelectorTerm{term(is("metadata.name", "In", "b"), is("metadata.name", "In", "b"))}, ""},
		"no affinity, and not scheduled": {"", nil, ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: test.node}}
		if test.terms != nil {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}}
		}
		if got := Target(pod); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		slim := &corev1.Pod{Spec: corev1.PodSpec{NodeName: test.node, Affinity: Slim(pod)}}
		if got := Target(slim); got != test.want {
			t.Errorf("%s: what is kept leads to %q, want %q", name, got, test.want)
		}
		if test.node != "" && slim.Spec.Affinity != nil {
			t.Errorf("%s: of a pod on a node an affinity is kept: %v", name, slim.Spec.Affinity)
		}
	}
}
