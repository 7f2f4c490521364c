package cloneset

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// Kind is the name of the kind in references to it.
const Kind = "CloneSet"

// traits are where CloneSets differ from other workloads.
var traits = podplan.Traits{TemplateHash: true}

// Reference is what an object bears that the set controls.
func Reference(set *appsv1beta1.CloneSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, appsv1beta1.GroupVersion.WithKind(Kind))
}

// workloadOf is the set as plans of all kinds see it.
func workloadOf(set *appsv1beta1.CloneSet, features Features) *podplan.Workload {
	spec := &set.Spec
	w := &podplan.Workload{
		Namespace: set.Namespace, Name: set.Name, Owner: Reference(set),
		Annotations: set.Annotations, Deleted: set.DeletionTimestamp != nil,
		Template: &spec.Template, Claims: spec.VolumeClaimTemplates, Selector: spec.Selector,
		MinReadySeconds: spec.MinReadySeconds, HistoryLimit: spec.RevisionHistoryLimit,
		Lifecycle: spec.Lifecycle, Policy: podplan.ReCreate,
		CollisionCount: set.Status.CollisionCount, CurrentRevision: set.Status.CurrentRevision,
		Traits: traits, Gates: []corev1.PodConditionType{pub.InPlaceUpdateReady, pub.KruisePodReady},
		ShortHash: features.ShortHash, RecreateOnClaimChange: features.RecreateOnClaimChange,
		InPlace:        features.InPlace,
		DeferredResize: features.DeferredResize, PreDownload: features.PreDownload,
	}
	w.OnDelete = set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteCloneSetUpdateStrategyType
	if r := rollingOf(set); r != nil {
		w.Rolling, w.Paused, w.MaxUnavailable, w.Strategy = true, r.Paused, r.MaxUnavailable,
			r.InPlaceUpdateStrategy
		if r.PodUpdatePolicy != "" {
			w.Policy = podplan.Policy(r.PodUpdatePolicy)
		}
	}

	return w
}

// rollingOf returns the options of rolling updates, nil under OnDelete.
func rollingOf(set *appsv1beta1.CloneSet) *appsv1beta1.RollingUpdateCloneSetStrategy {
	if set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteCloneSetUpdateStrategyType {
		return nil
	}
	return set.Spec.UpdateStrategy.RollingUpdate
}
