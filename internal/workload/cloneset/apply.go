package cloneset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/afloat-project/afloat/internal/engine/podplan"

	corev1 "k8s.io/api/core/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/platform/parallel"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Recorder records events on the CloneSet. Its method must not block.
type Recorder interface {
	Event(set *appsv1beta1.CloneSet, eventType, reason, message string)
}

// attempts bounds how often one in-place update is retried on conflicts before a new plan decides again.
const attempts = 4

// errRecreated: the API server refused to update the pod in place, so that it will be recreated. It is no error of the user's either.
var errRecreated = errors.New("the pod will be recreated instead")

// Applier carries plans out.
type Applier struct {
	API    *reconcile.API
	Events Recorder
	// Parallel bounds the requests that one set has in flight.
	Parallel int
}

// application is the carrying out of one plan.
type application struct {
	Applier
	*reconcile.Writer
	plan *Plan
}

// Result is what applying met.
type Result struct {
	// ScaleError and UpdateError are failures to create or delete, and to update.
	ScaleError, UpdateError error
	// CreateError is the failure to create pods alone; Refused is how the API server refused to update one in place.
	CreateError, Refused error
	// RefusedObjects are the pods and claims about which the API server clearly refused a request.
	RefusedObjects []types.UID
	// GrowthError is the failure to grow claims alone.
	GrowthError error
	// Updated: an update in place was begun.
	Updated bool
	// Pruned: podsToDelete was written, so that the plan's version of the set is not the newest.
	Pruned bool
	// PullError is a failure to pull images ahead, which stops nothing (CS-201).
	PullError error
	// Retry: something changed meanwhile; a new plan is due although no event may announce it.
	Retry bool
	// Halted: the revision could not be written, so that nothing else was tried.
	Halted bool
	// Unfinished: the time of the pass was over before all was done; what is left is planned anew.
	Unfinished bool
	// Done are the verdicts that were carried out, and Created is how many pods were created.
	Done    []*podplan.Verdict
	Created int
}

func (r *Result) add(target *error, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok { // each by itself: what is only to be tried again must not hide a failure
		for _, one := range several.Unwrap() {
			r.add(target, one)
		}
		return
	}
	switch {
	case err == nil:
	case errors.Is(err, errRecreated):
	case reconcile.Changed(err):
		r.Retry = true
	default:
		*target = errors.Join(*target, err)
	}
}

// Apply carries out all of the plan but the status. It goes on with other pods where one fails.
func (a *Applier) Apply(ctx context.Context, plan *Plan) Result {
	return a.to(plan).all(ctx)
}

func (a *Applier) to(plan *Plan) *application { return &application{*a, a.API.For(plan.Set.UID), plan} }

func (a *application) all(ctx context.Context) Result {
	result := Result{}
	left, err := a.revisions(ctx)
	if err != nil {
		result.add(&result.UpdateError, err)
		result.Retry, result.Halted = true, true
		return result
	}
	result.add(&result.PullError, a.preDownload(ctx, left))
	result.add(&result.ScaleError, a.claims(ctx))
	result.GrowthError = a.growClaims(ctx, &result)
	result.add(&result.ScaleError, result.GrowthError)
	end := a.Now().Add(max(passTime, pacing.Pause(len(a.plan.Verdicts)+len(a.plan.Create), pauseAtMost)))
	a.pods(ctx, end, &result)
	if a.plan.PrunePodsToDelete {
		err := a.prune(ctx)
		result.Pruned = err == nil
		result.add(&result.ScaleError, err)
	}
	for _, old := range a.plan.History {
		if err := a.Delete(ctx, old); err != nil {
			result.add(&result.UpdateError, fmt.Errorf("deleting revision %s: %w", old.Name, err))
		}
	}
	return result
}

// passTime bounds how long a pass goes on taking up pods, but for a huge set, whose plans cost more. A plan for a large set would
// otherwise be carried out for many seconds in which pods that are complete wait for the next.
const passTime = 500 * time.Millisecond

