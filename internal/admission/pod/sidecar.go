package pod

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
)

// Chooser finds the SidecarSets of a pod and what they inject.
type Chooser interface {
	Choose(ctx context.Context, pod *corev1.Pod, namespace string) ([]*inject.Template, error)
}

// Sidecars injects the containers of SidecarSets (SS-003, SS-090).
type Sidecars struct {
	chooser    Chooser
	sortByName bool
	now        func() time.Time
	pods       *prometheus.CounterVec
}

// NewSidecars returns the injection of sidecars; sortByName is gate EnableSortSidecarContainerByName
// (SS-100), and now returns the time for records.
func NewSidecars(chooser Chooser, sortByName bool, now func() time.Time) *Sidecars {
	return &Sidecars{
		chooser:    chooser,
		sortByName: sortByName,
		now:        now,
		pods: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "afloat_sidecarset_pods_total",
				Help: "Pods that a SidecarSet injected its containers into, or refused.",
			}, []string{"sidecarset", "result"},
		),
	}
}

// Metric returns the counter afloat_sidecarset_pods_total, for the registry.
func (s *Sidecars) Metric() prometheus.Collector { return s.pods }

// Step returns the step. It comes after the step Gate and before launch priority, which counts the injected
// containers (SS-090).
func (s *Sidecars) Step() Step { return Step{Name: "sidecarset", Apply: s.apply} }

func (s *Sidecars) apply(ctx context.Context, request *Request) ([]operations.Operation, error) {
	namespace := request.Pod.Namespace
	if namespace == "" {
		namespace = request.Namespace
	}
	templates, err := s.chooser.Choose(ctx, request.Pod, namespace)
	if err != nil {
		return nil, s.refused(request, err)
	}
	result, err := inject.Inject(request.Raw, request.Pod, templates,
		inject.Options{SortByName: s.sortByName, Now: s.now()})
	if err != nil {
		return nil, s.refused(request, err)
	}
	request.Warn(result.Warnings...)
	if !request.DryRun {
		s.count(request, templates)
	}
	return result.Operations, nil
}

// count counts the pod for the SidecarSets that inject into it, once all steps have accepted it. A pod that
// the other entry has sent before already lists those that did.
func (s *Sidecars) count(request *Request, templates []*inject.Template) {
	var before []string
	if request.Again {
		before = sidecarset.ReadInjectedList(request.Pod.Annotations[pub.SidecarSetInjectedList])
	}
	request.AtEnd(func(admitted bool) {
		for _, t := range templates {
			if admitted && !slices.Contains(before, t.Name) {
				s.pods.WithLabelValues(t.Name, "injected").Inc()
			}
		}
	})
}

// refused counts a refusal for its SidecarSet. Faults of the pod are returned as they are (SS-D18), anything
// else as an InternalError.
func (s *Sidecars) refused(request *Request, err error) error {
	var of *inject.Error
	if errors.As(err, &of) && !request.DryRun {
		s.pods.WithLabelValues(of.SidecarSet, "refused").Inc()
	}
	var fields utilerrors.Aggregate
	if errors.As(err, &fields) {
		return err
	}
	return &InternalError{err}
}
