package nodes

import corev1 "k8s.io/api/core/v1"

// Ready returns the condition that reports whether a node is ready, and since when; nil if the node has not
// reported it.
func Ready(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}
