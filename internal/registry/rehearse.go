package registry

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	broadcastjobcontroller "github.com/afloat-project/afloat/internal/kinds/broadcastjob/controller"
	clonesetcontroller "github.com/afloat-project/afloat/internal/kinds/cloneset/controller"
	daemonsetcontroller "github.com/afloat-project/afloat/internal/kinds/daemonset/controller"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	sidecarsetcontroller "github.com/afloat-project/afloat/internal/kinds/sidecarset/controller"
	statefulsetcontroller "github.com/afloat-project/afloat/internal/kinds/statefulset/controller"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// Rehearsal returns a player that makes passes over objects of a kind on a stage.
type Rehearsal func(context.Context, *Environment, *rehearsal.Stage) (rehearsal.Player, error)

// reader returns what controllers of workloads read a stage with.
func reader(ctx context.Context, s *rehearsal.Stage) (podapply.Reader, error) {
	if err := podapply.IndexRevisions(ctx, s); err != nil {
		return podapply.Reader{}, err
	}
	err := s.IndexField(ctx, podapply.NewPullJob(), podapply.OwnerIndex, podapply.IndexByController)
	return podapply.Reader{API: s.API(), Pods: s.Pods(), PullJobs: func() bool { return s.PullJobs }}, err
}

func rehearseCloneSets(ctx context.Context, e *Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	read, err := reader(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := clonesetcontroller.Index(ctx, s); err != nil {
		return nil, err
	}
	return player(clonesetcontroller.New(&clonesetcontroller.Kind{
		Kube: &clonesetcontroller.Kube{Reader: read}, Features: e.cloneSetFeatures(), Random: s.Rand.IntN,
	}, s)), nil
}

func rehearseStatefulSets(ctx context.Context, e *Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	read, err := reader(ctx, s)
	return player(statefulsetcontroller.New(&statefulsetcontroller.Kind{
		Kube: &statefulsetcontroller.Kube{Reader: read}, Features: e.statefulSetFeatures(),
	}, s)), err
}

func rehearseDaemonSets(ctx context.Context, e *Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	read, err := reader(ctx, s)
	return player(daemonsetcontroller.New(&daemonsetcontroller.Kind{
		Kube: &daemonsetcontroller.Kube{Reader: read}, Features: e.daemonSetFeatures(), Template: s.Complete,
	}, s)), err
}

func rehearseBroadcastJobs(_ context.Context, e *Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	return player(broadcastjobcontroller.New(&broadcastjobcontroller.Kind{
		Kube:  &broadcastjobcontroller.Kube{Reader: podapply.Reader{API: s.API(), Pods: s.Pods()}},
		Binds: !e.Flags.AssignJobsByScheduler,
	}, s)), nil
}

// player makes passes over workloads whose pods have one template.
func player[O reconcile.Object, P podapply.Plan, M any](c *podapply.Controller[O, P, M]) rehearsal.Player {
	return func(ctx context.Context, name types.NamespacedName, uid types.UID) (*rehearsal.Pass, error) {
		plan, outcome, err := c.Run(ctx, name, uid)
		if plan == *new(P) {
			return nil, err
		}

		pass := ofPods(plan.Shared(), outcome, err)
		if own, ok := any(plan).(interface{ Summary() []string }); ok {
			pass.Summary = append(own.Summary(), pass.Summary...)
		}
		return pass, nil
	}
}

// ofPods describes a plan for pods of one template, and its outcome, as a pass of a rehearsal.
func ofPods(plan *podplan.Plan, outcome podapply.Outcome, failed error) *rehearsal.Pass {
	pass := &rehearsal.Pass{
		Failed:         words(failed),
		Summary:        plan.Sentences,
		UpdateRevision: plan.UpdateRevision,
		After:          outcome.After,
		Unfinished:     outcome.Unfinished,
	}
	for _, line := range plan.ClaimLines {
		pass.Summary = append(pass.Summary, line.About+": "+line.Words)
	}

	if plan.Waiting != nil {
		pass.Waiting = plan.Waiting.String()
	}

	for _, v := range plan.Verdicts {
		pass.Verdicts = append(pass.Verdicts, verdict(v))
	}

	for _, creation := range plan.Create {
		pass.Creations = append(pass.Creations,
			rehearsal.Creation{Pod: creation.Name, Revision: creation.Revision})
	}

	for _, v := range outcome.Done {
		switch v.Action {
		case podplan.UpdateInPlace, podplan.Delete, podplan.Recreate, podplan.Adopt, podplan.Release:
			pass.Done = append(pass.Done, rehearsal.Step{Verdict: verdict(v)})
		case podplan.Keep, podplan.Wait, podplan.Patch, podplan.Continue:
		}
	}

	if outcome.Created == len(plan.Create) {
		for _, creation := range plan.Create {
			pass.Done = append(pass.Done, rehearsal.Step{
				Created: true,
				Verdict: rehearsal.Verdict{Pod: creation.Name, Revision: creation.Revision},
			})
		}
	}

	return pass
}

// words returns the text of an error, or an empty string.
func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func verdict(v *podplan.Verdict) rehearsal.Verdict {
	told := rehearsal.Verdict{
		Namespace: v.Pod.Namespace,
		Pod:       v.Pod.Name,
		Action:    string(v.Action),
		Reason:    string(v.Reason),
		Message:   v.Message,
		Until:     v.Until,
		Revision:  v.Pod.Labels[revisionLabel],
		Done:      v.Action == podplan.Keep,
		Waits:     v.Action == podplan.Wait,
	}
	if v.Update != nil {
		told.Restarts = v.Update.Change.Stops
	}

	return told
}

func rehearseSidecarSets(_ context.Context, e *Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	features, err := e.sidecarSetFeatures()
	if err != nil {
		return nil, err
	}

	pass := sidecarsetcontroller.New(&sidecarsetcontroller.Kube{
		API:       s.API(),
		Pods:      s.Pods(),
		Namespace: e.Namespace,
	}, features, s)

	return func(ctx context.Context, name types.NamespacedName, uid types.UID) (*rehearsal.Pass, error) {
		outcome, err := pass.Run(ctx, name, uid)
		if outcome.Plan == nil {
			return nil, err
		}
		return ofSidecars(outcome, err), nil
	}, nil
}

func ofSidecars(outcome sidecarsetcontroller.Outcome, failed error) *rehearsal.Pass {
	plan := outcome.Plan
	pass := &rehearsal.Pass{
		Failed:         words(failed),
		Summary:        plan.Sentences,
		UpdateRevision: plan.Status.LatestRevision,
		After:          outcome.After,
	}
	if plan.Waiting != nil {
		pass.Waiting = plan.Waiting.String()
	}
	done := 0
	for _, n := range outcome.Done {
		done += n
	}

	for _, v := range plan.Verdicts {
		told := rehearsal.Verdict{
			Namespace: v.Pod.Namespace,
			Pod:       v.Pod.Name,
			Action:    string(v.Action),
			Reason:    string(v.Reason),
			Message:   v.Message,
			Done:      v.Action == sidecarset.Keep,
			Waits:     v.Action == sidecarset.Wait,
		}
		pass.Verdicts = append(pass.Verdicts, told)
		if done > 0 && !told.Done && !told.Waits {
			pass.Done = append(pass.Done, rehearsal.Step{Verdict: told})
		}
	}

	return pass
}

// revisionLabel is the label with the revision of a pod.
const revisionLabel = pub.ControllerRevisionHash

// Rehearse returns a player that makes passes over objects of a kind on a stage. The stage must contain
// everything that the passes read. more is the number of pods by which each workload exceeds the number that
// the budgets know.
func (e *Environment) Rehearse(
	ctx context.Context, kind *Kind, s *rehearsal.Stage, more map[types.UID]int32,
) (rehearsal.Player, error) {
	if kind.Rehearse == nil {
		return nil, fmt.Errorf("no plans are made for a %s", kind.Name)
	}
	if err := e.rehearseBudgets(s, more); err != nil {
		return nil, err
	}
	return kind.Rehearse(ctx, e, s)
}

// rehearseBudgets makes the budgets on a stage guard its pods.
func (e *Environment) rehearseBudgets(s *rehearsal.Stage, more map[types.UID]int32) error {
	options, err := e.budgetOptions()
	if err != nil || !options.Deletes && !options.Updates {
		return err
	}

	const kind = "PodUnavailableBudget"
	found := s.List(kind, false)
	if len(found) == 0 {
		return nil
	}

	budgets := podunavailablebudgetcontroller.NewRehearsed(s.API(), options)
	totals := map[types.UID]int32{}
	s.Delivered = func(_, after client.Object) {
		if budget, ok := after.(*policyv1beta1.PodUnavailableBudget); ok {
			budgets.Follow(budget)
		}
	}

	for _, object := range found {
		if budget, ok := object.(*policyv1beta1.PodUnavailableBudget); ok {
			if budget.Status.ObservedGeneration > 0 {
				totals[budget.UID] = budget.Status.TotalReplicas
			}
			budgets.Follow(budget)
		}
	}

	s.Guard = budgets.Guard()
	s.Recount = func(ctx context.Context) (again time.Duration, err error) {
		var pods []*corev1.Pod
		for _, object := range s.List("Pod", false) {
			if pod, ok := object.(*corev1.Pod); ok {
				pods = append(pods, pod)
			}
		}
		for _, object := range s.List(kind, false) {
			budget, ok := object.(*policyv1beta1.PodUnavailableBudget)
			if !ok {
				continue
			}
			status, after, err := budgets.Count(ctx, budget, pods, totals, more)
			if err != nil {
				return 0, err
			}
			if after > 0 {
				reconcile.MinRequeue(&again, after)
			}
			if !equality.Semantic.DeepEqual(&budget.Status, status) {
				s.Change(s.KeyOf(kind, budget), func(o client.Object) {
					o.(*policyv1beta1.PodUnavailableBudget).Status = *status
				})
			}
		}
		return again, nil
	}

	return nil
}
