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
)

// Child is what plans read of a child of any kind.
type Child struct {
	Object metav1.Object
	Kind   Kind
	// Subset is that of its selector, which cannot be changed, or else its label (UD-062). Revision is its
	// label, Patch the annotation.
	Subset, Revision, Patch string
	// Replicas is what its spec wants; Partition nil where there is none.
	Replicas  int32
	Partition *int32
	// OnDelete: its pods are updated when somebody deletes them.
	OnDelete bool
	// MaxUnavailable of its rolling update, nil where there is none.
	MaxUnavailable *intstr.IntOrString
	// Start is the ordinal of the first pod of a StatefulSet.
	Start int
	// Total and Ready are what its status tells, Observed whether that is of its present spec.
	Total, Ready int32
	Observed     bool
	// Failure is what it reports to be wrong (UD-142).
	Failure string
}

// ChildOf reads an object of a kind of children, as the caches keep it.
func ChildOf(object metav1.Object) *Child {
	labels := object.GetLabels()
	c := &Child{Object: object, Subset: labels[SubsetName], Revision: labels[RevisionHash],
		Patch: object.GetAnnotations()[SubsetPatch]}
	var observed int64
	replicas := new(int32(1))
	var selector *metav1.LabelSelector
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		selector = o.Spec.Selector
		c.Kind, replicas, observed = StatefulSet, o.Spec.Replicas, o.Status.ObservedGeneration
		c.Total, c.Ready, c.OnDelete = o.Status.Replicas, o.Status.ReadyReplicas,
			o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
		if rolling := o.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
			c.Partition, c.MaxUnavailable = rolling.Partition, rolling.MaxUnavailable
		}
		if o.Spec.Ordinals != nil {
			c.Start = int(o.Spec.Ordinals.Start)
		}
	case *appsv1beta1.StatefulSet:
		selector = o.Spec.Selector
		c.Kind, replicas, observed = AdvancedStatefulSet, o.Spec.Replicas, o.Status.ObservedGeneration
		c.Total, c.Ready, c.OnDelete = o.Status.Replicas, o.Status.ReadyReplicas,
			string(o.Spec.UpdateStrategy.Type) == string(appsv1.OnDeleteStatefulSetStrategyType)
		if rolling := o.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
			c.Partition, c.MaxUnavailable = rolling.Partition, rolling.MaxUnavailable
		}
	case *appsv1beta1.CloneSet:
		selector = o.Spec.Selector
		c.Kind, replicas, observed = CloneSet, o.Spec.Replicas, o.Status.ObservedGeneration
		c.Total, c.Ready = o.Status.Replicas, o.Status.ReadyReplicas
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
		selector = o.Spec.Selector
		c.Kind, replicas, observed = Deployment, o.Spec.Replicas, o.Status.ObservedGeneration
		c.Total, c.Ready = o.Status.Replicas, o.Status.ReadyReplicas
		if rolling := o.Spec.Strategy.RollingUpdate; rolling != nil {
			c.MaxUnavailable = rolling.MaxUnavailable
		}
		for i := range o.Status.Conditions {
			condition := &o.Status.Conditions[i]
			c.fails(string(condition.Type), condition.Message,
				condition.Type == appsv1.DeploymentReplicaFailure &&
					condition.Status == corev1.ConditionTrue ||
					condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse)
		}
	}
	if selector != nil && selector.MatchLabels[SubsetName] != "" && OwnerOf(object) != "" {
		c.Subset = selector.MatchLabels[SubsetName]
	}
	if c.Replicas = 1; replicas != nil {
		c.Replicas = *replicas
	}
	c.Observed = observed >= object.GetGeneration()
	return c
}

func (c *Child) fails(condition, message string, does bool) {
	if does && c.Failure == "" {
		c.Failure = fmt.Sprintf("%s %s: %s: %s", c.Kind, c.Object.GetName(), condition, message)
	}
}

// String names the child.
func (c *Child) String() string { return c.Kind.String() + " " + c.Object.GetName() }

// Going tells whether it is being deleted.
func (c *Child) Going() bool { return c.Object.GetDeletionTimestamp() != nil }

// older orders children by age, and then by name.
func older(a, b *Child) int {
	x, y := a.Object.GetCreationTimestamp(), b.Object.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), cmp.Compare(a.Object.GetName(), b.Object.GetName()))
}

// OwnerOf is the UID of the UnitedDeployment that controls an object, whatever version it names (UD-060);
// empty if none does.
func OwnerOf(object metav1.Object) types.UID {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != Name ||
		!strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		return ""
	}
	return owner.UID
}
