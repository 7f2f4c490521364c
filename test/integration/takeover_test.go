//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
)

// legacy is a CloneSet as the reference wrote it, with its revision and pods, made by hand from the values in
// the specification (CS-081, IPU-051, IPU-052), before the manager starts.
type legacy struct {
	name, data   string
	claims       string // claim templates
	fingerprint  string
	ownerVersion string // of the pods' owner references (CS-043)
	orphan       bool   // the revision is an orphan (CS-057)
	shortHash    bool   // the pods carry the short hash (CS-051)
}

const (
	shopTemplate = `{"metadata":{"creationTimestamp":null,"labels":{"app":"shop"}},"spec":{"containers":[{"image":"nginx:1.26","name":"nginx","resources":{}}]}}`
	shopData     = `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"shop"}},"spec":{"containers":[{"image":"nginx:1.26","name":"nginx","resources":{}}]}}}}`
	shopHash     = "7d9f44cb88"
)

var legacies = []legacy{
	{name: "shop", data: shopData, ownerVersion: "v1beta1"},
	{name: "shop-old", data: shopData, ownerVersion: "v1alpha1", orphan: true},
	{name: "shop-short", data: shopData, ownerVersion: "v1beta1", shortHash: true},
	{name: "shop-claims", data: shopData, ownerVersion: "v1beta1", fingerprint: "1129974074",
		claims: `[{"metadata":{"name":"pvc-1"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"limits":{"storage":"2Gi"},"requests":{"storage":"1Gi"}}}}]`},
}

// createLegacies makes the fixtures.
func createLegacies(ctx context.Context) error {
	for _, l := range legacies {
		if err := l.create(ctx); err != nil {
			return fmt.Errorf("fixture %s: %w", l.name, err)
		}
	}
	return nil
}

func (l legacy) create(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.name}}
	if err := kube.Create(ctx, namespace); err != nil {
		return err
	}
	var template, claims any
	if err := json.Unmarshal([]byte(shopTemplate), &template); err != nil {
		return err
	}
	spec := map[string]any{"replicas": int64(3), "revisionHistoryLimit": int64(10),
		"selector": map[string]any{"matchLabels": map[string]any{"app": "shop"}},
		"template": template, "scaleStrategy": map[string]any{},
		"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{
			"podUpdatePolicy": "InPlaceIfPossible", "partition": int64(0), "maxUnavailable": "20%", "maxSurge": int64(0),
			"inPlaceUpdateStrategy": map[string]any{}}}}
	if l.claims != "" {
		if err := json.Unmarshal([]byte(l.claims), &claims); err != nil {
			return err
		}
		spec["volumeClaimTemplates"] = claims
	}
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet",
		"metadata": map[string]any{"name": "shop", "namespace": l.name}, "spec": spec}}
	if err := kube.Create(ctx, set); err != nil {
		return err
	}
	owner := func(version string) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{APIVersion: "apps.kruise.io/" + version, Kind: "CloneSet", Name: "shop", UID: set.GetUID(),
			Controller: &yes, BlockOwnerDeletion: &yes}}
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "shop-" + shopHash, Namespace: l.name,
		Labels:      map[string]string{"app": "shop", "controller.kubernetes.io/hash": shopHash},
		Annotations: map[string]string{pub.ClaimTemplateFingerprint: l.fingerprint}, OwnerReferences: owner(l.ownerVersion)},
		Revision: 1, Data: runtime.RawExtension{Raw: []byte(l.data)}}
	if l.orphan {
		revision.OwnerReferences = nil
	}
	if err := kube.Create(ctx, revision); err != nil {
		return err
	}
	for i, id := range []string{"bcdfg", "hjklm", "npqrs"} {
		if err := l.createPod(ctx, i, id, owner(l.ownerVersion)); err != nil {
			return err
		}
	}
	status := map[string]any{"observedGeneration": set.GetGeneration(), "replicas": int64(3), "readyReplicas": int64(3),
		"availableReplicas": int64(3),
		"updatedReplicas":   int64(3), "updatedReadyReplicas": int64(3), "updatedAvailableReplicas": int64(3),
		"expectedUpdatedReplicas": int64(3),
		"currentRevision":         "shop-" + shopHash, "updateRevision": "shop-" + shopHash, "labelSelector": "app=shop",
		"collisionCount": int64(0)}
	set.Object["status"] = status
	return kube.Status().Update(ctx, set)
}

