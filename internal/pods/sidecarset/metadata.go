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
				if before == "" {
					result[key] = value
					continue
				}
				if !json.Valid([]byte(before)) {
					return nil, fmt.Errorf("annotation %s of the pod is no JSON, so that nothing can be merged into it", key)
				}
				merged, err := jsonpatch.MergePatch([]byte(before), []byte(value))
				if err != nil {
					return nil, fmt.Errorf("merging into annotation %s of the pod: %w", key, err)
				}
				result[key] = string(merged)
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
