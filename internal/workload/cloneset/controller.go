package cloneset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
	"github.com/afloat-project/afloat/internal/platform/podindex"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.kruise.io,resources=imagepulljobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=get;patch;update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Options configure the controller.
type Options struct {
	Features Features
	// Workers is how many sets are worked on at the same time.
	Workers int
	// RateLimiter is the back-off of failing sets; nil means the library's.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Pods finds pods in the manager's caches.
	Pods *podindex.Index
}

// atOnce bounds the requests that one set has in flight; the server's priority and fairness decide beyond that.
const atOnce = 32

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	for _, object := range []client.Object{&corev1.PersistentVolumeClaim{}, &appsv1.ControllerRevision{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, object, ownerIndex, indexByController); err != nil {
			return fmt.Errorf("indexing %T by controller: %w", object, err)
		}
	}
	meters := newMeters()
	for _, collector := range meters.all() {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	kube := &Kube{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Pods: options.Pods}
	r := &reconciler{meters: meters, paces: map[types.NamespacedName]time.Time{}, known: map[types.NamespacedName]types.UID{}, told: map[types.UID]string{}}
	r.backOff = &backOff{TypedRateLimiter: options.RateLimiter, due: map[reconcile.Request]time.Duration{}}
	if options.RateLimiter == nil {
		r.backOff.TypedRateLimiter = workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	}
	own := ownwrites.NewTracker()
	own.Leaked = func(owner types.UID, _ ownwrites.Object) {
		if name := r.nameOf(owner); name.Name != "" {
			meters.leaked.WithLabelValues(name.Namespace, name.Name).Inc()
		}
	}
	r.pass = &Pass{
		Reader:   kube,
		Applier:  Applier{Cluster: kube, Events: recorder{mgr.GetEventRecorder("cloneset-controller")}, Own: own, Now: time.Now, Parallel: atOnce},
		Features: options.Features,
		Random:   rand.IntN,
	}
	r.client = mgr.GetClient()
	toOwner := handler.EnqueueRequestsFromMapFunc(ownerOf)
	builder := ctrl.NewControllerManagedBy(mgr).Named("cloneset").
		For(&appsv1beta1.CloneSet{}).
		Watches(&corev1.Pod{}, toOwner).
		Watches(&corev1.PersistentVolumeClaim{}, toOwner).
		Watches(&appsv1.ControllerRevision{}, toOwner).
		WithOptions(controller.Options{MaxConcurrentReconciles: options.Workers, RateLimiter: r.backOff})
	if options.Features.PreDownload {
		kube.pulls = newPullWatch(mgr, toOwner)
		builder = builder.WatchesRawSource(source.Func(kube.pulls.start))
	}
	if err := builder.Complete(r); err != nil {
		return fmt.Errorf("building the CloneSet controller: %w", err)
	}
	return nil
}

// ownerOf finds the CloneSet that controls an object by group and kind, whatever the version (CS-043). The library's handler asks the
// REST mapper at every event.
func ownerOf(_ context.Context, object client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != kind || !strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
}

// recorder sends events to the API server.
type recorder struct{ events.EventRecorder }

// Event implements Recorder.
func (r recorder) Event(set *appsv1beta1.CloneSet, eventType, reason, message string) {
	const maxNote = 1000 // the API server refuses notes above 1 KiB
	if len(message) > maxNote {
		message = message[:maxNote] + "…"
	}
	r.Eventf(set, nil, eventType, reason, reason, "%s", message)
}

// backOff does not outlast what a plan waits for: one pod that fails must not make others wait whose grace period is over (CS-076).
type backOff struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	mu  sync.Mutex
	due map[reconcile.Request]time.Duration
}

// notAfter bounds the next back-off; 0 does not.
func (b *backOff) notAfter(request reconcile.Request, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after > 0 {
		b.due[request] = after
	}
}

// When implements workqueue.TypedRateLimiter.
func (b *backOff) When(request reconcile.Request) time.Duration {
	wait := b.TypedRateLimiter.When(request)
	b.mu.Lock()
	defer b.mu.Unlock()
	if due, ok := b.due[request]; ok {
		delete(b.due, request)
		return min(wait, due)
	}
	return wait
}

type reconciler struct {
	pass    *Pass
	client  client.Client
	meters  *meters
	backOff *backOff

	mu    sync.Mutex
	paces map[types.NamespacedName]time.Time // when a plan may be made again
	known map[types.NamespacedName]types.UID
	told  map[types.UID]string // the last narrative logged, so that it is logged only when it changes (OPS-096)
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	set := &appsv1beta1.CloneSet{}
	if err := r.client.Get(ctx, request.NamespacedName, set, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(request.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("reading CloneSet: %w", err)
	}
	r.remember(request.NamespacedName, set.UID)
	begin := r.pass.Applier.Now()
	if wait := r.early(request.NamespacedName, begin); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	outcome, err := r.pass.Run(ctx, request.NamespacedName)
	r.pace(request.NamespacedName, begin, outcome, err)
	logger := log.FromContext(ctx)
	switch {
	case outcome.Pending != "":
		logger.V(4).Info("Waiting for the cache", "for", outcome.Pending)
	case outcome.Plan != nil:
		r.meters.observe(outcome.Plan)
		if text, news := r.news(outcome.Plan); news {
			logger.V(2).Info("Plan", "plan", text)
		}
	}
	if err != nil {
		r.backOff.notAfter(request, outcome.After)
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: outcome.After}, nil
}

// A plan looks at all pods of its set. While their events come one by one, the next plan of a large set waits for more of them, by so
// much for each pod of the set: otherwise a rollout's cost would grow with the square of the pods. A set at rest answers at once.
const (
	paceByPod  = 200 * time.Microsecond
	paceAtMost = time.Second
)

func pace(pods int) time.Duration { return min(time.Duration(pods)*paceByPod, paceAtMost) }

// pace notes when the set may be planned again; at once if there is more to be written, or nothing was planned. After an error the queue
// decides.
func (r *reconciler) pace(name types.NamespacedName, begin time.Time, outcome Outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.paces, name)
	if outcome.Plan != nil && !outcome.Unfinished && err == nil {
		r.paces[name] = begin.Add(pace(len(outcome.Plan.Verdicts)))
	}
}

// early returns how long the next plan of the set has to wait.
func (r *reconciler) early(name types.NamespacedName, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paces[name].Sub(now)
}

func (r *reconciler) remember(name types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if former, ok := r.known[name]; ok && former != uid {
		r.pass.Forget(former)
		delete(r.told, former)
	}
	r.known[name] = uid
}

// nameOf returns the name of the set with that UID, empty if it is not known.
func (r *reconciler) nameOf(uid types.UID) types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, known := range r.known {
		if known == uid {
			return name
		}
	}
	return types.NamespacedName{}
}

func (r *reconciler) forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.paces, name)
	if uid, ok := r.known[name]; ok {
		r.pass.Forget(uid)
		delete(r.told, uid)
		delete(r.known, name)
	}
	r.meters.forget(name)
}

// news returns what there is to be logged of the plan, and whether that differs from what was logged last.
func (r *reconciler) news(plan *Plan) (string, bool) {
	text := plan.Headline()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[plan.Set.UID] == text {
		return "", false
	}
	r.told[plan.Set.UID] = text
	if len(plan.Verdicts) <= digestAbove {
		text = plan.String()
	}
	return text, true
}
