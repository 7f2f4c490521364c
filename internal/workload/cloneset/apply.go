package cloneset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/platform/parallel"
)

// Cluster is what applying needs of the API server. Errors are those of apimachinery.
type Cluster interface {
	GetPod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error)
	CreatePod(ctx context.Context, pod map[string]any) (*corev1.Pod, error)
	// PatchPod sends a strategic merge patch to the pod, or to its subresource of that name.
	PatchPod(ctx context.Context, pod *corev1.Pod, body []byte, subresource string) (*corev1.Pod, error)
	// DeletePod deletes exactly this version of the pod.
	DeletePod(ctx context.Context, pod *corev1.Pod) error

	CreateClaim(ctx context.Context, claim map[string]any) (*corev1.PersistentVolumeClaim, error)
	// PatchClaim sends a JSON merge patch.
	PatchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, body []byte) (*corev1.PersistentVolumeClaim, error)
	DeleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error

	GetRevision(ctx context.Context, name types.NamespacedName) (*appsv1.ControllerRevision, error)
	CreateRevision(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error)
	// PatchRevision sends a JSON merge patch.
	PatchRevision(ctx context.Context, r *appsv1.ControllerRevision, body []byte) (*appsv1.ControllerRevision, error)
	DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error

	CreatePullJob(ctx context.Context, job map[string]any) error
	// DeletePullJob deletes the job, whatever its version: its status changes all the time.
	DeletePullJob(ctx context.Context, job *metav1.PartialObjectMetadata) error

	// PatchSet sends a JSON merge patch to the CloneSet, or to its subresource of that name.
	PatchSet(ctx context.Context, set *appsv1beta1.CloneSet, body []byte, subresource string) (*appsv1beta1.CloneSet, error)
}

// Recorder records events on the CloneSet. Its method must not block.
type Recorder interface {
	Event(set *appsv1beta1.CloneSet, eventType, reason, message string)
}

// Kinds of the objects that own writes are tracked for.
const (
	KindPod      ownwrites.Kind = "Pod"
	KindClaim    ownwrites.Kind = "PersistentVolumeClaim"
	KindRevision ownwrites.Kind = "ControllerRevision"
	KindSet      ownwrites.Kind = "CloneSet"
)

// attempts bounds how often one in-place update is retried on conflicts before a new plan decides again.
const attempts = 4

// errRetry ends applying without being an error of the user's: another pass will go on from what is found then.
var errRetry = errors.New("the world changed meanwhile")

// errRecreated: the API server refused to update the pod in place, so that it will be recreated. It is no error of the user's either.
var errRecreated = errors.New("the pod will be recreated instead")

// Applier carries plans out.
type Applier struct {
	Cluster Cluster
	Events  Recorder
	Own     *ownwrites.Tracker
	Now     func() time.Time
	// Parallel bounds the requests that one set has in flight.
	Parallel int
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
	// Unfinished: the time of the pass was over before all was done; what is left is planned anew.
	Unfinished bool
	// Done are the verdicts that were carried out, and Created is how many pods were created.
	Done    []*Verdict
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
	case errors.Is(err, errRetry) || apierrors.IsConflict(err):
		r.Retry = true
	default:
		*target = errors.Join(*target, err)
	}
}

// Apply carries out all of the plan but the status. It goes on with other pods where one fails.
func (a *Applier) Apply(ctx context.Context, plan *Plan) Result {
	result := Result{}
	left, err := a.revisions(ctx, plan)
	if err != nil {
		result.add(&result.UpdateError, err)
		result.Retry = true
		return result
	}
	result.add(&result.PullError, a.preDownload(ctx, plan, left))
	result.add(&result.ScaleError, a.claims(ctx, plan))
	result.GrowthError = a.growClaims(ctx, plan, &result)
	result.add(&result.ScaleError, result.GrowthError)
	end := a.Now().Add(max(passTime, pacing.Pause(len(plan.Verdicts)+len(plan.Create), pauseAtMost)))
	starts := func(v *Verdict) bool { return v.Action == UpdateInPlace || v.Action == Recreate }
	// What brings pods back into service goes before what makes new ones, and that before what takes others out.
	a.verdicts(ctx, plan, &result, end, func(v *Verdict) bool { return !starts(v) })
	result.CreateError = a.create(ctx, plan, end, &result)
	result.add(&result.ScaleError, result.CreateError)
	a.verdicts(ctx, plan, &result, end, starts)
	if plan.PrunePodsToDelete {
		err := a.prune(ctx, plan)
		result.Pruned = err == nil
		result.add(&result.ScaleError, err)
	}
	for _, old := range plan.History {
		if err := a.Cluster.DeleteRevision(ctx, old); err != nil && !apierrors.IsNotFound(err) {
			result.add(&result.UpdateError, fmt.Errorf("deleting revision %s: %w", old.Name, err))
			continue
		}
		a.Own.Deleted(plan.Set.UID, KindRevision, old, a.Now())
	}
	return result
}

