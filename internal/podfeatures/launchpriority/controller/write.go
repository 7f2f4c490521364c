package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// write carries out the plan. After a write to a ConfigMap that was read live, not from the cache, the cache
// must show it before the next plan.
func (r *Reconciler) write(
	ctx context.Context, s launchpriority.Snapshot, plan *launchpriority.Plan, live bool,
) error {
	pod, data := s.Pod, map[string]string{}
	for _, key := range plan.Keys {
		data[key] = "true"
	}

	labels, annotations := map[string]string{pub.LaunchBarrier: "true"},
		map[string]string{pub.LaunchReleased: strings.Join(plan.Keys, ",")}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
	switch plan.Action {
	case launchpriority.Create:
		barrier := &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       pod.Namespace,
				Name:            pub.LaunchBarrierName(pod.Name),
				Labels:          labels,
				Annotations:     annotations,
				OwnerReferences: owner,
			},
			Data: data,
		}
		document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(barrier)
		if err != nil {
			return fmt.Errorf("encoding ConfigMap %s: %w", barrier.Name, err)
		}
		if err := r.writer(pod).Create(ctx, document, metadataOf("ConfigMap")); err != nil {
			return fmt.Errorf("creating ConfigMap %s: %w", barrier.Name, err)
		}
	case launchpriority.Release:
		maps.DeleteFunc(data, func(key, _ string) bool { return !slices.Contains(plan.Added, key) })
		body, err := reconcile.MergePatch(s.Barrier,
			map[string]any{"labels": labels, "annotations": annotations}, map[string]any{"data": data})
		if err != nil {
			return err
		}
		if err := r.patch(ctx, s, body, live); err != nil {
			return fmt.Errorf("adding %s to ConfigMap %s: %w", strings.Join(plan.Added, ", "), s.Barrier.Name,
				err)
		}
	case launchpriority.Reset:
		// A merge patch would keep keys whose names are only in the data. A different version is a conflict.
		type operation struct {
			Op    string `json:"op"`
			Path  string `json:"path"`
			Value any    `json:"value"`
		}
		body, err := json.Marshal([]operation{
			{"add", "/metadata/uid", s.Barrier.UID},
			{"add", "/metadata/resourceVersion", s.Barrier.ResourceVersion},
			{"add", "/metadata/labels", labels},
			{"add", "/metadata/annotations", annotations},
			{"add", "/metadata/ownerReferences", owner},
			{"add", "/data", data},
		})
		if err != nil {
			return fmt.Errorf("encoding a patch: %w", err)
		}
		if err := r.patch(ctx, s, body, live); err != nil {
			return fmt.Errorf("resetting ConfigMap %s: %w", s.Barrier.Name, err)
		}
	case launchpriority.None, launchpriority.Refuse:
	}

	return nil
}

// patch writes to the ConfigMap. A ConfigMap that was read live may be missing from the caches until then.
func (r *Reconciler) patch(ctx context.Context, s launchpriority.Snapshot, body []byte, live bool) error {
	patched, err := reconcile.Patch(ctx, r.writer(s.Pod), s.Barrier, body, "")
	if err == nil && live {
		r.Own.Created(ownerOf(client.ObjectKeyFromObject(s.Pod)), patched, r.Now())
	}
	return err
}
