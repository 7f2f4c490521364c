package controller

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=nodeimages,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=nodeimages/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=imagepulljobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=imagepulljobs/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options configure the controllers.
type Options struct {
	reconcile.Options // Workers is the number of workers for NodeImages.
	JobWorkers        int
	// CreationDelay is the flag --nodeimage-creation-delay, ExtraTTL the flag
	// --default-ttlseconds-for-always-nodeimage.
	CreationDelay, ExtraTTL time.Duration
	// Namespace is the one from which node daemons read secrets.
	Namespace string
	// Jobs is the gate ImagePullJobGate.
	Jobs bool
}

// ownersOf indexes NodeImages by the UIDs of the jobs that own tags in them.
const ownersOf = "imagepull.owners"

func indexOwners(object client.Object) []string {
	node, ok := object.(*appsv1beta1.NodeImage)
	if !ok {
		return nil
	}

	seen := map[string]bool{}
	var uids []string
	for _, image := range node.Spec.Images {
		for _, tag := range image.Tags {
			for _, ref := range tag.OwnerReferences {
				if imagepull.IsJob(ref) && !seen[string(ref.UID)] {
					seen[string(ref.UID)] = true
					uids = append(uids, string(ref.UID))
				}
			}
		}
	}

	return uids
}

// NodeReconciler carries out plans of NodeImages. Its fields are exported for tests.
type NodeReconciler struct {
	*reconcile.API
	Events  events.EventRecorder
	Options Options
	Random  func() float64

	mu   sync.Mutex
	used map[string]inUse
	// swept is when the entries of used that are too old to be trusted were dropped.
	swept time.Time
	gone  goneJobs
	told  map[string]telling // what nodes reported of their pulls, by the name of the NodeImage
}

// telling is a hash of what a node reports of its pulls, and when it was first seen.
type telling struct {
	sum   uint64
	since time.Time
}

// progress returns when the current report of the node's pulls was first seen.
func (r *NodeReconciler) progress(image *appsv1beta1.NodeImage) time.Time {
	sum := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(image.Status.ImageStatuses)) {
		for _, tag := range image.Status.ImageStatuses[name].Tags {
			fmt.Fprintf(sum, "%s:%s %d %s %d\n", name, tag.Tag, tag.Version, tag.Phase, tag.Progress)
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[string]telling{}
	}

	known, ok := r.told[image.Name]
	if !ok || known.sum != sum.Sum64() {
		known = telling{sum.Sum64(), r.Now()}
		r.told[image.Name] = known
	}

	return known.since
}

// Setup adds the controllers to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1beta1.NodeImage{}, ownersOf,
		indexOwners); err != nil {
		return fmt.Errorf("indexing NodeImages by job: %w", err)
	}

	r := &NodeReconciler{
		API:     options.API(mgr),
		Events:  reconcile.EachWarning(mgr.GetEventRecorder("nodeimage-controller")),
		Options: options,
		Random:  rand.Float64,
	}
	// Jobs and nodes write NodeImages, too: a plan from a stale cache ends in a conflict.
	r.Own = nil
	err := options.Complete("nodeimage", r, ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.NodeImage{}).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(nodeEvents)).
		Watches(&appsv1beta1.ImagePullJob{}, handler.Funcs{
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.ofJob(ctx, e.Object, q) },
		}))
	if err != nil || !options.Jobs {
		return err
	}
	if err := setupJobs(mgr, options); err != nil {
		return err
	}

	return setupLists(ctx, mgr, options)
}

// nodeEvents filters out the regular status updates of nodes.
var nodeEvents = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, same := e.ObjectNew.(*corev1.Node)
		return isNode && same &&
			(before.UID != after.UID ||
				(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
				fmt.Sprint(before.Labels) != fmt.Sprint(after.Labels) ||
				readySince(before) != readySince(after))
	},
}

func readySince(node *corev1.Node) string {
	if ready := nodes.Ready(node); ready != nil {
		return string(ready.Status) + ready.LastTransitionTime.UTC().String()
	}
	return ""
}

