package imagepull

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/platform/pacing"
)

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-daemon-role,resources=nodeimages,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-daemon-role,resources=nodeimages/status,verbs=patch
// +kubebuilder:rbac:groups="",namespace=kruise-daemon-config,roleName=kruise-daemon-secret-role,resources=secrets,verbs=get

// Reasons of events.
const (
	reasonSucceeded = "PullImageSucceed"
	reasonFailed    = "PullImageFailed"
)

// Options configures the controller.
type Options struct {
	// Node is the name of the node and of its NodeImage.
	Node     string
	Runtimes *runtime.Set
	Events   record.EventRecorder
	// Workers limits the number of concurrent pulls. There is no limit if it is below 1 (IMG-133).
	Workers int
	// Provider returns the credentials of the node. It is nil if there are none.
	Provider Provider
}

type reconciler struct {
	options Options
	client  client.Client
	puller  *puller
	// The following fields are used only by Reconcile, which never runs concurrently.
	tasks   map[key]*task
	first   map[key]int64
	object  types.UID // UID of the NodeImage in the last pass
	limiter *rate.Limiter
	backOff *pacing.BackOff
	wake    func()
	running sync.WaitGroup
}

func newReconciler(
	c client.Client, live client.Reader, images func() (Images, error), options Options,
) *reconciler {
	clk := clock.RealClock{}
	r := &reconciler{
		options: options,
		client:  c,
		tasks:   map[key]*task{},
		limiter: rate.NewLimiter(0.5, 5),
		backOff: pacing.NewBackOff(pacing.RetryLimiter[reconcile.Request](), clk.Now),
		wake:    func() {},
	}
	r.puller = &puller{
		runtime:  images,
		secrets:  newSecrets(live, clk),
		provider: options.Provider,
		slots:    newSlots(options.Workers),
		clock:    clk,
		meters:   newMeters(),
		done:     r.done,
	}

	return r
}

// Setup adds the controller to the manager. The manager's cache must hold only the NodeImage of this node.
func Setup(mgr ctrl.Manager, options Options) error {
	images := func() (Images, error) { return options.Runtimes.ForImages() }
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), images, options)
	for _, collector := range r.puller.meters.all() {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}

	ended := make(chan event.GenericEvent, 1)
	r.wake = func() {
		select {
		case ended <- event.GenericEvent{Object: &appsv1beta1.NodeImage{
			ObjectMeta: metav1.ObjectMeta{Name: options.Node},
		}}:
		default: // an event is pending, and its pass will see this result, too
		}
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("imagepuller").
		For(&appsv1beta1.NodeImage{}).
		WatchesRawSource(source.Channel(ended, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter:             r.backOff,
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of image pulls: %w", err)
	}

	return nil
}

// Reconcile makes one pass (IMG-130).
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Name != r.options.Node {
		return reconcile.Result{}, nil
	}

	object := &appsv1beta1.NodeImage{}
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		if apierrors.IsNotFound(err) {
			r.stop(r.all()...)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	if r.object != object.UID { // the first pass, or the object was recreated
		r.stop(r.all()...)
		r.object, r.first = object.UID, nil
		if object.Status.FirstSyncStatus == nil {
			r.first = firstTags(object)
		}
	}

	s := snapshot{
		object: object,
		tasks:  map[key]appsv1beta1.ImageTagStatus{},
		first:  r.first,
		now:    r.puller.clock.Now(),
	}
	for k, t := range r.tasks {
		s.tasks[k] = t.now()
	}

	p := newPlan(s)
	r.stop(p.stop...)
	for _, k := range p.drop {
		delete(r.tasks, k)
	}

	for _, k := range p.start {
		r.start(ctx, object, k)
	}

	for k, t := range r.tasks {
		t.refer(references(object.Spec.Images[k.image]))
	}

	r.puller.secrets.keep(secretsOf(object))
	if !apiequality.Semantic.DeepEqual(p.status, object.Status) {
		if !r.limiter.AllowN(r.puller.clock.Now(), 1) {
			return r.backOff.PutOff(request, soon()), nil
		}
		if err := r.write(ctx, object, &p.status); err != nil {
			if apierrors.IsConflict(err) {
				return reconcile.Result{RequeueAfter: soon()}, nil
			}
			return reconcile.Result{}, err
		}
	}

	if p.unfinished {
		return reconcile.Result{RequeueAfter: soon()}, nil
	}

	return reconcile.Result{RequeueAfter: 20*time.Minute + rand.N(10*time.Minute)}, nil
}

func soon() time.Duration { return 3*time.Second + rand.N(2*time.Second) }

func (r *reconciler) all() []key {
	var keys []key
	for k := range r.tasks {
		keys = append(keys, k)
	}
	return keys
}

func (r *reconciler) stop(keys ...key) {
	for _, k := range keys {
		if t := r.tasks[k]; t != nil {
			t.cancel()
			delete(r.tasks, k)
		}
	}
}

// start begins the task of a tag. A task for another version of the tag has been stopped before.
func (r *reconciler) start(ctx context.Context, object *appsv1beta1.NodeImage, k key) {
	image := object.Spec.Images[k.image]
	t := &task{key: k, object: object.UID, since: r.puller.clock.Now()}
	for i := range image.Tags {
		if image.Tags[i].Tag == k.tag {
			t.spec = *image.Tags[i].DeepCopy()
			break
		}
	}

	t.place = r.puller.slots.join(t.namespaces())
	t.secrets = references(image)
	if image.SandboxConfig != nil {
		t.sandbox = *image.SandboxConfig.DeepCopy()
	}
	t.status = appsv1beta1.ImageTagStatus{Tag: k.tag, Version: t.spec.Version, Phase: waiting}
	own, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.FromContext(ctx)))
	t.cancel = cancel
	r.tasks[k] = t
	r.running.Go(func() {
		defer cancel()
		r.puller.run(own, t)
	})
}

