package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Reader reads what a pass needs. Cached objects must not be changed.
type Reader interface {
	// Target returns the workload of a WorkloadSpread. known reports whether its kind may be spread.
	Target(
		ctx context.Context, spread *appsv1beta1.WorkloadSpread,
	) (target *workloadspread.Target, known bool, err error)
	// Pods returns the pods of the target that the WorkloadSpread selects, from the cache.
	Pods(
		ctx context.Context, spread *appsv1beta1.WorkloadSpread, target *workloadspread.Target,
	) ([]*corev1.Pod, error)
	// Node returns a node from the cache, or nil if it is not known.
	Node(ctx context.Context, name string) (*corev1.Node, error)
	// Whole reads a pod from the API server as an unmodified document. It returns nil if the pod does not
	// exist.
	Whole(ctx context.Context, pod types.NamespacedName) ([]byte, error)
	// Placed looks in the API server for active pods of overdue creations that the cache does not show yet,
	// and returns the creations of those that it finds.
	Placed(
		ctx context.Context, spread *appsv1beta1.WorkloadSpread, overdue []workloadspread.LostBooking,
	) (map[workloadspread.LostBooking]bool, error)
}

// Pass reconciles one WorkloadSpread.
type Pass struct {
	controller
	Reader    Reader
	Applier   Applier
	Versioned workloadspread.Versioned
	// Window is how long a subset is passed over after pods could not be scheduled in it (WS-199).
	Window time.Duration

	filters reconcile.Selectors
}

type (
	controller = reconcile.Controller[*appsv1beta1.WorkloadSpread, memory]
	session    = reconcile.Session[*appsv1beta1.WorkloadSpread, memory]
)

// memory is what is kept of a WorkloadSpread between passes.
type memory struct {
	// examined holds pods that are in no subset yet and were examined. Pods that fit nowhere are not read
	// again at each pass, and pods that could not be written keep their subset until they are tried again.
	examined map[types.UID]examined
	// retries holds the pods whose last write or deletion failed.
	retries timing.Retries
	// looked is when the API server was last asked for pods that the cache does not show, and looks how often
	// it had such pods since all bookings were settled.
	looked time.Time
	looks  int
	// bookings records since when bookings are known.
	bookings firstseen.Times
}

// Outcome is the result of a pass.
type Outcome struct {
	// Plan is the plan that was carried out, or nil if there was nothing to plan.
	Plan *workloadspread.Plan
	// Deleted are the pods that were given up. Lost are the bookings that expired.
	Deleted []*corev1.Pod
	Lost    []workloadspread.LostBooking
	// Planning is how long it took to make the plan.
	Planning time.Duration
	// After is when to requeue although nothing happens; 0 means not at all.
	After time.Duration
}

// unknownAfter is when to requeue if the target's kind may not be spread. It may be listed meanwhile.
const unknownAfter = time.Minute

// run makes one pass: it plans from the caches and the own writes, and applies the plan. It returns an error
// if something failed that a retry may resolve.
func (p *Pass) run(ctx context.Context, s *session) (outcome Outcome, err error) {
	if s.Object.DeletionTimestamp != nil {
		return outcome, nil
	}

	snapshot, known, err := p.snapshot(ctx, s)
	if err != nil {
		return outcome, err
	}
	if !known {
		reconcile.MinRequeue(&outcome.After, unknownAfter)
	}

	begun := s.Now()
	plan := workloadspread.Make(*snapshot)
	outcome.Planning = s.Now().Sub(begun)

	var lookErr error
	overdue := plan.Overdue()
	if len(overdue) > 0 {
		var unseen map[workloadspread.LostBooking]bool
		unseen, lookErr = p.unseen(ctx, s, overdue)
		// What the cache showed to the look is counted now.
		if snapshot, _, err = p.snapshot(ctx, s); err != nil {
			return outcome, err
		}
		snapshot.Unseen, snapshot.LookAgain = unseen, s.Kept.lookAgain()
		plan = workloadspread.Make(*snapshot)
	} else {
		s.Kept.looks = 0
	}

	outcome.Plan = plan
	if plan.Problem != nil {
		if plan.Reason == "" {
			return outcome, nil
		}
		say(s, plan.Reason, plan.Problem.Error())
		if apierrors.IsForbidden(plan.Problem) { // no event announces that somebody granted access
			reconcile.MinRequeue(&outcome.After, unknownAfter)
		}
		return outcome, plan.Problem
	}

	plan.Looked(overdue)
	timing.MinWaitUntil(&outcome.After, s.Begun, plan.Again)
	wait := statusMayWait(s, plan)
	reconcile.MinRequeue(&outcome.After, wait)

	result := p.Applier.Apply(ctx, plan, wait == 0)
	reconcile.MinRequeue(&outcome.After, s.Again())

	learn(s, plan, &result)
	announce(s, &result)
	outcome.Deleted = result.Deleted
	if result.Written != nil {
		outcome.Lost = result.Written.Lost
	}
	if result.Retry {
		reconcile.MinRequeue(&outcome.After, reconcile.RetryAfter)
	}
	timing.MinWaitUntil(&outcome.After, s.Begun, plan.Status.Again)

	return outcome, errors.Join(result.Err, plan.Incomplete, lookErr)
}

