package controller

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// attempts bounds how often one pod is retried on conflicts before a new plan decides again.
const attempts = 4

// Applier carries plans out.
type Applier struct {
	API    *reconcile.API
	Events reconcile.Recorder
}

// application is the carrying out of one plan.
type application struct {
	Applier
	*reconcile.Writer
	plan *sidecarset.Plan
}

// Result is what applying met.
type Result struct {
	// Err are all failures; one pod's does not keep the others from being tried (SS-230).
	Err error
	// Retry: something changed meanwhile; a new plan is due although no event may announce it.
	Retry bool
	// Tried are the pods that were written, with nil, or could not be, though nothing changed meanwhile;
	// likewise the SidecarSet for its new revision, and old ones that could not be deleted.
	Tried map[types.UID]error
	// Done is how many pods were upgraded or reset.
	Done map[sidecarset.Action]int
	// NoRevision: the revision of the present spec could not be stored, so that nothing that names it was
	// written.
	NoRevision bool
}

func (r *Result) add(err error) {
	switch {
	case err == nil:
	case reconcile.IsStalePlan(err):
		r.Retry = true
	default:
		r.Err = errors.Join(r.Err, err)
	}
}

// Apply carries out all of the plan but the status.
func (a *Applier) Apply(ctx context.Context, plan *sidecarset.Plan) Result {
	return a.to(plan).all(ctx)
}

func (a *Applier) to(plan *sidecarset.Plan) *application {
	return &application{*a, a.API.For(plan.SidecarSet.UID), plan}
}

func (a *application) all(ctx context.Context) Result {
	plan := a.plan
	result := Result{Tried: map[types.UID]error{}, Done: map[sidecarset.Action]int{}}
	if err := a.revision(ctx); err != nil {
		if !reconcile.IsStalePlan(err) {
			a.Events.Event(plan.SidecarSet, corev1.EventTypeWarning, "FailedStoreRevision",
				fmt.Sprintf("failed to store revision %s, without which nothing is done: %v",
					plan.Status.LatestRevision, err))
			result.Tried[plan.SidecarSet.UID] = err
		}
		result.add(err)
		result.NoRevision = true
		return result
	}
	if plan.NewRevision != nil || plan.ChangeRevision != nil {
		result.Tried[plan.SidecarSet.UID] = nil
	}
	var writing []*sidecarset.PodVerdict
	for _, v := range plan.Verdicts {
		if v.Change != nil || v.Upgradable != nil || v.Forget {
			writing = append(writing, v)
		}
	}

	done := make([]bool, len(writing))
	for i, err := range a.Each(ctx, len(writing),
		func(i int) error { return a.verdict(ctx, writing[i], &done[i]) }) {
		if done[i] {
			result.Done[writing[i].Action]++
		}
		result.add(err)
		if !reconcile.IsStalePlan(err) {
			result.Tried[writing[i].Pod.UID] = err
		}
	}

	for _, old := range plan.History {
		if err := a.Delete(ctx, old); err != nil {
			result.Tried[old.UID] = err
			result.add(fmt.Errorf("deleting revision %s: %w", old.Name, err))
		}
	}

	return result
}

// verdict changes a pod, which is done then, and says so in its condition.
func (a *application) verdict(ctx context.Context, v *sidecarset.PodVerdict, done *bool) error {
	pod := v.Pod
	if v.Change != nil {
		var err error
		if pod, err = a.change(ctx, v); err != nil {
			a.failed(v, err)
			return err
		}
		*done = true
		if v.Action == sidecarset.Reset {
			a.Events.Event(pod, corev1.EventTypeNormal, "ResetContainerSucceed",
				"reset sidecar container image empty successfully: the container that was replaced stands by, the hot upgrade has ended")
		}
	}
	if v.Upgradable == nil && !v.Forget {
		return nil
	}

	patch := sidecarset.UpgradablePatch(pod, a.plan.SidecarSet.Name, v.Upgradable, a.Now())
	if patch.Empty() {
		return nil
	}

	_, err := a.send(ctx, pod, patch)
	return reconcile.StaleIfNotFound(err)
}

func (a *application) failed(v *sidecarset.PodVerdict, err error) {
	if reconcile.IsStalePlan(err) {
		return
	}
	if v.Action == sidecarset.Reset {
		a.Events.Event(v.Pod, corev1.EventTypeWarning, "ResetContainerFailed",
			fmt.Sprintf(
				"reset sidecar container image empty failed: the container that was replaced still has its former image: %v",
				err))
		return
	}
	a.Events.Event(a.plan.SidecarSet, corev1.EventTypeWarning, "FailedUpgradePod",
		fmt.Sprintf("failed to upgrade pod %s/%s: %v", v.Pod.Namespace, v.Pod.Name, err))
}

