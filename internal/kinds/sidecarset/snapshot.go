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
	"github.com/afloat-project/afloat/internal/engine/retries"
)

// Snapshot is all that a plan is made from.
type Snapshot struct {
	// Set is the SidecarSet.
	Set *appsv1beta1.SidecarSet
	// Pods are all pods that list it as injected, of all namespaces.
	Pods []*corev1.Pod
	// Namespaces are the labels of their namespaces, by name; only those that are known, and only where the
	// SidecarSet selects namespaces.
	Namespaces map[string]map[string]string
	// Revisions are the ControllerRevisions that carry the SidecarSet's name.
	Revisions []*appsv1.ControllerRevision
	// RevisionNamespace is where they are kept (SS-183).
	RevisionNamespace string
	// Now is the time of the snapshot.
	Now time.Time
	// Features are the switches that the plan depends on.
	Features Features
	// Disruptions are what budgets allow of what takes pods out of service; nil if there are none (PUB-101).
	Disruptions disruption.Limits
	// Known is what former plans found out about pods; nil for nothing.
	Known *Knowledge
}

// Knowledge is what plans for one SidecarSet have found out about pods. Objects of caches do not change, so
// that only pods that are new or have changed since the last plan have to be looked at: most of a plan's time
// goes into reading their annotations.
type Knowledge struct {
	about string
	pods  map[*corev1.Pod]*podInfo
	// retries are the pods that could not be written when it was tried last, the SidecarSet if its revision
	// could not be stored, and revisions that could not be deleted.
	retries retries.Retries
}

// Learn keeps what came of a plan: what was tried to be written, with the errors of what could not be.
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

// Refused tells whether the pod could not be written when it was tried last, with what the SidecarSet says
// now.
func (k *Knowledge) Refused(set *appsv1beta1.SidecarSet, pod types.UID) bool {
	return k.retries.Has(pod, aboutOf(set))
}

// aboutOf is what pods are tried to be given.
func aboutOf(set *appsv1beta1.SidecarSet) string {
	return fmt.Sprint(set.Generation, set.Annotations[pub.SidecarSetHash])
}

// of returns what is known about pods under that SidecarSet and those labels of namespaces.
func (k *Knowledge) of(s *Snapshot) map[*corev1.Pod]*podInfo {
	about := fmt.Sprint(s.Set.UID, s.Set.Generation, s.Set.Annotations[pub.SidecarSetHash],
		s.Set.Annotations[pub.SidecarSetHashWithoutImage], s.Namespaces)
	if k.about != about {
		k.about, k.pods = about, nil
	}
	return k.pods
}

// Features are the feature gates that change what is planned.
type Features struct {
	// NativeSidecars are upgraded in place like others (gate SidecarSetInPlaceUpdateNativeSidecar, SS-W01).
	NativeSidecars bool
	// Resize: cpu and memory of sidecars change in place (gate InPlacePodVerticalScaling, and the server has
	// pods/resize; SS-W02).
	Resize bool
}

// owned are the revisions of this very SidecarSet: those of nobody, or controlled by it.
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
