package launchpriority

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// write does to the ConfigMap what the plan says. One that was read live, not from the cache, must show in the cache before the next plan.
func (r *Reconciler) write(ctx context.Context, s Snapshot, plan *Plan, live bool) error {
	pod, data := s.Pod, map[string]string{}
	for _, key := range plan.Keys {
		data[key] = "true"
	}
	labels, annotations := map[string]string{pub.LaunchBarrier: "true"}, map[string]string{pub.LaunchReleased: strings.Join(plan.Keys, ",")}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
	switch plan.Action {
	case Create:
		barrier := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pub.LaunchBarrierName(pod.Name),
			Labels: labels, Annotations: annotations, OwnerReferences: owner}, Data: data}
		if err := r.Client.Create(ctx, barrier); err != nil {
			r.doubt(pod, metadataLike(barrier), err)
			return fmt.Errorf("creating ConfigMap %s: %w", barrier.Name, err)
		}
		r.Own.Created(ownerOf(client.ObjectKeyFromObject(pod)), metadataLike(barrier), r.Now())
	case Release:
		maps.DeleteFunc(data, func(key, _ string) bool { return !slices.Contains(plan.Added, key) })
		body := map[string]any{"data": data, "metadata": map[string]any{"uid": s.Barrier.UID, "resourceVersion": s.Barrier.ResourceVersion,
			"labels": labels, "annotations": annotations}}
		if err := r.patch(ctx, pod, s.Barrier.DeepCopy(), types.MergePatchType, body, live); err != nil {
			return fmt.Errorf("adding %s to ConfigMap %s: %w", strings.Join(plan.Added, ", "), s.Barrier.Name, err)
		}
	case Reset:
		// A merge would leave keys whose names only the data tells. A version that differs is a conflict.
		type operation struct {
			Op    string `json:"op"`
			Path  string `json:"path"`
			Value any    `json:"value"`
		}
		body := []operation{{"add", "/metadata/uid", s.Barrier.UID}, {"add", "/metadata/resourceVersion", s.Barrier.ResourceVersion},
			{"add", "/metadata/labels", labels}, {"add", "/metadata/annotations", annotations}, {"add", "/metadata/ownerReferences", owner}, {"add", "/data", data}}
		if err := r.patch(ctx, pod, s.Barrier.DeepCopy(), types.JSONPatchType, body, live); err != nil {
			return fmt.Errorf("resetting ConfigMap %s: %w", s.Barrier.Name, err)
		}
	case None, Refuse:
	}
	return nil
}

// metadataLike is what the cache keeps of a ConfigMap.
func metadataLike(barrier *corev1.ConfigMap) *metav1.PartialObjectMetadata {
	object := metadataOf("ConfigMap")
	object.ObjectMeta = barrier.ObjectMeta
	return object
}

// patch writes to an object, and remembers that.
func (r *Reconciler) patch(ctx context.Context, pod *corev1.Pod, object client.Object, form types.PatchType, body any, unseen bool) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	if err := r.Client.Patch(ctx, object, client.RawPatch(form, data)); err != nil {
		r.doubt(pod, object, err)
		return err
	}
	owner := ownerOf(client.ObjectKeyFromObject(pod))
	if unseen {
		r.Own.Created(owner, object, r.Now())
	} else {
		r.Own.Changed(owner, object, r.Now())
	}
	return nil
}

// doubt remembers a write that may have happened although the answer was an error: anything but a clear refusal.
func (r *Reconciler) doubt(pod *corev1.Pod, object client.Object, err error) {
	if !reconcile.Clearly(err) {
		r.Own.Unsure(ownerOf(client.ObjectKeyFromObject(pod)), object, r.Now())
	}
}
