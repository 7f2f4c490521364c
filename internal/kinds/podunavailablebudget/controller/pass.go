package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Pass counts the pods of one budget.
type Pass struct {
	budgetController
	Guard     *Guard
	Workloads *Workloads
}

type (
	budgetController = reconcile.Controller[*policyv1beta1.PodUnavailableBudget, memory]
	session          = reconcile.Session[*policyv1beta1.PodUnavailableBudget, memory]
)

// memory is what is kept of a budget between passes.
type memory struct {
	// seen is what the last numbers were computed from. Event handlers read it while a pass may replace it.
	seen atomic.Pointer[seen]
	// bookings records since when bookings are known.
	bookings firstseen.Times
	// written is when the status was written last.
	written time.Time
	// rivals are other budgets of the same pods, as of compared.
	rivals   []string
	compared time.Time
}

// rivalsEvery is how often budgets are compared with the others of their namespace. That is expensive: its
// cost is the number of budgets times that of pods.
const rivalsEvery = 30 * time.Second

// seen is what a pass has read. It is not changed afterwards.
type seen struct {
	// tops are the workloads that count. above are all controllers above pods, as far as they had to be read.
	tops, above map[podunavailablebudget.Reference]bool
	// controllers reports for the controllers of pods whether the target of the budget is one of them, or
	// above one.
	controllers map[controller]bool
}

// wordsEvery is how often a status is written if only its words change.
const wordsEvery = 5 * time.Second

// words returns how long the write of a status may be delayed because only its words change.
func (m *memory) words(from, to *policyv1beta1.PodUnavailableBudgetStatus, now time.Time) time.Duration {
	same := *to
	same.UsedBy = from.UsedBy
	if from.UsedBy == to.UsedBy || !equality.Semantic.DeepEqual(from, &same) {
		return 0
	}
	return wordsEvery - now.Sub(m.written)
}

// lookAgain is when a budget is looked at again without an event, if it covers no pod, or if its
// workloads are not watched.
const lookAgain = time.Minute

// run makes one pass: it counts, writes the numbers, and annotates the pods with the budget that covers them.
func (p *Pass) run(
	ctx context.Context, s *session,
) (after time.Duration, plan *podunavailablebudget.Plan, err error) {
	if s.Object.DeletionTimestamp != nil {
		return 0, nil, nil
	}

	kept := s.Kept
	budget := p.Guard.desk.Newest(s.Object)
	s.Object = budget
	snapshot, read, err := p.snapshot(ctx, budget)
	if err != nil {
		return 0, nil, err
	}

	note := func(budget *policyv1beta1.PodUnavailableBudget) {
		kept.bookings = podunavailablebudget.Note(kept.bookings, budget, p.API.Now())
		snapshot.Seen = kept.bookings
	}
	note(budget)
	if err := p.look(ctx, snapshot); err != nil {
		return 0, nil, err
	}

	wait := time.Duration(0)
	written, err := p.Guard.desk.WriteStatus(ctx, budget,
		func(newest *policyv1beta1.PodUnavailableBudget) ([]byte, error) {
			rules := p.Guard.rulesOf(newest)
			if !snapshot.Rules.Same(newest) { // it covers other pods now
				return nil, reconcile.ErrStalePlan
			}
			snapshot.Rules = rules
			note(newest)
			plan = podunavailablebudget.Make(*snapshot)
			if wait = kept.words(&newest.Status, &plan.Status, p.API.Now()); wait > 0 {
				return nil, nil
			}
			return reconcile.StatusPatch(newest, &newest.Status, &plan.Status)
		})
	if reconcile.IsStalePlan(err) || apierrors.IsNotFound(err) {
		return reconcile.RetrySoon, nil, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("writing status: %w", err)
	}

	if written != nil {
		kept.written = p.API.Now()
	}

	unwatched := false
	for i := range snapshot.Workloads {
		top := &snapshot.Workloads[i]
		read.tops[top.Reference], unwatched = true, unwatched || !counted(top.GroupKind) || top.Doubt != ""
	}

	kept.seen.Store(&read.seen)

	after = plan.After
	if next := rivalsEvery - p.API.Now().Sub(kept.compared); next > 0 {
		reconcile.MinRequeue(&after, next)
	} else {
		kept.compared, kept.rivals = p.API.Now(),
			snapshot.Rules.Rivals(snapshot.Pods, p.Guard.index.In(budget.Namespace))
	}

	announce(s, plan)
	reconcile.MinRequeue(&after, wait)
	if plan.NoPods || unwatched || read.doubt {
		reconcile.MinRequeue(&after, lookAgain)
	}
	if unwatched && written != nil { // pods have changed, possibly since the workload was read
		reconcile.MinRequeue(&after, otherFor)
	}

	return after, plan, p.stamp(ctx, snapshot)
}

