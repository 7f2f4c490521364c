package workloadspread

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/afloat-project/afloat/api/pub"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Inject returns what a subset does to a pod, as operations of a JSON patch of its document, so that fields that our libraries do not know
// stay as they are (WS-090 to WS-096). Nothing that subset holds is changed, or part of the result (WS-097).
func Inject(raw []byte, subset *appsv1beta1.WorkloadSpreadSubset, placement pub.Placement) ([]operations.Operation, error) {
	before, err := object(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	pod := runtime.DeepCopyJSON(before)
	spec, err := child(pod, "spec")
	if err != nil {
		return nil, err
	}
	if err := add(spec, "tolerations", subset.Tolerations); err != nil { // WS-090
		return nil, err
	}
	if err := addAffinity(spec, subset); err != nil {
		return nil, err
	}
	if pod, err = patched(pod, subset.Patch.Raw); err != nil { // WS-094
		return nil, fmt.Errorf("the patch of subset %q: %w", subset.Name, err)
	}
	metadata, err := child(pod, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := child(metadata, "annotations")
	if err != nil {
		return nil, err
	}
	annotations[pub.MatchedWorkloadSpread] = placement.String() // WS-096
	if err := readable(pod); err != nil {
		return nil, fmt.Errorf("the patch of subset %q: %w", subset.Name, err)
	}
	return difference(nil, "", before, pod), nil
}

// addAffinity adds the node selectors of the subset, and nothing where it has none (WS-091 to WS-093).
func addAffinity(spec map[string]any, subset *appsv1beta1.WorkloadSpreadSubset) error {
	required := subset.RequiredNodeSelector
	if required != nil && len(required.MatchExpressions)+len(required.MatchFields) == 0 {
		required = nil // a term without requirements matches no node
	}
	if required == nil && len(subset.PreferredNodeSelector) == 0 {
		return nil
	}
	affinity, err := child(spec, "affinity")
	if err != nil {
		return err
	}
	nodes, err := child(affinity, "nodeAffinity")
	if err != nil {
		return err
	}
	if err := add(nodes, "preferredDuringSchedulingIgnoredDuringExecution", subset.PreferredNodeSelector); err != nil { // WS-091
		return err
	}
	if required == nil {
		return nil
	}
	selector, err := child(nodes, "requiredDuringSchedulingIgnoredDuringExecution")
	if err != nil {
		return err
	}
	terms, _ := selector["nodeSelectorTerms"].([]any)
	if len(terms) == 0 {
		return add(selector, "nodeSelectorTerms", []corev1.NodeSelectorTerm{*required})
	}
	for _, item := range terms { // terms are alternatives (WS-092)
		term, ok := item.(map[string]any)
		if !ok {
			return errors.New("a required node selector term of the pod is no object")
		}
		if err := errors.Join(add(term, "matchExpressions", required.MatchExpressions), add(term, "matchFields",
			required.MatchFields)); err != nil {
			return err
		}
	}
	return nil
}

// patched applies the strategic merge patch of a subset (WS-094, WS-095).
func patched(pod map[string]any, raw []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(raw)) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return pod, nil
	}
	patch, err := object(raw)
	if err != nil {
		return nil, err
	}
	class := priorityClass(pod)
	if pod, err = merged(pod, patch); err != nil {
		return nil, fmt.Errorf("applying it to the pod: %w", err)
	}
	// The API server fills in what belongs to the class, and refuses a pod that has something else.
	if spec, ok := pod["spec"].(map[string]any); ok && priorityClass(pod) != class {
		delete(spec, "priority")
		if own, _ := patch["spec"].(map[string]any); own["preemptionPolicy"] == nil {
			delete(spec, "preemptionPolicy")
		}
	}
	return pod, nil
}

func priorityClass(pod map[string]any) any {
	spec, _ := pod["spec"].(map[string]any)
	return spec["priorityClassName"]
}

// readable tells whether the pod still is one.
func readable(pod map[string]any) error {
	text, err := json.Marshal(pod)
	if err != nil {
		return fmt.Errorf("encoding the pod: %w", err)
	}
	if err := json.Unmarshal(text, &corev1.Pod{}); err != nil {
		return fmt.Errorf("what becomes of the pod is no pod: %w", err)
	}
	return nil
}

// object reads a JSON object, with integers as such.
func object(raw []byte) (map[string]any, error) {
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &value); err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	if read, ok := value.(map[string]any); ok {
		return read, nil
	}
	return nil, errors.New("it is no JSON object")
}

// child is an object in another, made if there is none.
func child(parent map[string]any, key string) (map[string]any, error) {
	switch value := parent[key].(type) {
	case map[string]any:
		return value, nil
	case nil:
		made := map[string]any{}
		parent[key] = made
		return made, nil
	default:
		return nil, fmt.Errorf("%s of the pod is a %T", key, value)
	}
}

// add appends items to a list.
func add[T any](parent map[string]any, key string, items []T) error {
	if len(items) == 0 {
		return nil
	}
	text, err := json.Marshal(items)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", key, err)
	}
	var added []any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &added); err != nil {
		return fmt.Errorf("reading %s: %w", key, err)
	}
	present, ok := parent[key].([]any)
	if !ok && parent[key] != nil {
		return fmt.Errorf("%s of the pod is a %T", key, parent[key])
	}
	parent[key] = append(slices.Clip(present), added...)
	return nil
}

// escape makes a key part of a JSON pointer.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// difference appends the operations that lead from one value to another.
func difference(changes []operations.Operation, path string, before, after any) []operations.Operation {
	if reflect.DeepEqual(before, after) {
		return changes
	}
	switch was := before.(type) {
	case map[string]any:
		if is, ok := after.(map[string]any); ok {
			return members(changes, path, was, is)
		}
	case []any:
		is, ok := after.([]any)
		if !ok || len(is) < len(was) {
			break
		}
		if len(is) > len(was) && !reflect.DeepEqual(was, is[:len(was)]) {
			break
		}
		for i := range was {
			changes = difference(changes, path+"/"+strconv.Itoa(i), was[i], is[i])
		}
		for _, item := range is[len(was):] {
			changes = append(changes, operations.NewOperation("add", path+"/-", item))
		}
		return changes
	}
	return append(changes, operations.NewOperation("replace", path, after))
}

func members(changes []operations.Operation, path string, before, after map[string]any) []operations.Operation {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[key]; !kept {
			changes = append(changes, operations.NewOperation("remove", path+"/"+escape.Replace(key), nil))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		at := path + "/" + escape.Replace(key)
		if was, there := before[key]; there {
			changes = difference(changes, at, was, after[key])
		} else {
			changes = append(changes, operations.NewOperation("add", at, after[key]))
		}
	}
	return changes
}
