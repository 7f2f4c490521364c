package workloadspread

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ConfigMapName is the ConfigMap, in the install namespace, in which users list further kinds of workloads,
// and AllowListKey is its key (WS-024).
const (
	ConfigMapName = "kruise-configuration"
	AllowListKey  = "WorkloadSpread_Watch_Custom_Workload_WhiteList"
)

// AllowList holds the kinds of workloads that users list. The zero value lists none.
type AllowList struct{ Workloads []CustomKind }

// CustomKind is a kind of workload that users list.
type CustomKind struct {
	schema.GroupVersionKind
	// SubResources are the kinds between the pod and the workload.
	SubResources []schema.GroupVersionKind
	// ReplicasPath is the path of the number of pods. If it is empty, the scale subresource is read (WS-016).
	ReplicasPath string
	// DeletionCost enables writing deletion costs (WS-206).
	DeletionCost bool
}

// ParseAllowList parses the value of AllowListKey; an empty value lists nothing (WS-024, WS-027).
func ParseAllowList(text string) (AllowList, error) { return ParseListAt(AllowListKey, text) }

// ParseListAt parses the value of another key that has the same format.
func ParseListAt(key, text string) (AllowList, error) {
	if text == "" {
		return AllowList{}, nil
	}
	var list AllowList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return AllowList{}, fmt.Errorf("key %s of ConfigMap %s: %w", key, ConfigMapName, err)
	}
	return list, nil
}

// Workload returns the entry for a kind, compared by group and kind; the version does not matter (WS-025).
func (l AllowList) Workload(kind schema.GroupKind) (CustomKind, bool) {
	at := slices.IndexFunc(l.Workloads, func(w CustomKind) bool { return w.GroupKind() == kind })
	if at < 0 || kind.Kind == "" {
		return CustomKind{}, false
	}
	return l.Workloads[at], true
}

// Known reports whether the kind is listed, either as a workload or as a kind between a workload and its pods
// (WS-051).
func (l AllowList) Known(kind schema.GroupKind) bool {
	return slices.ContainsFunc(l.Workloads, func(w CustomKind) bool {
		return w.GroupKind() == kind || slices.ContainsFunc(w.SubResources,
			func(s schema.GroupVersionKind) bool { return s.GroupKind() == kind })
	})
}
