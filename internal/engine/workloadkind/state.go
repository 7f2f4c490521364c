package workloadkind

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Desired is how many pods the spec of a workload asks for.
type Desired struct {
	// Replicas is nil if the spec has no number. It is the parallelism of a Job.
	Replicas *int32
	// Start is the ordinal of the first pod, for kinds with ordinals.
	Start int32
}

// Pods returns the number of pods, which is 1 by default.
func (d Desired) Pods() int32 {
	if d.Replicas == nil {
		return 1
	}
	return *d.Replicas
}

// DesiredOf reads spec.replicas and spec.ordinals.start of a document. Values that are no integers count as
// missing.
func DesiredOf(document map[string]any) (d Desired) {
	if replicas, found, err := unstructured.NestedInt64(document, "spec", "replicas"); found && err == nil {
		d.Replicas = new(int32(replicas))
	}
	start, _, _ := unstructured.NestedInt64(document, "spec", "ordinals", "start")
	d.Start = int32(start)
	return d
}

// State is what kinds of workloads have in common, as their types have it.
type State struct {
	Kind schema.GroupKind
	Desired
	Selector *metav1.LabelSelector
	// ObservedGeneration, Total and Ready are from the status, which counts other things for a Job.
	ObservedGeneration int64
	Total, Ready       int32
}

// StateOf reads an object, and reports whether the table has a New for its kind.
func StateOf(object any) (State, bool) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return State{Deployment, Desired{Replicas: o.Spec.Replicas}, o.Spec.Selector,
			o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas}, true
	case *appsv1.ReplicaSet:
		return State{ReplicaSet, Desired{Replicas: o.Spec.Replicas}, o.Spec.Selector,
			o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas}, true
	case *appsv1.StatefulSet:
		desired := Desired{Replicas: o.Spec.Replicas}
		if o.Spec.Ordinals != nil {
			desired.Start = o.Spec.Ordinals.Start
		}
		return State{StatefulSet, desired, o.Spec.Selector,
			o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas}, true
	case *batchv1.Job:
		return State{Kind: Job, Desired: Desired{Replicas: o.Spec.Parallelism},
			Selector: o.Spec.Selector}, true
	case *appsv1beta1.CloneSet:
		return State{CloneSet, Desired{Replicas: o.Spec.Replicas}, o.Spec.Selector,
			o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas}, true
	case *appsv1beta1.StatefulSet:
		desired := Desired{Replicas: o.Spec.Replicas}
		if o.Spec.Ordinals != nil {
			desired.Start = o.Spec.Ordinals.Start
		}
		return State{AdvancedStatefulSet, desired, o.Spec.Selector,
			o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas}, true
	}
	return State{}, false
}