// passTime bounds how long a pass goes on taking up pods, but for a huge set, whose plans cost more. A plan for a large set would
// otherwise be carried out for many seconds in which pods that are complete wait for the next.
const passTime = 500 * time.Millisecond

// verdicts carries out those decisions that are chosen, as long as there is time.
func (a *Applier) verdicts(ctx context.Context, plan *Plan, result *Result, end time.Time, chosen func(*Verdict) bool) {
	writing := slices.DeleteFunc(slices.Clone(plan.Verdicts), func(v *Verdict) bool { return v.Action == Keep || v.Action == Wait || !chosen(v) })
	var mu sync.Mutex
	panics := parallel.Do(ctx, len(writing), a.Parallel, func(i int) error {
		late := a.Now().After(end)
		var scaleErr, updateErr error
		if !late {
			scaleErr, updateErr = a.verdict(ctx, plan, writing[i])
		}
		mu.Lock()
		defer mu.Unlock()
		result.Unfinished = result.Unfinished || late
		refused := refusal(scaleErr) || refusal(updateErr)
		if refused {
			result.RefusedObjects = append(result.RefusedObjects, writing[i].Pod.UID)
		}
		if writing[i].Action == UpdateInPlace && !late {
			result.Updated = result.Updated || updateErr == nil
			if refused {
				result.Refused = updateErr
			}
		}
		switch {
		case late:
		case errors.Is(updateErr, errRecreated):
			result.Done = append(result.Done, &Verdict{Pod: writing[i].Pod, Action: Recreate, Reason: ReasonUpdateRefused})
		case scaleErr == nil && updateErr == nil:
			result.Done = append(result.Done, writing[i])
		}
		result.add(&result.ScaleError, scaleErr)
		result.add(&result.UpdateError, updateErr)
		return nil
	})
	result.add(&result.UpdateError, errors.Join(panics...))
}

