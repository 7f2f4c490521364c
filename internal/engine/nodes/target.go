package nodes

import (
	corev1 "k8s.io/api/core/v1"
)

// nameField is the only field of a node that an affinity may match.
const nameField = "metadata.name"

// Target returns the node for which a pod of a DaemonSet is meant: the one it is on, or else the only one
// that its required node affinity names. It is empty for a pod that is not meant for one node.
func Target(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}

	name := ""
	for _, term := range requiredTerms(pod.Spec.Affinity) {
		if len(term.MatchFields) != 1 || len(term.MatchFields[0].Values) != 1 ||
			term.MatchFields[0].Key != nameField || term.MatchFields[0].Operator != corev1.NodeSelectorOpIn {
			continue
		}
		if value := term.MatchFields[0].Values[0]; name == "" {
			name = value
		} else if name != value {
			return ""
		}
	}

	return name
}

func requiredTerms(affinity *corev1.Affinity) []corev1.NodeSelectorTerm {
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// Only returns the required node affinity of a pod that is meant for that node alone (ADS-114).
func Only(node string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{
			{Key: nameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		},
	}}}
}

// Slim returns the part of a pod's affinity that must be kept so that its [Target] stays known; nil if none
// is needed.
func Slim(pod *corev1.Pod) *corev1.Affinity {
	if pod.Spec.NodeName != "" {
		return nil
	}
	target := Target(pod)
	if target == "" {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: Only(target),
	}}
}
