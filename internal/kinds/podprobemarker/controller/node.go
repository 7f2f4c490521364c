package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// mostEvents is the maximum number of events of a pass.
const mostEvents = 20

// NodeReconciler carries out the plans of nodes. Its fields are exported for tests.
type NodeReconciler struct {
	*reconcile.API
	Events reconcile.Recorder
	Pods   *podindex.Index
	// Serverless is the gate EnablePodProbeMarkerOnServerless, Liveness the gate EnhancedLivenessProbe.
	Serverless, Liveness bool

	// wake requests a pass over a PodProbeMarker.
	wake   func(namespace, name string)
	memory reconcile.Memory[memory]
	// selectors are those of PodProbeMarkers.
	selectors reconcile.Selectors
	mu        sync.Mutex
	// told maps a node to the PodProbeMarkers, as namespace/name, with probes in its NodePodProbe or in a
	// version of it that is being written.
	told map[string]map[string]bool
}

// memory is what is remembered about a node between passes.
type memory struct {
	pods   map[types.UID]*known
	events map[string]bool
	// waiting holds the names of restart requests that budgets do not allow yet.
	waiting map[string]bool
}

// known is what is remembered about a pod because the caches do not keep it.
type known struct {
	// ports maps a container and the name of a port to its number; nil until the pod was read.
	ports map[[2]string]int32
	// sum is the checksum of the annotations that the pod was found to have; 0 means none.
	sum uint64
	// running maps a container to since when it runs, which is nil if it does not. It holds while the
	// checksum that the caches keep of the containers is containers.
	running    map[string]*corev1.ContainerStateRunning
	containers string
	// marked is when its labels and annotations were last written, and later is how long the next write must
	// wait.
	marked time.Time
	later  time.Duration
}

// markEvery limits how often labels and annotations of a pod are written: without a limit, each write of
// somebody else to the same keys would be answered by one of ours.
const markEvery = time.Second

// ownerOf returns the key under which own writes for a node are remembered, because its NodePodProbe may not
// exist yet.
func ownerOf(node string) types.UID { return types.UID("node/" + node) }

// owner returns the key of a node as long as a node or NodePodProbe of that name exists.
func (r *NodeReconciler) owner(ctx context.Context, name types.NamespacedName) (types.UID, error) {
	for _, object := range []client.Object{&corev1.Node{}, &appsv1alpha1.NodePodProbe{}} {
		err := r.Client.Get(ctx, name, object, client.UnsafeDisableDeepCopy)
		if err == nil {
			return ownerOf(name.Name), nil
		}
		if !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("reading %T %s: %w", object, name.Name, err)
		}
	}
	return "", nil
}

func (r *NodeReconciler) forget(name types.NamespacedName, owner types.UID) {
	r.Own.Forget(owner)
	r.memory.Forget(owner)
	r.tells(name.Name, nil)
}

// tells records which PodProbeMarkers have probes on a node, and wakes those that no longer have any there.
func (r *NodeReconciler) tells(node string, markers map[string]bool) {
	r.mu.Lock()
	before := r.told[node]
	if len(markers) == 0 {
		delete(r.told, node)
	} else {
		if r.told == nil {
			r.told = map[string]map[string]bool{}
		}
		r.told[node] = markers
	}

	r.mu.Unlock()
	for marker := range before {
		if !markers[marker] {
			r.wake(split(marker))
		}
	}
}

