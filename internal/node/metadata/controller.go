package metadata

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups="",roleName=kruise-daemon-role,resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",roleName=kruise-daemon-role,resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",roleName=kruise-daemon-role,resources=events,verbs=create;patch

const (
	// coalesce is the delay of an event, so that it is handled together with others of the same pod.
	coalesce = time.Second
	// firstRetry and lastRetry bound the retry delays of restarts and of reading environments.
	firstRetry, lastRetry = 3 * time.Second, 10 * time.Minute
	// ownWrite is the maximum time until the cache shows a write of this controller.
	ownWrite = 30 * time.Second
	workers  = 10
)

// Options configures the controller.
type Options struct {
	Runtimes *runtime.Set
	Events   record.EventRecorder
	Stops    *prometheus.CounterVec
	// Places are shared with all others that stop containers.
	Places *stop.Places
	// EnvFromMetadata is the gate InPlaceUpdateEnvFromMetadata.
	EnvFromMetadata bool
}

type reconciler struct {
	Options
	client client.Client
	// live reads from the API server.
	live     client.Reader
	own      *reconcile.OwnWrites
	clock    clock.WithDelayedExecution
	readings *readings
	restarts *restarter
	reports  *prometheus.CounterVec
}

func newReconciler(c client.Client, live client.Reader, options Options) *reconciler {
	r := &reconciler{
		Options:  options,
		client:   c,
		live:     live,
		own:      &reconcile.OwnWrites{Cache: c, Live: live},
		clock:    clock.RealClock{},
		readings: newReadings(),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afloat_daemon_metadata_reports_total",
			Help: "Reports of runtime metadata written to pods, by result.",
		}, []string{"result"}),
	}
	r.restarts = newRestarter(r)
	return r
}

// Setup adds the reporter and the restarter to the manager. The manager's cache must hold only the pods of
// this node.
func Setup(mgr ctrl.Manager, options Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), options)
	if err := metrics.Registry.Register(r.reports); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := mgr.Add(r.restarts); err != nil {
		return fmt.Errorf("adding the restarter: %w", err)
	}

	err := ctrl.NewControllerManagedBy(mgr).Named("runtime_container_meta").
		Watches(&corev1.Pod{}, r.handler()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             pacing.RetryLimiter[ctrl.Request](),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of runtime metadata: %w", err)
	}

	return nil
}

func (r *reconciler) handler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	enqueue := func(before, now client.Object, initial bool, q queue) {
		pod, ok := now.(*corev1.Pod)
		former, _ := before.(*corev1.Pod)
		if ok && triggers(former, pod, initial, r.EnvFromMetadata) {
			q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}, coalesce)
		}
	}

	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			enqueue(nil, e.Object, e.IsInInitialList, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			enqueue(e.ObjectOld, e.ObjectNew, false, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			r.own.Forget(e.Object.GetUID())
			r.readings.forget(e.Object.GetUID())
		},
	}
}

// Reconcile reports on one pod.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, request.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.own.Settle(ctx, pod.UID, r.clock.Now()); err != nil {
		return ctrl.Result{}, fmt.Errorf("looking for own writes: %w", err)
	}

	pod, _ = reconcile.Newest(r.own, pod.UID, pod, true)
	plan, err := r.observe(ctx, pod)
	if err != nil {
		return ctrl.Result{}, err
	}

	for _, left := range plan.Left {
		log.FromContext(ctx).V(1).Info("Left to kubelet", "what", left)
	}

	for _, restart := range plan.Restarts {
		r.restarts.want(ctx, target{
			request.NamespacedName, pod.UID, restart.Container.Name, restart.Container.ID,
		}, restart.Why)
	}

	if plan.Report != "" {
		if conflict, err := r.report(ctx, pod, plan.Report); err != nil || conflict {
			return ctrl.Result{RequeueAfter: time.Second}, err
		}
	}

	return ctrl.Result{RequeueAfter: r.readings.wait(pod.UID, plan.Read, r.clock.Now())}, nil
}

// observe reads the containers from the runtime and makes the plan. An environment that cannot be read is
// skipped and read again later.
func (r *reconciler) observe(ctx context.Context, pod *corev1.Pod) (Plan, error) {
	s := Snapshot{
		Pod:             pod,
		EnvFromMetadata: r.EnvFromMetadata,
		Environments:    map[string]map[string]string{},
		Unreadable:      map[string]bool{},
	}
	seen := map[*runtime.Runtime]bool{}
	for _, status := range statuses(pod) {
		if status.ContainerID == "" {
			continue
		}
		rt, err := r.Runtimes.ForContainer(status.ContainerID)
		if err != nil {
			return Plan{}, fmt.Errorf("container %s: %w", status.Name, err)
		}
		if seen[rt] {
			continue
		}
		seen[rt] = true
		list, err := rt.Containers(ctx, string(pod.UID))
		if err != nil {
			return Plan{}, err
		}
		s.Containers = append(s.Containers, list...)
	}

	plan := NewPlan(s)
	for _, id := range plan.Read {
		if !r.readings.due(pod.UID, id, r.clock.Now()) {
			s.Unreadable[id] = true
			continue
		}
		rt, err := r.Runtimes.ForContainer(id)
		if err == nil {
			s.Environments[id], err = rt.Environment(ctx, id)
		}
		if err != nil {
			delete(s.Environments, id)
			s.Unreadable[id] = true
			r.readings.failed(pod.UID, id, r.clock.Now())
			log.FromContext(ctx).Info("The environment of a container cannot be read; it is tried again",
				"id", id, "error", err.Error())
		}
	}

	if len(plan.Read) > 0 {
		plan = NewPlan(s)
	}

	return plan, nil
}

// report writes the annotation through the status subresource, because the daemon has no right to write any
// other part of a pod.
func (r *reconciler) report(ctx context.Context, pod *corev1.Pod, value string) (conflict bool, err error) {
	patch := podpatch.Patch{}
	patch.Annotation(pub.RuntimeContainersMeta, value)
	body, err := patch.JSON(pod)
	if err != nil {
		return false, err
	}

	written := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, body))
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsConflict(err):
		r.reports.WithLabelValues("conflict").Inc()
		return true, nil
	case err != nil:
		r.reports.WithLabelValues("failed").Inc()
		return false, fmt.Errorf("reporting on the pod: %w", err)
	}

	r.reports.WithLabelValues("written").Inc()
	if _, err := slim.NodePod(written); err != nil {
		return false, fmt.Errorf("reading the answer: %w", err)
	}

	r.own.Changed(pod.UID, written, r.clock.Now())
	r.clock.AfterFunc(ownWrite, func() { r.own.Forget(pod.UID) })
	return false, nil
}
