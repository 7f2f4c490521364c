package sidecarset

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/timing"
)

// Snapshot is everything that a plan is made from.
type Snapshot struct {
	// Set is the SidecarSet.
	Set *appsv1beta1.SidecarSet
	// Pods are all pods of all namespaces that list the SidecarSet as injected.
	Pods []*corev1.Pod
	// Namespaces are the labels of the pods' namespaces, by name. Only known namespaces are included, and
	// only if the SidecarSet selects namespaces.
	Namespaces map[string]map[string]string
	// Revisions are the ControllerRevisions that are labelled with the SidecarSet's name.
	Revisions []*appsv1.ControllerRevision
	// RevisionNamespace is the namespace of the revisions (SS-183).
	RevisionNamespace string
	// Now is the time of the snapshot.
	Now time.Time
	// Features are the feature switches that the plan depends on.
	Features Features
	// Disruptions are what budgets allow to be taken out of service. It is nil if there are no budgets
	// (PUB-101).
	Disruptions disruption.Limits
	// Known is what former plans found out about pods. It may be nil.
	Known *Knowledge
}

// Knowledge is what plans for one SidecarSet have found out about pods. Objects in caches do not change, so
// only pods that are new or have changed since the last plan have to be examined. Parsing their annotations
// would take most of a plan's time.
type Knowledge struct {
	about string
	pods  map[*corev1.Pod]*podInfo
	// retries has the pods that could not be written at the last attempt, the SidecarSet if its revision
	// could not be stored, and revisions that could not be deleted.
	retries timing.Retries
}

// Learn records the outcome of a plan: tried are the objects that were written, with the errors of those that
// failed.
func (k *Knowledge) Learn(plan *Plan, tried map[types.UID]error, now time.Time) {
	present := map[types.UID]bool{plan.SidecarSet.UID: true}
	for _, v := range plan.Verdicts {
		present[v.Pod.UID] = true
	}

	for _, r := range plan.planner.in.Revisions {
		present[r.UID] = true
	}

	k.retries.Keep(func(uid types.UID) bool { return present[uid] })
	for uid, err := range tried {
		if err == nil {
			k.retries.Done(uid)
		} else {
			k.retries.Failed(uid, aboutOf(plan.SidecarSet), err, now)
		}
	}
}

// Refused reports whether the pod could not be written at the last attempt, with the current spec of the
// SidecarSet.
func (k *Knowledge) Refused(set *appsv1beta1.SidecarSet, pod types.UID) bool {
	return k.retries.Has(pod, aboutOf(set))
}

// aboutOf identifies what attempts try to write to pods.
func aboutOf(set *appsv1beta1.SidecarSet) string {
	return fmt.Sprint(set.Generation, set.Annotations[pub.SidecarSetHash])
}

// of returns what is known about pods, for this SidecarSet and these labels of namespaces.
func (k *Knowledge) of(s *Snapshot) map[*corev1.Pod]*podInfo {
	about := fmt.Sprint(s.Set.UID, s.Set.Generation, s.Set.Annotations[pub.SidecarSetHash],
		s.Set.Annotations[pub.SidecarSetHashWithoutImage], s.Namespaces)
	if k.about != about {
		k.about, k.pods = about, nil
	}
	return k.pods
}

// Features are the feature gates that affect plans.
type Features struct {
	// NativeSidecars are upgraded in place like other sidecars (gate SidecarSetInPlaceUpdateNativeSidecar,
	// SS-W01).
	NativeSidecars bool
	// Resize enables changes of the cpu and memory of sidecars in place (gate InPlacePodVerticalScaling, if
	// the server has pods/resize; SS-W02).
	Resize bool
}

// owned returns the revisions of this SidecarSet, which are controlled by it or by nobody.
func (s *Snapshot) owned() []*appsv1.ControllerRevision {
	var owned []*appsv1.ControllerRevision
	for _, r := range s.Revisions {
		owner := metav1.GetControllerOfNoCopy(r)
		if r.Labels[pub.SidecarSetName] == s.Set.Name && r.DeletionTimestamp == nil &&
			(owner == nil || owner.UID == s.Set.UID) {
			owned = append(owned, r)
		}
	}
	return owned
}
