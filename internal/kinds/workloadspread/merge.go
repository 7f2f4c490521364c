package workloadspread

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/subset"
)

// mergedText applies a strategic merge patch to a pod, both given as JSON.
func mergedText(pod, patch []byte) ([]byte, error) {
	document, err := subset.Object(pod)
	if err != nil {
		return nil, err
	}
	changes, err := subset.Object(patch)
	if err != nil {
		return nil, err
	}
	if document, err = subset.Merge(document, changes, corev1.Pod{}); err != nil {
		return nil, err
	}
	return json.Marshal(document)
}