// change sends the patches of a verdict, each on the version that the one before left. A conflict is answered
// with a fresh read and, if what was decided still holds, another try.
func (a *application) change(ctx context.Context, v *sidecarset.PodVerdict) (*corev1.Pod, error) {
	pod := v.Pod
	for range attempts {
		// again for a newer version, which may have come back into service
		if err := a.Ask(ctx, pod, v.By); err != nil {
			return nil, err
		}
		next, err := a.once(ctx, v, pod)
		if err == nil || !apierrors.IsConflict(err) {
			return next, reconcile.StaleIfNotFound(err)
		}
		pod = &corev1.Pod{}
		if err := a.Read(ctx, client.ObjectKeyFromObject(v.Pod), pod); err != nil {
			return nil, reconcile.StaleIfNotFound(fmt.Errorf("reading pod %s/%s after a conflict: %w",
				v.Pod.Namespace, v.Pod.Name, err))
		}
	}

	return nil, reconcile.ErrStalePlan
}

func (a *application) once(
	ctx context.Context, v *sidecarset.PodVerdict, pod *corev1.Pod,
) (*corev1.Pod, error) {
	var patches []*podpatch.Patch
	err := reconcile.Guarded(ctx, func() (err error) { // it is told of as the pod's
		if patches, err = v.Change(pod, a.Now()); errors.Is(err, sidecarset.ErrStalePlan) {
			return reconcile.ErrStalePlan
		}
		return err
	})
	if err != nil {
		return nil, err
	}

	for _, patch := range patches {
		if patch.Empty() {
			continue
		}
		if pod, err = a.send(ctx, pod, patch); err != nil {
			return nil, err
		}
	}

	return pod, nil
}

func (a *application) send(ctx context.Context, pod *corev1.Pod, patch *podpatch.Patch) (*corev1.Pod, error) {
	body, err := patch.JSON(pod)
	if err != nil {
		return nil, err
	}
	patched, err := reconcile.Patch(ctx, a.Writer, pod, body, patch.Subresource())
	if err != nil {
		return nil, fmt.Errorf("patching pod %s/%s (%s): %w", pod.Namespace, pod.Name, patch, err)
	}
	return patched, nil
}

// revision writes what concerns the revision of the present spec (SS-183 to SS-186).
func (a *application) revision(ctx context.Context) error {
	if r := a.plan.NewRevision; r != nil {
		switch err := a.CreateTyped(ctx, r.DeepCopy()); {
		case apierrors.IsAlreadyExists(err):
			return a.nameTaken(ctx, r)
		case err != nil:
			return fmt.Errorf("creating revision %s: %w", r.Name, err)
		}
	}
	if change := a.plan.ChangeRevision; change != nil {
		r := change.Revision
		metadata, rest := map[string]any{}, map[string]any{}
		if change.CustomVersion != "" {
			metadata["labels"] = map[string]string{pub.SidecarSetCustomVersion: change.CustomVersion}
		}
		if change.Number != 0 {
			rest["revision"] = change.Number
		}
		if _, err := reconcile.Merge(ctx, a.Writer, r, metadata, rest, ""); err != nil {
			return reconcile.StaleIfNotFound(fmt.Errorf("patching revision %s: %w", r.Name, err))
		}
	}

	return nil
}

// nameTaken settles that the name of a new revision exists: one of our own is there, one of a former
// SidecarSet of that name is about to be collected, and for one with other content the collision count grows.
func (a *application) nameTaken(ctx context.Context, r *appsv1.ControllerRevision) error {
	existing := &appsv1.ControllerRevision{}
	if err := a.Own.Live.Get(ctx, client.ObjectKeyFromObject(r), existing); err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("reading revision %s, whose name is taken: %w",
			r.Name, err))
	}
	if sidecarset.SameContent(existing.Data.Raw, r.Data.Raw) {
		if len(existing.OwnerReferences) == 1 && existing.OwnerReferences[0].UID == a.plan.SidecarSet.UID {
			a.Own.Created(a.plan.SidecarSet.UID, existing, a.Now())
		}
		return reconcile.ErrStalePlan
	}

	collisions := int32(1)
	if a.plan.Status.CollisionCount != nil {
		collisions += *a.plan.Status.CollisionCount
	}
	status := a.plan.SidecarSet.Status.DeepCopy()
	status.CollisionCount = &collisions
	if err := a.PatchStatus(ctx, a.plan.SidecarSet, &a.plan.SidecarSet.Status, status); err != nil {
		return err
	}

	return reconcile.ErrStalePlan
}