// lookAgain returns when the API server may be asked for pods again. The interval doubles a few times.
func (m *memory) lookAgain() time.Time {
	return m.looked.Add(workloadspread.LookEvery << min(max(m.looks-1, 0), 4))
}

// unseen returns the overdue creations whose places must not be given away, since their pods exist, or may
// exist. The cache of pods may be stale for longer than a booking lasts while that of WorkloadSpreads is not.
// All pods of the namespace are listed, less and less often if the cache stays behind.
func (p *Pass) unseen(
	ctx context.Context, s *session, overdue []workloadspread.LostBooking,
) (map[workloadspread.LostBooking]bool, error) {
	var err error
	if !s.Begun.Before(s.Kept.lookAgain()) {
		s.Kept.looked = s.Begun
		var found map[workloadspread.LostBooking]bool
		if found, err = p.Reader.Placed(ctx, s.Object, overdue); err == nil {
			s.Kept.looks++
			return found, nil
		}
	}

	all := make(map[workloadspread.LostBooking]bool, len(overdue))
	for _, lost := range overdue {
		all[lost] = true
	}
	return all, err
}

func (p *Pass) snapshot(ctx context.Context, of *session) (*workloadspread.Snapshot, bool, error) {
	spread, kept, now := of.Object, of.Kept, of.Begun
	target, known, err := p.Reader.Target(ctx, spread)
	if err != nil {
		return nil, false, err
	}

	kept.bookings = workloadspread.Note(kept.bookings, spread, now)
	s := &workloadspread.Snapshot{Spread: spread, Target: target, Versioned: p.Versioned, Window: p.Window,
		Now: now, Known: kept.bookings, Held: kept.retries.All(aboutOf(spread), now)}
	if !target.Exists {
		return s, known, nil
	}

	s.Pods, err = p.Reader.Pods(ctx, spread, target)
	if apierrors.IsForbidden(err) { // until somebody grants access, which is reported to the user
		unknown := *target
		unknown.DesiredError, s.Target = err, &unknown
		return s, known, nil
	}
	if err != nil {
		return nil, false, err
	}
	if s.Pods, s.Left, err = p.withoutRivals(ctx, spread, s.Pods); err != nil {
		return nil, false, err
	}

	return s, known, p.strangers(ctx, of, s)
}

// aboutOf returns what failed attempts depend on: a new generation is tried at once.
func aboutOf(spread *appsv1beta1.WorkloadSpread) string { return fmt.Sprint(spread.Generation) }

// learn records the outcome for the pods of a plan.
func learn(s *session, plan *workloadspread.Plan, result *Result) {
	retries, present := &s.Kept.retries, plan.Members()
	retries.Keep(func(uid types.UID) bool { return present[uid] })
	for uid, err := range result.Tried {
		if err == nil {
			retries.Done(uid)
		} else {
			retries.Failed(uid, aboutOf(plan.Spread), err, s.Now())
		}
	}
}

// stranger is a pod that is in no subset yet although it has a node.
type stranger struct {
	index       int
	pod         *corev1.Pod
	node        *corev1.Node
	fingerprint uint64
	fits        []workloadspread.Fit
	// now is the pod as read from the API server, or nil if it is gone.
	now *corev1.Pod
}

// examined records where a pod fits, and what that depends on.
type examined struct {
	generation  int64
	fingerprint uint64
	fits        []workloadspread.Fit
}

