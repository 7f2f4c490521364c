package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-daemon-role,resources=containerrecreaterequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-daemon-role,resources=containerrecreaterequests/status,verbs=patch

// workers is the number of pods that are handled concurrently. No worker waits for a container to end.
const workers = 32

// Runtime has the methods of a container runtime that the controller needs.
type Runtime interface {
	stop.Runtime
	Containers(ctx context.Context, podUID string) ([]runtime.Container, error)
	Status(ctx context.Context, id string) (runtime.Status, error)
}

// Options configures the controller.
type Options struct {
	Runtimes *runtime.Set
	Events   record.EventRecorder
	Stops    *prometheus.CounterVec
	// Places are shared with all others that stop containers.
	Places *stop.Places
	// WatchesPods means that the cache holds the pods of the node. Otherwise pods are read when they are
	// needed (ND-056).
	WatchesPods bool
}

type reconciler struct {
	// requests is the cache of this node's active requests. live reads from the API server before any action
	// is taken. pods is one of the two.
	requests  client.Reader
	live      client.Client
	pods      client.Reader
	runtimeOf func(id string) (Runtime, error)
	stopper   *stop.Stopper
	clock     clock.WithDelayedExecution
	// seen maps the name of a pod to what this daemon first saw of its unfinished requests, by their UIDs.
	seen sync.Map
	// stops maps the name of a pod to the channels for the results of the stops that are under way, by the UID of the pod: one that is gone,
	// and the one that replaced it, may have one each. Only the pass of the pod changes that map. wake enqueues a pod.
	stops sync.Map
	wake  func(reconcile.Request)
}

// Setup adds the controller to the manager. The manager's cache must hold only the active requests of this
// node (CRR-090).
func Setup(mgr ctrl.Manager, o Options) error {
	// Each client has limits of its own for its requests to the API server.
	var clients [2]client.Client
	for i := range clients {
		var err error
		if clients[i], err = client.New(mgr.GetConfig(),
			client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()}); err != nil {
			return fmt.Errorf("building a client without cache: %w", err)
		}
	}

	r := &reconciler{
		requests:  mgr.GetClient(),
		live:      clients[0],
		pods:      mgr.GetAPIReader(),
		clock:     clock.RealClock{},
		runtimeOf: func(id string) (Runtime, error) { return o.Runtimes.ForContainer(id) },
		stopper: &stop.Stopper{
			Events:    o.Events,
			Clock:     clock.RealClock{},
			Stops:     o.Stops,
			Places:    o.Places,
			Requester: "crr",
		},
	}
	if o.WatchesPods {
		r.pods = mgr.GetClient()
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("crr").
		// A request that is deleted or no longer selected enqueues its pod too, because the next request may
		// begin.
		Watches(&appsv1beta1.ContainerRecreateRequest{}, handler.EnqueueRequestsFromMapFunc(toPod)).
		WatchesRawSource(source.Func(func(_ context.Context,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.wake = queue.Add // sources are started before workers
			return nil
		})).
		WithOptions(options(workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of container restarts: %w", err)
	}

	return answers(r, clients[1]).setup(mgr)
}

// options returns the settings of a controller with this number of workers. Namespaces take turns in its queue,
// because the workers wait for the few requests per second that the daemon may send to the API server.
func options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		NewQueue:                pacing.FairQueue(workers),
		RateLimiter:             pacing.RetryLimiter[reconcile.Request](),
	}
}

func toPod(_ context.Context, object client.Object) []reconcile.Request {
	request, ok := object.(*appsv1beta1.ContainerRecreateRequest)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: request.Namespace,
		Name:      request.Spec.PodName,
	}}}
}

