package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/platform/pacing"
)

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-daemon-role,resources=nodepodprobes,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-daemon-role,resources=nodepodprobes/status,verbs=patch

// writeEvery is the minimum time between two writes of the status. Changes in between are written together.
// Large statuses are written less often, at bytesPerSecond, because each write stores all results, and a user
// with pods on all nodes could otherwise make every node write a megabyte per second.
const (
	writeEvery     = time.Second
	bytesPerSecond = 64 << 10
)

// pause returns the time to wait after a write of that size.
func pause(bytes int) time.Duration {
	return max(writeEvery, time.Duration(bytes)*time.Second/bytesPerSecond)
}

// Options configures the controller.
type Options struct {
	Node     string
	Runtimes *runtime.Set
	Events   record.EventRecorder
	// WatchesPods means that the cache holds the pods of the node. Otherwise a pod is read when its address
	// is needed (ND-056).
	WatchesPods bool
}

// set provides the runtimes of the node to probes.
type set struct{ *runtime.Set }

// Status implements Runtimes.
func (s set) Status(ctx context.Context, id string) (runtime.Status, error) {
	r, err := s.ForContainer(id)
	if err != nil {
		return runtime.Status{}, fmt.Errorf("finding the runtime: %w", err)
	}
	return r.Status(ctx, id) //nolint:wrapcheck // the caller says what
}

// Setup adds the controller to the manager. The manager's cache must hold only the NodePodProbe of this node
// (PPM-080).
func Setup(mgr ctrl.Manager, options Options) error {
	pods := mgr.GetAPIReader()
	if options.WatchesPods {
		pods = mgr.GetClient()
	}
	runtimes := set{options.Runtimes}
	r := newReconciler(options.Node, mgr.GetClient(), options.Events, clock.RealClock{})
	r.containers = newContainers(runtimes, pods, options.WatchesPods, r.clock.Now)
	r.attempts = newAttempter(func(container string) (Commands, error) {
		return options.Runtimes.ForContainer(container)
	}).attempt

	for _, collector := range []prometheus.Collector{r.executions, r.late} {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}

	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("adding the prober: %w", err)
	}

	err := ctrl.NewControllerManagedBy(mgr).Named("node_pod_probe").
		For(&appsv1alpha1.NodePodProbe{}).
		WatchesRawSource(source.Channel(r.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter:             r.backOff,
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of probes: %w", err)
	}

	return nil
}

type reconciler struct {
	node       string
	client     client.Client
	events     record.EventRecorder
	clock      clock.WithTicker
	containers *containers
	attempts   func(ctx context.Context, d *Definition, container string) Attempt
	backOff    *pacing.BackOff
	// changed wakes the writer, and wake the scheduler. Both have a capacity of one.
	changed chan event.GenericEvent
	wake    chan struct{}

	executions *prometheus.CounterVec
	late       prometheus.Gauge

	mu       sync.Mutex
	probers  map[Key]*Prober
	schedule *Schedule
	// begun means that the first NodePodProbe was seen. generation is the generation of the definitions in
	// force, and uid the UID of their object.
	begun      bool
	generation int64
	uid        types.UID
	// written is the time of the last write of the status, and paused how long it must not be written after
	// that. Only Reconcile uses them.
	written time.Time
	paused  time.Duration
}

func newReconciler(
	node string, c client.Client, events record.EventRecorder, by clock.WithTicker,
) *reconciler {
	return &reconciler{
		node:     node,
		client:   c,
		events:   events,
		clock:    by,
		backOff:  pacing.NewBackOff(pacing.RetryLimiter[ctrl.Request](), by.Now),
		changed:  make(chan event.GenericEvent, 1),
		wake:     make(chan struct{}, 1),
		probers:  map[Key]*Prober{},
		schedule: NewSchedule(by.Now()),
		executions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afloat_daemon_probe_attempts_total",
			Help: "Attempts of probes of PodProbeMarkers, by handler and outcome: success, failure, error.",
		}, []string{"handler", "outcome"}),
		late: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afloat_daemon_probe_attempts_waiting",
			Help: "Attempts of probes that are due and wait for others of their namespace or of the node.",
		}),
	}
}

