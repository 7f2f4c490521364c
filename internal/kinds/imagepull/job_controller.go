package imagepull

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/platform/message"
	"github.com/afloat-project/afloat/internal/platform/parallel"
	"github.com/afloat-project/afloat/internal/platform/useragent"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Sources of pull secrets are read by name; nothing lists or watches the secrets of users. In the namespace of the node daemons the
// copies are kept.
//
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",namespace=kruise-daemon-config,roleName=kruise-pull-secrets-role,resources=secrets,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kruise-daemon-config,verbs=get
// +kubebuilder:rbac:groups=apps.kruise.io,resources=imagepulljobs/finalizers,verbs=update

const (
	sourcesEvery = time.Minute // how often the sources of a running job's secrets are read (IMG-116)
	tries        = 5           // of one NodeImage that others write too (IMG-213)
	atOnce       = 16
)

// JobReconciler carries out plans of ImagePullJobs. Its fields are for tests to fill in.
type JobReconciler struct {
	Client  client.Client
	Live    client.Reader
	Events  events.EventRecorder
	Secrets *Secrets
	Own     *reconcile.Own
	Options Options
	Now     func() time.Time
	Random  func() float64
	meters  *meters

	mu      sync.Mutex
	synced  map[types.UID]syncedSecrets
	refused map[types.UID]map[string]bool // by job: the nodes whose NodeImages did not accept it
}

// tookJob remembers whether the NodeImage of a node accepted the job.
func (r *JobReconciler) tookJob(job types.UID, node string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		delete(r.refused[job], node)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), tooLarge(err):
		if r.refused == nil {
			r.refused = map[types.UID]map[string]bool{}
		}
		if r.refused[job] == nil {
			r.refused[job] = map[string]bool{}
		}
		r.refused[job][node] = true
	}
}

// tooLarge tells of an object that cannot be stored for its size. What the store says of that, or the connection to it, has no code of its own.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsInternalError(err) &&
		(strings.Contains(err.Error(), "request is too large") || strings.Contains(err.Error(), "message larger than max"))
}

// syncedSecrets are the references that a job's secrets had when they were looked at last.
type syncedSecrets struct {
	refs     []appsv1beta1.ReferenceObject
	problems []string
	at       time.Time
}

func setupJobs(mgr ctrl.Manager, options Options) error {
	meters := newMeters()
	r := &JobReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("imagepulljob-controller"),
		Secrets: &Secrets{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: options.Namespace, Copies: meters.copies},
		Own:     &reconcile.Own{Cache: mgr.GetClient(), Live: mgr.GetAPIReader()}, Options: options, Now: time.Now, Random: rand.Float64, meters: meters}
	for _, collector := range r.meters.all() {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	mapping := &jobEvents{reader: mgr.GetClient()}
	err := ctrl.NewControllerManagedBy(mgr).Named("imagepulljob").
		For(&appsv1beta1.ImagePullJob{}).
		Watches(&appsv1beta1.NodeImage{}, mapping.ofNodeImages()).
		Watches(&corev1.Pod{}, mapping.ofPods()).
		WithOptions(controller.Options{MaxConcurrentReconciles: options.JobWorkers, RateLimiter: options.limiter()}).
		Complete(useragent.Of("imagepulljob", r))
	if err != nil {
		return fmt.Errorf("building the ImagePullJob controller: %w", err)
	}
	return nil
}