// nodesTold returns the nodes that have probes of a PodProbeMarker, as far as this process has written to
// them.
func (r *NodeReconciler) nodesTold(marker string) (nodes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, markers := range r.told {
		if markers[marker] {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (r *NodeReconciler) pass(
	ctx context.Context, name types.NamespacedName, owner types.UID,
) (reconcile.Outcome, error) {
	if owner == "" {
		return reconcile.Outcome{}, nil
	}

	begin := r.Now()
	if err := r.Own.Settle(ctx, owner, begin); err != nil {
		return reconcile.Outcome{}, err
	}

	s, err := r.snapshot(ctx, name.Name, owner)
	if err != nil {
		return reconcile.Outcome{}, err
	}

	plan := podprobemarker.PlanNode(&s.Snapshot)
	if s.failed != nil {
		return reconcile.Outcome{}.Retry(s.failed)
	}

	done := reconcile.Outcome{
		After:    plan.After,
		Planning: r.Now().Sub(begin),
		Headline: plan.String(),
		Record:   func() []any { return []any{"plan", plan.String()} },
	}
	r.warn(s, plan)
	err = r.apply(ctx, s, plan, &done)
	for _, of := range s.memory.pods {
		if of.later > 0 {
			reconcile.MinRequeue(&done.After, of.later)
			of.later = 0
		}
	}

	reconcile.MinRequeue(&done.After, r.Own.Again(owner))
	return done, err
}

// warn records events for new warnings.
func (r *NodeReconciler) warn(s *snapshot, plan *podprobemarker.Plan) {
	told, events := map[string]bool{}, 0
	for _, w := range plan.Warnings {
		var of client.Object = w.Pod
		if w.Marker != nil {
			of = w.Marker
		}
		about := string(of.GetUID()) + " " + w.Reason + " " + w.Message
		if !s.memory.events[about] && !told[about] {
			if events == mostEvents {
				continue
			}
			events++
			r.Events.Event(of, corev1.EventTypeWarning, w.Reason, w.Message)
		}
		told[about] = true
	}

	s.memory.events = told
}

// apply carries out a plan. The next plan finds what was not done; a failed write does not prevent the
// others.
func (r *NodeReconciler) apply(
	ctx context.Context, s *snapshot, plan *podprobemarker.Plan, done *reconcile.Outcome,
) (found error) {
	w := r.For(s.owner)
	errs := []error{r.tell(ctx, w, s, plan)}
	errs = append(errs,
		w.Each(ctx, len(plan.Pods), func(i int) error { return r.mark(ctx, w, s, &plan.Pods[i]) })...)
	held, failed := r.restarts(ctx, w, s, plan.Restarts)
	done.HeldByBudget = held

	for _, err := range append(errs, failed...) {
		switch {
		case reconcile.IsStalePlan(err), apierrors.IsAlreadyExists(err): // another writer came first
			reconcile.MinRequeue(&done.After, reconcile.RetrySoon)
		case err != nil && found == nil:
			found = err
		}
	}

	return found
}

// tell writes the list of the NodePodProbe.
func (r *NodeReconciler) tell(
	ctx context.Context, w *reconcile.Writer, s *snapshot, plan *podprobemarker.Plan,
) error {
	var before []appsv1alpha1.PodProbe
	if s.List != nil {
		before = s.List.Spec.PodProbes
	}

	now := podprobemarker.Listed(before)
	if plan.Create || plan.Write {
		wanted := podprobemarker.Listed(plan.List)
		both := maps.Clone(wanted)
		maps.Copy(both, now)
		r.tells(s.Name, both)
		// A PodProbeMarker that is being deleted asks which nodes have its probes, and is gone if none has.
		// If it asked before told was updated, its deletion is visible by now.
		for marker := range wanted {
			switch going, err := r.going(ctx, marker); {
			case err != nil:
				return err
			case going:
				return reconcile.ErrStalePlan
			}
		}
		now = wanted
	}

	switch {
	case plan.Create:
		list := &appsv1alpha1.NodePodProbe{
			ObjectMeta: metav1.ObjectMeta{Name: s.Name},
			Spec:       appsv1alpha1.NodePodProbeSpec{PodProbes: plan.List},
		}
		if err := w.CreateTyped(ctx, list); err != nil {
			return fmt.Errorf("creating the NodePodProbe: %w", err)
		}
	case plan.Delete:
		if err := w.Delete(ctx, s.List); err != nil {
			return fmt.Errorf("deleting the NodePodProbe: %w", err)
		}
		now = nil
	case plan.Write:
		var list any // null removes the whole field
		if len(plan.List) > 0 {
			list = plan.List
		}
		if _, err := reconcile.Merge(ctx, w, s.List, nil,
			map[string]any{"spec": map[string]any{"podProbes": list}}, ""); err != nil {
			// The daemon writes every second, and the caches may be further behind than that.
			if apierrors.IsConflict(err) {
				if err := w.Read(ctx, types.NamespacedName{Name: s.Name},
					&appsv1alpha1.NodePodProbe{}); err != nil {
					return reconcile.StaleIfNotFound(fmt.Errorf("reading the NodePodProbe: %w", err))
				}
			}
			return reconcile.StaleIfNotFound(fmt.Errorf("writing the list of the NodePodProbe: %w", err))
		}
	}

	r.tells(s.Name, now)
	return nil
}

// going reports whether a PodProbeMarker is being deleted, or gone.
func (r *NodeReconciler) going(ctx context.Context, name string) (bool, error) {
	marker := &appsv1alpha1.PodProbeMarker{}
	namespace, name := split(name)
	switch err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, marker,
		client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading PodProbeMarker %s: %w", name, err)
	}
	return marker.DeletionTimestamp != nil, nil
}

// mark writes the changes of a pod, its status first, because others wait for that.
func (r *NodeReconciler) mark(
	ctx context.Context, w *reconcile.Writer, s *snapshot, plan *podprobemarker.PodPlan,
) error {
	pod, of := plan.Pod, s.memory.pods[plan.Pod.UID]
	if plan.Unseen && of.sum == plan.Sum() {
		if plan.Status(pod).Empty() && plan.Metadata(pod).Empty() {
			return nil
		}
	} else if plan.Unseen {
		found, err := r.whole(ctx, pod)
		if err != nil {
			return err
		}
		if found == nil {
			return nil // its deletion event will follow
		}
		pod, plan.Unseen = found, false
		defer func() { plan.Unseen = true }()
	}

	seen := !plan.Unseen
	if patch := plan.Status(pod); !patch.Empty() {
		body, err := patch.JSON(pod)
		if err != nil {
			return err
		}
		answer, err := reconcile.Patch(ctx, w, pod, body, "status")
		if err != nil {
			return reconcile.StaleIfNotFound(fmt.Errorf("writing conditions of pod %s/%s: %w",
				pod.Namespace, pod.Name, err))
		}
		pod = pod.DeepCopy() // with all that is known of its annotations
		pod.ResourceVersion = answer.ResourceVersion
	}

	if patch := plan.Metadata(pod); !patch.Empty() {
		if wait := markEvery - r.Now().Sub(of.marked); wait > 0 && wait <= markEvery {
			of.later = wait
			return nil
		}
		of.marked = r.Now()
		if seen { // until it is known whether they were written
			of.sum = 0
		}
		body, err := patch.JSON(pod)
		if err != nil {
			return err
		}
		if _, err := reconcile.Patch(ctx, w, pod, body, ""); err != nil {
			return reconcile.StaleIfNotFound(fmt.Errorf("marking pod %s/%s: %w",
				pod.Namespace, pod.Name, err))
		}
	}

	if seen {
		of.sum = plan.Sum()
	}

	return nil
}
