package pod

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get

// SpreadMatcher finds the WorkloadSpread of a new pod.
type SpreadMatcher interface {
	Match(ctx context.Context, pod *corev1.Pod, namespace string) (*appsv1beta1.WorkloadSpread, error)
}

// SpreadBooker writes bookings of pods into the status of WorkloadSpreads.
type SpreadBooker interface {
	Create(ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation,
		prepare func(workloadspread.Decision) error) (workloadspread.Decision, error)
	Delete(ctx context.Context, spread *appsv1beta1.WorkloadSpread,
		pod workloadspread.Deletion) (workloadspread.Decision, error)
	Release(ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation) error
}

// SpreadOptions are the dependencies of Spreads.
type SpreadOptions struct {
	Matcher SpreadMatcher
	Booker  SpreadBooker
	// Known returns a WorkloadSpread, or nil if it does not exist.
	Known func(types.NamespacedName) *appsv1beta1.WorkloadSpread
	// Versioned are the kinds whose pods are counted by version (WS-184).
	Versioned workloadspread.Versioned
	Recorder  reconcile.Recorder
	Log       logr.Logger
	Now       func() time.Time
}

// Spreads puts pods into the subsets of WorkloadSpreads (WS-003).
type Spreads struct {
	SpreadOptions
	pods    *prometheus.CounterVec
	filters reconcile.Selectors

	mu   sync.Mutex
	left map[types.UID]*left
	// counted are the labels of subsets that have series.
	counted map[types.NamespacedName]sets.Set[string]
}

// left counts the pods that got no subset since the last event.
type left struct {
	pods     int
	reported time.Time
}

// reportEvery is the time between two events about pods of one WorkloadSpread that got no subset, because
// pods are created in bursts.
const reportEvery = time.Minute

// NewSpreads returns the step and the check that put pods into subsets.
func NewSpreads(options SpreadOptions) *Spreads {
	return &Spreads{
		SpreadOptions: options,
		left:          map[types.UID]*left{},
		counted:       map[types.NamespacedName]sets.Set[string]{},
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afloat_workloadspread_pods_total",
			Help: "Pods admitted for a WorkloadSpread, by the subset they were put into; it is empty where none had a place.",
		}, []string{"namespace", "workloadspread", "subset"}),
	}
}

// Metric returns the counter afloat_workloadspread_pods_total, for the registry.
func (s *Spreads) Metric() prometheus.Collector { return s.pods }

// Forget drops the metrics and events of a deleted WorkloadSpread.
func (s *Spreads) Forget(spread *appsv1beta1.WorkloadSpread) {
	s.pods.DeletePartialMatch(prometheus.Labels{"namespace": spread.Namespace, "workloadspread": spread.Name})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, spread.UID)
	delete(s.counted, types.NamespacedName{Namespace: spread.Namespace, Name: spread.Name})
}

// Step returns the step. It comes before SidecarSets, whose selectors see the labels that a subset adds.
func (s *Spreads) Step() Step { return Step{Name: "workloadspread", Apply: s.apply} }

func (s *Spreads) apply(ctx context.Context, request *Request) ([]operations.Operation, error) {
	if request.DryRun || request.Again {
		return nil, nil
	}

	pod := request.Pod
	namespace := pod.Namespace
	if namespace == "" {
		namespace = request.Namespace
	}

	spread, err := s.Matcher.Match(ctx, pod, namespace)
	if err != nil {
		return nil, &InternalError{fmt.Errorf("looking for the WorkloadSpread of the pod: %w", err)}
	}
	if spread == nil {
		return nil, nil
	}

	creation := workloadspread.Creation{Key: pod.Name, Version: s.Versioned.Of(pod)}
	if len(creation.Key) > validation.DNS1123SubdomainMaxLength ||
		len(creation.Version) > validation.LabelValueMaxLength {
		return nil, nil // the API server rejects such a pod later; a booking would only fill the status
	}

	if pod.Name == "" {
		creation.Key, creation.Generated = string(uuid.NewUUID()), true
	}

	var changes []operations.Operation
	decision, err := s.Booker.Create(ctx, spread, creation, func(d workloadspread.Decision) (err error) {
		changes, err = workloadspread.Inject(request.Raw, d.Subset, d.Placement(spread.Name, creation))
		return err
	})
	// A named pod that an earlier request booked keeps its place, because that request may still create it.
	creation.At = decision.At
	if decision.Made || creation.Generated && (decision.Booked || errors.Is(err, booking.ErrNotBooked)) {
		request.AtEnd(func(admitted bool) {
			if !admitted {
				s.release(ctx, spread, creation)
			}
		})
	}

	if err != nil {
		return nil, &InternalError{fmt.Errorf("WorkloadSpread %s: %w", spread.Name, err)}
	}
	if decision.Gone {
		return nil, nil
	}

	if decision.Subset == nil {
		s.count(request, spread, "")
		s.report(spread, decision.Reason)
		// The annotation was copied from the manifest of another pod.
		if _, copied := pod.Annotations[pub.MatchedWorkloadSpread]; copied {
			return []operations.Operation{operations.NewOperation("remove",
				"/metadata/annotations/"+strings.ReplaceAll(pub.MatchedWorkloadSpread, "/", "~1"), nil)}, nil
		}
		return nil, nil
	}

	s.count(request, spread, decision.Subset.Name)
	return changes, nil
}