// Reconcile implements the reconciler of the library.
func (r *JobReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job := &appsv1beta1.ImagePullJob{}
	if err := r.Client.Get(ctx, request.NamespacedName, job); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("reading ImagePullJob: %w", err)
		}
		r.meters.forget(request.NamespacedName)
		return again(r.Secrets.Release(ctx, request.NamespacedName)) // whatever a former life left (IMG-119)
	}
	s := JobSnapshot{Job: job, Now: r.Now()}
	running := job.DeletionTimestamp == nil && job.Status.CompletionTime == nil
	s.NotReadySince = func(node string) (time.Time, bool) { return r.notReadySince(ctx, node) }
	if running {
		if err := r.Own.Settle(ctx, job.UID, s.Now); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.complete(ctx, &s); err != nil {
			return again(err)
		}
	}
	plan := PlanJob(s)
	if !plan.Idle() {
		log.FromContext(ctx).V(3).Info("Plan", "plan", plan.Why, "assign", len(plan.Assign), "supply", len(plan.Supply), "drop", len(plan.Drop))
	}
	r.meters.observe(job, plan, running)
	if err := r.apply(ctx, &s, plan); err != nil {
		return again(err)
	}
	if !running {
		r.Own.Forget(job.UID)
		r.mu.Lock()
		delete(r.synced, job.UID)
		delete(r.refused, job.UID)
		r.mu.Unlock()
	}
	after := plan.After
	reconcile.Sooner(&after, r.Own.Again(job.UID))
	if running && len(job.Spec.PullSecrets) > 0 && (after == 0 || after > sourcesEvery) {
		after = sourcesEvery
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// again makes of a conflict another try, at once rather than after a back-off.
func again(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: retryConflict}, nil
	}
	return ctrl.Result{}, err
}

