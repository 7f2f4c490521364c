package sidecarset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
	"github.com/afloat-project/afloat/internal/platform/parallel"
)

// Cluster is what applying needs of the API server. Errors are those of apimachinery.
type Cluster interface {
	GetPod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error)
	// PatchPod sends a strategic merge patch to the pod, or to its subresource of that name.
	PatchPod(ctx context.Context, pod *corev1.Pod, body []byte, subresource string) (*corev1.Pod, error)

	GetRevision(ctx context.Context, name types.NamespacedName) (*appsv1.ControllerRevision, error)
	CreateRevision(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error)
	// PatchRevision sends a JSON merge patch.
	PatchRevision(ctx context.Context, r *appsv1.ControllerRevision, body []byte) (*appsv1.ControllerRevision, error)
	// DeleteRevision deletes exactly this version.
	DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error

	// PatchStatus sends a JSON merge patch to the status of the SidecarSet.
	PatchStatus(ctx context.Context, set *appsv1beta1.SidecarSet, body []byte) (*appsv1beta1.SidecarSet, error)
}

// Recorder records events. Its methods must not block.
type Recorder interface {
	// Event is one of the SidecarSet, PodEvent one of a pod.
	Event(set *appsv1beta1.SidecarSet, eventType, reason, message string)
	PodEvent(pod *corev1.Pod, eventType, reason, message string)
}

// Kinds of the objects that own writes are tracked for.
const (
	KindPod      ownwrites.Kind = "Pod"
	KindRevision ownwrites.Kind = "ControllerRevision"
	KindSet      ownwrites.Kind = kind
)

// attempts bounds how often one pod is retried on conflicts before a new plan decides again (SS-229).
const attempts = 4

// errChanged ends applying without being an error of the user's: another pass goes on from what is found then.
var errChanged = errors.New("the world changed meanwhile")

// Applier carries plans out.
type Applier struct {
	Cluster Cluster
	Events  Recorder
	Own     *ownwrites.Tracker
	Now     func() time.Time
	// Parallel bounds the requests that one SidecarSet has in flight.
	Parallel int
}

// Result is what applying met.
type Result struct {
	// Err are all failures; one pod's does not keep the others from being tried (SS-230).
	Err error
	// Retry: something changed meanwhile; a new plan is due although no event may announce it.
	Retry bool
	// Tried are the pods that were written, with nil, or could not be, though nothing changed meanwhile; likewise the SidecarSet for its
	// new revision, and old ones that could not be deleted.
	Tried map[types.UID]error
	// Done is how many pods were upgraded or reset.
	Done map[Action]int
	// NoRevision: the revision of the present spec could not be stored, so that nothing that names it was written.
	NoRevision bool
}

func (r *Result) add(err error) {
	switch {
	case err == nil:
	case errors.Is(err, errChanged) || apierrors.IsConflict(err):
		r.Retry = true
	default:
		r.Err = errors.Join(r.Err, err)
	}
}

// Apply carries out all of the plan but the status.
func (a *Applier) Apply(ctx context.Context, plan *Plan) Result {
	result := Result{Tried: map[types.UID]error{}, Done: map[Action]int{}}
	if err := a.revision(ctx, plan); err != nil {
		if !errors.Is(err, errChanged) && !apierrors.IsConflict(err) {
			a.Events.Event(plan.SidecarSet, corev1.EventTypeWarning, "FailedStoreRevision",
				fmt.Sprintf("failed to store revision %s, without which nothing is done: %v", plan.Status.LatestRevision, err))
			result.Tried[plan.SidecarSet.UID] = err
		}
		result.add(err)
		result.NoRevision = true
		return result
	}
	if plan.NewRevision != nil || plan.ChangeRevision != nil {
		result.Tried[plan.SidecarSet.UID] = nil
	}
	var writing []*PodVerdict
	for _, v := range plan.Verdicts {
		if v.Change != nil || v.Upgradable != nil || v.Forget {
			writing = append(writing, v)
		}
	}
	done := make([]bool, len(writing))
	for i, err := range parallel.Do(ctx, len(writing), a.Parallel, func(i int) error { return a.verdict(ctx, plan, writing[i], &done[i]) }) {
		if done[i] {
			result.Done[writing[i].Action]++
		}
		result.add(err)
		if !errors.Is(err, errChanged) && !apierrors.IsConflict(err) {
			result.Tried[writing[i].Pod.UID] = err
		}
	}
	for _, old := range plan.History {
		if err := a.Cluster.DeleteRevision(ctx, old); err != nil && !apierrors.IsNotFound(err) {
			a.doubt(plan, KindRevision, types.NamespacedName{Namespace: old.Namespace, Name: old.Name}, err)
			result.Tried[old.UID] = err
			result.add(fmt.Errorf("deleting revision %s: %w", old.Name, err))
			continue
		}
		a.Own.Deleted(plan.SidecarSet.UID, KindRevision, old, a.Now())
	}
	return result
}

