package podapply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Pods carries out what was decided about pods in one stream of requests, as long as the time lasts. What
// brings pods back into service goes first, then what creates new pods, then what takes others out of
// service. No request waits for the slowest of those before it. After a creation has failed no further one
// begins, since it would fail too (CS-047).
func (a *Execution) Pods(ctx context.Context, result *Result, creations []podplan.Creation) {
	var mends, starts []*podplan.Verdict
	for _, v := range a.plan.Verdicts {
		switch v.Action {
		case podplan.Keep, podplan.Wait:
		case podplan.UpdateInPlace, podplan.Recreate:
			starts = append(starts, v)
		default:
			mends = append(mends, v)
		}
	}

	var mu sync.Mutex
	failed := false
	panics := a.InTime(ctx, result, len(mends)+len(creations)+len(starts), func(i int) error {
		mu.Lock()
		skip := failed
		mu.Unlock()
		switch first := len(mends); {
		case i < first:
			a.carryOut(ctx, mends[i], &mu, result)
		case i >= first+len(creations):
			a.carryOut(ctx, starts[i-first-len(creations)], &mu, result)
		case !skip:
			err := a.createOne(ctx, creations[i-first])
			mu.Lock()
			defer mu.Unlock()
			result.created(creations[i-first], err)
			failed = failed || err != nil
		}
		return nil
	})

	result.Add(&result.UpdateError, errors.Join(panics...))
}

// created records the outcome of one creation.
func (r *Result) created(creation podplan.Creation, err error) {
	if err == nil {
		r.Created++
	}
	if creation.Node != "" && !reconcile.IsStalePlan(err) && !errors.Is(err, errEnding) {
		if r.Nodes == nil {
			r.Nodes = map[string]bool{}
		}
		r.Nodes[creation.Node] = err == nil
	}
	r.Add(&r.CreateError, err)
	r.Add(&r.ScaleError, err)
}

// passTime bounds how long a pass starts work on further pods or claims. Carrying out a large plan would
// otherwise take many seconds, in which the next pods wait although pods before them are complete.
const passTime = 500 * time.Millisecond

// InTime is Each with a time limit: what is left when the time is over is planned anew.
func (a *Execution) InTime(ctx context.Context, result *Result, n int, do func(i int) error) []error {
	end, late := a.Now().Add(passTime), atomic.Bool{}
	errs := a.Each(ctx, n, func(i int) error {
		if a.Now().After(end) {
			late.Store(true)
			return nil
		}
		return do(i)
	})
	result.Unfinished = result.Unfinished || late.Load()
	return errs
}

// carryOut carries out one decision and records the outcome.
func (a *Execution) carryOut(ctx context.Context, v *podplan.Verdict, mu *sync.Mutex, result *Result) {
	scaleErr, updateErr := a.applyVerdict(ctx, v)
	mu.Lock()
	defer mu.Unlock()

	refused := failed(scaleErr) || failed(updateErr)
	if refused {
		result.refused(v.Pod.UID, v.Action)
	}
	if v.Action == podplan.UpdateInPlace || v.Action == podplan.Continue {
		result.Updated = result.Updated || updateErr == nil && v.Written()
		if refused {
			result.Refused = updateErr
		}
	}

	switch {
	case errors.Is(updateErr, errRecreated):
		result.Done = append(result.Done, &podplan.Verdict{Pod: v.Pod, Action: podplan.Recreate,
			Reason: podplan.ReasonUpdateRefused})
	case scaleErr == nil && updateErr == nil:
		result.Done = append(result.Done, v)
	}

	result.Add(&result.ScaleError, scaleErr)
	result.Add(&result.UpdateError, updateErr)
}

// failed reports whether the write of a pod failed in any way that says nothing of the plan. Webhooks refuse with any
// code, or are down, and what concerns one pod must hold up no other; nobody can tell from the code whether it does.
func failed(err error) bool {
	return err != nil && !reconcile.IsStalePlan(err) && !errors.Is(err, errRecreated)
}

func (a *Execution) createOne(ctx context.Context, creation podplan.Creation) error {
	for _, name := range creation.Reused {
		if err := a.checkClaimStays(ctx, name, creation.Name); err != nil {
			return err
		}
	}

	if err := a.createClaims(ctx, creation, true); err != nil {
		return err
	}

	pod := &corev1.Pod{}
	switch err := reconcile.Denied(a.Create(ctx, creation.Pod, pod)); {
	case reconcile.IsNamespaceTerminating(err):
		return errEnding
	case apierrors.IsAlreadyExists(err) && a.ownsExisting(ctx, creation.Name):
		return reconcile.ErrStalePlan
	case err != nil:
		a.Warn("FailedCreate", "failed to create pod %s: %v", creation.Name, err)
		return fmt.Errorf("creating pod %s: %w", creation.Name, err)
	}

	if creation.Node != "" && creation.Node != nodes.Target(pod) {
		return a.reject(ctx, pod, fmt.Sprintf("it is not meant for node %s alone any more: "+
			"a webhook or policy must leave its required node affinity as it is", creation.Node))
	}
	if matches, err := metav1.LabelSelectorAsSelector(a.selector); a.selector != nil && err == nil && !matches.Matches(labels.Set(pod.Labels)) {
		return a.reject(ctx, pod, fmt.Sprintf("its labels do not match the selector %s any more: a webhook or policy must leave them as they are", matches))
	}
	if creation.Revision == "" {
		a.Say("SuccessfulCreate", "created pod %s for node %s", creation.Name, creation.Node)
		return nil
	}

	a.Say("SuccessfulCreate", "created pod %s at revision %s", creation.Name, creation.Revision)
	return nil
}