// complete reads nodes and secrets of a running job.
func (r *JobReconciler) complete(ctx context.Context, s *JobSnapshot) error {
	job := s.Job
	if !slices.Contains(job.Finalizers, pub.PullJobProtection) { // before there is anything to release (IMG-082)
		finalizers := append(slices.Clone(job.Finalizers), pub.PullJobProtection)
		if err := patchExactly(ctx, r.Client, job, false, map[string]any{"metadata": map[string]any{"finalizers": finalizers}}); err != nil {
			return fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	var err error
	if s.Nodes, err = r.nodes(ctx, job); err != nil {
		return err
	}
	var owned appsv1beta1.NodeImageList
	if err := r.Client.List(ctx, &owned, client.MatchingFields{ownersOf: string(job.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeImages of the job: %w", err)
	}
	for i := range owned.Items {
		s.Owned = append(s.Owned, &owned.Items[i])
	}
	s.Owned = reconcile.Laid(r.Own, job.UID, s.Owned, func(node *appsv1beta1.NodeImage) bool { return slices.Contains(indexOwners(node), string(job.UID)) })
	for i, node := range s.Nodes {
		s.Nodes[i], _ = reconcile.Newest(r.Own, job.UID, node, true)
	}
	r.mu.Lock()
	s.Refused = maps.Clone(r.refused[job.UID])
	r.mu.Unlock()
	s.Secrets, err = r.secrets(ctx, job)
	return err
}

// secrets brings the copies of the job's secrets up to date, once in a while (IMG-116).
func (r *JobReconciler) secrets(ctx context.Context, job *appsv1beta1.ImagePullJob) ([]appsv1beta1.ReferenceObject, error) {
	r.mu.Lock()
	before, ok := r.synced[job.UID]
	r.mu.Unlock()
	if ok && r.Now().Sub(before.at) < sourcesEvery {
		return before.refs, nil
	}
	refs, problems, err := r.Secrets.Sync(ctx, job)
	if err != nil {
		if !apierrors.IsConflict(err) { // IMG-112
			r.Events.Eventf(job, nil, corev1.EventTypeWarning, "FailedSyncSecrets", "SyncSecrets", "%s", message.Bound(err.Error()))
		}
		return nil, err
	}
	if len(problems) > 0 && !slices.Equal(problems, before.problems) {
		r.Events.Eventf(job, nil, corev1.EventTypeWarning, "MissingPullSecret", "SyncSecrets", "%s",
			message.Bound(strings.Join(problems, "; ")+"; the image is pulled without what is missing"))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.synced == nil {
		r.synced = map[types.UID]syncedSecrets{}
	}
	r.synced[job.UID] = syncedSecrets{refs: refs, problems: problems, at: r.Now()}
	return refs, nil
}

// nodes selects the NodeImages of a job, in the order in which they are to pull (IMG-070 to IMG-073).
func (r *JobReconciler) nodes(ctx context.Context, job *appsv1beta1.ImagePullJob) ([]*appsv1beta1.NodeImage, error) {
	var names []string
	switch {
	case job.Spec.PodSelector != nil:
		pods, err := r.pods(ctx, job)
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			names = append(names, pod.Spec.NodeName)
		}
	case job.Spec.Selector != nil && len(job.Spec.Selector.Names) > 0:
		names = job.Spec.Selector.Names
	default:
		return r.labelled(ctx, job.Spec.Selector)
	}
	var nodes []*appsv1beta1.NodeImage
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		node := &appsv1beta1.NodeImage{}
		if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node, client.UnsafeDisableDeepCopy); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, fmt.Errorf("reading NodeImage %s: %w", name, err)
		}
		if node.DeletionTimestamp == nil {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

func (r *JobReconciler) labelled(ctx context.Context, selector *appsv1beta1.ImagePullJobNodeSelector) ([]*appsv1beta1.NodeImage, error) {
	matching := labels.Everything()
	if selector != nil {
		var err error
		if matching, err = metav1.LabelSelectorAsSelector(&selector.LabelSelector); err != nil {
			return nil, fmt.Errorf("spec.selector: %w", err)
		}
	}
	var list appsv1beta1.NodeImageList
	if err := r.Client.List(ctx, &list, client.MatchingLabelsSelector{Selector: matching}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeImages: %w", err)
	}
	var nodes []*appsv1beta1.NodeImage
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			nodes = append(nodes, &list.Items[i])
		}
	}
	slices.SortFunc(nodes, func(a, b *appsv1beta1.NodeImage) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

// pods returns the pods that are selected and have a node, in the order of their update (IMG-070, IMG-071).
func (r *JobReconciler) pods(ctx context.Context, job *appsv1beta1.ImagePullJob) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(&job.Spec.PodSelector.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.podSelector: %w", err)
	}
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var pods []rollout.Candidate
	for i := range list.Items {
		if hasNode(&list.Items[i]) {
			pods = append(pods, rollout.Candidate{Pod: &list.Items[i], Ready: readiness.Ready(&list.Items[i])})
		}
	}
	slices.SortFunc(pods, func(a, b rollout.Candidate) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	if owner := metav1.GetControllerOf(job); owner != nil && owner.Kind == "CloneSet" && strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		set := &appsv1beta1.CloneSet{}
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: owner.Name}, set, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading CloneSet %s: %w", owner.Name, err)
		}
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		if rolling == nil {
			rolling = &appsv1beta1.RollingUpdateCloneSetStrategy{}
		}
		pods = rollout.SortForUpdate(pods, pods, rolling.PriorityStrategy, rolling.ScatterStrategy)
	} else if owner != nil && owner.Kind == "SidecarSet" && strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		set := &appsv1beta1.SidecarSet{}
		if err := r.Client.Get(ctx, types.NamespacedName{Name: owner.Name}, set, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("reading SidecarSet %s: %w", owner.Name, err)
		}
		strategy := &set.Spec.UpdateStrategy
		pods = rollout.SortForSidecars(pods, pods, strategy.PriorityStrategy, strategy.ScatterStrategy)
	} else if owner != nil && owner.Kind == "StatefulSet" {
		slices.SortStableFunc(pods, func(a, b rollout.Candidate) int { return ordinal(b.Pod.Name) - ordinal(a.Pod.Name) })
	}
	ordered := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		ordered = append(ordered, pod.Pod)
	}
	return ordered, nil
}

// ordinal is the number at the end of the name of a StatefulSet's pod, -1 if there is none.
func ordinal(name string) int {
	n := 0
	digits := name[strings.LastIndex(name, "-")+1:]
	if _, err := fmt.Sscanf(digits, "%d", &n); err != nil {
		return -1
	}
	return n
}

