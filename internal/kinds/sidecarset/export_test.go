package sidecarset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// The tests of this folder stand outside of the package, since sidecarsettest imports it. This is what they
// see beside what is exported.

var (
	Consistency = consistency
	Lacking     = lacking
)

// Writes tells whether the plan changes anything.
func (p *Plan) Writes() bool {
	return p.NewRevision != nil || p.ChangeRevision != nil || len(p.History) > 0 ||
		slices.ContainsFunc(p.Verdicts, func(v *PodVerdict) bool { return v.Change != nil || v.Upgradable != nil || v.Forget })
}

// String prints the plan as sentences with numbers.
func (p *Plan) String() string { return p.told(p.Verdicts).String() }

// InOrder are the matched pods in the order in which they are upgraded.
func (p *Plan) InOrder() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, info := range p.planner.inOrder(p.planner.matched) {
		pods = append(pods, info.Pod)
	}
	return pods
}

// Comparisons is how many revisions were compared with the SidecarSet.
func (p *Plan) Comparisons() int { return len(p.planner.compared) }

// NoteResize notes that the pod is to be resized to what the SidecarSet says.
func NoteResize(set *appsv1beta1.SidecarSet, pod *corev1.Pod, now time.Time) *podpatch.Patch {
	p := &planner{in: Snapshot{Set: set}}
	p.prepare()
	return p.noteResize(pod, now)
}
