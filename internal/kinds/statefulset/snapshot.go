package statefulset

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// Snapshot is all that a plan is made from.
type Snapshot struct {
	// Set is the StatefulSet.
	Set *appsv1beta1.StatefulSet
	podplan.Snapshot
	// Orphans are pods without a controller that have a name and labels of the set's (ASTS-070).
	Orphans []*corev1.Pod
	// Claims are the PVCs that pods of slots have or will have, by name.
	Claims map[string]*corev1.PersistentVolumeClaim
	// ForeignPods are names of slots that pods of others have (ASTS-106).
	ForeignPods map[string]bool
	// Late are names of slots whose pods are the set's, or will be, and that the list of its pods does not
	// show yet: the caches go on between two reads.
	Late map[string]bool
	// FailedUntil says of the name of a pod that ended a moment ago until when the next one that ends stays
	// (ASTS-140).
	FailedUntil map[string]time.Time
	// Features are the switches that the plan depends on.
	Features Features
}

// Features are the feature gates and flags that change what is planned.
type Features struct {
	// StartOrdinal lets spec.ordinals count (gate StatefulSetStartOrdinal, ASTS-090).
	StartOrdinal bool
	// PodIndexLabel labels pods with their ordinal (gate PodIndexLabel, ASTS-097).
	PodIndexLabel bool
	// DeleteClaims lets the retention policy count (gate StatefulSetAutoDeletePVC, ASTS-266).
	DeleteClaims bool
	// ResizeClaims lets spec.volumeClaimUpdateStrategy count (gate StatefulSetAutoResizePVCGate, ASTS-270).
	ResizeClaims bool
	// InPlace is what qualifies beside images and metadata.
	InPlace inplace.Options
	// DeferredResize is how long a node may defer a resize before the pod is recreated; 0 means for ever
	// (IPU-315).
	DeferredResize time.Duration
	// PreDownload pulls new images ahead (ASTS-285).
	PreDownload bool
}

// ordinalOf returns the ordinal in the name of a pod of the set; ok is false for any other name.
func ordinalOf(set, pod string) (ordinal int, ok bool) {
	digits, found := strings.CutPrefix(pod, set+"-")
	if !found || digits == "" || digits != "0" && digits[0] == '0' || digits[0] == '+' || digits[0] == '-' {
		return 0, false
	}
	number, err := strconv.ParseInt(digits, 10, 32)
	return int(number), err == nil
}

// podName is the name of the pod of an ordinal.
func podName(set string, ordinal int) string { return set + "-" + strconv.Itoa(ordinal) }

// SetOf returns the name that a set must have to have a pod of this name, empty if none can.
func SetOf(pod string) string {
	i := strings.LastIndexByte(pod, '-')
	if i < 0 {
		return ""
	}
	if _, ok := ordinalOf(pod[:i], pod); !ok {
		return ""
	}
	return pod[:i]
}

// ClaimsOf walks over the names that a claim template and its set must have for a PVC of this name; there may
// be several, since all of them may have dashes.
func ClaimsOf(claim string) iter.Seq2[string, string] {
	return func(yield func(template, set string) bool) {
		name := SetOf(claim)
		for i := range len(name) {
			if name[i] == '-' && !yield(name[:i], name[i+1:]) {
				return
			}
		}
	}
}

// claimName is the name of the PVC of a template and an ordinal.
func claimName(template, set string, ordinal int) string {
	return template + "-" + set + "-" + strconv.Itoa(ordinal)
}

// ClaimNames are the names of the PVCs that a plan from the snapshot looks at: those of slots, as far as it
// walks them, and those of condemned pods.
func (s *Snapshot) ClaimNames() []string {
	ordinals, err := s.ordinals()
	if err != nil {
		return nil
	}

	var names []string
	slots, condemned := s.members(ordinals)
	former, vacant := map[string]bool{}, slices.ContainsFunc(slots, func(s slot) bool { return s.pod == nil })
	if vacant {
		for _, stored := range s.Revisions { // of which pods that are lost may come back
			for _, name := range podplan.FormerClaims(stored, s.Set.Spec.VolumeClaimTemplates) {
				former[name] = true
			}
		}
	}
	add := func(ordinal int) {
		for i := range s.Set.Spec.VolumeClaimTemplates {
			names = append(names, claimName(s.Set.Spec.VolumeClaimTemplates[i].Name, s.Set.Name, ordinal))
		}
	}

	for i := range slots {
		add(slots[i].ordinal)
		for name := range former {
			if slots[i].pod == nil {
				names = append(names, claimName(name, s.Set.Name, slots[i].ordinal))
			}
		}
	}

	for i := range condemned {
		add(condemned[i].ordinal)
	}

	return names
}

// Vacant are the names of pods that slots lack.
func (s *Snapshot) Vacant() []string {
	ordinals, err := s.ordinals()
	if err != nil {
		return nil
	}
	var names []string
	slots, _ := s.members(ordinals)
	for i := range slots {
		if slots[i].pod == nil {
			names = append(names, podName(s.Set.Name, slots[i].ordinal))
		}
	}
	return names
}

// traits are where StatefulSets differ from other workloads.
var traits = podplan.Traits{BornNormal: true, SameClaims: true}

// workloadOf is the set as plans of all kinds see it.
func workloadOf(set *appsv1beta1.StatefulSet, features Features) *podplan.Workload {
	spec := &set.Spec
	w := &podplan.Workload{
		Namespace: set.Namespace, Name: set.Name,
		Owner:       *metav1.NewControllerRef(set, appsv1beta1.GroupVersion.WithKind(kind)),
		Annotations: set.Annotations, Deleted: set.DeletionTimestamp != nil,
		Template: &spec.Template, Claims: spec.VolumeClaimTemplates, Selector: spec.Selector,
		HistoryLimit: spec.RevisionHistoryLimit, Lifecycle: spec.Lifecycle, Policy: podplan.ReCreate,
		CollisionCount: set.Status.CollisionCount, CurrentRevision: set.Status.CurrentRevision,
		Traits: traits, InPlace: features.InPlace, DeferredResize: features.DeferredResize,
		PreDownload: features.PreDownload, Gates: []corev1.PodConditionType{pub.KruisePodReady},
	}
	w.OnDelete = onDelete(set)
	if r := rollingOf(set); r != nil {
		w.Rolling, w.Paused, w.MaxUnavailable, w.Strategy = true, r.Paused, r.MaxUnavailable,
			podplan.WithAnnotations(r.InPlaceUpdateStrategy, set.Annotations)
		if r.MinReadySeconds != nil {
			w.MinReadySeconds = *r.MinReadySeconds
		}
		if r.PodUpdatePolicy != "" {
			w.Policy = podplan.Policy(r.PodUpdatePolicy)
		}
	}
	if w.Policy != podplan.ReCreate {
		w.Gates = append([]corev1.PodConditionType{pub.InPlaceUpdateReady}, w.Gates...)
	}

	return w
}

// rollingOf returns the options of rolling updates, nil under OnDelete, or if there are none.
func rollingOf(set *appsv1beta1.StatefulSet) *appsv1beta1.RollingUpdateStatefulSetStrategy {
	if onDelete(set) {
		return nil
	}
	return set.Spec.UpdateStrategy.RollingUpdate
}