// count counts the pod once all steps have accepted it.
func (s *Spreads) count(request *Request, spread *appsv1beta1.WorkloadSpread, subset string) {
	request.AtEnd(func(admitted bool) {
		if admitted {
			s.series(spread, workloadspread.SubsetLabel(subset)).Inc()
		}
	})
}

// series returns the counter of a subset, given by its label. If there is none yet, those of subsets that are gone
// are dropped.
func (s *Spreads) series(spread *appsv1beta1.WorkloadSpread, subset string) prometheus.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: spread.Namespace, Name: spread.Name}
	if counted := s.counted[key]; !counted.Has(subset) {
		kept := sets.New("", subset)
		for i := range spread.Spec.Subsets {
			kept.Insert(workloadspread.SubsetLabel(spread.Spec.Subsets[i].Name))
		}
		for gone := range counted.Difference(kept) {
			s.pods.DeleteLabelValues(key.Namespace, key.Name, gone)
		}
		s.counted[key] = counted.Intersection(kept).Insert(subset)
	}
	return s.pods.WithLabelValues(key.Namespace, key.Name, subset)
}

// releaseTime is the maximum time that the rejection of a pod waits for the release of its booking.
const releaseTime = 2 * time.Second

// release releases the booking of a pod that is rejected here, because the pod will never appear.
func (s *Spreads) release(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation,
) {
	// The context of the request may have expired.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := s.Booker.Release(ctx, spread, pod); err != nil { // the booking expires by itself
		s.Log.Error(err, "The place of a pod that is refused is not given back yet", "workloadspread",
			types.NamespacedName{Namespace: spread.Namespace, Name: spread.Name})
	}
}

// report records events for pods that got no subset: the first at once, later ones together after a while.
func (s *Spreads) report(spread *appsv1beta1.WorkloadSpread, reason string) {
	s.mu.Lock()
	l, now := s.left[spread.UID], s.Now()
	if l == nil {
		l = &left{}
		s.left[spread.UID] = l
	}

	l.pods++
	if l.pods == 1 { // the first of those that are reported together
		time.AfterFunc(reportEvery-min(now.Sub(l.reported), reportEvery),
			func() { s.flush(spread, reason, l) })
	}

	s.mu.Unlock()
}

// flush records the event for the pods that got no subset since the last one.
func (s *Spreads) flush(spread *appsv1beta1.WorkloadSpread, reason string, l *left) {
	s.mu.Lock()
	n := l.pods
	l.pods, l.reported = 0, s.Now()
	s.mu.Unlock()
	s.Recorder.Event(spread, corev1.EventTypeWarning, "NoSuitableSubset", fmt.Sprintf(
		"Pods created without the rules of a subset: %d; %s", n, reason))
}

// Check returns the check that books removals. It rejects nothing, and comes last (WS-104).
func (s *Spreads) Check() Check { return Check{Name: "workloadspread", Apply: s.remove} }

func (s *Spreads) remove(ctx context.Context, removal *Disruption) error {
	pod := removal.Pod
	placement, ok := pub.ParsePlacement(pod.Annotations)
	if !removal.Removes() || removal.DryRun || !ok || !readiness.Active(pod) {
		return nil
	}
	if _, controlled := workloadspread.ControllerOf(pod); !controlled {
		return nil
	}

	key := types.NamespacedName{Namespace: pod.Namespace, Name: placement.Name}
	spread := s.Known(key)
	// The annotation may refer to an earlier WorkloadSpread of the same name.
	if !workloadspreadcontroller.Claims(&s.filters, spread, pod) {
		return nil
	}

	decision, err := s.Booker.Delete(ctx, spread,
		workloadspread.Deletion{
			Name:    pod.Name,
			Version: s.Versioned.Of(pod),
			Subset:  placement.Subset,
			Booking: placement.UID,
			Created: pod.CreationTimestamp.Time,
		})
	switch {
	case err != nil: // the controller counts the pod when it is gone
		s.Log.Error(err, "The deletion of a pod is not booked", "workloadspread", key, "pod", pod.Name)
	case !decision.Booked:
		s.Log.V(4).Info("The deletion of a pod is not booked", "workloadspread", key, "pod", pod.Name, "why",
			decision.Reason)
	}

	return nil
}
