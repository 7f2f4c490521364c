package workloadspread

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
)

// Snapshot is everything that a plan is made from.
type Snapshot struct {
	// Spread is the WorkloadSpread.
	Spread *appsv1beta1.WorkloadSpread
	// Target is the workload that it spreads.
	Target *Target
	// Pods are the pods of the target that the filter selects, active or not.
	Pods []*corev1.Pod
	// Left is how many pods belong to other WorkloadSpreads by their annotation (WS-141).
	Left int
	// Fits are the subsets that pods without annotation may belong to, by UID. A pod without an entry fits
	// nowhere (WS-141, WS-142).
	Fits map[types.UID][]Fit
	// NodeUnknown holds the UIDs of pods whose node was not found (WS-141).
	NodeUnknown map[types.UID]bool
	// Unseen are the overdue creations whose pods exist in the API server, or may exist, although Pods lacks
	// them. LookAgain is when the API server is asked next (WS-152).
	Unseen    map[LostBooking]bool
	LookAgain time.Time
	// Held are the pods, by UID, that could not be read, written or deleted, and until when they are not
	// tried again. Unread is why some pods could not be read now. For those without annotation, Fits has what
	// was found before.
	Held   map[types.UID]time.Time
	Unread error
	// Versioned are the kinds whose pods are counted by version (WS-081).
	Versioned Versioned
	// Window is how long a subset is passed over after pods could not be scheduled in it (WS-174, WS-199).
	Window time.Duration
	// Now is the time of the snapshot.
	Now time.Time
	// Known records since when bookings are known; see [Note].
	Known firstseen.Times
}

// PlacementOf returns the subset that a pod is annotated with, and false if the pod does not belong to this
// WorkloadSpread yet (WS-140, WS-141).
func PlacementOf(spread *appsv1beta1.WorkloadSpread, pod *corev1.Pod) (pub.Placement, bool) {
	p, ok := pub.ParsePlacement(pod.Annotations)
	return p, ok && p.Name == spread.Name
}
