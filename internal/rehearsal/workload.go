package rehearsal

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Reader returns what controllers of workloads read a stage with.
func Reader(ctx context.Context, s *Stage) (podapply.Reader, error) {
	if err := podapply.IndexRevisions(ctx, s); err != nil {
		return podapply.Reader{}, err
	}
	err := s.IndexField(ctx, podapply.NewPullJob(), podapply.OwnerIndex, podapply.IndexByController)
	return podapply.Reader{API: s.API(), Pods: s.Pods(), PullJobs: func() bool { return s.PullJobs }}, err
}

// Workload returns a player that makes passes over workloads whose pods have one template.
func Workload[O reconcile.Object, P podapply.Plan, M any](c *podapply.Controller[O, P, M]) Player {
	return func(ctx context.Context, name types.NamespacedName, uid types.UID) (*Pass, error) {
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
func ofPods(plan *podplan.Plan, outcome podapply.Outcome, failed error) *Pass {
	pass := &Pass{
		Failed:         Words(failed),
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
			Creation{Pod: creation.Name, Revision: creation.Revision})
	}

	for _, v := range outcome.Done {
		switch v.Action {
		case podplan.UpdateInPlace, podplan.Delete, podplan.Recreate, podplan.Adopt, podplan.Release:
			pass.Done = append(pass.Done, Step{Verdict: verdict(v)})
		case podplan.Keep, podplan.Wait, podplan.Patch, podplan.Continue:
		}
	}

	if outcome.Created == len(plan.Create) {
		for _, creation := range plan.Create {
			pass.Done = append(pass.Done, Step{
				Created: true,
				Verdict: Verdict{Pod: creation.Name, Revision: creation.Revision},
			})
		}
	}

	return pass
}

// Words returns the text of an error, or an empty string.
func Words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func verdict(v *podplan.Verdict) Verdict {
	told := Verdict{
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

// revisionLabel is the label with the revision of a pod.
const revisionLabel = pub.ControllerRevisionHash
