package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// mostMoves and mostGone limit what one pass reads from the API server. readAgain is when it returns for the
// rest, or for a node that could not be read.
const (
	mostMoves, mostGone = 50, 20
	readAgain           = 5 * time.Second
	// orphansAgain is when pods that outlived their workload are looked for again: no event leads from them
	// to their PersistentPodState.
	orphansAgain = time.Minute
	// large is the number of entries above which writes of a status are throttled.
	large = 100
)

// pass records where the pods of one PersistentPodState are ready.
func (r *Reconciler) pass(ctx context.Context, s *session) (done reconcile.Outcome, err error) {
	state := s.Object
	if state.DeletionTimestamp != nil {
		return done, nil
	}

	plan, after, err := r.plan(ctx, state)
	unreadable := ""
	if apierrors.IsForbidden(err) {
		unreadable = err.Error()
	}

	if s.News("WorkloadUnreadable", unreadable) {
		s.Event(corev1.EventTypeWarning, "WorkloadUnreadable",
			"No place is recorded or forgotten: "+unreadable)
	}

	if err != nil {
		return done, err
	}

	done.Planning, done.After = r.Now().Sub(s.Begun), after
	done.Headline = headline(plan)
	done.Record = func() []any { return []any{"summary", []string{done.Headline}} }
	tell(ctx, s, plan)
	if len(plan.Unread) > 0 {
		reconcile.MinRequeue(&done.After, readAgain)
	}

	wait, err := s.WriteStatus(ctx, &state.Status, &plan.Status, len(plan.Status.PodStates) > large)
	reconcile.MinRequeue(&done.After, wait)
	if err == nil && wait == 0 {
		for _, cleaned := range plan.Cleaned {
			s.Event(corev1.EventTypeNormal, "PodStateCleaned",
				fmt.Sprintf("Node %s does not exist any more: pod %s may start anywhere",
					state.Status.PodStates[cleaned].NodeName, cleaned))
		}
	}

	return done, err
}

// plan plans the entries of the status. It reads from the API server before an entry is removed or a pod
// counts as moved: the caches of workloads and pods may be older than the status, and what is removed by
// mistake cannot be recovered.
func (r *Reconciler) plan(
	ctx context.Context, state *appsv1beta1.PersistentPodState,
) (plan *persistentpodstate.Plan, after time.Duration, err error) {
	target := persistentpodstate.TargetOf(state)
	unchanged := &persistentpodstate.Plan{Status: *state.Status.DeepCopy()}
	unchanged.Status.ObservedGeneration = state.Generation
	workload, err := r.Workloads.Read(ctx, state.Namespace, target, false)
	if errors.Is(err, errUnknown) {
		return unchanged, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}

	s, after, err := r.snapshot(ctx, state, workload)
	if err != nil {
		return nil, 0, err
	}

	plan = persistentpodstate.Make(s)
	if len(plan.Forgotten)+len(plan.Moved) == 0 {
		return plan, after, nil
	}

	// The API server may show that a pod that moved is gone, so that its entry would be removed.
	if workload, err = r.Workloads.Read(ctx, state.Namespace, target, true); errors.Is(err, errUnknown) {
		return unchanged, 0, nil
	} else if err != nil {
		return nil, 0, err
	}

	if s, after, err = r.snapshot(ctx, state, workload); err != nil {
		return nil, 0, err
	}
	if err := r.confirm(ctx, s, persistentpodstate.Make(s).Moved, &after); err != nil {
		return nil, 0, err
	}

	return persistentpodstate.Make(s), after, nil
}

// snapshot reads the input of a plan.
func (r *Reconciler) snapshot(
	ctx context.Context, state *appsv1beta1.PersistentPodState, workload *persistentpodstate.Workload,
) (s *persistentpodstate.Snapshot, after time.Duration, err error) {
	s = &persistentpodstate.Snapshot{State: state, Workload: workload}
	if workload == nil {
		if err = r.readNamed(ctx, s); len(s.Pods) > 0 {
			after = orphansAgain
		}
		return s, after, err
	}

	if s.Pods, err = r.Pods.ControlledBy(state.Namespace, workload.UID); err != nil {
		return nil, 0, fmt.Errorf("finding the pods of %s %s: %w", workload.Kind, workload.Name, err)
	}
	if err := r.readNodes(ctx, s); err != nil {
		return nil, 0, err
	}
	if !r.Cleanup || state.Spec.RequiredPersistentTopology == nil {
		return s, 0, nil
	}

	after, err = r.lookForNodes(ctx, s)
	return s, after, err
}

// readNamed reads the pods with entries of a workload that is gone: they may have been orphaned when it was
// deleted.
func (r *Reconciler) readNamed(ctx context.Context, s *persistentpodstate.Snapshot) error {
	for name := range s.State.Status.PodStates {
		pod := &corev1.Pod{}
		switch err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.State.Namespace, Name: name}, pod,
			client.UnsafeDisableDeepCopy); {
		case err == nil:
			s.Pods = append(s.Pods, pod)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading pod %s: %w", name, err)
		}
	}
	return nil
}