// pods carries out what is decided about pods in one stream of requests, as long as there is time: what brings pods back into service goes before what
// makes new ones, and that before what takes others out. No request waits for the slowest of those before it. Once a creation failed no further one
// begins: it would fail too (CS-047).
func (a *application) pods(ctx context.Context, end time.Time, result *Result) {
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
	creations, failed := a.plan.Create, false
	panics := parallel.Do(ctx, len(mends)+len(creations)+len(starts), a.Parallel, func(i int) error {
		mu.Lock()
		late, skip := a.Now().After(end), failed
		result.Unfinished = result.Unfinished || late
		mu.Unlock()
		if late {
			return nil
		}
		switch first := len(mends); {
		case i < first:
			a.carryOut(ctx, mends[i], &mu, result)
		case i >= first+len(creations):
			a.carryOut(ctx, starts[i-first-len(creations)], &mu, result)
		case !skip:
			err := a.createOne(ctx, creations[i-first])
			mu.Lock()
			defer mu.Unlock()
			count(&result.Created, err == nil)
			failed = failed || err != nil
			result.CreateError = errors.Join(result.CreateError, err)
			result.add(&result.ScaleError, err)
		}
		return nil
	})
	result.add(&result.UpdateError, errors.Join(panics...))
}

// carryOut carries out one decision, and notes what came of it.
func (a *application) carryOut(ctx context.Context, v *podplan.Verdict, mu *sync.Mutex, result *Result) {
	scaleErr, updateErr := a.verdict(ctx, v)
	mu.Lock()
	defer mu.Unlock()
	refused := reconcile.Refused(scaleErr) || reconcile.Refused(updateErr)
	if refused {
		result.RefusedObjects = append(result.RefusedObjects, v.Pod.UID)
	}
	if v.Action == podplan.UpdateInPlace {
		result.Updated = result.Updated || updateErr == nil
		if refused {
			result.Refused = updateErr
		}
	}
	switch {
	case errors.Is(updateErr, errRecreated):
		result.Done = append(result.Done, &podplan.Verdict{Pod: v.Pod, Action: podplan.Recreate, Reason: podplan.ReasonUpdateRefused})
	case scaleErr == nil && updateErr == nil:
		result.Done = append(result.Done, v)
	}
	result.add(&result.ScaleError, scaleErr)
	result.add(&result.UpdateError, updateErr)
}

func (a *application) createOne(ctx context.Context, creation podplan.Creation) error {
	for _, document := range creation.Claims {
		claim := &corev1.PersistentVolumeClaim{}
		switch err := a.Create(ctx, document, claim); {
		case err == nil || apierrors.IsAlreadyExists(err): // kept, CS-046
		case reconcile.Ending(err):
			return reconcile.ErrChanged
		default:
			a.warn("FailedCreate", "failed to create claim %s: %v", claim.Name, err)
			return fmt.Errorf("creating claim %s: %w", claim.Name, err)
		}
	}
	switch err := a.Create(ctx, creation.Pod, &corev1.Pod{}); {
	case reconcile.Ending(err):
		return reconcile.ErrChanged // the set goes with its namespace; there is nothing to tell anybody
	case err != nil:
		a.warn("FailedCreate", "failed to create pod %s: %v", creation.Name, err)
		return fmt.Errorf("creating pod %s: %w", creation.Name, err)
	}
	a.say("SuccessfulCreate", "created pod %s at revision %s", creation.Name, creation.Revision)
	return nil
}

