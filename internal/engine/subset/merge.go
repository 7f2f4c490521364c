// Package subset contains what a subset of a workload does to the documents of its pods or of their
// templates: it binds them to nodes, adds tolerations, and applies a strategic merge patch. All kinds that
// have subsets share it.
package subset

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// mostMerged bounds the effort of merging lists that have the same name: the library compares each item with
// each item of the resulting list.
const mostMerged = 1000 * 1000

// Merge applies a strategic merge patch to a document, which it may change; like is a value of the document's
// type (WS-094, UD-016).
func Merge(document, patch map[string]any, like any) (result map[string]any, err error) {
	if err := mergeable([]any{document}, []any{patch}, ""); err != nil {
		return nil, err
	}
	defer func() { // the library panics if merge keys are no scalars
		if odd := recover(); odd != nil {
			err = fmt.Errorf("merging: %v", odd)
		}
	}()
	return strategicpatch.StrategicMergeMapPatch(document, patch, like)
}

// Patch is [Merge] for an encoded patch; a patch that is empty or null changes nothing.
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

// mergeable returns an error if merging would take too long. The items of lists are handled together, so that
// everything is visited once.
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
				// Directives contain a key, too, for example for the order of a list.
				if directive, of, ok := strings.Cut(key, "/"); ok && strings.HasPrefix(directive, "$") {
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