// readNodes reads the labels of the nodes on which pods are ready.
func (r *Reconciler) readNodes(ctx context.Context, s *persistentpodstate.Snapshot) error {
	s.Nodes = map[string]map[string]string{}
	for _, pod := range persistentpodstate.ReadyOn(s.Pods) {
		name := pod.Spec.NodeName
		if _, read := s.Nodes[name]; read {
			continue
		}
		node := &corev1.Node{}
		switch err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node,
			client.UnsafeDisableDeepCopy); {
		case err == nil:
			s.Nodes[name] = node.Labels
		case !apierrors.IsNotFound(err): // the other pods are recorded
			log.FromContext(ctx).V(1).Info("A node cannot be read", "node", name, "err", err.Error())
		}
	}

	return nil
}

// lookForNodes looks in the API server for nodes of entries that the caches do not have, if no other node has
// the required labels.
func (r *Reconciler) lookForNodes(
	ctx context.Context, s *persistentpodstate.Snapshot,
) (after time.Duration, err error) {
	s.Gone = map[string]bool{}
	// pods holds the pods by the nodes that are missing from the caches.
	there, pods := map[string]bool{"": true}, map[string][]string{}
	for pod, entry := range s.State.Status.PodStates {
		name := entry.NodeName
		if _, known := there[name]; !known {
			there[name] = r.Client.Get(ctx, types.NamespacedName{Name: name}, &corev1.Node{},
				client.UnsafeDisableDeepCopy) == nil
		}
		if !there[name] {
			pods[name] = append(pods[name], pod)
		}
	}

	if len(pods) == 0 {
		return 0, nil
	}

	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing nodes: %w", err)
	}

	kept := func(pod string) bool {
		must := persistentpodstate.Must(s.State, pod)
		for i := range nodes.Items {
			if persistentpodstate.Keeps(nodes.Items[i].Labels, must) {
				return true
			}
		}
		return false
	}
	maps.DeleteFunc(pods, func(name string, _ []string) bool {
		pods[name] = slices.DeleteFunc(pods[name], kept)
		return len(pods[name]) == 0
	})

	for i, name := range slices.Sorted(maps.Keys(pods)) {
		if i == mostGone {
			return readAgain, nil
		}
		switch err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &corev1.Node{}); {
		case apierrors.IsNotFound(err):
			for _, pod := range pods[name] {
				s.Gone[pod] = true
			}
		case err != nil: // the node does not count as gone
			after = readAgain
		}
	}

	return after, nil
}

// confirm reads the pods that are ready on another node than before from the API server, because the cache
// may be older than the status. Pods beyond the limit of one pass count as not ready, so that their entries
// stay.
func (r *Reconciler) confirm(
	ctx context.Context, s *persistentpodstate.Snapshot, moved []string, after *time.Duration,
) error {
	pods := slices.Clone(s.Pods)
	for i, name := range moved {
		at := slices.IndexFunc(pods, func(pod *corev1.Pod) bool {
			return pod.Name == name && len(persistentpodstate.ReadyOn([]*corev1.Pod{pod})) > 0
		})
		if at < 0 {
			continue
		}

		was := pods[at]
		if i >= mostMoves {
			pods[at] = &corev1.Pod{ObjectMeta: was.ObjectMeta}
			reconcile.MinRequeue(after, reconcile.RetrySoon)
			continue
		}

		pods = slices.Delete(pods, at, at+1)
		pod := &corev1.Pod{}
		switch err := r.Live.Get(ctx, types.NamespacedName{Namespace: was.Namespace, Name: name}, pod); {
		case err == nil && pod.UID == was.UID:
			pods = append(pods, pod)
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("reading pod %s: %w", name, err)
		default: // it is gone, or another pod has its name; an event will follow
		}
	}

	s.Pods = pods
	return r.readNodes(ctx, s)
}

// tell reports what users cannot see otherwise.
func tell(ctx context.Context, s *session, plan *persistentpodstate.Plan) {
	if missing := strings.Join(plan.Missing, ", "); s.News("NodeTopologyKeyMissing", missing) {
		s.Event(corev1.EventTypeWarning, "NodeTopologyKeyMissing",
			"None of the nodes on which pods are ready has these labels, so that they bind no pod: "+missing)
	}

	full := ""
	if len(plan.Full) > 0 {
		full = "full"
	}

	if s.News("PodStatesFull", full) {
		s.Event(corev1.EventTypeWarning, "PodStatesFull",
			fmt.Sprintf("The status has no room for more: nothing new is remembered of %d pods, such as %s",
				len(plan.Full), plan.Full[0]))
	}

	if odd := strings.Join(plan.Odd, ", "); s.News("odd", odd) {
		log.FromContext(ctx).Info("Entries of names without an ordinal are kept", "names",
			plan.Odd[:min(len(plan.Odd), 10)])
	}
}

// headline describes the plan in words.
func headline(plan *persistentpodstate.Plan) string {
	return fmt.Sprintf(
		"%d places are remembered; forgotten %d, moved %d, cleaned %d, nodes that cannot be read %d",
		len(plan.Status.PodStates), len(plan.Forgotten), len(plan.Moved), len(plan.Cleaned), len(plan.Unread),
	)
}