// create makes pods in rounds of 1, 2, 4 ... parallel requests; a failure ends it after the running round (CS-047).
func (a *Applier) create(ctx context.Context, plan *Plan, end time.Time, result *Result) error {
	for start, round := 0, 1; start < len(plan.Create); start, round = start+round, min(round*2, max(a.Parallel, 1)) {
		if a.Now().After(end) {
			result.Unfinished = true
			return nil
		}
		batch := plan.Create[start:min(start+round, len(plan.Create))]
		errs := parallel.Do(ctx, len(batch), a.Parallel, func(i int) error { return a.createOne(ctx, plan, batch[i]) })
		for _, err := range errs {
			count(&result.Created, err == nil)
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

func (a *Applier) createOne(ctx context.Context, plan *Plan, creation Creation) error {
	owner := plan.Set.UID
	for _, document := range creation.Claims {
		name, _ := object(document, "metadata")["name"].(string)
		claim, err := a.Cluster.CreateClaim(ctx, document)
		switch {
		case apierrors.IsAlreadyExists(err): // kept, CS-046
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return errRetry
		case err != nil:
			a.doubt(plan, KindClaim, name, err)
			a.warn(plan, "FailedCreate", "failed to create claim %s: %v", name, err)
			return fmt.Errorf("creating claim %s: %w", name, err)
		default:
			a.Own.Created(owner, KindClaim, claim, a.Now())
		}
	}
	pod, err := a.Cluster.CreatePod(ctx, creation.Pod)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return errRetry // the set goes with its namespace; there is nothing to tell anybody
	}
	if err != nil {
		a.doubt(plan, KindPod, creation.Name, err)
		a.warn(plan, "FailedCreate", "failed to create pod %s: %v", creation.Name, err)
		return fmt.Errorf("creating pod %s: %w", creation.Name, err)
	}
	a.Own.Created(owner, KindPod, pod, a.Now())
	a.say(plan, "SuccessfulCreate", "created pod %s at revision %s", creation.Name, creation.Revision)
	return nil
}

// clearly tells whether the API server refused a request, so that nothing was done.
func clearly(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500
}

// refusal tells whether the API server refused what was asked of this very object, and may refuse it again.
func refusal(err error) bool {
	return clearly(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err)
}

// doubt remembers a write that may have happened although the answer was an error: anything but a clear refusal.
func (a *Applier) doubt(plan *Plan, kind ownwrites.Kind, name string, err error) {
	if err == nil || clearly(err) {
		return
	}
	a.Own.Unsure(plan.Set.UID, ownwrites.Object{Kind: kind, NamespacedName: types.NamespacedName{Namespace: plan.Set.Namespace, Name: name}}, a.Now())
}

// verdict carries out the decision about one pod.
func (a *Applier) verdict(ctx context.Context, plan *Plan, v *Verdict) (scaleErr, updateErr error) {
	switch v.Action {
	case Delete:
		return a.delete(ctx, plan, v), nil
	case Release:
		return a.patch(ctx, plan, v), nil
	case Recreate:
		return nil, a.recreate(ctx, plan, v)
	case Patch:
		return nil, a.patch(ctx, plan, v)
	case UpdateInPlace:
		return nil, a.updateInPlace(ctx, plan, v)
	case Continue:
		_, err := a.refused(ctx, plan, v, a.steps(ctx, plan, v.Pod, inplace.ContinueResize, inplace.Continue))
		return nil, gone(err)
	}
	return nil, nil
}

// delete makes the pod's claims its own and deletes it. In this order nothing need be remembered: whoever deletes the pod, and whatever
// happens meanwhile, its claims go with it, and only with it.
func (a *Applier) delete(ctx context.Context, plan *Plan, v *Verdict) error {
	for _, claim := range v.Claims {
		if err := a.handOver(ctx, plan, claim, v.Pod); err != nil {
			return err
		}
	}
	err := a.Cluster.DeletePod(ctx, v.Pod)
	switch {
	case apierrors.IsConflict(err):
		return errRetry
	case err != nil && !apierrors.IsNotFound(err):
		a.doubt(plan, KindPod, v.Pod.Name, err)
		a.warn(plan, "FailedDelete", "failed to delete pod %s: %v", v.Pod.Name, err)
		return fmt.Errorf("deleting pod %s: %w", v.Pod.Name, err)
	}
	a.Own.Deleted(plan.Set.UID, KindPod, v.Pod, a.Now())
	with := ""
	for _, claim := range v.Claims {
		with += ", with claim " + claim.Name
	}
	a.say(plan, "SuccessfulDelete", "deleted pod %s%s: %s", v.Pod.Name, with, v.Message)
	return nil
}

func (a *Applier) recreate(ctx context.Context, plan *Plan, v *Verdict) error {
	if err := a.missing(ctx, plan, v.Unstored); err != nil {
		return err
	}
	if err := a.patch(ctx, plan, v); err != nil {
		if !errors.Is(err, errRetry) {
			a.warn(plan, "FailedUpdatePodReCreate", "failed to mark pod %s for recreation: %v", v.Pod.Name, err)
		}
		return err
	}
	a.say(plan, "SuccessfulUpdatePodReCreate", "pod %s will be recreated: %s", v.Pod.Name, v.Message)
	return nil
}

// patch sends the verdict's patch, made for exactly the version that was looked at; a conflict is left to the next pass (IPU-133).
func (a *Applier) patch(ctx context.Context, plan *Plan, v *Verdict) error {
	_, err := a.send(ctx, plan, v.Pod, v.Patch)
	return gone(err)
}

// gone forgives that an object to be changed does not exist any more.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return errRetry
	}
	return err
}

func (a *Applier) send(ctx context.Context, plan *Plan, pod *corev1.Pod, patch *podpatch.Patch) (*corev1.Pod, error) {
	body, err := patch.JSON(pod)
	if err != nil {
		return nil, err
	}
	patched, err := a.Cluster.PatchPod(ctx, pod, body, patch.Subresource())
	if err != nil {
		a.doubt(plan, KindPod, pod.Name, err)
		return nil, fmt.Errorf("patching pod %s (%s): %w", pod.Name, patch, err)
	}
	a.Own.Changed(plan.Set.UID, KindPod, patched, a.Now())
	return patched, nil
}

