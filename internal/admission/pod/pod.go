// Package pod changes pods when they are created. Each concern is a Step, a function from the pod to the
// operations of a JSON patch, so that unknown fields stay as they are. Steps run in order, and each sees the
// changes of those before it.
package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/prometheus/client_golang/prometheus"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Request is a pod that is created, as the steps so far have left it.
type Request struct {
	// Pod is read from Raw anew for each step.
	Pod *corev1.Pod
	Raw []byte
	// Namespace is where the pod is created; its own may be empty (SS-080).
	Namespace string
	// DryRun: the request must have no effect apart from its answer.
	DryRun bool
	// Again: if the pod needs a step that must run only once, another entry sends the pod too.
	Again bool

	warnings []string
	ends     []func(admitted bool)
}

// AtEnd registers a function that is called when all steps have accepted the pod, or one has refused it.
// Webhooks and checks that follow are not known here.
func (r *Request) AtEnd(do func(admitted bool)) { r.ends = append(r.ends, do) }

// Warn adds warnings for the client that creates the pod.
func (r *Request) Warn(warnings ...string) { r.warnings = append(r.warnings, warnings...) }

// Step is one concern.
type Step struct {
	// Name is the step's name in metrics.
	Name string
	// Apply returns the changes of the pod, or why it is refused: a list of field errors, an InternalError,
	// or any other error, which means a bad request.
	Apply func(ctx context.Context, request *Request) ([]operations.Operation, error)
}

// InternalError refuses a pod for a reason that is not a fault of the pod.
type InternalError struct{ Err error }

func (e *InternalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InternalError) Unwrap() error { return e.Err }

// Chain is all steps in their order.
type Chain struct {
	steps   []Step
	latency *prometheus.HistogramVec
}

// NewChain returns a chain of steps.
func NewChain(steps ...Step) *Chain {
	return &Chain{
		steps: steps,
		latency: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Name:    "afloat_pod_admission_step_seconds",
				Help:    "Time that a step of the admission of pods took.",
				Buckets: latencyBuckets,
			}, []string{"step"},
		),
	}
}

// With returns the chain with a step more.
func (c *Chain) With(step Step) *Chain {
	return &Chain{steps: append(slices.Clip(c.steps), step), latency: c.latency}
}

var latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .05, .25, 1, 5}

// Metric returns the histogram afloat_pod_admission_step_seconds, for the registry.
func (c *Chain) Metric() prometheus.Collector { return c.latency }

// Mutate applies the steps. It returns the patch of all steps and the warnings, or all field errors, or the
// first other error. Pod of the request need not be set.
func (c *Chain) Mutate(ctx context.Context, request Request) ([]operations.Operation, []string, error) {
	admitted := false
	defer func() {
		for _, end := range request.ends {
			end(admitted)
		}
	}()
	var all []operations.Operation
	var wrong []error
	for _, step := range c.steps {
		begin := time.Now()
		changes, err := request.apply(ctx, step)
		c.latency.WithLabelValues(step.Name).Observe(time.Since(begin).Seconds())
		var fields utilerrors.Aggregate
		var internal *InternalError
		switch {
		case err == nil:
		case errors.As(err, &fields) && !errors.As(err, &internal): // the steps that follow tell theirs, too
			wrong = append(wrong, fields.Errors()...)
		default:
			return nil, request.warnings, err
		}
		all = append(all, changes...)
	}
	if len(wrong) > 0 {
		return nil, request.warnings, utilerrors.NewAggregate(wrong)
	}
	admitted = true
	return all, request.warnings, nil
}

func (r *Request) apply(ctx context.Context, step Step) ([]operations.Operation, error) {
	r.Pod = &corev1.Pod{}
	if err := json.Unmarshal(r.Raw, r.Pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	changes, err := step.Apply(ctx, r)
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	text, err := json.Marshal(changes)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of the pod: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, fmt.Errorf("reading a patch of the pod: %w", err)
	}
	if r.Raw, err = patch.Apply(r.Raw); err != nil {
		return nil, fmt.Errorf("patching the pod: %w", err)
	}
	return changes, nil
}

// simple returns a step that needs only the pod.
func simple(name string, change func(pod *corev1.Pod) ([]operations.Operation, error)) Step {
	return Step{
		Name: name,
		Apply: func(_ context.Context,
			request *Request) ([]operations.Operation, error) {
			return change(request.Pod)
		},
	}
}

// Gate returns the step that gives pods the readiness gate KruisePodReady: those of workloads of
// apps.kruise.io, or all (CRR-087).
func Gate(all bool) Step {
	return simple("gate", func(pod *corev1.Pod) ([]operations.Operation, error) {
		owner := metav1.GetControllerOfNoCopy(pod)
		if !all &&
			(owner == nil || !strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/")) {
			return nil, nil
		}
		for _, gate := range pod.Spec.ReadinessGates {
			if gate.ConditionType == pub.KruisePodReady {
				return nil, nil
			}
		}
		gate := map[string]any{"conditionType": pub.KruisePodReady}
		if len(pod.Spec.ReadinessGates) == 0 {
			return []operations.Operation{
				operations.NewOperation("add", "/spec/readinessGates", []any{gate}),
			}, nil
		}
		return []operations.Operation{operations.NewOperation("add", "/spec/readinessGates/-", gate)}, nil
	})
}
