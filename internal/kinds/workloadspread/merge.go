package workloadspread

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// mostMerged bounds the effort of merging lists of one name: the library compares each item with each of the list that comes of it.
const mostMerged = 1000 * 1000

// mergedText is merged for documents.
func mergedText(pod, patch []byte) ([]byte, error) {
	document, err := object(pod)
	if err != nil {
		return nil, err
	}
	changes, err := object(patch)
	if err != nil {
		return nil, err
	}
	if document, err = merged(document, changes); err != nil {
		return nil, err
	}
	return json.Marshal(document)
}

// merged applies a strategic merge patch to a pod, which may be changed by that (WS-094).
func merged(pod, patch map[string]any) (result map[string]any, err error) {
	if err := mergeable([]any{pod}, []any{patch}, ""); err != nil {
		return nil, err
	}
	defer func() { // it panics where merge keys are no scalars
		if odd := recover(); odd != nil {
			err = fmt.Errorf("merging: %v", odd)
		}
	}()
	return strategicpatch.StrategicMergeMapPatch(pod, patch, corev1.Pod{})
}

// mergeable tells where merging takes too long. Items of lists are taken together, so that all is looked at once.
func mergeable(pods, patches []any, path string) error {
	list, touched, effort := 0, 0, 0
	inside := map[string][2][]any{}
	for _, patch := range patches {
		switch patch := patch.(type) {
		case []any:
			touched = max(touched, len(patch))
			children := inside[""]
			children[1] = append(children[1], patch...)
			inside[""] = children
		case map[string]any:
			for key, value := range patch {
				if directive, of, ok := strings.Cut(key, "/"); ok && strings.HasPrefix(directive, "$") { // such as the order of a list
					key = of
				}
				children := inside[key]
				children[1] = append(children[1], value)
				inside[key] = children
			}
		}
	}
	for _, pod := range pods {
		switch pod := pod.(type) {
		case []any:
			list += len(pod)
			effort += square(len(pod) + touched)
			if children, ok := inside[""]; ok {
				children[0] = append(children[0], pod...)
				inside[""] = children
			}
		case map[string]any:
			for key, children := range inside {
				if value, ok := pod[key]; ok {
					children[0] = append(children[0], value)
					inside[key] = children
				}
			}
		}
	}
	if touched > 0 && max(effort, square(touched)) > mostMerged {
		return fmt.Errorf("%s: the pod has %d items, and the patch up to %d: these are too many to be merged",
			strings.TrimPrefix(path, "."), list, touched)
	}
	for key, children := range inside {
		below := path
		if key != "" {
			below += "." + key
		}
		if err := mergeable(children[0], children[1], below); err != nil {
			return err
		}
	}
	return nil
}

func square(n int) int { return n * n }