// last returns what the last pass over a budget saw, nil if there was none.
func (p *Pass) last(budget *podunavailablebudget.Rules) *seen {
	if kept := p.Kept(budget.Budget.UID); kept != nil {
		return kept.seen.Load()
	}
	return nil
}

// Counts reports whether the last numbers of a budget depend on the workload. If moved is true, the workload
// has another controller now, and Counts also reports whether it is in the chain above a pod.
func (p *Pass) Counts(
	budget *podunavailablebudget.Rules, workload podunavailablebudget.Reference, moved bool,
) bool {
	last := p.last(budget)
	return budget.Target == workload || last != nil && (last.tops[workload] || moved && last.above[workload])
}

// MayLead reports whether the workload that a budget names may be above a pod, judging by the last pass. A
// controller that the pass did not see may lead there.
func (p *Pass) MayLead(budget *podunavailablebudget.Rules, pod *corev1.Pod) bool {
	direct := controllerOf(pod)
	if direct == (controller{}) || direct.Reference == budget.Target ||
		alone(budget.Target, direct.Reference) {
		return direct.Reference == budget.Target
	}

	last := p.last(budget)
	if last == nil {
		return true
	}
	leads, known := last.controllers[direct]
	return leads || !known
}

// alone reports whether the controller of a pod cannot be controlled by an object of the target's kind, so
// that it need not be read.
func alone(target, direct podunavailablebudget.Reference) bool {
	return direct.GroupKind == target.GroupKind ||
		counted(target.GroupKind) && counted(direct.GroupKind) &&
			len(workloadkind.Of(target.GroupKind).Children) == 0
}

// reading is what is found out while the pods of a budget are read.
type reading struct {
	seen
	// doubt reports that the controllers of some pods are not known or gone. No event need announce when that
	// changes.
	doubt bool
}

// above returns the chain of a pod, as far as it can be read. A chain that cannot be read does not keep a
// budget from counting other pods.
func (p *Pass) above(ctx context.Context, pod *corev1.Pod, read *reading) (Chain, error) {
	chain, err := p.Guard.owners.Above(ctx, pod)
	if err != nil && ctx.Err() != nil {
		return Chain{}, err
	}

	for _, reference := range chain.References {
		read.above[reference] = true
	}
	read.doubt = read.doubt || err != nil || slices.Contains(chain.gone, true)
	return chain, nil //nolint:nilerr // doubt records the error
}

