package cloneset

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// ours tells whether a revision is one of those that a plan for the set is made from (CS-057).
func ours(set *appsv1beta1.CloneSet, found *appsv1.ControllerRevision) bool {
	if controller := metav1.GetControllerOfNoCopy(found); controller != nil {
		return controller.UID == set.UID
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(found.Labels))
}