// verdict changes a pod, which is done then, and says so in its condition.
func (a *Applier) verdict(ctx context.Context, plan *Plan, v *PodVerdict, done *bool) error {
	pod := v.Pod
	if v.Change != nil {
		var err error
		if pod, err = a.change(ctx, plan, v); err != nil {
			a.failed(plan, v, err)
			return err
		}
		*done = true
		if v.Action == Reset {
			a.Events.PodEvent(pod, corev1.EventTypeNormal, "ResetContainerSucceed", "reset sidecar container image empty successfully: the container that was replaced stands by, the hot upgrade has ended") // SS-262
		}
	}
	if v.Upgradable == nil && !v.Forget {
		return nil
	}
	patch := UpgradablePatch(pod, plan.SidecarSet.Name, v.Upgradable, a.Now())
	if patch.Empty() {
		return nil
	}
	_, err := a.send(ctx, plan, pod, patch)
	return gone(err)
}

func (a *Applier) failed(plan *Plan, v *PodVerdict, err error) {
	if errors.Is(err, errChanged) || apierrors.IsConflict(err) {
		return
	}
	if v.Action == Reset {
		a.Events.PodEvent(v.Pod, corev1.EventTypeWarning, "ResetContainerFailed", fmt.Sprintf("reset sidecar container image empty failed: the container that was replaced still has its former image: %v", err)) // SS-262
		return
	}
	a.Events.Event(plan.SidecarSet, corev1.EventTypeWarning, "FailedUpgradePod", fmt.Sprintf("failed to upgrade pod %s/%s: %v", v.Pod.Namespace, v.Pod.Name, err))
}

// change sends the patches of a verdict, each on the version that the one before left. A conflict is answered with a fresh read and, if what
// was decided still holds, another try (SS-229).
func (a *Applier) change(ctx context.Context, plan *Plan, v *PodVerdict) (*corev1.Pod, error) {
	pod := v.Pod
	for range attempts {
		next, err := a.once(ctx, plan, v, pod)
		if err == nil || !apierrors.IsConflict(err) {
			return next, gone(err)
		}
		if pod, err = a.Cluster.GetPod(ctx, types.NamespacedName{Namespace: v.Pod.Namespace, Name: v.Pod.Name}); err != nil {
			return nil, gone(fmt.Errorf("reading pod %s/%s after a conflict: %w", v.Pod.Namespace, v.Pod.Name, err))
		}
		a.Own.Changed(plan.SidecarSet.UID, KindPod, pod, a.Now()) // what is decided next must know what this one shows
	}
	return nil, errChanged
}

func (a *Applier) once(ctx context.Context, plan *Plan, v *PodVerdict, pod *corev1.Pod) (*corev1.Pod, error) {
	var patches []*podpatch.Patch
	err := parallel.Guarded(ctx, func() (err error) { // it is told of as the pod's
		patches, err = v.Change(pod, a.Now())
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, patch := range patches {
		if patch.Empty() {
			continue
		}
		if pod, err = a.send(ctx, plan, pod, patch); err != nil {
			return nil, err
		}
	}
	return pod, nil
}

func (a *Applier) send(ctx context.Context, plan *Plan, pod *corev1.Pod, patch *podpatch.Patch) (*corev1.Pod, error) {
	body, err := patch.JSON(pod)
	if err != nil {
		return nil, err
	}
	patched, err := a.Cluster.PatchPod(ctx, pod, body, patch.Subresource())
	if err != nil {
		a.doubt(plan, KindPod, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, err)
		return nil, fmt.Errorf("patching pod %s/%s (%s): %w", pod.Namespace, pod.Name, patch, err)
	}
	a.Own.Changed(plan.SidecarSet.UID, KindPod, patched, a.Now())
	return patched, nil
}

// gone forgives that an object to be changed does not exist any more (SS-230).
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return errChanged
	}
	return err
}

