// Package stop stops containers like kubelet does when it replaces them. It runs the preStop hook and then
// lets the runtime stop the container, all within the grace period (CRR-101 to CRR-107). Kubelet starts the
// container again.
package stop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// Reasons of events on the pod (CRR-105, ND-115).
const (
	ReasonKilling           = "Killing"
	ReasonFailedPreStopHook = "FailedPreStopHook"
)

// least is the minimum time that the runtime gives a container to end, however long the hook took.
const least = 2 * time.Second

// Most is the maximum number of containers of one namespace that a Stopper stops concurrently (CRR-091,
// ND-112). A container may take very long to end, and the stops of one namespace must not overload the
// runtime, which is shared by all.
const Most = 32

// mostOfHook is the maximum size of a hook in bytes. Linux takes no longer argument of a command, and hooks of many pods
// are in memory for as long as they run.
const mostOfHook = 128 << 10

// ErrNotStopped means that Check returned an error before the runtime was called, so the container must not
// be stopped any more.
var ErrNotStopped = errors.New("the container was not stopped")

// Runtime has the methods of a container runtime that a stop needs.
type Runtime interface {
	Exec(ctx context.Context, id string, command []string, timeout time.Duration) error
	Stop(ctx context.Context, id string, grace time.Duration) error
}

// Request describes one container to stop.
type Request struct {
	Container runtime.Container
	// By is the cause of the stop in the event: "Stopping container app by <By>".
	By    string
	Grace time.Duration
	// Hook is the container's preStop hook, or nil. Ports are the ports that the hook may name, and PodIP is
	// the address that it calls.
	Hook  *corev1.LifecycleHandler
	Ports []corev1.ContainerPort
	PodIP string
	// Init means that it is a restartable init container (CRR-106).
	Init bool
	// Check is called before anything is done and again right before the runtime is called. If it returns an error, the
	// stop is abandoned (CRR-129). One that is not ErrNotStopped says that it is not known whether the container may be stopped,
	// and after a hook it is asked again some times, so that the hook is not run twice.
	Check func(ctx context.Context) error
}

// Stopper stops containers for one part of the daemon, the requester.
type Stopper struct {
	Events record.EventRecorder
	Clock  clock.WithDelayedExecution
	Stops  *prometheus.CounterVec
	// Places are those that all Stoppers of the node share.
	Places *Places
	// Requester is the value of the label in Stops.
	Requester string

	mu sync.Mutex
	// underway counts the stops begun by Start that have not ended, by namespace.
	underway map[string]int
}

// Start begins to stop the container without waiting, and calls ended with the result. It does nothing and
// returns false while Most containers of the namespace are being stopped.
func (s *Stopper) Start(ctx context.Context, r Runtime, request Request, ended func(error)) bool {
	if !s.take(request.Container.PodNamespace) {
		return false
	}
	request.Container.Annotations = nil // they have the hook, and a container may take a day to end
	go func() {
		err := s.Stop(ctx, r, &request)
		s.give(request.Container.PodNamespace)
		ended(err)
	}()
	return true
}

// Full reports whether Start would return false for the namespace now.
func (s *Stopper) Full(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.underway[namespace] >= Most
}

func (s *Stopper) take(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.underway[namespace] >= Most {
		return false
	}
	if s.underway == nil {
		s.underway = map[string]int{}
	}
	s.underway[namespace]++
	return true
}

func (s *Stopper) give(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.underway[namespace]--; s.underway[namespace] == 0 {
		delete(s.underway, namespace)
	}
}

// GraceOf returns the grace period that kubelet recorded in the container's annotations (ND-114).
func GraceOf(annotations map[string]string) time.Duration {
	for _, key := range []string{
		runtime.AnnotationDeletionGracePeriod, runtime.AnnotationTerminationGracePeriod,
	} {
		if n, err := strconv.ParseInt(annotations[key], 10, 64); err == nil && n >= 0 {
			return timing.Seconds(n)
		}
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// NewStops returns the counter of stops by requester and result (ND-048, CRR-138).
func NewStops() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "afloat_daemon_container_stops_total",
		Help: "Containers that the daemon was asked to stop, by requester and result.",
	}, []string{"requester", "result"})
}

// Stop stops the container and returns when it has ended. It returns ErrNotStopped if Check returned an
// error. It drops the hook from the request when that has run.
func (s *Stopper) Stop(ctx context.Context, r Runtime, request *Request) error {
	err := s.stop(ctx, r, request)
	result := "succeeded"
	switch {
	case errors.Is(err, ErrNotStopped):
		result = "withdrawn"
	case err != nil:
		result = "failed"
	}
	s.Stops.WithLabelValues(s.Requester, result).Inc()
	return err
}

func (s *Stopper) stop(ctx context.Context, r Runtime, request *Request) error {
	if err := request.Check(ctx); err != nil {
		return notStopped(err)
	}

	c := request.Container
	logger := klog.FromContext(ctx).WithValues("pod", klog.KRef(c.PodNamespace, c.PodName),
		"container", c.Name, "id", c.ID)
	logger.Info("Stopping a container", "by", request.By, "grace", request.Grace)
	s.Events.Eventf(request.reference(), corev1.EventTypeNormal, ReasonKilling, "Stopping container %s by %s",
		c.Name, request.By)
	remaining, asked := request.Grace, wait.Backoff{Steps: 1}
	if request.Hook != nil && request.Grace > 0 {
		begin := s.Clock.Now()
		err := s.hook(ctx, r, *request)
		request.Hook, request.Ports = nil, nil
		if ctx.Err() != nil {
			return notStopped(ctx.Err()) // the daemon is shutting down
		}
		if err != nil {
			text := strings.ReplaceAll(err.Error(), bare(c.ID), c.Name)
			logger.Info("The preStop hook failed; the container is stopped nevertheless", "error", text)
			s.Events.Event(request.reference(), corev1.EventTypeWarning, ReasonFailedPreStopHook,
				wording.Bound(fmt.Sprintf("preStop hook of container %s failed: %s", c.Name, text)))
		}
		remaining -= s.Clock.Since(begin).Truncate(time.Second)
		asked = wait.Backoff{Steps: 6, Duration: 200 * time.Millisecond, Factor: 2}
	}
	err := retry.OnError(asked, func(err error) bool { return ctx.Err() == nil && !errors.Is(err, ErrNotStopped) },
		func() error { return request.Check(ctx) })
	if err != nil {
		return notStopped(err)
	}

	return r.Stop(ctx, c.ID, max(remaining, least))
}

func notStopped(err error) error {
	if errors.Is(err, ErrNotStopped) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotStopped, err)
}

// reference identifies the container in events, as kubelet does.
func (r *Request) reference() *corev1.ObjectReference {
	path := "spec.containers{" + r.Container.Name + "}"
	if r.Init {
		path = "spec.initContainers{" + r.Container.Name + "}"
	}
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Pod",
		Namespace:  r.Container.PodNamespace,
		Name:       r.Container.PodName,
		UID:        types.UID(r.Container.PodUID),
		FieldPath:  path,
	}
}

func bare(id string) string {
	if _, rest, ok := runtime.SplitID(id); ok {
		return rest
	}
	return id
}