// strangers reads the pods that are in no subset from the API server, since the caches keep little of the
// pods of others. Each is read once, and again only if something has changed that may matter.
func (p *Pass) strangers(ctx context.Context, of *session, s *workloadspread.Snapshot) error {
	kept := of.Kept
	before, still, retries := kept.examined, map[types.UID]examined{}, &kept.retries
	stays := func(pod *corev1.Pod) {
		if e, ok := before[pod.UID]; ok && e.generation == s.Spread.Generation {
			still[pod.UID] = e
		}
	}

	var found []*stranger
	nodes := map[string]*corev1.Node{}
	for i, pod := range s.Pods {
		if _, placed := workloadspread.PlacementOf(s.Spread, pod); placed || !readiness.Active(pod) ||
			pod.Spec.NodeName == "" {
			continue
		}
		if !s.Held[pod.UID].IsZero() {
			stays(pod)
			continue
		}
		node, asked := nodes[pod.Spec.NodeName]
		if !asked {
			var err error
			if node, err = p.Reader.Node(ctx, pod.Spec.NodeName); err != nil {
				return err
			}
			nodes[pod.Spec.NodeName] = node
		}
		if node == nil {
			if s.NodeUnknown == nil {
				s.NodeUnknown = map[types.UID]bool{}
			}
			s.NodeUnknown[pod.UID] = true
			continue
		}

		fingerprint := fingerprintOf(s.Spread, pod, node)
		if e, ok := before[pod.UID]; ok && e.fingerprint == fingerprint && len(e.fits) == 0 {
			stays(pod)
			continue
		}

		found = append(found, &stranger{index: i, pod: pod, node: node, fingerprint: fingerprint})
	}

	errs := of.Each(ctx, len(found),
		func(i int) error { return p.examine(ctx, s.Spread, found[i]) })
	if len(found) > 0 {
		s.Pods = slices.Clone(s.Pods)
	}

	for i, stranger := range found {
		if errs[i] != nil { // the others are counted all the same
			s.Unread = errors.Join(s.Unread, errs[i])
			retries.Failed(stranger.pod.UID, aboutOf(s.Spread), errs[i], s.Now)
			stays(stranger.pod)
			continue
		}
		if s.Pods[stranger.index] = stranger.now; stranger.now == nil {
			continue
		}
		if _, placed := workloadspread.PlacementOf(s.Spread, stranger.now); !placed {
			still[stranger.pod.UID] = examined{s.Spread.Generation, stranger.fingerprint, stranger.fits}
		}
	}

	s.Fits = map[types.UID][]workloadspread.Fit{}
	for uid, e := range still {
		if len(e.fits) > 0 {
			s.Fits[uid] = e.fits
		}
	}

	s.Pods = slices.DeleteFunc(s.Pods, func(pod *corev1.Pod) bool { return pod == nil })
	kept.examined = still
	return nil
}

func (p *Pass) examine(ctx context.Context, spread *appsv1beta1.WorkloadSpread, of *stranger) error {
	document, err := p.Reader.Whole(ctx, types.NamespacedName{Namespace: of.pod.Namespace, Name: of.pod.Name})
	if err != nil || document == nil {
		return err
	}

	now := &corev1.Pod{}
	if err := json.Unmarshal(document, now); err != nil {
		return fmt.Errorf("reading pod %s: %w", of.pod.Name, err)
	}
	if now.UID != of.pod.UID {
		return nil // another pod, which the cache will show
	}
	if _, placed := workloadspread.PlacementOf(spread, now); !placed && readiness.Active(now) {
		if of.fits, err = workloadspread.Fits(spread.Spec.Subsets, document, of.node); err != nil {
			return err
		}
	}
	if _, err := slim.Pod(now); err != nil {
		return fmt.Errorf("reading pod %s: %w", of.pod.Name, err)
	}

	of.now = now
	return nil
}

// fingerprintOf returns a hash of everything in the caches that determines where a pod fits.
func fingerprintOf(spread *appsv1beta1.WorkloadSpread, pod *corev1.Pod, node *corev1.Node) uint64 {
	h := fnv.New64a()
	// Maps are printed in sorted order.
	fmt.Fprint(h, spread.Generation, pod.Generation, pod.Labels, node.UID, node.Labels, node.Spec.Taints)
	return h.Sum64()
}

// statusMayWait returns how long the write of the status may be delayed.
func statusMayWait(s *session, plan *workloadspread.Plan) time.Duration {
	if equality.Semantic.DeepEqual(&plan.Spread.Status, &plan.Status.Status) {
		return 0
	}
	// Adoption waits for the status.
	adopts := slices.ContainsFunc(plan.Writes, func(w *workloadspread.PodWrite) bool { return w.Adopt != "" })
	onlyNumbers := !adopts && len(plan.Status.Lost)+len(plan.Delete) == 0 &&
		sameButNumbers(&plan.Spread.Status, &plan.Status.Status)
	return s.StatusMayWait(onlyNumbers)
}