// Reconcile applies the definitions of the NodePodProbe and writes the results that have changed.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if request.Name != r.node {
		return ctrl.Result{}, nil
	}

	object := &appsv1alpha1.NodePodProbe{}
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		if apierrors.IsNotFound(err) {
			r.define(&appsv1alpha1.NodePodProbe{})
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading the NodePodProbe of the node: %w", err)
	}

	r.define(object)
	now := r.clock.Now()
	if wait := r.paused - now.Sub(r.written); wait > 0 && wait <= r.paused {
		return r.backOff.PutOff(request, wait), nil
	}

	r.mu.Lock()
	status, write, after := Status(object, r.probers, now)
	r.mu.Unlock()
	if !write {
		return ctrl.Result{RequeueAfter: after}, nil
	}

	r.written = now
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.UID},
		"status":   map[string]any{"podProbeStatuses": status.PodProbeStatuses},
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("encoding the results: %w", err)
	}

	r.paused = pause(len(body))

	// Nobody else writes the status, so the write is not guarded by the resourceVersion, which changes
	// whenever the manager writes the spec.
	target := &appsv1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: object.Name}}
	if err := r.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, body)); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it was deleted or replaced
			return ctrl.Result{RequeueAfter: writeEvery}, nil
		}
		return ctrl.Result{}, fmt.Errorf("writing the results of probes: %w", err)
	}

	// The write triggers an event, whose pass handles what has changed in the meantime.
	return ctrl.Result{RequeueAfter: r.paused}, nil
}

// define applies the definitions: probers without a definition are removed, and changed ones continue.
func (r *reconciler) define(object *appsv1alpha1.NodePodProbe) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.begun && r.uid == object.UID && r.generation == object.Generation {
		return
	}

	now, first := r.clock.Now(), !r.begun
	r.begun, r.uid, r.generation = true, object.UID, object.Generation
	former := map[Key]appsv1alpha1.ContainerProbeState{}
	if first {
		for _, pod := range object.Status.PodProbeStatuses {
			for _, state := range pod.ProbeStates {
				former[Key{types.UID(pod.UID), state.Name}] = state
			}
		}
	}

	wanted, pods := map[Key]bool{}, map[types.UID]bool{}
	for _, d := range Definitions(object) {
		wanted[d.Key], pods[d.Pod] = true, true
		if p := r.probers[d.Key]; p != nil {
			p.Define(d, now)
		} else {
			p := NewProber(d, now)
			if state, found := former[d.Key]; found {
				p.Resume(state, now)
			}
			r.probers[d.Key] = p
		}
		r.schedule.Put(d.Key, d.Namespace, d.Period, first, now)
	}

	for key := range r.probers {
		if !wanted[key] {
			delete(r.probers, key)
			r.schedule.Remove(key)
		}
	}

	r.containers.forget(func(pod types.UID) bool { return pods[pod] })
	r.nudge()
}

