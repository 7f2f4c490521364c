package persistentpodstate

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// AllowListKey is the key, in the ConfigMap of the installation, of the kinds that an administrator lists
// (PPS-013).
const AllowListKey = "PPS_Watch_Custom_Workload_WhiteList"

// Reference identifies a workload of a namespace, whatever the version of its API (PPS-011).
type Reference = workloadspread.Reference

// BuiltIn reports whether the kind is supported without being listed by an administrator (PPS-012).
func BuiltIn(kind schema.GroupKind) bool {
	return kind == workloadkind.StatefulSet || kind == workloadkind.AdvancedStatefulSet
}

// TargetOf returns the workload that a PersistentPodState refers to.
func TargetOf(state *appsv1beta1.PersistentPodState) Reference {
	target := &state.Spec.TargetRef
	return Reference{
		GroupKind: schema.FromAPIVersionAndKind(target.APIVersion, target.Kind).GroupKind(),
		Name:      target.Name,
	}
}

// Of returns the PersistentPodState that is in effect for a workload: the oldest of those that are not being
// deleted, or nil if there is none. There is only one, unless two were created at the same time (PPS-026,
// PPS-030).
func Of(target Reference, states []*appsv1beta1.PersistentPodState) (of *appsv1beta1.PersistentPodState) {
	for _, state := range states {
		if state.DeletionTimestamp != nil || TargetOf(state) != target {
			continue
		}
		if of == nil || state.CreationTimestamp.Before(&of.CreationTimestamp) ||
			state.CreationTimestamp.Equal(&of.CreationTimestamp) && state.Name < of.Name {
			of = state
		}
	}
	return of
}
