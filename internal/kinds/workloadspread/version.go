package workloadspread

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/afloat-project/afloat/api/pub"
)

// VersionIgnored is the version of pods whose versions do not matter (WS-083).
const VersionIgnored = "versionIgnored"

// Versioned holds the kinds, in lower case, whose pods are counted by version (WS-184).
type Versioned sets.Set[string]

// ParseVersioned parses the value of the flag --ws-enabled-versioned-status. deployment implies replicaset
// (WS-081).
func ParseVersioned(text string) Versioned {
	kinds := sets.New[string]()
	for kind := range strings.SplitSeq(strings.ToLower(text), ",") {
		if kind = strings.TrimSpace(kind); kind != "" {
			kinds.Insert(kind)
		}
	}

	if kinds.Has("deployment") {
		kinds.Insert("replicaset")
	}

	return Versioned(kinds)
}

// Has reports whether pods of a controller, or of a target, of that kind are counted by version (WS-081).
func (v Versioned) Has(kind string) bool { return sets.Set[string](v).Has(strings.ToLower(kind)) }

// Of returns the version of a pod (WS-081 to WS-083).
func (v Versioned) Of(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || !v.Has(owner.Kind) {
		return VersionIgnored
	}
	if hash := pod.Labels[pub.PodTemplateHash]; hash != "" {
		return hash
	}
	if hash := AfterLastDash(pod.Labels[pub.ControllerRevisionHash]); hash != "" {
		return hash
	}
	return VersionIgnored
}

// AfterLastDash returns the part of a name after its last dash, or the whole name if it has none.
func AfterLastDash(name string) string { return name[strings.LastIndexByte(name, '-')+1:] }
