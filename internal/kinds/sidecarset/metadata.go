package sidecarset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// PatchMetadata returns the annotations that the patches give to a pod with these annotations, as far as they
// change (SS-150, SS-226). It fails if a value of the pod cannot be merged (SS-152).
func PatchMetadata(
	annotations map[string]string, patches []appsv1beta1.SidecarSetPatchPodMetadata,
) (map[string]string, error) {
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

// mergeValue merges two JSON texts (RFC 7386). An empty value becomes the other as it is, and what has that
// value already, or says the same in other words, stays: to merge twice is to merge once. Also where several
// merge into one value: what is merged has no nulls, which a second pass would take away, and its keys in
// alphabetical order.
func mergeValue(before, value string) (string, error) {
	if before == "" || before == value {
		return value, nil
	}

	former, err := decoded(before)
	if err != nil {
		return "", fmt.Errorf("the value %.100q is no JSON", before)
	}

	patch, err := decoded(value)
	if err != nil {
		return "", fmt.Errorf("the value %.100q to be merged is no JSON", value)
	}
	if unchanged(former, patch) {
		return before, nil
	}

	text, err := json.Marshal(mergedJSON(withoutNulls(former), patch))
	if err != nil {
		return "", fmt.Errorf("encoding what was merged: %w", err)
	}

	return string(text), nil
}

// decoded reads one JSON value; numbers stay as they are written.
func decoded(text string) (value any, err error) {
	if !json.Valid([]byte(text)) {
		return nil, errors.New("invalid JSON")
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// unchanged tells whether merging the patch into the value gives the value.
func unchanged(value, patch any) bool {
	changes, ok := patch.(map[string]any)
	if !ok {
		return reflect.DeepEqual(value, patch)
	}

	object, ok := value.(map[string]any)
	if !ok {
		return false
	}

	for key, change := range changes {
		if present, ok := object[key]; ok != (change != nil) || ok && !unchanged(present, change) {
			return false
		}
	}

	return true
}

// mergedJSON changes the value by the patch (RFC 7386).
func mergedJSON(value, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}

	object, ok := value.(map[string]any)
	if !ok {
		object = map[string]any{}
	}

	for key, change := range changes {
		if change == nil {
			delete(object, key)
		} else {
			object[key] = mergedJSON(object[key], change)
		}
	}

	return object
}

// withoutNulls takes the members that are null out of objects.
func withoutNulls(value any) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for key, member := range object {
		if member == nil {
			delete(object, key)
		} else {
			object[key] = withoutNulls(member)
		}
	}
	return object
}
