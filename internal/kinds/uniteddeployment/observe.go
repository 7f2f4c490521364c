package uniteddeployment

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
)

// Child is what plans read of a child of any kind.
type Child struct {
	Object metav1.Object
	Kind   Kind
	// Subset is the subset in its selector, which is immutable, or else in its label (UD-062). Revision is
	// its revision label, and Patch its patch annotation.
	Subset, Revision, Patch string
	// Replicas is spec.replicas. Partition is nil if the child has none.
	Replicas  int32
	Partition *int32
	// OnDelete reports that its pods are updated when somebody deletes them.
	OnDelete bool
	// MaxUnavailable is that of its rolling update, or nil.
	MaxUnavailable *intstr.IntOrString
	// Start is the ordinal of the first pod of a StatefulSet.
	Start int
	// Total and Ready are from its status. Observed reports whether the status is that of the present spec.
	Total, Ready int32
	Observed     bool
	// Failure is an error that the child reports (UD-142).
	Failure string
}

// ChildOf returns the Child for a cached object of a kind of children.
func ChildOf(object metav1.Object) *Child {
	labels := object.GetLabels()
	c := &Child{Object: object, Subset: labels[SubsetName], Revision: labels[RevisionHash],
		Patch: object.GetAnnotations()[SubsetPatch]}

	state, _ := workloadkind.StateOf(object)
	c.Replicas, c.Start, c.Total, c.Ready = state.Pods(), int(state.Start), state.Total, state.Ready
	c.Observed = state.ObservedGeneration >= object.GetGeneration()
	if s := state.Selector; s != nil && s.MatchLabels[SubsetName] != "" && OwnerOf(object) != "" {
		c.Subset = s.MatchLabels[SubsetName]
	}

	switch o := object.(type) {
	case *appsv1.StatefulSet:
		c.Kind = StatefulSet
		c.OnDelete = o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
		if rolling := o.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
			c.Partition, c.MaxUnavailable = rolling.Partition, rolling.MaxUnavailable
		}
	case *appsv1beta1.StatefulSet:
		c.Kind = AdvancedStatefulSet
		c.OnDelete = string(o.Spec.UpdateStrategy.Type) == string(appsv1.OnDeleteStatefulSetStrategyType)
		if rolling := o.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
			c.Partition, c.MaxUnavailable = rolling.Partition, rolling.MaxUnavailable
		}
	case *appsv1beta1.CloneSet:
		c.Kind = CloneSet
		if rolling := o.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
			c.MaxUnavailable = rolling.MaxUnavailable
			if rolling.Partition != nil && rolling.Partition.Type == intstr.Int {
				c.Partition = &rolling.Partition.IntVal
			} else if rolling.Partition != nil {
				c.Partition = new(int32(-1)) // a percentage that somebody wrote
			}
		}
		for i := range o.Status.Conditions {
			condition := &o.Status.Conditions[i]
			switch condition.Type {
			case appsv1beta1.CloneSetConditionFailedScale, appsv1beta1.CloneSetConditionFailedUpdate:
				c.fails(string(condition.Type), condition.Message, condition.Status == corev1.ConditionTrue)
			}
		}
	case *appsv1.Deployment:
		c.Kind = Deployment
		if rolling := o.Spec.Strategy.RollingUpdate; rolling != nil {
			c.MaxUnavailable = rolling.MaxUnavailable
		}
		for i := range o.Status.Conditions {
			condition := &o.Status.Conditions[i]
			c.fails(string(condition.Type), condition.Message,
				condition.Type == appsv1.DeploymentReplicaFailure &&
					condition.Status == corev1.ConditionTrue ||
					condition.Type == appsv1.DeploymentProgressing &&
						condition.Status == corev1.ConditionFalse)
		}
	}

	return c
}

func (c *Child) fails(condition, message string, does bool) {
	if does && c.Failure == "" {
		c.Failure = fmt.Sprintf("%s %s: %s: %s", c.Kind, c.Object.GetName(), condition, message)
	}
}

// String returns the kind and name of the child.
func (c *Child) String() string { return c.Kind.String() + " " + c.Object.GetName() }

// Going reports whether the child is being deleted.
func (c *Child) Going() bool { return c.Object.GetDeletionTimestamp() != nil }

// older orders children by age, and then by name.
func older(a, b *Child) int {
	x, y := a.Object.GetCreationTimestamp(), b.Object.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), cmp.Compare(a.Object.GetName(), b.Object.GetName()))
}

// OwnerOf returns the UID of the UnitedDeployment that controls an object, regardless of the API version in
// the reference (UD-060), or an empty one.
func OwnerOf(object metav1.Object) types.UID {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != Name ||
		!strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		return ""
	}
	return owner.UID
}