// Reconcile handles the requests of one pod. The key is the name of the pod (CRR-091).
func (r *reconciler) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	list := &appsv1beta1.ContainerRecreateRequestList{}
	if err := r.requests.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the requests of the pod: %w", err)
	}

	var open []*appsv1beta1.ContainerRecreateRequest
	for i := range list.Items {
		// A node has few active requests, so an index would cost more than it saves.
		if request := &list.Items[i]; request.Spec.PodName == key.Name &&
			request.Status.CompletionTime == nil && request.DeletionTimestamp == nil {
			open = append(open, request)
		}
	}

	r.see(key.NamespacedName, open)
	over, err := r.stopping(key.NamespacedName)
	if len(open) == 0 {
		return reconcile.Result{}, nil
	}

	// Requests for a pod that is gone, and for the one that replaced it under its name, have nothing to do with each other.
	begun := func(request *appsv1beta1.ContainerRecreateRequest) bool {
		return request.Status.Phase == recreating || r.sighting(request).begun
	}
	order(open, begun)
	after, known, before := poll, observed{}, map[string]*earlier{}
	for _, request := range open {
		uid := request.Labels[pub.RecreatePodUID]
		if before[uid] == nil {
			before[uid] = &earlier{}
		}
		ended := finished(request, r.sighting(request).request, r.clock.Now()) != ""
		if over[uid] || !ended && !begun(request) && before[uid].keeps(request) {
			continue
		}
		wait, plan, failure := r.round(ctx, request, known)
		err = errors.Join(err, failure)
		if after = min(after, wait); plan == nil {
			over[uid] = true
			continue
		}
		before[uid].add(plan)
	}

	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: again}, nil
	case err != nil:
		return reconcile.Result{}, err
	}

	return reconcile.Result{RequeueAfter: after}, nil
}

// again is the delay after a round that wrote something. The cache may show the write by then.
const again = 100 * time.Millisecond

// observed is what a pass has read of pods, by UID. A tenant may have many requests for a pod, which need not be read for
// each of those.
type observed map[string]*observation

// observation is what was read of one pod: its containers, which of them were inspected, and with what result, and the pod
// itself.
type observation struct {
	containers []runtime.Container
	tried      map[string]bool
	inspected  map[string]runtime.Status
	podRead    bool
	pod        *corev1.Pod
}

// round evaluates the cached request. If there is something to do, it evaluates the request from the API
// server again, so that it never acts on a stale request. It returns when to check again, and the plan if the
// request waits. Otherwise no other request of the pod may begin in this pass.
func (r *reconciler) round(
	ctx context.Context, cached *appsv1beta1.ContainerRecreateRequest, known observed,
) (time.Duration, *Plan, error) {
	logger := log.FromContext(ctx).WithValues("request", cached.Name)
	plan, _, err := r.evaluate(ctx, cached, known)
	if err != nil {
		return 0, nil, err
	}
	if !plan.Record && plan.Stop == nil {
		logger.V(2).Info("Waiting", "for", plan.Waiting, "after", plan.After)
		return plan.After, plan, nil
	}

	// Check this before any request to the API server, because requests are limited and shared by all
	// tenants.
	if !plan.Record && r.stopper.Full(plan.Stop.PodNamespace) {
		logger.V(2).Info("Waiting", "for",
			fmt.Sprintf("other stops of the namespace: %d are under way on this node", stop.Most))
		return poll, nil, nil
	}

	request, err := r.read(ctx, client.ObjectKeyFromObject(cached))
	if err != nil || request == nil {
		return poll, nil, err // the cache will show that it is gone
	}

	plan, rt, err := r.evaluate(ctx, request, observed{})
	switch {
	case err != nil:
		return 0, nil, err
	case plan.Record:
		if err := r.write(ctx, request, plan); err != nil {
			return 0, nil, err
		}
		r.begins(request)
		if plan.Complete {
			logger.Info("Completed", "message", plan.Message)
		}
		return again, nil, nil
	case plan.Stop != nil:
		return poll, nil, r.stop(ctx, request, plan.Stop, rt)
	}

	return max(plan.After, again), nil, nil
}

// read reads a request from the API server. It returns nil if the request is gone.
func (r *reconciler) read(
	ctx context.Context, name types.NamespacedName,
) (*appsv1beta1.ContainerRecreateRequest, error) {
	request := &appsv1beta1.ContainerRecreateRequest{}
	if err := r.live.Get(ctx, name, request); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading request %s: %w", name, err)
	}
	return request, nil
}