// reject deletes a pod that admission has changed so that it is meant for another node than the
// one it was created for, or for none, or not one of its owner. Otherwise the owner would lack a pod, and a new one would be created
// in each pass.
func (a *Execution) reject(ctx context.Context, pod *corev1.Pod, why string) error {
	err := fmt.Errorf("creating pod %s: it was changed on admission so that %s", pod.Name, why)
	a.Warn("FailedCreate", "failed: %v", err)
	if gone := a.Delete(ctx, pod); gone != nil && !reconcile.IsStalePlan(gone) {
		return errors.Join(err, gone)
	}
	return err
}

// applyVerdict carries out the decision about one pod.
func (a *Execution) applyVerdict(ctx context.Context, v *podplan.Verdict) (scaleErr, updateErr error) {
	if err := a.Ask(ctx, v.Pod, v.Disruption()); err != nil {
		return nil, err
	}

	switch v.Action {
	case podplan.Delete:
		return a.delete(ctx, v), nil
	case podplan.Release:
		return a.patch(ctx, v), nil
	case podplan.Adopt:
		return a.adopt(ctx, v), nil
	case podplan.Recreate:
		return nil, a.recreate(ctx, v)
	case podplan.Patch:
		return nil, a.repair(ctx, v)
	case podplan.UpdateInPlace:
		return nil, a.updateInPlace(ctx, v)
	case podplan.Continue:
		_, err := a.refused(ctx, v, a.steps(ctx, v.Pod, inplace.ContinueResize, inplace.Continue))
		return nil, reconcile.StaleIfNotFound(err)
	}

	return nil, nil
}

// delete makes the pod the owner of its claims and then deletes it. In this order nothing has to be
// remembered: whoever deletes the pod, and whatever happens meanwhile, its claims are deleted with it, and
// only with it.
func (a *Execution) delete(ctx context.Context, v *podplan.Verdict) error {
	if err := a.ensureRevisionAbsent(ctx, v.Unstored); err != nil {
		return err
	}
	if err := a.checkClaimsKept(ctx, v); err != nil {
		return err
	}
	if err := a.HandOver(ctx, v.Pod, v.Claims...); err != nil {
		return err
	}

	switch err := a.Delete(ctx, v.Pod); {
	case apierrors.IsConflict(err):
		return reconcile.ErrStalePlan
	case err != nil:
		a.Warn("FailedDelete", "failed to delete pod %s: %v", v.Pod.Name, err)
		return fmt.Errorf("deleting pod %s: %w", v.Pod.Name, err)
	}

	with := ""
	for _, claim := range v.Claims {
		with += ", with claim " + claim.Name
	}

	a.Say("SuccessfulDelete", "deleted pod %s%s: %s", v.Pod.Name, with, v.Message)
	return nil
}

func (a *Execution) recreate(ctx context.Context, v *podplan.Verdict) error {
	if err := a.ensureRevisionAbsent(ctx, v.Unstored); err != nil {
		return err
	}
	if err := a.patch(ctx, v); err != nil {
		if !errors.Is(err, reconcile.ErrStalePlan) {
			a.Warn("FailedUpdatePodReCreate", "failed to mark pod %s for recreation: %v", v.Pod.Name, err)
		}
		return err
	}
	a.Say("SuccessfulUpdatePodReCreate", "pod %s will be recreated: %s", v.Pod.Name, v.Message)
	return nil
}

// patch sends the verdict's patch, which was made for exactly the version that was decided about. A conflict
// is left to the next pass.
func (a *Execution) patch(ctx context.Context, v *podplan.Verdict) error {
	_, err := a.send(ctx, v.Pod, v.Patch)
	return reconcile.StaleIfNotFound(err)
}

// repair sends the verdict's patch. It records an event if the patch restores the pod's identity.
func (a *Execution) repair(ctx context.Context, v *podplan.Verdict) error {
	pod := v.Pod
	if v.Disruption() == "" { // otherwise the patch depends on whether the pod is in service
		pod = a.reported(ctx, pod)
	}

	_, err := a.send(ctx, pod, v.Patch)
	err = reconcile.StaleIfNotFound(err)
	switch {
	case v.Reason != podplan.ReasonIdentity || reconcile.IsStalePlan(err):
	case err != nil:
		a.Warn("FailedUpdate", "failed to update pod %s: %v", v.Pod.Name, err)
	default:
		a.Say("SuccessfulUpdate", "updated pod %s: %s", v.Pod.Name, v.Message)
	}
	return err
}

func (a *Execution) send(ctx context.Context, pod *corev1.Pod, patch *podpatch.Patch) (*corev1.Pod, error) {
	body, err := patch.JSON(pod)
	if err != nil {
		return nil, err
	}
	patched, err := reconcile.Patch(ctx, a.Writer, pod, body, patch.Subresource())
	if err != nil {
		return nil, fmt.Errorf("patching pod %s (%s): %w", pod.Name, patch, a.Judged(ctx, pod, err))
	}
	return patched, nil
}