// ofJob requests the NodeImages in which a deleted job owned tags.
func (r *NodeReconciler) ofJob(ctx context.Context, job client.Object, q queue) {
	var list appsv1beta1.NodeImageList
	if err := r.Client.List(ctx, &list, client.MatchingFields{ownersOf: string(job.GetUID())},
		client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing NodeImages of a deleted job", "job",
			client.ObjectKeyFromObject(job))
		return
	}
	for i := range list.Items {
		q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *NodeReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s := imagepull.NodeSnapshot{
		Name:   request.Name,
		Delay:  r.Options.CreationDelay,
		Now:    r.Now(),
		Random: r.Random,
		JobUID: func(namespace, name string, wanted types.UID) (types.UID, bool) {
			return r.jobUID(ctx, namespace, name, wanted)
		},
		Busy: func(namespace, name string) bool { return r.busy(ctx, namespace, name) },
		SecretUsers: func(namespace, name string, owners map[string]bool) ([]string, bool, bool) {
			return r.secretUsers(ctx, namespace, name, owners)
		},
	}
	image, node := &appsv1beta1.NodeImage{}, &corev1.Node{}

	for _, object := range []client.Object{image, node} {
		err := r.Client.Get(ctx, types.NamespacedName{Name: request.Name}, object)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return ctrl.Result{}, fmt.Errorf("reading %T %s: %w", object, request.Name, err)
		case err == nil && object == client.Object(image):
			s.NodeImage = image
		case err == nil:
			s.Node = node
		}
	}

	if s.NodeImage != nil {
		s.Progress = r.progress(s.NodeImage)
	} else {
		r.mu.Lock()
		delete(r.told, request.Name)
		r.mu.Unlock()
	}

	if s.NodeImage != nil && s.Node == nil {
		// The cache of nodes may be behind that of NodeImages: only the API server knows that the node does
		// not exist.
		switch err := r.Live.Get(ctx, types.NamespacedName{Name: request.Name}, node); {
		case err == nil:
			s.Node = node
		case !apierrors.IsNotFound(err):
			return ctrl.Result{}, fmt.Errorf("reading the node: %w", err)
		}
	}

	plan := imagepull.PlanNode(s)
	if !plan.Idle() {
		log.FromContext(ctx).V(3).Info("Plan", "plan", plan.Why)
	}

	switch err := r.apply(ctx, &s, plan); {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: reconcile.RetrySoon}, nil
	case err != nil:
		return ctrl.Result{}, err
	}

	return ctrl.Result{RequeueAfter: plan.After}, nil
}

func (r *NodeReconciler) apply(
	ctx context.Context, s *imagepull.NodeSnapshot, plan *imagepull.NodePlan,
) error {
	var err error
	w, present := r.For(""), s.NodeImage
	switch {
	case plan.Create:
		if err := w.CreateTyped(ctx, &appsv1beta1.NodeImage{
			ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: plan.Labels},
		}); err != nil {
			return fmt.Errorf("creating the NodeImage: %w", err)
		}
		return nil
	case plan.Delete:
		if err := w.Delete(ctx, present); err != nil {
			return fmt.Errorf("deleting the NodeImage: %w", err)
		}
		return nil
	case plan.Relabel || len(plan.Images) > 0:
		metadata, rest := map[string]any{}, map[string]any{}
		if plan.Relabel {
			metadata["labels"] = replacing(present.Labels, plan.Labels)
		}
		if len(plan.Images) > 0 {
			rest["spec"] = imagesPatch(present, plan.Images)
		}
		if present, err = reconcile.Merge(ctx, w, present, metadata, rest, ""); err != nil {
			return fmt.Errorf("patching the NodeImage: %w", err)
		}
	}

	if plan.Status == nil {
		return nil
	}

	if _, err := reconcile.Merge(ctx, w, present, nil, statusPatch(s.NodeImage, plan.Status),
		"status"); err != nil {
		return fmt.Errorf("patching the status of the NodeImage: %w", err)
	}

	for _, g := range plan.GaveUp {
		note := fmt.Sprintf("image %s:%s on node %s: %s", g.Image, g.Tag, s.Name, g.Message)
		for _, owner := range append(g.Owners, corev1.ObjectReference{}) {
			var on runtime.Object = &owner
			if owner.UID == "" {
				on = s.NodeImage
			}
			r.Events.Eventf(on, nil, corev1.EventTypeWarning, "PullImageFailed", "Pull", "%s", note)
		}
	}

	return nil
}

