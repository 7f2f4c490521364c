package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// ConfigMaps are watched by label and as metadata only, which RBAC rules cannot express. None is deleted by
// the controller: their owner references take care of that.
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler carries out plans. Its fields are exported for tests.
type Reconciler struct {
	*reconcile.API
	Events reconcile.Recorder

	actions *prometheus.CounterVec
	// refused holds the UIDs, by name, of pods whose ConfigMap belongs to somebody else.
	refused sync.Map
	backOff *pacing.BackOff
}

// mendedAfter is the longest time that a pod waits after the cause of a rejected ConfigMap, such as a quota,
// was removed: there is no event for that.
const mendedAfter = time.Minute

// Setup adds the controller to the manager, whose cache must hold ConfigMaps with label LaunchBarrier only.
func Setup(mgr ctrl.Manager, options reconcile.Options) error {
	r := &Reconciler{
		backOff: pacing.NewBackOff(options.Limiter(), time.Now),
		API:     options.API(mgr),
		Events:  reconcile.NewRecorder(mgr.GetEventRecorder("containerlaunchpriority-controller")),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afloat_launch_barrier_actions_total",
			Help: "What was done to the ConfigMaps of pods with container launch priority: Create, Release, Reset, or Refuse for those of somebody else.",
		}, []string{"action"}),
	}
	if err := reconcile.Register(r.actions); err != nil {
		return err
	}

	return options.Complete("containerlaunchpriority", r, ctrl.NewControllerManagedBy(mgr).
		For(&corev1.Pod{}, builder.WithPredicates(podEvents)).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(podOf),
			builder.WithPredicates(barrierEvents)))
}

// BackOff returns the rate limiter that the controller must use.
func (r *Reconciler) BackOff() workqueue.TypedRateLimiter[ctrl.Request] { return r.backOff }

// podEvents selects pods that may wait, and the deletion of pods with barriers, so that they are forgotten.
var podEvents = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		pod, ok := e.Object.(*corev1.Pod)
		return ok && launchpriority.Concerns(pod)
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		pod, ok := e.ObjectNew.(*corev1.Pod)
		return ok && launchpriority.Concerns(pod)
	},
	DeleteFunc: func(e event.DeleteEvent) bool {
		pod, ok := e.Object.(*corev1.Pod)
		return ok && launchpriority.Held(pod)
	},
}

// barrierEvents selects changes of the fields of a ConfigMap that plans read, and its deletion.
var barrierEvents = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, // it is ours, or no pod waits for it
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			e.ObjectOld.GetAnnotations()[pub.LaunchReleased] !=
				e.ObjectNew.GetAnnotations()[pub.LaunchReleased] ||
			!equality.Semantic.DeepEqual(e.ObjectOld.GetOwnerReferences(),
				e.ObjectNew.GetOwnerReferences())
	},
}

func podOf(_ context.Context, barrier client.Object) []ctrl.Request {
	name, ok := pub.LaunchBarrierPod(barrier.GetName())
	if !ok {
		return nil
	}
	return []ctrl.Request{
		{NamespacedName: types.NamespacedName{Namespace: barrier.GetNamespace(), Name: name}},
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, request)
	after := result.RequeueAfter
	if err != nil {
		after = mendedAfter
	}
	if r.backOff == nil {
		return result, err
	}
	return r.backOff.Answer(request, after, err)
}

