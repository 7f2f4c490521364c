package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Applier carries plans out.
type Applier struct {
	API    *reconcile.API
	Booker *Booker
}

// Result is the outcome of applying a plan.
type Result struct {
	// Err joins all failures. The failure of one pod does not keep the others from being tried.
	Err error
	// Retry reports that something changed meanwhile. A new plan is due although no event may announce it.
	Retry bool
	// CostErrors are the errors of pods whose deletion cost could not be written (WS-166).
	CostErrors []error
	// Deleted are the pods that were deleted.
	Deleted []*corev1.Pod
	// DeleteErrors are the errors of pods that could not be deleted (WS-175).
	DeleteErrors []error
	// Tried holds the pods that were tried: nil if the pod was written or deleted, or the error if that
	// failed although nothing had changed meanwhile.
	Tried map[types.UID]error
	// Written is the change of the status that was written, or nil if there was none.
	Written *workloadspread.StatusChange
}

func (r *Result) add(err error) (failed bool) {
	switch {
	case err == nil || apierrors.IsNotFound(err):
	case reconcile.IsStalePlan(err):
		r.Retry = true
	default:
		r.Err = errors.Join(r.Err, err)
		return true
	}
	return false
}

// tried records the outcome for a pod.
func (r *Result) tried(pod *corev1.Pod, err error) (failed bool) {
	if failed = r.add(err); failed {
		r.Tried[pod.UID] = err
	} else if _, before := r.Tried[pod.UID]; !before {
		r.Tried[pod.UID] = nil
	}
	return failed
}

// Apply carries out a plan. It writes deletion costs, then the status. Only after that it adopts pods, so
// that their deletions are not booked before they are counted, and deletes others, so that their replacements
// already find their subset passed over (WS-130). writeStatus reports whether the status must be written now.
func (a *Applier) Apply(ctx context.Context, plan *workloadspread.Plan, writeStatus bool) Result {
	result := Result{Tried: map[types.UID]error{}}
	a.pods(ctx, plan, &result, false)
	if !writeStatus {
		return result
	}
	if err := a.status(ctx, plan, &result); err != nil {
		result.add(err)
		return result
	}

	a.pods(ctx, plan, &result, true)
	for i, err := range a.API.For(plan.Spread.UID).Each(ctx, len(plan.Delete), func(i int) error {
		return a.delete(ctx, plan, plan.Delete[i])
	}) {
		if result.tried(plan.Delete[i], err) {
			result.DeleteErrors = append(result.DeleteErrors, err)
		}
		if err == nil {
			result.Deleted = append(result.Deleted, plan.Delete[i])
		}
	}

	return result
}

// pods patches the pods that are adopted, or all others.
func (a *Applier) pods(ctx context.Context, plan *workloadspread.Plan, result *Result, adopted bool) {
	var writes []*workloadspread.PodWrite
	for _, w := range plan.Writes {
		if (w.Adopt != "") == adopted {
			writes = append(writes, w)
		}
	}
	for i, err := range a.API.For(plan.Spread.UID).Each(ctx, len(writes),
		func(i int) error { return a.pod(ctx, plan, writes[i]) }) {
		if result.tried(writes[i].Pod, err) && writes[i].Cost != "" {
			result.CostErrors = append(result.CostErrors, err)
		}
	}
}

// pod writes deletion cost and adoption of a pod with one patch.
func (a *Applier) pod(ctx context.Context, plan *workloadspread.Plan, w *workloadspread.PodWrite) error {
	if _, err := reconcile.Merge(ctx, a.API.For(plan.Spread.UID), w.Pod, w.Metadata, nil, ""); err != nil {
		return fmt.Errorf("patching pod %s: %w", w.Pod.Name, err)
	}
	return nil
}

func (a *Applier) status(ctx context.Context, plan *workloadspread.Plan, result *Result) error {
	var change workloadspread.StatusChange
	written, err := a.Booker.WriteStatus(ctx, plan.Spread,
		func(newest *appsv1beta1.WorkloadSpread) ([]byte, error) {
			if newest.UID != plan.Spread.UID || newest.Generation != plan.Spread.Generation ||
				newest.DeletionTimestamp != nil {
				return nil, reconcile.ErrStalePlan
			}
			change = plan.StatusOn(newest)
			return reconcile.StatusPatch(newest, &newest.Status, &change.Status)
		})
	if err != nil {
		if !reconcile.IsStalePlan(err) {
			a.API.For(plan.Spread.UID).Failed(plan.Spread, err)
		}
		return fmt.Errorf("writing status: %w", err)
	}

	if written != nil {
		a.API.Own.Changed(plan.Spread.UID, written, a.API.Now())
		result.Written = &change
	}

	plan.Status = change
	return nil
}

func (a *Applier) delete(ctx context.Context, plan *workloadspread.Plan, pod *corev1.Pod) error {
	if err := a.API.For(plan.Spread.UID).Delete(ctx, pod); err != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}