func hasNode(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func (r *JobReconciler) apply(ctx context.Context, s *JobSnapshot, plan *JobPlan) error {
	job := s.Job
	if plan.Finish {
		if len(job.Spec.PullSecrets) > 0 {
			if err := r.Secrets.Release(ctx, client.ObjectKeyFromObject(job)); err != nil {
				return err
			}
		}
		finalizers := slices.DeleteFunc(slices.Clone(job.Finalizers), func(f string) bool { return f == pub.PullJobProtection })
		if err := patchExactly(ctx, r.Client, job, false, map[string]any{"metadata": map[string]any{"finalizers": finalizers}}); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if plan.Delete {
		uid := job.UID
		if err := r.Client.Delete(ctx, job, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the finished job: %w", err)
		}
		return nil
	}
	assigner := Assigner{Job: job, Secrets: s.Secrets, ExtraTTL: r.Options.ExtraTTL, Now: s.Now, Random: r.Random}
	drop := func(node *appsv1beta1.NodeImage) (map[string]*appsv1beta1.ImageSpec, error) { //nolint:unparam // as assigner.Assign
		return assigner.Drop(node), nil
	}
	known := map[string]*appsv1beta1.NodeImage{}
	for _, node := range slices.Concat(s.Owned, s.Nodes) {
		known[node.Name] = node
	}
	var work []func() error
	for _, name := range slices.Concat(plan.Assign, plan.Supply) {
		work = append(work, func() error {
			err := r.change(ctx, job.UID, known[name], assigner.Assign)
			r.tookJob(job.UID, name, err)
			return err
		})
	}
	for _, name := range plan.Drop {
		work = append(work, func() error { return r.change(ctx, job.UID, known[name], drop) })
	}
	err := errors.Join(parallel.Do(ctx, len(work), atOnce, func(i int) error { return work[i]() })...)
	if plan.Status != nil {
		if e := patchExactly(ctx, r.Client, job, true, map[string]any{"status": statusDocument(plan.Status)}); client.IgnoreNotFound(e) != nil {
			err = errors.Join(err, fmt.Errorf("writing the status: %w", e))
			if apierrors.IsConflict(e) {
				err = e
			}
		}
	}
	return err
}

// statusDocument is a status as a merge patch: what is empty goes.
func statusDocument(status *appsv1beta1.ImagePullJobStatus) map[string]any {
	document := map[string]any{"startTime": status.StartTime, "completionTime": status.CompletionTime, "desired": status.Desired, "active": status.Active,
		"succeeded": status.Succeeded, "failed": status.Failed, "message": status.Message, "failedNodes": nil}
	if len(status.FailedNodes) > 0 {
		document["failedNodes"] = status.FailedNodes
	}
	return document
}

// change writes to one NodeImage. If somebody else was faster, it decides anew on what is there now (IMG-085, IMG-213).
func (r *JobReconciler) change(ctx context.Context, job types.UID, node *appsv1beta1.NodeImage, decide func(*appsv1beta1.NodeImage) (map[string]*appsv1beta1.ImageSpec, error)) error {
	for try := 1; ; try++ {
		images, err := decide(node)
		if len(images) == 0 || err != nil {
			if errors.Is(err, ErrFull) {
				err = nil // the next plan counts it
			}
			return err
		}
		patched := node.DeepCopy()
		err = patchExactly(ctx, r.Client, patched, false, map[string]any{"spec": imagesPatch(node, images)})
		switch {
		case err == nil:
			r.Own.Changed(job, patched, r.Now())
			return nil
		case apierrors.IsNotFound(err):
			return nil // the node has gone
		case !apierrors.IsConflict(err) || try == tries:
			if !reconcile.Refused(err) { // of what was refused nothing was done
				r.Own.Unsure(job, node, r.Now())
			}
			return fmt.Errorf("patching NodeImage %s: %w", node.Name, err)
		}
		fresh := &appsv1beta1.NodeImage{}
		if err := r.Live.Get(ctx, types.NamespacedName{Name: node.Name}, fresh); err != nil {
			return client.IgnoreNotFound(err)
		}
		node = fresh
	}
}

// notReadySince tells since when a node is not ready, if it is there and is not.
func (r *JobReconciler) notReadySince(ctx context.Context, name string) (time.Time, bool) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node, client.UnsafeDisableDeepCopy); err != nil {
		return time.Time{}, false // nothing is known, or its NodeImage goes too
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time, c.Status != corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}