// done records the metrics and events of a completed task.
func (r *reconciler) done(t *task, took time.Duration) {
	s := t.now()
	node := &corev1.ObjectReference{
		APIVersion: appsv1beta1.GroupVersion.String(),
		Kind:       "NodeImage",
		Name:       r.options.Node,
		UID:        t.object,
	}
	if s.Phase == succeeded {
		r.options.Events.Eventf(node, corev1.EventTypeNormal, reasonSucceeded, "Image %s, elapsed time %s",
			t.key.reference(), took.Round(time.Millisecond))
	} else {
		note := wording.Bound(fmt.Sprintf("Image %s on node %s: %s", t.key.reference(),
			r.options.Node, s.Message))
		r.options.Events.Event(node, corev1.EventTypeWarning, reasonFailed, note)
		for i := range t.spec.OwnerReferences {
			r.options.Events.Event(&t.spec.OwnerReferences[i], corev1.EventTypeWarning, reasonFailed, note)
		}
	}

	r.wake()
}

func references(image appsv1beta1.ImageSpec) []types.NamespacedName {
	var names []types.NamespacedName
	for _, secret := range image.PullSecrets {
		names = append(names, types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name})
	}
	return names
}

func secretsOf(object *appsv1beta1.NodeImage) map[types.NamespacedName]bool {
	used := map[types.NamespacedName]bool{}
	for _, image := range object.Spec.Images {
		for _, name := range references(image) {
			used[name] = true
		}
	}
	return used
}

// write patches the status fields that differ. The patch is guarded by the resourceVersion, because the
// manager writes the status too.
func (r *reconciler) write(
	ctx context.Context, object *appsv1beta1.NodeImage, status *appsv1beta1.NodeImageStatus,
) error {
	fields := map[string]any{"desired": status.Desired}
	for name, count := range map[string]int32{
		"waiting":   status.Waiting,
		"pulling":   status.Pulling,
		"succeeded": status.Succeeded,
		"failed":    status.Failed,
	} {
		fields[name] = nil
		if count > 0 {
			fields[name] = count
		}
	}

	images := map[string]any{}
	for name := range object.Status.ImageStatuses {
		if _, stays := status.ImageStatuses[name]; !stays {
			images[name] = nil
		}
	}

	for name, image := range status.ImageStatuses {
		if !apiequality.Semantic.DeepEqual(image, object.Status.ImageStatuses[name]) {
			images[name] = image
		}
	}

	switch {
	case len(status.ImageStatuses) == 0:
		fields["imageStatuses"] = nil
	case len(images) > 0:
		fields["imageStatuses"] = images
	}

	if status.FirstSyncStatus != nil && object.Status.FirstSyncStatus == nil {
		fields["firstSyncStatus"] = status.FirstSyncStatus
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid":             object.UID,
			"resourceVersion": object.ResourceVersion,
		},
		"status": fields,
	})
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}

	written := &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: object.Name}}
	if err := r.client.Status().Patch(ctx, written,
		client.RawPatch(types.MergePatchType, body)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status: %w", err)
	}

	return nil
}