// sameButNumbers reports whether the webhooks would decide the same by both statuses, because the same places
// are free. The webhooks look for places only in the lists by version.
func sameButNumbers(a, b *appsv1beta1.WorkloadSpreadStatus) bool {
	same := func(x, y []appsv1beta1.WorkloadSpreadSubsetStatus, places bool) bool {
		return slices.EqualFunc(x, y, func(s, t appsv1beta1.WorkloadSpreadSubsetStatus) bool {
			return s.Name == t.Name && (!places || s.MissingReplicas == t.MissingReplicas) &&
				equality.Semantic.DeepEqual(s.Conditions, t.Conditions)
		})
	}
	if a.ObservedGeneration != b.ObservedGeneration || !same(a.SubsetStatuses, b.SubsetStatuses, false) ||
		len(a.VersionedSubsetStatuses) != len(b.VersionedSubsetStatuses) {
		return false
	}

	for version, list := range a.VersionedSubsetStatuses {
		if other, ok := b.VersionedSubsetStatuses[version]; !ok || !same(list, other, true) {
			return false
		}
	}

	return true
}

// Reasons of events on WorkloadSpreads.
const (
	EventCreatePodFailed   = "CreatePodFailed"
	EventDeletePodFailed   = "DeletePodFailed"
	EventPatchCostFailed   = "PatchPodDeletionCostFailed"
	EventRecoverScheduling = "RecoverSchedulable"
)

// announce records events for what was done. Several of one kind are combined into one event.
func announce(s *session, result *Result) {
	if result.Written != nil {
		var created, deleted []string
		for _, lost := range result.Written.Lost {
			if lost.Deletion {
				deleted = append(deleted, lost.Pod+" of subset "+lost.Subset)
			} else {
				created = append(created, lost.Pod+" of subset "+lost.Subset)
			}
		}
		if len(created) > 0 {
			s.Event(corev1.EventTypeWarning, EventCreatePodFailed,
				fmt.Sprintf("%s admitted more than %s ago and never seen, so that %s free again: %s",
					wording.Count(len(created), "pod")+wording.Form(len(created), " was", " were"),
					workloadspread.CreationTimeout,
					wording.Form(len(created), "its place is", "their places are"), wording.Few(created, 5)))
		}
		if len(deleted) > 0 {
			s.Event(corev1.EventTypeWarning, EventDeletePodFailed,
				fmt.Sprintf("%s still there more than %s after %s deletion was admitted: %s",
					wording.Count(len(deleted), "pod")+wording.Form(len(deleted), " is", " are"),
					workloadspread.DeletionTimeout, wording.Form(len(deleted), "its", "their"),
					wording.Few(deleted, 5)))
		}
		if len(result.Written.Recovered) > 0 {
			s.Event(corev1.EventTypeNormal, EventRecoverScheduling,
				"new pods are put again into "+
					wording.Form(len(result.Written.Recovered), "subset ", "subsets ")+
					wording.Few(result.Written.Recovered, 5))
		}
	}

	if n := len(result.CostErrors); n > 0 {
		s.Event(corev1.EventTypeWarning, EventPatchCostFailed,
			fmt.Sprintf("the deletion cost of %s could not be written: %v", wording.Count(n, "pod"),
				result.CostErrors[0]))
	}
	if n := len(result.DeleteErrors); n > 0 {
		s.Event(corev1.EventTypeWarning, EventDeletePodFailed,
			fmt.Sprintf("%s that cannot be scheduled could not be deleted: %v", wording.Count(n, "pod"),
				result.DeleteErrors[0]))
	}

	say(s, workloadspread.ReasonReplicasUnknown, "")
	say(s, workloadspread.ReasonQuotaUnknown, "")
	say(s, workloadspread.ReasonStatusTooLarge, "")
}

// say records a warning unless the last one for that reason and generation was the same. An empty message
// clears it.
func say(s *session, reason, message string) {
	about := ""
	if message != "" {
		about = fmt.Sprintf("%d %s", s.Object.Generation, message)
	}
	if s.News(reason, about) {
		s.Event(corev1.EventTypeWarning, reason, message)
	}
}
