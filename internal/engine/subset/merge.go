// Package subset is what a subset of a workload does to the documents of its pods, or of their templates: it
// binds them to nodes, tolerates taints, and applies a strategic merge patch. Kinds that have subsets share
// it.
package subset

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// mostMerged bounds the effort of merging lists of one name: the library compares each item with each of the
// list that comes of it.
const mostMerged = 1000 * 1000

// Merge applies a strategic merge patch to a document, which may be changed by that; like is of its type
// (WS-094, UD-016).
func Merge(document, patch map[string]any, like any) (result map[string]any, err error) {
	if err := mergeable([]any{document}, []any{patch}, ""); err != nil {
		return nil, err
	}
	defer func() { // it panics where merge keys are no scalars
		if odd := recover(); odd != nil {
			err = fmt.Errorf("merging: %v", odd)
		}
	}()
	return strategicpatch.StrategicMergeMapPatch(document, patch, like)
}

// Patch is Merge with the text of a patch; one that is empty or null changes nothing.
func Patch(document map[string]any, text []byte, like any) (map[string]any, error) {
	if text = bytes.TrimSpace(text); len(text) == 0 || string(text) == "null" {
		return document, nil
	}
	patch, err := Object(text)
	if err != nil {
		return nil, err
	}
	return Merge(document, patch, like)
}

// mergeable tells where merging takes too long. Items of lists are taken together, so that all is looked at
// once.
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