func (r *Reconciler) reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	owner, pod := ownerOf(request.NamespacedName), &corev1.Pod{}
	if err := r.Client.Get(ctx, request.NamespacedName, pod, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.Own.Forget(owner)
			r.refused.Delete(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	if !launchpriority.Concerns(pod) {
		r.Own.Forget(owner) // later events of the pod are ignored
		return ctrl.Result{}, nil
	}

	if err := r.Own.Settle(ctx, owner, r.Now()); err != nil {
		return ctrl.Result{}, err
	}

	again := r.Own.Again(owner)
	if pod, _ = reconcile.Newest(r.Own, owner, pod, true); !launchpriority.Concerns(pod) {
		return ctrl.Result{RequeueAfter: reconcile.DoubtAfter}, nil
	}

	barrier, err := barrierFrom(ctx, r.Client, pod)
	if err != nil {
		return ctrl.Result{}, err
	}

	like := metadataOf("ConfigMap")
	like.Namespace, like.Name = pod.Namespace, pub.LaunchBarrierName(pod.Name)
	if barrier != nil {
		like = barrier
	}

	newest, exists := reconcile.Newest(r.Own, owner, like, barrier != nil)
	if !exists {
		newest = nil
	}

	result, err := r.carryOut(ctx, launchpriority.Snapshot{Pod: pod, Barrier: newest}, false)
	reconcile.MinRequeue(&result.RequeueAfter, min(again, r.Own.Again(owner)))
	return result, err
}

// carryOut makes a plan and carries it out. live reports whether the ConfigMap was read from the API server.
func (r *Reconciler) carryOut(
	ctx context.Context, s launchpriority.Snapshot, live bool,
) (ctrl.Result, error) {
	plan := launchpriority.NewPlan(s)
	if !plan.Idle() {
		log.FromContext(ctx).V(2).Info("Plan", "plan", plan.Why)
	}
	if plan.Blocked != "" {
		r.Events.Event(s.Pod, corev1.EventTypeWarning, "LaunchBlocked", plan.Blocked)
	}

	current, err := r.current(ctx, s.Pod, plan)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !current {
		return ctrl.Result{RequeueAfter: reconcile.RetrySoon}, nil
	}

	err = r.write(ctx, s, plan, live)
	switch {
	case apierrors.IsAlreadyExists(err) && !live:
		// It has no label of ours, so caches do not hold it: it is OpenKruise's, or somebody else's.
		if s.Barrier, err = barrierFrom(ctx, r.Live, s.Pod); err != nil {
			return ctrl.Result{}, err
		}
		return r.carryOut(ctx, s, true)
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: reconcile.RetrySoon}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil // the pod will be deleted too
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err): // a quota, or a policy
		r.Events.Event(s.Pod, corev1.EventTypeWarning, "LaunchBarrierFailed", err.Error())
	}

	if err != nil {
		return ctrl.Result{}, err
	}

	r.count(s.Pod, plan.Action)
	if plan.Action == launchpriority.Refuse { // caches may never show the ConfigMap of somebody else
		r.Own.Forget(ownerOf(client.ObjectKeyFromObject(s.Pod)))
	}

	if plan.Complete {
		if err := r.complete(ctx, s.Pod); err != nil {
			return ctrl.Result{}, err
		}
		// There may be no further event, and the own write has to be forgotten.
		reconcile.MinRequeue(&plan.After, reconcile.DoubtAfter)
	}

	return ctrl.Result{RequeueAfter: plan.After}, nil
}

// count counts an action. A ConfigMap of somebody else counts as one refusal, however often it is seen.
func (r *Reconciler) count(pod *corev1.Pod, action launchpriority.Action) {
	name := client.ObjectKeyFromObject(pod)
	if action != launchpriority.Refuse {
		r.refused.Delete(name)
	} else if before, known := r.refused.Swap(name, pod.UID); known && before == pod.UID {
		return
	}
	if action != launchpriority.None && r.actions != nil {
		r.actions.WithLabelValues(string(action)).Inc()
	}
}

// current reports whether the pod still exists, if the plan writes keys that would let containers of a later
// pod of the same name start out of order. The cache may be stale.
func (r *Reconciler) current(ctx context.Context, pod *corev1.Pod, plan *launchpriority.Plan) (bool, error) {
	if plan.Action != launchpriority.Reset && !plan.Restores {
		return true, nil
	}
	found := metadataOf("Pod")
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(pod), found); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return found.UID == pod.UID && found.DeletionTimestamp == nil, nil
}

// complete marks the pod. The patch is guarded by the UID alone: keys are never removed, so that the mark
// stays true for every later version of the pod.
func (r *Reconciler) complete(ctx context.Context, pod *corev1.Pod) error {
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, pod.UID, pub.LaunchCompleted)
	_, err := reconcile.Patch(ctx, r.writer(pod), pod, []byte(body), "")
	if apierrors.IsConflict(err) { // the name belongs to another pod by now
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking the pod as completed: %w", err)
	}
	return nil
}

// writer returns the writer for the pod.
func (r *Reconciler) writer(pod *corev1.Pod) *reconcile.Writer {
	return r.For(ownerOf(client.ObjectKeyFromObject(pod)))
}

func ownerOf(pod types.NamespacedName) types.UID { return types.UID(pod.String()) }

func barrierFrom(
	ctx context.Context, reader client.Reader, pod *corev1.Pod,
) (*metav1.PartialObjectMetadata, error) {
	barrier := metadataOf("ConfigMap")
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pub.LaunchBarrierName(pod.Name)}
	if err := reader.Get(ctx, name, barrier); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	return barrier, nil
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}
