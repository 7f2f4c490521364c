package workloadspread

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Kinds that are supported without being listed by the user (WS-020).
var (
	CloneSet            = schema.GroupKind{Group: "apps.kruise.io", Kind: "CloneSet"}
	Deployment          = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	ReplicaSet          = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	StatefulSet         = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	AdvancedStatefulSet = schema.GroupKind{Group: "apps.kruise.io", Kind: "StatefulSet"}
	Job                 = schema.GroupKind{Group: "batch", Kind: "Job"}
)

// BuiltIn tells whether the kind is supported without being listed by the user.
func BuiltIn(kind schema.GroupKind) bool {
	return slices.Contains([]schema.GroupKind{CloneSet, Deployment, ReplicaSet, StatefulSet,
		AdvancedStatefulSet, Job}, kind)
}

// Ordinal tells whether subsets are chosen by the ordinal of the pods, and nothing is booked (WS-060,
// WS-064).
func Ordinal(kind schema.GroupKind) bool { return kind == StatefulSet || kind == AdvancedStatefulSet }

// Reference names an object of a namespace, whatever the version of its API (WS-013).
type Reference struct {
	schema.GroupKind
	Name string
}

// TargetOf is what a WorkloadSpread refers to.
func TargetOf(spread *appsv1beta1.WorkloadSpread) Reference {
	ref := spread.Spec.TargetReference
	if ref == nil {
		return Reference{}
	}
	return referenceTo(ref.APIVersion, ref.Kind, ref.Name)
}

// ControllerOf is the controller of an object; false if it has none.
func ControllerOf(object metav1.Object) (Reference, bool) {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return Reference{}, false
	}
	return referenceTo(owner.APIVersion, owner.Kind, owner.Name), true
}

func referenceTo(apiVersion, kind, name string) Reference {
	return Reference{schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind(), name}
}

// Target is the workload of a WorkloadSpread.
type Target struct {
	Reference
	// Exists: it is there, and is not being deleted. Otherwise it has no pods, and none are desired (WS-023).
	Exists bool
	// Desired is how many pods it shall have, after the filter (W in the spec; WS-016, WS-021). DesiredError
	// is why that cannot be told (WS-133).
	Desired      int32
	DesiredError error
	// Controllers are the UIDs of what controls its pods: its own, or those of a Deployment's ReplicaSets
	// (WS-020).
	Controllers []types.UID
	// Selector limits the pods that have these controllers; nil selects all.
	Selector labels.Selector
	// Fallback finds the pods of a custom kind if Controllers have none: it returns a selector of pods of the
	// namespace, nil if there is none (WS-020). It is nil for the other kinds. It reads, and no plan calls
	// it.
	Fallback func() (labels.Selector, error)
	// Costs: deletion costs are written (WS-160, WS-206).
	Costs bool
	// Latest is the version that its new pods have, empty where versions are not told apart or the target
	// does not exist. LatestError is why it cannot be told yet (WS-085).
	Latest      string
	LatestError error
	// Start is the first ordinal of a StatefulSet; Reserved are those that it leaves out, in order and apart
	// from each other (WS-061).
	Start    int
	Reserved []Ordinals
}

// Ordinals are those from the first to the last.
type Ordinals struct{ First, Last int }

// Rank is the number of ordinals below that of the pod that the StatefulSet uses; -1 if the name has no
// ordinal (WS-061, WS-063).
func (t *Target) Rank(pod string) int {
	ordinal, ok := ordinalOf(pod)
	if !ok {
		return -1
	}
	rank := max(ordinal-t.Start, 0)
	for _, r := range t.Reserved {
		rank -= max(min(r.Last, ordinal-1)-max(r.First, t.Start)+1, 0)
	}
	return rank
}

// Filter is the selector of a WorkloadSpread's targetFilter; it selects everything if there is none (WS-014).
func Filter(spread *appsv1beta1.WorkloadSpread) (labels.Selector, error) {
	if f := spread.Spec.TargetFilter; f != nil && f.Selector != nil {
		return metav1.LabelSelectorAsSelector(f.Selector)
	}
	return labels.Everything(), nil
}