// doubt remembers a write that may have happened although the answer was an error: anything but a clear refusal.
func (a *Applier) doubt(plan *Plan, kind ownwrites.Kind, name types.NamespacedName, err error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 {
		return
	}
	a.Own.Unsure(plan.SidecarSet.UID, ownwrites.Object{Kind: kind, NamespacedName: name}, a.Now())
}

// revision writes what concerns the revision of the present spec (SS-183 to SS-186).
func (a *Applier) revision(ctx context.Context, plan *Plan) error {
	owner := plan.SidecarSet.UID
	if r := plan.NewRevision; r != nil {
		created, err := a.Cluster.CreateRevision(ctx, r)
		switch {
		case apierrors.IsAlreadyExists(err):
			return a.nameTaken(ctx, plan, r)
		case err != nil:
			a.doubt(plan, KindRevision, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, err)
			return fmt.Errorf("creating revision %s: %w", r.Name, err)
		}
		a.Own.Created(owner, KindRevision, created, a.Now())
	}
	if change := plan.ChangeRevision; change != nil {
		r := change.Revision
		metadata := map[string]any{"uid": r.UID, "resourceVersion": r.ResourceVersion}
		document := map[string]any{"metadata": metadata}
		if change.CustomVersion != "" {
			metadata["labels"] = map[string]string{pub.SidecarSetCustomVersion: change.CustomVersion}
		}
		if change.Number != 0 {
			document["revision"] = change.Number
		}
		body, err := json.Marshal(document)
		if err != nil {
			return fmt.Errorf("encoding patch of revision %s: %w", r.Name, err)
		}
		patched, err := a.Cluster.PatchRevision(ctx, r, body)
		if err != nil {
			a.doubt(plan, KindRevision, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, err)
			return gone(fmt.Errorf("patching revision %s: %w", r.Name, err))
		}
		a.Own.Changed(owner, KindRevision, patched, a.Now())
	}
	return nil
}

// nameTaken settles that the name of a new revision exists: one of our own is there, one of a former SidecarSet of that name is about to be
// collected, and for one with other content the collision count grows (SS-185).
func (a *Applier) nameTaken(ctx context.Context, plan *Plan, r *appsv1.ControllerRevision) error {
	existing, err := a.Cluster.GetRevision(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
	if err != nil {
		return gone(fmt.Errorf("reading revision %s, whose name is taken: %w", r.Name, err))
	}
	if SameContent(existing.Data.Raw, r.Data.Raw) {
		if len(existing.OwnerReferences) == 1 && existing.OwnerReferences[0].UID == plan.SidecarSet.UID {
			a.Own.Created(plan.SidecarSet.UID, KindRevision, existing, a.Now())
		}
		return errChanged
	}
	collisions := int32(1)
	if plan.Status.CollisionCount != nil {
		collisions += *plan.Status.CollisionCount
	}
	status := plan.SidecarSet.Status.DeepCopy()
	status.CollisionCount = &collisions
	if err := a.writeStatus(ctx, plan, status); err != nil {
		return err
	}
	return errChanged
}

// writeStatus patches what differs in the status.
func (a *Applier) writeStatus(ctx context.Context, plan *Plan, status *appsv1beta1.SidecarSetStatus) error {
	set := plan.SidecarSet
	changes, err := statusPatch(&set.Status, status)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": set.UID, "resourceVersion": set.ResourceVersion}, "status": changes})
	if err != nil {
		return fmt.Errorf("encoding patch of the status: %w", err)
	}
	patched, err := a.Cluster.PatchStatus(ctx, set, body)
	if err != nil {
		a.doubt(plan, KindSet, types.NamespacedName{Name: set.Name}, err)
		return gone(fmt.Errorf("writing status: %w", err))
	}
	a.Own.Changed(set.UID, KindSet, patched, a.Now())
	return nil
}

// statusPatch returns the members of the status that changed. The first status is written whole: the schema requires members that are zero.
func statusPatch(old, new *appsv1beta1.SidecarSetStatus) (json.RawMessage, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	if equality.Semantic.DeepEqual(*old, appsv1beta1.SidecarSetStatus{}) {
		before = []byte("{}")
	}
	after, err := json.Marshal(new)
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("comparing status: %w", err)
	}
	return patch, nil
}
