package workloadspread

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
)

// builtIn lists the kinds that are supported without being listed by the user.
var builtIn = []schema.GroupKind{workloadkind.CloneSet, workloadkind.Deployment, workloadkind.ReplicaSet,
	workloadkind.Job, workloadkind.StatefulSet, workloadkind.AdvancedStatefulSet}

// BuiltIn reports whether the kind is supported without being listed by the user (WS-020).
func BuiltIn(kind schema.GroupKind) bool { return slices.Contains(builtIn, kind) }

// ControllerKind returns the kind of the controllers of a built-in workload's pods.
func ControllerKind(workload schema.GroupKind) schema.GroupKind {
	if children := workloadkind.Of(workload).Children; len(children) > 0 {
		return children[0]
	}
	return workload
}

// Ordinal reports whether pods of the kind are put into subsets by their ordinals, so that nothing is booked
// (WS-060, WS-064).
func Ordinal(kind schema.GroupKind) bool { return workloadkind.Of(kind).Ordinals }

// Reference identifies an object in a namespace, regardless of its API version (WS-013).
type Reference struct {
	schema.GroupKind
	Name string
}

// TargetOf returns the workload that a WorkloadSpread refers to.
func TargetOf(spread *appsv1beta1.WorkloadSpread) Reference {
	ref := spread.Spec.TargetReference
	if ref == nil {
		return Reference{}
	}
	return referenceTo(ref.APIVersion, ref.Kind, ref.Name)
}

// ControllerOf returns the controller of an object, and false if it has none.
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
	// Exists reports that the workload exists and is not being deleted. Otherwise it has no pods, and none
	// are desired (WS-023).
	Exists bool
	// Desired is how many pods the workload should have, after the filter (W in the spec; WS-016, WS-021).
	// DesiredError is why that is not known (WS-133).
	Desired      int32
	DesiredError error
	// Controllers are the UIDs of the controllers of its pods: its own, or those of a Deployment's
	// ReplicaSets (WS-020).
	Controllers []types.UID
	// Selector limits the pods of these controllers; nil selects all.
	Selector labels.Selector
	// Fallback finds the pods of a custom kind if Controllers have none: it returns a selector of pods in the
	// namespace, or nil (WS-020). It is nil for other kinds. It reads from the cluster, so no plan calls it.
	Fallback func() (labels.Selector, error)
	// Costs reports that deletion costs are written (WS-160, WS-206).
	Costs bool
	// Latest is the version of its new pods. It is empty if versions do not matter, or if the target does not
	// exist. LatestError is why it is not known yet (WS-085).
	Latest      string
	LatestError error
	// Start is the first ordinal of a StatefulSet. Reserved are the ordinals that it leaves out, sorted and
	// disjoint (WS-061).
	Start    int
	Reserved []Ordinals
}

// Ordinals is a range of ordinals, including both ends.
type Ordinals struct{ First, Last int }

// Rank returns how many ordinals that the StatefulSet uses are below that of the pod, and -1 if the pod's
// name has no ordinal (WS-061, WS-063).
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

// Filter returns the selector of the targetFilter, which selects everything if there is none (WS-014).
func Filter(spread *appsv1beta1.WorkloadSpread) *metav1.LabelSelector {
	if f := spread.Spec.TargetFilter; f != nil && f.Selector != nil {
		return f.Selector
	}
	return &metav1.LabelSelector{}
}