// job returns a job, or nil if it does not exist. A job that is missing from the cache may just be too new
// for it, so the API server is asked.
func (r *NodeReconciler) job(ctx context.Context, namespace, name string) (*appsv1beta1.ImagePullJob, error) {
	job := &appsv1beta1.ImagePullJob{}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	err := r.Client.Get(ctx, key, job, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, job)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return job, err
}

// jobUID returns the UID of a job. If the cache has no job of that name, or one with another UID, which may
// be an earlier job, the API server is asked. A job that is gone never returns, so it is looked up once for
// all nodes that had it.
func (r *NodeReconciler) jobUID(
	ctx context.Context, namespace, name string, wanted types.UID,
) (types.UID, bool) {
	job, key := &appsv1beta1.ImagePullJob{}, types.NamespacedName{Namespace: namespace, Name: name}
	if err := r.Client.Get(ctx, key, job, client.UnsafeDisableDeepCopy); err == nil && job.UID == wanted {
		return wanted, true
	} else if client.IgnoreNotFound(err) != nil {
		return "", false
	}

	r.mu.Lock()
	gone := r.gone.known[wanted]
	r.mu.Unlock()
	if gone {
		return "", true
	}

	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(appsv1beta1.GroupVersion.WithKind(imagepull.JobKind))
	if err := r.Live.Get(ctx, key, found); client.IgnoreNotFound(err) != nil {
		return "", false
	}

	if found.UID != wanted {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gone.add(wanted)
	}

	return found.UID, true
}

// maxGone is the maximum number of deleted jobs that are remembered. A NodeImage has room for half as many owners.
const maxGone = 16_000

// goneJobs holds the jobs that were found not to exist any more, the oldest first in order.
type goneJobs struct {
	known map[types.UID]bool
	order []types.UID
}

// add remembers a job. If there are too many, the oldest is forgotten: all others may be asked about still, by
// each node that had them.
func (g *goneJobs) add(uid types.UID) {
	if g.known[uid] {
		return
	}
	if g.known == nil {
		g.known = map[types.UID]bool{}
	}
	if len(g.order) == maxGone {
		delete(g.known, g.order[0])
		g.order = g.order[1:]
	}
	g.known[uid], g.order = true, append(g.order, uid)
}

func (r *NodeReconciler) busy(ctx context.Context, namespace, name string) bool {
	job, err := r.job(ctx, namespace, name)
	return err != nil || job != nil && imagepull.Counts(job)
}

// inUse records who uses a secret. Memory is only trusted for a secret that is in use: before a reference is
// dropped, the secret is read.
type inUse struct {
	users []string
	at    time.Time
}

const rememberUse = time.Minute

// secretUsers reads a secret in the namespace of the node daemons; secrets of other namespaces are unknown.
func (r *NodeReconciler) secretUsers(
	ctx context.Context, namespace, name string, owners map[string]bool,
) (using []string, exists, known bool) {
	if namespace != r.Options.Namespace || !r.Options.Jobs {
		return nil, false, false
	}

	r.mu.Lock()
	before, ok := r.used[name]
	r.mu.Unlock()
	if ok && r.Now().Sub(before.at) < rememberUse &&
		slices.ContainsFunc(before.users, func(job string) bool { return owners[job] }) {
		return before.users, true, true
	}

	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, true
	case err != nil:
		return nil, false, false
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	if now.Sub(r.swept) >= rememberUse {
		maps.DeleteFunc(r.used, func(_ string, use inUse) bool { return now.Sub(use.at) >= rememberUse })
		r.swept = now
	}
	if r.used == nil {
		r.used = map[string]inUse{}
	}

	r.used[name] = inUse{users: users(secret), at: now}
	return users(secret), true, true
}