// verdict carries out the decision about one pod.
func (a *application) verdict(ctx context.Context, v *podplan.Verdict) (scaleErr, updateErr error) {
	switch v.Action {
	case podplan.Delete:
		return a.delete(ctx, v), nil
	case podplan.Release:
		return a.patch(ctx, v), nil
	case podplan.Recreate:
		return nil, a.recreate(ctx, v)
	case podplan.Patch:
		return nil, a.patch(ctx, v)
	case podplan.UpdateInPlace:
		return nil, a.updateInPlace(ctx, v)
	case podplan.Continue:
		_, err := a.refused(ctx, v, a.steps(ctx, v.Pod, inplace.ContinueResize, inplace.Continue))
		return nil, reconcile.Gone(err)
	}
	return nil, nil
}

// delete makes the pod's claims its own and deletes it. In this order nothing need be remembered: whoever deletes the pod, and whatever
// happens meanwhile, its claims go with it, and only with it.
func (a *application) delete(ctx context.Context, v *podplan.Verdict) error {
	for _, claim := range v.Claims {
		if err := a.handOver(ctx, claim, v.Pod); err != nil {
			return err
		}
	}
	switch err := a.Delete(ctx, v.Pod); {
	case apierrors.IsConflict(err):
		return reconcile.ErrChanged
	case err != nil:
		a.warn("FailedDelete", "failed to delete pod %s: %v", v.Pod.Name, err)
		return fmt.Errorf("deleting pod %s: %w", v.Pod.Name, err)
	}
	with := ""
	for _, claim := range v.Claims {
		with += ", with claim " + claim.Name
	}
	a.say("SuccessfulDelete", "deleted pod %s%s: %s", v.Pod.Name, with, v.Message)
	return nil
}

func (a *application) recreate(ctx context.Context, v *podplan.Verdict) error {
	if err := a.missing(ctx, v.Unstored); err != nil {
		return err
	}
	if err := a.patch(ctx, v); err != nil {
		if !errors.Is(err, reconcile.ErrChanged) {
			a.warn("FailedUpdatePodReCreate", "failed to mark pod %s for recreation: %v", v.Pod.Name, err)
		}
		return err
	}
	a.say("SuccessfulUpdatePodReCreate", "pod %s will be recreated: %s", v.Pod.Name, v.Message)
	return nil
}

// patch sends the verdict's patch, made for exactly the version that was looked at; a conflict is left to the next pass (IPU-133).
func (a *application) patch(ctx context.Context, v *podplan.Verdict) error {
	_, err := a.send(ctx, v.Pod, v.Patch)
	return reconcile.Gone(err)
}

func (a *application) send(ctx context.Context, pod *corev1.Pod, patch *podpatch.Patch) (*corev1.Pod, error) {
	body, err := patch.JSON(pod)
	if err != nil {
		return nil, err
	}
	patched, err := reconcile.Patch(ctx, a.Writer, pod, body, patch.Subresource())
	if err != nil {
		return nil, fmt.Errorf("patching pod %s (%s): %w", pod.Name, patch, err)
	}
	return patched, nil
}

// updateInPlace takes the pod out of service and begins its update, each step on the version that the step before left. A conflict
// is answered with a fresh read and, if the pod is still the one that was decided about, another try (IPU-080 to 086, IPU-105, IPU-306).
func (a *application) updateInPlace(ctx context.Context, v *podplan.Verdict) error {
	pod := v.Pod
	for range attempts {
		recreated, err := a.refused(ctx, v, a.steps(ctx, pod, v.Update.Hold, v.Update.Resize, v.Update.Start))
		switch {
		case recreated:
			return errRecreated
		case err == nil:
			a.say("SuccessfulUpdatePodInPlace", "updating pod %s in place %s", v.Pod.Name, v.Message)
			return nil
		case apierrors.IsNotFound(err):
			return reconcile.ErrChanged
		case !apierrors.IsConflict(err):
			a.warn("FailedUpdatePodInPlace", "failed to update pod %s in place to %s: %v", v.Pod.Name, v.Update.Revision, err)
			return err
		}
		pod = &corev1.Pod{}
		if err := a.Read(ctx, client.ObjectKeyFromObject(v.Pod), pod); err != nil {
			return reconcile.Gone(fmt.Errorf("reading pod %s after a conflict: %w", v.Pod.Name, err))
		}
		if !sameDecision(v.Pod, pod) {
			return reconcile.ErrChanged
		}
	}
	return reconcile.ErrChanged
}

