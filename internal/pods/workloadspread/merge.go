package workloadspread

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// mostMerged is how many items a list of a pod may have, with those of a patch, to be merged. The effort of the library grows with their square.
const mostMerged = 1000

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

// mergeable tells which list of those that patches touch is too long. Items of lists are taken together, so that all is looked at once.
func mergeable(pods, patches []any, path string) error {
	list, touched := 0, 0
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
			list = max(list, len(pod))
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
	if list > 0 && touched > 0 && list+touched > mostMerged {
		return fmt.Errorf("%s has %d items, and the patch %d: together these are more than the %d that are merged", strings.TrimPrefix(path, "."), list, touched, mostMerged)
	}
	for key, children := range inside {
		below := path
		if key != "" {
			below += "." + key
		}
		if len(children[0]) == 0 {
			continue
		}
		if err := mergeable(children[0], children[1], below); err != nil {
			return err
		}
	}
	return nil
}