// updateInPlace takes the pod out of service and begins its update, each step on the version that the step before left. A conflict
// is answered with a fresh read and, if the pod is still the one that was decided about, another try (IPU-080 to 086, IPU-105, IPU-306).
func (a *Applier) updateInPlace(ctx context.Context, plan *Plan, v *Verdict) error {
	pod := v.Pod
	for range attempts {
		recreated, err := a.refused(ctx, plan, v, a.steps(ctx, plan, pod, v.Update.Hold, v.Update.Resize, v.Update.Start))
		switch {
		case recreated:
			return errRecreated
		case err == nil:
			a.say(plan, "SuccessfulUpdatePodInPlace", "updating pod %s in place %s", v.Pod.Name, v.Message)
			return nil
		case apierrors.IsNotFound(err):
			return errRetry
		case !apierrors.IsConflict(err):
			a.warn(plan, "FailedUpdatePodInPlace", "failed to update pod %s in place to %s: %v", v.Pod.Name, v.Update.Revision, err)
			return err
		}
		if pod, err = a.Cluster.GetPod(ctx, types.NamespacedName{Namespace: v.Pod.Namespace, Name: v.Pod.Name}); err != nil {
			return gone(fmt.Errorf("reading pod %s after a conflict: %w", v.Pod.Name, err))
		}
		if !sameDecision(v.Pod, pod) {
			a.Own.Changed(plan.Set.UID, KindPod, pod, a.Now())
			return errRetry
		}
	}
	return errRetry
}

// patchStep computes one patch from the version of the pod that the step before left.
type patchStep func(pod *corev1.Pod, now time.Time) (*podpatch.Patch, error)

// steps sends the patches in order, each only after the one before succeeded; empty ones are left out (IPU-080).
func (a *Applier) steps(ctx context.Context, plan *Plan, pod *corev1.Pod, steps ...patchStep) error {
	for _, next := range steps {
		patch, err := next(pod, a.Now())
		if err != nil {
			return err
		}
		if patch.Empty() {
			continue
		}
		if pod, err = a.send(ctx, plan, pod, patch); err != nil {
			return err
		}
	}
	return nil
}

// refused turns an update that the API server will not take, such as a resize against the pod's QoS class, into a recreation if the
// policy allows one, and tells that it did; otherwise the server's words are reported (IPU-184).
func (a *Applier) refused(ctx context.Context, plan *Plan, v *Verdict, err error) (recreated bool, _ error) {
	tooLarge := apierrors.IsForbidden(err) && strings.Contains(err.Error(), nodeTooSmall)
	if !v.MayRecreate || !apierrors.IsInvalid(err) && !apierrors.IsMethodNotSupported(err) && !tooLarge {
		return false, err // Forbidden is a quota's, a policy's or a disruption budget's word: deleting the pod would pass it by
	}
	pod, getErr := a.Cluster.GetPod(ctx, types.NamespacedName{Namespace: v.Pod.Namespace, Name: v.Pod.Name})
	if getErr != nil {
		return false, gone(fmt.Errorf("reading pod %s, whose update was refused: %w", v.Pod.Name, getErr))
	}
	a.warn(plan, "FailedUpdatePodInPlace", "pod %s is recreated, because the API server refuses to update it in place: %v", v.Pod.Name, err)
	patch := &podpatch.Patch{}
	patch.Label(pub.SpecifiedDelete, "true")
	_, err = a.send(ctx, plan, pod, patch)
	return err == nil, err
}

// nodeTooSmall is in the server's words for a resize that the pod's node can never carry out (IPU-315); there is no code for it.
const nodeTooSmall = "node didn't have enough allocatable resources"

// sameDecision tells whether what was decided about a pod still holds for a newer version of it: the same pod, alive, at the same
// revision, in the same state, with no update or deletion that somebody else began. A pod that was out of service when it was
// decided about, and therefore cost nothing, must still be.
func sameDecision(decided, now *corev1.Pod) bool {
	if decided.UID != now.UID || !Active(now) || readiness.Ready(now) && !readiness.Ready(decided) {
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

func (a *Applier) prune(ctx context.Context, plan *Plan) error {
	body, err := mergePatch(plan.Set.UID, plan.Set.ResourceVersion, nil, map[string]any{
		"spec": map[string]any{"scaleStrategy": map[string]any{"podsToDelete": plan.PodsToDelete}}})
	if err != nil {
		return err
	}
	patched, err := a.Cluster.PatchSet(ctx, plan.Set, body, "")
	if err != nil {
		return gone(fmt.Errorf("removing names from podsToDelete: %w", err))
	}
	a.Own.Changed(plan.Set.UID, KindSet, patched, a.Now())
	return nil
}

func (a *Applier) say(plan *Plan, reason, format string, args ...any) {
	a.Events.Event(plan.Set, corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...))
}

func (a *Applier) warn(plan *Plan, reason, format string, args ...any) {
	a.Events.Event(plan.Set, corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}
