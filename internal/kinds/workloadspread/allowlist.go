package workloadspread

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ConfigMap, in the install namespace, and key of the kinds that users list (WS-024).
const (
	ConfigMapName = "kruise-configuration"
	AllowListKey  = "WorkloadSpread_Watch_Custom_Workload_WhiteList"
)

// AllowList are the kinds that users list. The zero value lists none.
type AllowList struct{ Workloads []CustomKind }

// CustomKind is a kind of workload that users list.
type CustomKind struct {
	schema.GroupVersionKind
	// SubResources are the kinds between the pod and the workload.
	SubResources []schema.GroupVersionKind
	// ReplicasPath leads to the number of pods; empty asks the scale subresource (WS-016).
	ReplicasPath string
	// DeletionCost has deletion costs written (WS-206).
	DeletionCost bool
}

// ParseAllowList reads the value of the key; no value lists nothing (WS-024, WS-027).
func ParseAllowList(text string) (AllowList, error) { return ParseListAt(AllowListKey, text) }

// ParseListAt reads the value of another key of such a form.
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

// Workload returns what is listed of a kind, by group and kind; empty versions match every one (WS-025).
func (l AllowList) Workload(kind schema.GroupKind) (CustomKind, bool) {
	at := slices.IndexFunc(l.Workloads, func(w CustomKind) bool { return w.GroupKind() == kind })
	if at < 0 || kind.Kind == "" {
		return CustomKind{}, false
	}
	return l.Workloads[at], true
}

// Known tells whether the kind is listed as a workload or as what stands between one and its pods (WS-051).
func (l AllowList) Known(kind schema.GroupKind) bool {
	return slices.ContainsFunc(l.Workloads, func(w CustomKind) bool {
		return w.GroupKind() == kind || slices.ContainsFunc(w.SubResources,
			func(s schema.GroupVersionKind) bool { return s.GroupKind() == kind })
	})
}
