package subset

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// mostRequired is the maximum size in bytes of what Require adds to all terms of a pod together. More would not
// fit into an object.
const mostRequired = 1 << 20

// Requirable returns an error if Require would add more to a pod spec than an object may have: each of the
// spec's terms, which are alternatives, gets all requirements. It changes nothing.
func Requirable(spec map[string]any, required *corev1.NodeSelectorTerm) error {
	inner := spec
	for _, key := range []string{"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"} {
		inner, _ = inner[key].(map[string]any)
	}
	terms, _ := inner["nodeSelectorTerms"].([]any)
	if len(terms) == 0 || required == nil {
		return nil
	}

	text, err := json.Marshal(required)
	if err != nil {
		return fmt.Errorf("encoding a node selector term: %w", err)
	}
	if len(text) > mostRequired/len(terms) {
		return fmt.Errorf(
			"each of the pod's %d required node selector terms gets all requirements of the subset, which are %d bytes; together they must be no more than %d",
			len(terms), len(text), mostRequired)
	}

	return nil
}

// Require restricts a pod spec to nodes that match the term, in addition to what it requires already. A term
// without requirements, which would match no node, changes nothing (WS-092, UD-070).
func Require(spec map[string]any, required *corev1.NodeSelectorTerm) error {
	if required == nil || len(required.MatchExpressions)+len(required.MatchFields) == 0 {
		return nil
	}
	if err := Requirable(spec, required); err != nil {
		return err
	}

	affinity, err := Child(spec, "affinity")
	if err != nil {
		return err
	}

	nodes, err := Child(affinity, "nodeAffinity")
	if err != nil {
		return err
	}

	selector, err := Child(nodes, "requiredDuringSchedulingIgnoredDuringExecution")
	if err != nil {
		return err
	}

	terms, _ := selector["nodeSelectorTerms"].([]any)
	if len(terms) == 0 {
		return Append(selector, "nodeSelectorTerms", []corev1.NodeSelectorTerm{*required})
	}

	for _, item := range terms { // the terms are alternatives
		term, ok := item.(map[string]any)
		if !ok {
			return errors.New("a required node selector term of the pod is no object")
		}
		if err := errors.Join(Append(term, "matchExpressions", required.MatchExpressions),
			Append(term, "matchFields", required.MatchFields)); err != nil {
			return err
		}
	}

	return nil
}

// Object decodes a JSON object and keeps integers as integers.
func Object(raw []byte) (map[string]any, error) {
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &value); err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	if read, ok := value.(map[string]any); ok {
		return read, nil
	}
	return nil, errors.New("it is no JSON object")
}

// Child returns the object with that key in another object, and creates it if there is none.
func Child(parent map[string]any, key string) (map[string]any, error) {
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

// Append appends items to the list with that key.
func Append[T any](parent map[string]any, key string, items []T) error {
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