// evaluate collects the snapshot of a round and makes its plan. It lists the containers if they are not known.
func (r *reconciler) evaluate(
	ctx context.Context, request *appsv1beta1.ContainerRecreateRequest, known observed,
) (*Plan, Runtime, error) {
	seen := r.sighting(request)
	s := Snapshot{
		Request:      request,
		Seen:         seen.request,
		UnreadySince: seen.unready,
		Now:          r.clock.Now(),
	}
	if finished(request, s.Seen, s.Now) != "" {
		plan := NewPlan(s)
		return &plan, nil, nil
	}

	rt, err := r.runtime(request)
	if err != nil {
		if errors.Is(err, runtime.ErrUnavailable) {
			return nil, nil, err // retried until the deadline
		}
		plan := Plan{
			Record:   true,
			Complete: true,
			Phase:    completed,
			Message:  fmt.Sprintf("failed to find runtime service: %v", err),
		}
		for _, c := range request.Spec.Containers {
			plan.States = append(plan.States, State{Name: c.Name, Phase: failed, Message: plan.Message})
		}
		return &plan, nil, nil
	}
	uid := request.Labels[pub.RecreatePodUID]
	o := known[uid]
	if o == nil {
		o = &observation{tried: map[string]bool{}, inspected: map[string]runtime.Status{}}
		if o.containers, err = rt.Containers(ctx, uid); err != nil {
			return nil, nil, err
		}
		for i := range o.containers {
			o.containers[i].Annotations = graces(o.containers[i].Annotations)
		}
		known[uid] = o
	}

	s.Containers, s.Inspected = o.containers, o.inspected
	for _, c := range request.Spec.Containers {
		current := runtime.Newest(s.Containers, c.Name)
		if current == nil || current.ID == c.StatusContext.ContainerID && !current.Exited {
			continue
		}
		if !o.tried[current.ID] {
			inspected, err := rt.Status(ctx, current.ID)
			switch {
			case errors.Is(err, runtime.ErrUnavailable), ctx.Err() != nil:
				return nil, nil, err
			case err == nil:
				inspected.Annotations = nil
				o.inspected[current.ID] = inspected
			case !errors.Is(err, runtime.ErrNotFound): // the other containers of the request are stopped nevertheless
				log.FromContext(ctx).Info("A container cannot be inspected", "request", request.Name, "container", c.Name, "error", err.Error())
			}
			o.tried[current.ID] = true
		}
		if current.Exited && !o.podRead {
			if o.pod, err = r.pod(ctx, r.pods, request); err == nil && o.pod != nil && len(o.pod.Spec.Containers) == 0 {
				o.pod, err = r.pod(ctx, r.live, request) // the cache keeps only what identifies a large pod
			}
			if err != nil {
				return nil, nil, err
			}
			o.podRead = true
		}
		if current.Exited {
			s.Pod = o.pod
		}
	}

	plan := NewPlan(s)
	return &plan, rt, nil
}

// graces returns the annotations that have a grace period. The others have what users wrote, like hooks of a
// megabyte, and a worker may wait long for the API server.
func graces(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	for _, key := range []string{
		runtime.AnnotationDeletionGracePeriod, runtime.AnnotationTerminationGracePeriod,
	} {
		if value, ok := annotations[key]; ok {
			kept[key] = value
		}
	}
	return kept
}

func (r *reconciler) runtime(request *appsv1beta1.ContainerRecreateRequest) (Runtime, error) {
	if err := sameRuntime(request); err != nil {
		return nil, err
	}
	return r.runtimeOf(request.Spec.Containers[0].StatusContext.ContainerID)
}

// pod returns the pod of the request, or nil if it is gone.
func (r *reconciler) pod(
	ctx context.Context, from client.Reader, request *appsv1beta1.ContainerRecreateRequest,
) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := from.Get(ctx, types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName},
		pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if string(pod.UID) != request.Labels[pub.RecreatePodUID] {
		return nil, nil
	}
	return pod, nil
}

// withHook returns the pod of the request, if it exists, with the hook of a container and the address that it
// may call. The cache may be behind, and does not keep large hooks.
func (r *reconciler) withHook(
	ctx context.Context, request *appsv1beta1.ContainerRecreateRequest, container string,
) (*corev1.Pod, error) {
	pod, err := r.pod(ctx, r.pods, request)
	if err != nil || pod != nil && pod.Status.PodIP != "" && slim.HasHook(pod, container) {
		return pod, err
	}
	return r.pod(ctx, r.live, request)
}

// write writes the daemon's part of the status, guarded by the resourceVersion of the request. It returns no
// error if the request is gone.
func (r *reconciler) write(
	ctx context.Context, request *appsv1beta1.ContainerRecreateRequest, plan *Plan,
) error {
	status := map[string]any{"phase": plan.Phase}
	if plan.States != nil {
		status["containerRecreateStates"] = plan.States
	}
	if plan.Complete {
		status["completionTime"] = metav1.NewTime(r.clock.Now())
	}
	if plan.Message != "" {
		status["message"] = plan.Message
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid":             request.UID,
			"resourceVersion": request.ResourceVersion,
		},
		"status": status,
	})
	if err != nil {
		return fmt.Errorf("encoding the status of request %s: %w", request.Name, err)
	}

	written := &appsv1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name},
	}
	if err := r.live.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, body)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("writing the status of request %s: %w", request.Name, err)
	}

	return nil
}
