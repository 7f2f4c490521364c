package workloadspread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
	"github.com/afloat-project/afloat/internal/platform/parallel"
)

// Cluster is what applying needs of the API server. Errors are those of apimachinery.
type Cluster interface {
	// PatchPod sends a strategic merge patch.
	PatchPod(ctx context.Context, pod *corev1.Pod, body []byte) (*corev1.Pod, error)
	// DeletePod deletes exactly this version.
	DeletePod(ctx context.Context, pod *corev1.Pod) error
}

// Recorder records events. It must not block.
type Recorder interface {
	Event(spread *appsv1beta1.WorkloadSpread, eventType, reason, message string)
}

// Kinds of the objects that own writes are tracked for.
const (
	KindPod    ownwrites.Kind = "Pod"
	KindSpread ownwrites.Kind = "WorkloadSpread"
)

// errChanged ends applying without being an error of the user's: another pass goes on from what is found then.
var errChanged = errors.New("the world changed meanwhile")

// Applier carries plans out.
type Applier struct {
	Cluster Cluster
	Status  StatusWriter
	Events  Recorder
	Own     *ownwrites.Tracker
	Now     func() time.Time
	// Parallel bounds the requests that one WorkloadSpread has in flight.
	Parallel int
}

// Result is what applying met.
type Result struct {
	// Err are all failures; one pod's does not keep the others from being tried.
	Err error
	// Retry: something changed meanwhile; a new plan is due although no event may announce it.
	Retry bool
	// CostErrors are those of pods whose deletion cost could not be written (WS-166).
	CostErrors []error
	// Deleted are the pods that were deleted.
	Deleted []*corev1.Pod
	// DeleteErrors are those of pods that could not be deleted (WS-175).
	DeleteErrors []error
	// Tried are the pods that were written or deleted, with nil, or could not be, though nothing changed meanwhile.
	Tried map[types.UID]error
	// Written is the change of the status that was written; nil if there was none to write.
	Written *StatusChange
}

func (r *Result) add(err error) (failed bool) {
	switch {
	case err == nil || apierrors.IsNotFound(err):
	case errors.Is(err, errChanged) || apierrors.IsConflict(err):
		r.Retry = true
	default:
		r.Err = errors.Join(r.Err, err)
		return true
	}
	return false
}

// tried adds what came of a pod.
func (r *Result) tried(pod *corev1.Pod, err error) (failed bool) {
	if failed = r.add(err); failed {
		r.Tried[pod.UID] = err
	} else if _, before := r.Tried[pod.UID]; !before {
		r.Tried[pod.UID] = nil
	}
	return failed
}

// Apply carries out a plan: deletion costs are written, then the status, and only after that pods are adopted, so that no deletion of theirs is
// booked before they are counted, and others deleted, so that their replacements already find their subset passed over (WS-130). writeStatus tells
// whether the status may not wait.
func (a *Applier) Apply(ctx context.Context, plan *Plan, writeStatus bool) Result {
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
	for i, err := range parallel.Do(ctx, len(plan.Delete), a.Parallel, func(i int) error { return a.delete(ctx, plan, plan.Delete[i]) }) {
		if result.tried(plan.Delete[i], err) {
			result.DeleteErrors = append(result.DeleteErrors, err)
		}
		if err == nil {
			result.Deleted = append(result.Deleted, plan.Delete[i])
		}
	}
	return result
}

// pods patches those that are adopted, or the others.
func (a *Applier) pods(ctx context.Context, plan *Plan, result *Result, adopted bool) {
	var writes []*PodWrite
	for _, w := range plan.Writes {
		if (w.Adopt != "") == adopted {
			writes = append(writes, w)
		}
	}
	for i, err := range parallel.Do(ctx, len(writes), a.Parallel, func(i int) error { return a.pod(ctx, plan, writes[i]) }) {
		if result.tried(writes[i].Pod, err) && writes[i].Cost != "" {
			result.CostErrors = append(result.CostErrors, err)
		}
	}
}

// pod sends one patch: deletion cost and adoption together.
func (a *Applier) pod(ctx context.Context, plan *Plan, w *PodWrite) error {
	metadata := maps.Clone(w.Metadata)
	metadata["uid"], metadata["resourceVersion"] = w.Pod.UID, w.Pod.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding patch of pod %s: %w", w.Pod.Name, err)
	}
	patched, err := a.Cluster.PatchPod(ctx, w.Pod, body)
	if err != nil {
		a.doubt(plan, KindPod, w.Pod, err)
		return fmt.Errorf("patching pod %s: %w", w.Pod.Name, err)
	}
	a.Own.Changed(plan.Spread.UID, KindPod, patched, a.Now())
	return nil
}

func (a *Applier) status(ctx context.Context, plan *Plan, result *Result) error {
	var change StatusChange
	written, err := a.Status.WriteStatus(ctx, plan.Spread, func(newest *appsv1beta1.WorkloadSpread) ([]byte, error) {
		if newest.UID != plan.Spread.UID || newest.Generation != plan.Spread.Generation || newest.DeletionTimestamp != nil {
			return nil, errChanged
		}
		change = plan.StatusOn(newest)
		return statusPatch(newest, &change.Status)
	})
	if err != nil {
		a.doubt(plan, KindSpread, plan.Spread, err)
		return fmt.Errorf("writing status: %w", err)
	}
	if written != nil {
		a.Own.Changed(plan.Spread.UID, KindSpread, written, a.Now())
		result.Written = &change
	}
	plan.Status = change
	return nil
}

func (a *Applier) delete(ctx context.Context, plan *Plan, pod *corev1.Pod) error {
	if err := a.Cluster.DeletePod(ctx, pod); err != nil {
		a.doubt(plan, KindPod, pod, err)
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	a.Own.Deleted(plan.Spread.UID, KindPod, pod, a.Now())
	return nil
}

// doubt remembers that a write may have happened although it was answered with an error.
func (a *Applier) doubt(plan *Plan, kind ownwrites.Kind, object metav1.Object, err error) {
	if errors.Is(err, errChanged) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return
	}
	a.Own.Unsure(plan.Spread.UID, ownwrites.Object{Kind: kind, NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}}, a.Now())
}