// nudge wakes the scheduler.
func (r *reconciler) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Start makes attempts until the context is canceled.
func (r *reconciler) Start(ctx context.Context) error {
	var attempts sync.WaitGroup
	defer attempts.Wait()

	for {
		r.mu.Lock()
		turn, wait := r.schedule.Next(r.clock.Now())
		waiting, _ := r.schedule.Waiting()
		r.mu.Unlock()
		r.late.Set(float64(waiting))
		if turn != nil {
			attempts.Go(func() { r.take(ctx, turn) })
			continue
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = r.clock.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. Every node has its own prober.
func (r *reconciler) NeedLeaderElection() bool { return false }

// take makes one attempt and returns the turn. A panic affects only this attempt.
func (r *reconciler) take(ctx context.Context, turn *Turn) {
	defer func() {
		if failure := recover(); failure != nil {
			log.FromContext(ctx).Error(fmt.Errorf("%v", failure), "An attempt of a probe panicked",
				"pod", turn.Pod, "probe", turn.Name)
		}
		r.mu.Lock()
		r.schedule.Done(turn, r.clock.Now())
		r.mu.Unlock()
		r.nudge()
	}()

	if err := r.probe(ctx, turn.Key); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).V(1).Info("A probe could not be carried out; its result stays", "pod", turn.Pod,
			"probe", turn.Name, "error", err.Error())
	}
}

// probe checks the container, and makes an attempt if one is due.
func (r *reconciler) probe(ctx context.Context, key Key) error {
	d, due, container, err := r.meet(ctx, key, false)
	if err != nil {
		r.executions.WithLabelValues(handlerOf(d), string(None)).Inc()
		return err
	}
	if !due {
		return nil
	}

	attempt := r.attempts(ctx, d, container)
	r.executions.WithLabelValues(handlerOf(d), string(attempt.Outcome)).Inc()
	if attempt.Outcome == None {
		log.FromContext(ctx).V(1).Info("A probe could not be carried out; its result stays",
			"pod", d.PodName, "namespace", d.Namespace, "probe", d.Name, "error", attempt.Message)
	}

	// The container may have ended during the attempt.
	if attempt.Outcome == None || attempt.Outcome == Failure && !r.failed(key) {
		if _, due, now, err := r.meet(ctx, key, true); err != nil || !due || now != container {
			return err
		}
	}
	r.update(key, d, func(p *Prober, now time.Time) { p.Take(attempt, container, now) })
	return nil
}

// failed reports whether the result is Failed already, so that another failure changes nothing.
func (r *reconciler) failed(key Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.probers[key]
	return p != nil && p.State == appsv1alpha1.ProbeFailed
}

// meet updates the prober with its current container, and returns a copy of its definition.
func (r *reconciler) meet(
	ctx context.Context, key Key, anew bool,
) (d *Definition, due bool, container string, err error) {
	r.mu.Lock()
	p := r.probers[key]
	if p == nil || p.Refused != "" {
		r.mu.Unlock()
		return nil, false, "", nil
	}

	copied := p.Definition
	known := p.container
	r.mu.Unlock()
	f, err := r.containers.meet(ctx, &copied, func(id string) bool { return id == known }, anew)
	if err != nil {
		return &copied, false, "", err
	}

	r.update(key, &copied, func(p *Prober, now time.Time) { due = p.Meet(f.Met, now) })
	return &copied, due && (!copied.network() || f.reachable), f.ID, nil
}

// update changes a prober if it still has the same target, and reports a result that has changed.
func (r *reconciler) update(key Key, d *Definition, change func(p *Prober, now time.Time)) {
	r.mu.Lock()
	p := r.probers[key]
	if p == nil || !p.sameTarget(d) {
		r.mu.Unlock()
		return
	}

	before := p.Result
	change(p, r.clock.Now())
	after := p.Result
	r.mu.Unlock()
	if before.State == after.State && before.Message == after.Message {
		return
	}

	select {
	case r.changed <- event.GenericEvent{Object: &appsv1alpha1.NodePodProbe{
		ObjectMeta: metav1.ObjectMeta{Name: r.node},
	}}:
	default: // an event is pending
	}

	unable := after.State == appsv1alpha1.ProbeUnknown && strings.HasPrefix(after.Message, notCarriedOut) &&
		!strings.HasPrefix(before.Message, notCarriedOut)
	if before.State != after.State || unable {
		r.tell(d, after)
	}
}

// tell records an event on the pod when the state of a probe changes, or when the probe cannot be carried out
// and its state is unknown.
func (r *reconciler) tell(d *Definition, result Result) {
	pod := &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Pod",
		Namespace:  d.Namespace,
		Name:       d.PodName,
		UID:        d.Pod,
	}
	switch result.State {
	case appsv1alpha1.ProbeSucceeded:
		r.events.Eventf(pod, corev1.EventTypeNormal, "KruiseProbeSucceeded", "probe %s: %s", d.Name,
			result.Message)
	case appsv1alpha1.ProbeFailed:
		r.events.Eventf(pod, corev1.EventTypeWarning, "KruiseProbeFailed", "probe %s: %s", d.Name,
			result.Message)
	// No condition shows this, and the author of the probe may have no right to read the NodePodProbe.
	case appsv1alpha1.ProbeUnknown:
		if strings.HasPrefix(result.Message, notCarriedOut) {
			r.events.Eventf(pod, corev1.EventTypeWarning, "KruiseProbeError", "probe %s: %s", d.Name,
				result.Message)
		}
	}
}

func handlerOf(d *Definition) string {
	switch {
	case d.Handler.Exec != nil:
		return "exec"
	case d.Handler.HTTPGet != nil:
		return "httpGet"
	}
	return "tcpSocket"
}
