package sidecarset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// PatchMetadata returns the annotations that the patches give to a pod with these annotations, as far as they change (SS-150, SS-226).
// It fails if a value of the pod cannot be merged (SS-152).
func PatchMetadata(annotations map[string]string, patches []appsv1beta1.SidecarSetPatchPodMetadata) (map[string]string, error) {
	result := maps.Clone(annotations)
	if result == nil {
		result = map[string]string{}
	}
	for _, patch := range patches {
		for _, key := range slices.Sorted(maps.Keys(patch.Annotations)) {
			value := patch.Annotations[key]
			before, present := result[key]
			switch patch.PatchPolicy {
			case appsv1beta1.SidecarSetOverwritePatchPolicy:
				result[key] = value
			case appsv1beta1.SidecarSetMergePatchJSONPatchPolicy:
				merged, err := mergeValue(before, value)
				if err != nil {
					return nil, fmt.Errorf("merging into annotation %s of the pod: %w", key, err)
				}
				result[key] = merged
			default:
				if !present {
					result[key] = value
				}
			}
		}
	}
	maps.DeleteFunc(result, func(key, value string) bool {
		before, present := annotations[key]
		return present && before == value
	})
	return result, nil
}

// mergeValue merges two JSON texts (RFC 7386). An empty value becomes the other as it is, and what has that value already, or says the
// same in other words, stays: to merge twice is to merge once (SS-107).
func mergeValue(before, value string) (string, error) {
	if before == "" || before == value {
		return value, nil
	}
	if !json.Valid([]byte(before)) {
		return "", fmt.Errorf("the value %.100q is no JSON", before)
	}
	var object map[string]json.RawMessage
	target := []byte(before)
	if json.Unmarshal(target, &object) != nil || object == nil { // a patch of what is no object begins with an empty one
		target = []byte("{}")
	}
	merged, err := jsonpatch.MergePatch(target, []byte(value))
	if err != nil {
		return "", err
	}
	if jsonpatch.Equal([]byte(before), merged) {
		return before, nil
	}
	return string(merged), nil
}