// patchStep computes one patch from the version of the pod that the step before left.
type patchStep func(pod *corev1.Pod, now time.Time) (*podpatch.Patch, error)

// steps sends the patches in order, each only after the one before succeeded; empty ones are left out (IPU-080).
func (a *application) steps(ctx context.Context, pod *corev1.Pod, steps ...patchStep) error {
	for _, next := range steps {
		patch, err := next(pod, a.Now())
		if err != nil {
			return err
		}
		if patch.Empty() {
			continue
		}
		if pod, err = a.send(ctx, pod, patch); err != nil {
			return err
		}
	}
	return nil
}

// refused turns an update that the API server will not take, such as a resize against the pod's QoS class, into a recreation if the
// policy allows one, and tells that it did; otherwise the server's words are reported (IPU-184).
func (a *application) refused(ctx context.Context, v *podplan.Verdict, err error) (recreated bool, _ error) {
	tooLarge := apierrors.IsForbidden(err) && strings.Contains(err.Error(), nodeTooSmall)
	if !v.MayRecreate || !apierrors.IsInvalid(err) && !apierrors.IsMethodNotSupported(err) && !tooLarge {
		return false, err // Forbidden is a quota's, a policy's or a disruption budget's word: deleting the pod would pass it by
	}
	pod := &corev1.Pod{}
	if err := a.Read(ctx, client.ObjectKeyFromObject(v.Pod), pod); err != nil {
		return false, reconcile.Gone(fmt.Errorf("reading pod %s, whose update was refused: %w", v.Pod.Name, err))
	}
	a.warn("FailedUpdatePodInPlace", "pod %s is recreated, because the API server refuses to update it in place: %v", v.Pod.Name, err)
	patch := &podpatch.Patch{}
	patch.Label(pub.SpecifiedDelete, "true")
	_, err = a.send(ctx, pod, patch)
	return err == nil, err
}

// nodeTooSmall is in the server's words for a resize that the pod's node can never carry out (IPU-315); there is no code for it.
const nodeTooSmall = "node didn't have enough allocatable resources"

// sameDecision tells whether what was decided about a pod still holds for a newer version of it: the same pod, alive, at the same
// revision, in the same state, with no update or deletion that somebody else began. A pod that was out of service when it was
// decided about, and therefore cost nothing, must still be.
func sameDecision(decided, now *corev1.Pod) bool {
	if decided.UID != now.UID || !podplan.Active(now) || readiness.Ready(now) && !readiness.Ready(decided) {
		return false
	}
	for _, key := range []string{pub.ControllerRevisionHash, pub.LifecycleState, pub.SpecifiedDelete} {
		if decided.Labels[key] != now.Labels[key] {
			return false
		}
	}
	return decided.Annotations[pub.InPlaceUpdateState] == now.Annotations[pub.InPlaceUpdateState] &&
		decided.Annotations[pub.InPlaceUpdateGrace] == now.Annotations[pub.InPlaceUpdateGrace]
}

func (a *application) prune(ctx context.Context) error {
	body, err := reconcile.MergePatch(a.plan.Set, nil, map[string]any{
		"spec": map[string]any{"scaleStrategy": map[string]any{"podsToDelete": a.plan.PodsToDelete}}})
	if err != nil {
		return err
	}
	if _, err := reconcile.Patch(ctx, a.Writer, a.plan.Set, body, ""); err != nil {
		return reconcile.Gone(fmt.Errorf("removing names from podsToDelete: %w", err))
	}
	return nil
}

func (a *application) say(reason, format string, args ...any) {
	a.Events.Event(a.plan.Set, corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...))
}

func (a *application) warn(reason, format string, args ...any) {
	a.Events.Event(a.plan.Set, corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}
