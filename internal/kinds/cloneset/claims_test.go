package cloneset

import (
	corev1 "k8s.io/api/core/v1"

	"maps"
	"testing"
)

// TestLostNodes: a node is lost whose Ready is Unknown, or that does not exist; not one that says itself that
// it is not ready (CS-272).
func TestLostNodes(t *testing.T) {
	s := Snapshot{}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
		s.RecordNode(string(status), &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown}, {Type: corev1.NodeReady, Status: status}}}}, true)
	}
	s.RecordNode("gone", &corev1.Node{}, false)
	if !maps.Equal(s.LostNodes, map[string]bool{"True": false, "False": false, "Unknown": true, "gone": true}) {
		t.Errorf("%v", s.LostNodes)
	}
}