// snapshot reads the pods that the budget covers, and their workloads.
func (p *Pass) snapshot(
	ctx context.Context, budget *policyv1beta1.PodUnavailableBudget,
) (*podunavailablebudget.Snapshot, *reading, error) {
	s := &podunavailablebudget.Snapshot{Rules: p.Guard.rulesOf(budget), Now: p.API.Now()}
	read := &reading{seen: seen{tops: map[podunavailablebudget.Reference]bool{},
		above: map[podunavailablebudget.Reference]bool{}}}

	var pods corev1.PodList
	if err := p.API.Client.List(ctx, &pods, client.InNamespace(budget.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}

	var err error
	if s.Rules.Target.Name == "" {
		err = p.selected(ctx, s, pods.Items, read)
	} else {
		err = p.targeted(ctx, s, pods.Items, read)
	}
	if err != nil {
		return nil, nil, err
	}

	s.Pods = p.newest(s)
	return s, read, nil
}

// targeted adds the pods of the workload that the budget names, and records for their controllers whether it
// is one of them or above them. Pods whose controllers are not known do not count.
func (p *Pass) targeted(
	ctx context.Context, s *podunavailablebudget.Snapshot, pods []corev1.Pod, read *reading,
) error {
	budget, target := s.Rules.Budget, s.Rules.Target
	workload, err := p.Workloads.Get(ctx, budget.Namespace, target)
	if err != nil || workload == nil {
		return err
	}

	counts := podunavailablebudget.Workload{Reference: target, Replicas: workload.Replicas,
		Doubt: workload.Doubt}
	ofController := map[controller]bool{}
	for i := range pods {
		owner := controllerOf(&pods[i])
		if owner == (controller{}) {
			continue
		}
		of, known := ofController[owner]
		if !known {
			if of, err = p.of(ctx, &pods[i], target, workload.UID, read); err != nil {
				return err
			}
			ofController[owner] = of
		}
		if of {
			s.Pods = append(s.Pods, &pods[i])
		}
	}

	if len(s.Pods) == 0 && !counted(target.GroupKind) && workload.Selector != nil {
		for i := range pods {
			if workload.Selector.Matches(labels.Set(pods[i].Labels)) {
				s.Pods = append(s.Pods, &pods[i])
			}
		}
	}

	for _, pod := range s.Pods {
		if readiness.Active(pod) {
			counts.Pods++
		}
	}

	s.Workloads, read.controllers = []podunavailablebudget.Workload{counts}, ofController
	return nil
}

// of reports whether a workload is above a pod. Kinds that only control pods are not read.
func (p *Pass) of(
	ctx context.Context, pod *corev1.Pod, target podunavailablebudget.Reference, uid types.UID, read *reading,
) (bool, error) {
	direct := controllerOf(pod)
	if direct.uid == uid || alone(target, direct.Reference) {
		return direct.uid == uid || uid == "" && direct.Reference == target, nil
	}
	chain, err := p.above(ctx, pod, read)
	return slices.Contains(chain.UIDs, uid) || uid == "" && slices.Contains(chain.References, target), err
}

// selected adds the pods that the selector selects, and the workloads at the top of their controllers.
func (p *Pass) selected(
	ctx context.Context, s *podunavailablebudget.Snapshot, pods []corev1.Pod, read *reading,
) error {
	tops := map[controller]*podunavailablebudget.Workload{}
	topOf, gone := map[controller]controller{}, map[controller]bool{}
	for i := range pods {
		pod := &pods[i]
		if !s.Rules.Selects(pod) {
			continue
		}
		s.Pods = append(s.Pods, pod)
		if !readiness.Active(pod) {
			continue
		}

		owner := controllerOf(pod)
		if owner == (controller{}) {
			s.Bare++
			continue
		}
		top, known := topOf[owner]
		if !known {
			chain, err := p.above(ctx, pod, read)
			if err != nil {
				return err
			}
			last := len(chain.UIDs) - 1
			top = controller{chain.References[last], chain.UIDs[last]}
			topOf[owner], gone[owner] = top, chain.gone[last]
			if tops[top] == nil {
				workload, err := p.Workloads.Get(ctx, pod.Namespace, top.Reference)
				if err != nil {
					return err
				}
				tops[top] = &podunavailablebudget.Workload{Reference: top.Reference, Pods: -1}
				if workload != nil && (workload.UID == top.uid || workload.UID == "") {
					tops[top].Replicas, tops[top].Pods, tops[top].Doubt = workload.Replicas, 0, workload.Doubt
				}
			}
		}

		if tops[top].Pods >= 0 {
			tops[top].Pods++
		} else if gone[owner] {
			s.Gone++
		}
	}

	for _, workload := range tops {
		if workload.Pods >= 0 {
			s.Workloads = append(s.Workloads, *workload)
		}
	}

	slices.SortFunc(s.Workloads, func(a, b podunavailablebudget.Workload) int {
		return strings.Compare(a.String()+a.Name, b.String()+b.Name)
	})
	return nil
}

// look reads pods from the API server whose bookings end now although the cache shows them in service, since
// the cache may be stale. What it finds counts until the cache is as new, however long that takes.
func (p *Pass) look(ctx context.Context, s *podunavailablebudget.Snapshot) error {
	overdue := podunavailablebudget.Overdue(s)
	if len(overdue) == 0 {
		return nil
	}

	writer := p.API.For(s.Rules.Budget.UID)
	errs := writer.Each(ctx, len(overdue), func(i int) error {
		return client.IgnoreNotFound(writer.Read(ctx, client.ObjectKeyFromObject(overdue[i]), &corev1.Pod{}))
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reading pods whose bookings end: %w", err)
	}
	s.Pods = p.newest(s)

	return nil
}

// newest returns the pods of a snapshot with what is known of them from writes and from the API server.
func (p *Pass) newest(s *podunavailablebudget.Snapshot) []*corev1.Pod {
	return reconcile.Overlay(p.API.Own, s.Rules.Budget.UID, s.Pods, func(pod *corev1.Pod) bool {
		return s.Rules.Targets() || s.Rules.Selects(pod)
	})
}

// stamp annotates the pods that the budget decides about with its name.
func (p *Pass) stamp(ctx context.Context, s *podunavailablebudget.Snapshot) error {
	budget := s.Rules.Budget
	var missing []*corev1.Pod
	for _, pod := range s.Pods {
		if !readiness.Active(pod) || pod.Annotations[pub.RelatedBudget] == budget.Name &&
			pod.Annotations[pub.RelatedBudgetLegacy] == budget.Name {
			continue
		}
		covering, err := p.Guard.covering(ctx, pod)
		if err != nil {
			return err
		}
		if s.Rules.Targets() && len(covering) == 0 { // its target may have the pod by its labels
			covering = append(covering, s.Rules)
		}
		if related := podunavailablebudget.Related(pod, covering); related != nil &&
			related.Budget.Name == budget.Name {
			missing = append(missing, pod)
		}
	}

	writer := p.API.For(budget.UID)
	errs := writer.Each(ctx, len(missing), func(i int) error {
		patch := &podpatch.Patch{}
		patch.Annotation(pub.RelatedBudget, budget.Name)
		patch.Annotation(pub.RelatedBudgetLegacy, budget.Name)
		body, err := patch.JSON(missing[i])
		if err != nil {
			return err
		}
		if _, err = reconcile.Patch(ctx, writer, missing[i], body, ""); err != nil &&
			!reconcile.IsStalePlan(reconcile.StaleIfNotFound(err)) {
			return fmt.Errorf("telling pod %s of its budget: %w", missing[i].Name, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

// announce records events about changes of the numbers, and about other budgets of the same pods.
func announce(s *session, plan *podunavailablebudget.Plan) {
	noPods, unknown, multiple := "", "", ""
	if plan.NoPods {
		noPods = "the budget covers no pod"
	}
	if len(plan.Unknown) > 0 {
		unknown = fmt.Sprintf(
			"%s not say how many pods there shall be, so those that there are count; set protectTotalReplicas: %s",
			wording.Form(len(plan.Unknown), "it does", "they do"), wording.Few(plan.Unknown, 5))
	}
	if len(s.Kept.rivals) > 0 {
		multiple = fmt.Sprintf(
			"some of its pods are covered by %s too; about each pod the budget decides that its annotation %s names",
			wording.Few(s.Kept.rivals, 5), pub.RelatedBudget)
	}

	s.Once(corev1.EventTypeNormal, "NoPods", noPods)
	s.Once(corev1.EventTypeWarning, "MultipleBudgets", multiple)
	s.Once(corev1.EventTypeWarning, "UnknownReplicas", unknown)
	s.Once(corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", plan.Error)
	for _, pod := range plan.NotDeleted {
		s.Events.Event(pod, corev1.EventTypeWarning, "NotDeleted",
			"PodUnavailableBudget "+s.Name.Name+" admitted the deletion of the pod, which has not come")
	}
}