// createPod makes a pod that the reference has created (0), updated in place (1), or created before it had
// the second readiness gate (2).
func (l legacy) createPod(ctx context.Context, kind int, id string, owner []metav1.OwnerReference) error {
	label := "shop-" + shopHash
	if l.shortHash {
		label = shopHash
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shop-" + id, GenerateName: "shop-", Namespace: l.name, OwnerReferences: owner,
		Labels: map[string]string{"app": "shop", pub.CloneSetInstanceID: id, pub.ControllerRevisionHash: label,
			pub.PodTemplateHash: shopHash,
			pub.LifecycleState:  "Normal"}, Annotations: map[string]string{pub.LifecycleTimestamp: "2026-01-01T00:00:00Z"}},
		Spec: corev1.PodSpec{NodeName: "somewhere", Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1.26"}},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: pub.InPlaceUpdateReady}, {ConditionType: pub.KruisePodReady}}}}
	since := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	conditions := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: since},
		{Type: pub.InPlaceUpdateReady, Status: corev1.ConditionTrue, LastTransitionTime: since},
		{Type: pub.KruisePodReady, Status: corev1.ConditionTrue, Message: "[]", LastTransitionTime: since}}
	switch kind {
	case 1:
		pod.Annotations[pub.InPlaceUpdateState] = `{"revision":"` + label + `","updateTimestamp":"2025-12-31T23:59:00Z","lastContainerStatuses":{"nginx":{"imageID":"docker.io/library/nginx@sha256:old"}},` +
			`"updateImages":true,"containerBatchesRecord":[{"timestamp":"2025-12-31T23:59:00Z","containers":["nginx"]}]}`
	case 2:
		pod.Spec.ReadinessGates, conditions = pod.Spec.ReadinessGates[:1], conditions[:3]
	}
	if l.claims != "" {
		pod.Spec.Volumes = []corev1.Volume{{Name: "pvc-1",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pvc-1-shop-" +
				id}}}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1-shop-" + id, Namespace: l.name,
			OwnerReferences: owner,
			Labels:          map[string]string{"app": "shop", pub.CloneSetInstanceID: id}}}
		var templates []corev1.PersistentVolumeClaim
		if err := json.Unmarshal([]byte(l.claims), &templates); err != nil {
			return err
		}
		claim.Spec = templates[0].Spec
		if err := kube.Create(ctx, claim); err != nil {
			return err
		}
	}
	if err := kube.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &since, Conditions: conditions,
		ContainerStatuses: []corev1.ContainerStatus{{Name: "nginx", Ready: true,
			Image: "docker.io/library/nginx:1.26", ImageID: "docker.io/library/nginx@sha256:new", ContainerID: "containerd://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}}}}
	return kube.Status().Update(ctx, pod)
}

// TestTakeover: a starting manager does not write pods, PVCs or revisions of the reference; when the CloneSet
// is then scaled, one pod of the same revision is created (CS-043, CS-051, CS-057, CS-075, CS-081, CS-085,
// CS-359, IPU-051, IPU-052).
func TestTakeover(t *testing.T) {
	for _, l := range legacies {
		t.Run(l.name, func(t *testing.T) {
			set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet"}}
			key := client.ObjectKey{Namespace: l.name, Name: "shop"}
			if err := kube.Get(t.Context(), key, set); err != nil {
				t.Fatal(err)
			}
			scale := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`))
			if err := kube.Patch(t.Context(), set, scale); err != nil {
				t.Fatal(err)
			}
			var list corev1.PodList
			if err := wait(func() error {
				if err := kube.List(t.Context(), &list, client.InNamespace(l.name)); err != nil {
					return err
				}
				if len(list.Items) != 4 {
					return fmt.Errorf("%d pods", len(list.Items))
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for _, pod := range list.Items {
				if pod.Labels[pub.PodTemplateHash] != shopHash {
					t.Errorf("pod %s is of revision %s", pod.Name, pod.Labels[pub.PodTemplateHash])
				}
			}
			for _, write := range writes.with("/namespaces/" + l.name + "/") {
				if !strings.HasPrefix(write, "POST /api/v1/namespaces/"+l.name+"/pods") &&
					!strings.HasPrefix(write, "POST /api/v1/namespaces/"+l.name+"/persistentvolumeclaims") &&
					!strings.Contains(write, "/clonesets/shop/status") && !strings.Contains(write, "/events") {
					t.Errorf("written: %s", write)
				}
			}
			if made := writes.with("POST /api/v1/namespaces/" + l.name + "/pods"); len(made) != 1 {
				t.Errorf("pods made: %v", made)
			}
		})
	}
}
