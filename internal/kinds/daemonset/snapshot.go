package daemonset

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// Snapshot is everything that a plan is made from.
type Snapshot struct {
	// Set is the DaemonSet.
	Set *appsv1beta1.DaemonSet
	podplan.Snapshot
	// Orphans are pods without a controller that the selector matches (ADS-046).
	Orphans []*corev1.Pod
	// Nodes are all nodes, in any order.
	Nodes []*corev1.Node
	// Taken reports whether a pod of somebody else has the given name. If it is nil, none has.
	Taken func(pod string) bool
	// FailedUntil says for nodes on which pods failed until when the next pod that fails there is kept
	// (ADS-091).
	FailedUntil map[string]time.Time
	// Had are the nodes that are known to have had a pod. Unless partition controls how many nodes may have one,
	// only those are in it whose pods were deleted, and that did not get another one yet.
	Had map[string]bool
	// Features are the feature switches that the plan depends on.
	Features Features
}

// Features are the feature gates and flags that affect plans.
type Features struct {
	// PruneIneligible leaves nodes that are not eligible out of the rollout (gate
	// DaemonSetPruneIneligibleNodes, ADS-121).
	PruneIneligible bool
	// Binds makes the manager bind pods to their nodes instead of the scheduler (flag
	// --assign-pods-by-scheduler=false, ADS-114).
	Binds bool
	// InPlace is what qualifies for an update in place besides images and metadata.
	InPlace inplace.Options
	// DeferredResize is how long a node may defer a resize before the pod is recreated. 0 means forever
	// (IPU-315).
	DeferredResize time.Duration
	// PreDownload pulls new images ahead (ADS-180).
	PreDownload bool
}

// traits define how DaemonSets differ from other workloads.
var traits = podplan.Traits{HashLabel: pub.ControllerRevisionHash, Gated: true, Stateless: true,
	Completes: true, SameClaims: true}

// workloadOf converts the set to what plans of all kinds use.
func workloadOf(set *appsv1beta1.DaemonSet, features Features) *podplan.Workload {
	spec := &set.Spec
	w := &podplan.Workload{
		Namespace: set.Namespace, Name: set.Name,
		Owner:       *metav1.NewControllerRef(set, appsv1beta1.GroupVersion.WithKind(kind)),
		Annotations: set.Annotations, Deleted: set.DeletionTimestamp != nil,
		Template: &spec.Template, Selector: spec.Selector, MinReadySeconds: spec.MinReadySeconds,
		HistoryLimit: spec.RevisionHistoryLimit, Policy: podplan.ReCreate,
		CollisionCount: set.Status.CollisionCount,
		Traits:         traits, ShortHash: true,
		InPlace: features.InPlace, DeferredResize: features.DeferredResize, PreDownload: features.PreDownload,
		Strategy: podplan.WithAnnotations(nil, set.Annotations),
	}
	if spec.Lifecycle != nil && spec.Lifecycle.PreDelete != nil { // the other hooks have no effect
		w.Lifecycle = &pub.Lifecycle{PreDelete: spec.Lifecycle.PreDelete}
	}
	w.OnDelete = set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteDaemonSetStrategyType
	if r := rollingOf(set); r != nil {
		w.Rolling, w.Paused, w.MaxUnavailable = true, r.Paused, r.MaxUnavailable
		if r.Type == appsv1beta1.InPlaceIfPossibleRollingUpdateType {
			w.Policy, w.Gates = podplan.InPlaceIfPossible, []corev1.PodConditionType{pub.InPlaceUpdateReady}
		}
	}

	return w
}

// Partitioned reports whether partition controls how many nodes get a pod (ADS-100).
func Partitioned(set *appsv1beta1.DaemonSet) bool {
	return set.Spec.ScaleStrategy != nil && set.Spec.ScaleStrategy.PartitionedScaling
}

// rollingOf returns the options of rolling updates, or nil under OnDelete. Without webhooks the set may lack
// them.
func rollingOf(set *appsv1beta1.DaemonSet) *appsv1beta1.RollingUpdateDaemonSet {
	if set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteDaemonSetStrategyType {
		return nil
	}
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return r
	}
	return &appsv1beta1.RollingUpdateDaemonSet{}
}
