package workloadspread

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
)

// Snapshot is all that a plan is made from.
type Snapshot struct {
	// Spread is the WorkloadSpread.
	Spread *appsv1beta1.WorkloadSpread
	// Target is its workload.
	Target *Target
	// Pods are those of the target that the filter selects, whether they are active or not.
	Pods []*corev1.Pod
	// Left is how many pods are left to other WorkloadSpreads, which they are annotated for (WS-141).
	Left int
	// Fits are the subsets that pods without annotation may belong to, by UID; a pod that is missing fits
	// nowhere (WS-141, WS-142).
	Fits map[types.UID][]Fit
	// NodeUnknown are pods, by UID, whose node was not found (WS-141).
	NodeUnknown map[types.UID]bool
	// Unseen are the keys of bookings whose pods the API server has, or may have, although Pods lacks them
	// (WS-152).
	Unseen map[string]bool
	// Held are pods, by UID, that could not be read, written or deleted, with the times until when they are
	// not tried again; Unread is why some could not be read now. Those without annotation are where they were
	// found to fit before.
	Held   map[types.UID]time.Time
	Unread error
	// Versioned are the kinds whose pods are counted by version (WS-081).
	Versioned Versioned
	// Window is for how long a subset is passed over in which pods could not be scheduled (WS-174, WS-199).
	Window time.Duration
	// Now is the time of the snapshot.
	Now time.Time
	// Known is since when bookings are known, see [Note].
	Known firstseen.Times
}

// PlacementOf is what a pod says of its subset, false if it does not belong to this WorkloadSpread yet
// (WS-140, WS-141).
func PlacementOf(spread *appsv1beta1.WorkloadSpread, pod *corev1.Pod) (pub.Placement, bool) {
	p, ok := pub.ParsePlacement(pod.Annotations)
	return p, ok && p.Name == spread.Name
}
