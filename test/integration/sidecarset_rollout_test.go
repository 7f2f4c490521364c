//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// The golden SidecarSet under another name: the values of the reference (SS-290 to SS-292).
const (
	shipperName        = "shipped-before"
	shipperHash        = "bffdzd74cc9942f2c56xx4v9wdc4w7c8z2vzx9c2cz644cxzv8cz6w824d7b4579"
	shipperWithout     = "w654zv5wfcb88c84cwcw56zw9c4v99225zw2d275b6wcfx9wvb4zxcd96bv68x64"
	shipperRevision    = shipperName + "-7cd976bcb"
	shipperContent     = `{"spec":{"$patch":"replace","containers":[{"image":"example.com/shipper:1.0","imagePullPolicy":"IfNotPresent","name":"shipper","podInjectPolicy":"BeforeAppContainer","resources":{},"shareVolumePolicy":{"type":"disabled"},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","upgradeStrategy":{"upgradeType":"ColdUpgrade"},"volumeMounts":[{"mountPath":"/spool","name":"spool"}]}],"imagePullSecrets":null,"initContainers":null,"patchPodMetadata":null,"volumes":[{"emptyDir":{},"name":"spool"}]}}`
	shipperSet         = `{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"` + shipperName + `","annotations":{"kruise.io/sidecarset-hash":"` + shipperHash + `","kruise.io/sidecarset-hash-without-image":"` + shipperWithout + `"}},"spec":{"selector":{"matchLabels":{"ship-logs":"before"}},"revisionHistoryLimit":10,"injectionStrategy":{},"updateStrategy":{"type":"RollingUpdate","partition":0,"maxUnavailable":1},"containers":[{"name":"shipper","image":"example.com/shipper:1.0","resources":{},"volumeMounts":[{"name":"spool","mountPath":"/spool"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","podInjectPolicy":"BeforeAppContainer","upgradeStrategy":{"upgradeType":"ColdUpgrade"},"shareVolumePolicy":{"type":"disabled"}}],"volumes":[{"name":"spool","emptyDir":{}}]}}`
	sidecarNamespace   = "sidecars-before"
	managerNamespace   = "kruise-system"
	sidecarRecordTimes = "2026-01-01T00:00:00Z"
)

// injectedPod returns a pod with one application container as it is after injection (SS-295).
func injectedPod(namespace, name, set, hash, without, revision, container, image string, labels map[string]string) *corev1.Pod {
	record := func(hash, more string) string {
		return fmt.Sprintf(`{%q:{"updateTimestamp":%q,"hash":%q,"sidecarSetName":%q,"sidecarList":[%q]%s}}`, set, sidecarRecordTimes, hash,
			set, container, more)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{
		pub.SidecarSetHash: record(hash, `,"controllerRevision":"`+revision+`"`), pub.SidecarSetHashWithoutImage: record(without, ""),
		pub.SidecarSetInjectedList: set}},
		Spec: corev1.PodSpec{NodeName: "somewhere", Containers: []corev1.Container{
			{Name: container, Image: image, Env: []corev1.EnvVar{{Name: pub.SidecarInjectedEnv, Value: "true"}}},
			{Name: "app", Image: "app:1"}}}}
}

// running reports the pod's containers as a kubelet does.
func running(ctx context.Context, pod *corev1.Pod, restarts int32) error {
	since := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, nil
	for i, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: c.Name, Ready: true, RestartCount: restarts, Image: c.Image,
				ImageID: "id-of-" + c.Image, ContainerID: fmt.Sprintf("containerd://%d-%d", i, restarts),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}})
	}
	for _, conditionType := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		found := false
		for i := range pod.Status.Conditions {
			found = found || pod.Status.Conditions[i].Type == conditionType
		}
		if !found {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: conditionType, Status: corev1.ConditionTrue, LastTransitionTime: since})
		}
	}
	return kube.Status().Update(ctx, pod)
}

// createSidecarLegacy makes the objects of a SidecarSet as the reference wrote them: the SidecarSet, its
// revision, an injected pod, and one that was upgraded in place.
func createSidecarLegacy(ctx context.Context) error {
	for _, name := range []string{managerNamespace, sidecarNamespace} {
		if err := kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	set := &appsv1beta1.SidecarSet{}
	if err := json.Unmarshal([]byte(shipperSet), set); err != nil {
		return err
	}
	if err := kube.Create(ctx, set); err != nil {
		return err
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: shipperRevision, Namespace: managerNamespace,
		Labels:          map[string]string{"controller.kubernetes.io/hash": "7cd976bcb", pub.SidecarSetName: shipperName},
		Annotations:     map[string]string{pub.SidecarSetHash: shipperHash, pub.SidecarSetHashWithoutImage: shipperWithout},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1beta1.GroupVersion.WithKind("SidecarSet"))}},
		Revision: 1, Data: runtime.RawExtension{Raw: []byte(shipperContent)}}
	if err := kube.Create(ctx, revision); err != nil {
		return err
	}
	for _, name := range []string{"injected", "upgraded"} {
		pod := injectedPod(sidecarNamespace, name, shipperName, shipperHash, shipperWithout, shipperRevision, "shipper",
			"example.com/shipper:1.0", map[string]string{"ship-logs": "before"})
		if name == "upgraded" {
			pod.Annotations[pub.SidecarSetInPlaceUpdateState] = fmt.Sprintf(
				`{%q:{"revision":%q,"updateTimestamp":%q,"lastContainerStatuses":{"shipper":{"imageID":"id-of-before"}}}}`,
				shipperName, shipperHash, sidecarRecordTimes)
			pod.Status.Conditions = []corev1.PodCondition{{Type: pub.SidecarSetUpgradable, Status: corev1.ConditionTrue,
				Reason:  "AllSidecarsetUpgradable",
				Message: fmt.Sprintf(`{%q:true}`, shipperName)}}
		}
		conditions := pod.Status.Conditions
		if err := kube.Create(ctx, pod); err != nil {
			return err
		}
		pod.Status.Conditions = conditions
		if err := running(ctx, pod, 0); err != nil {
			return err
		}
	}
	set.Status = appsv1beta1.SidecarSetStatus{ObservedGeneration: set.Generation, MatchedPods: 2, UpdatedPods: 2, ReadyPods: 2,
		UpdatedReadyPods: 2,
		LatestRevision:   shipperRevision, CollisionCount: new(int32(0))}
	return kube.Status().Update(ctx, set)
}

// rolled makes a SidecarSet for tests of rollouts.
func rolled(t *testing.T, name string) {
	t.Helper()
	object := operation("v1beta1", "SidecarSet", name,
		fmt.Sprintf(`{spec: {selector: {matchLabels: {side: null, rolled: %s}}, containers: [{name: %s, image: "example.com/side:1"}]}}`,
			name, name))
	if err := kube.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), object) })
}

func sidecarSet(t *testing.T, name string) *appsv1beta1.SidecarSet {
	t.Helper()
	set := &appsv1beta1.SidecarSet{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: name}, set); err != nil {
		t.Fatal(err)
	}
	return set
}

// rollsTo waits for numbers in the status: matched, updated, ready, both.
func rollsTo(t *testing.T, name string, want ...int32) *appsv1beta1.SidecarSet {
	t.Helper()
	var set *appsv1beta1.SidecarSet
	if err := wait(func() error {
		set = sidecarSet(t, name)
		s := set.Status
		if diff := cmp.Diff(append(want, int32(set.Generation)),
			[]int32{s.MatchedPods, s.UpdatedPods, s.ReadyPods, s.UpdatedReadyPods, int32(s.ObservedGeneration)}); diff != "" {
			return fmt.Errorf("status: %s", diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return set
}

// hasEvent waits for an event about an object.
func hasEvent(t *testing.T, object client.Object, reason, words string) {
	t.Helper()
	if err := wait(func() error {
		var list eventsv1.EventList
		if err := kube.List(t.Context(), &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.UID == object.GetUID() && e.Reason == reason && strings.Contains(e.Note, words) {
				return nil
			}
		}
		return fmt.Errorf("no event %s with %q", reason, words)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSidecarSetTakeover: a starting manager does not write the objects of the reference, and the next
// upgrade continues from them (SS-183, SS-184, SS-204 (part), SS-276, SS-292, SS-295).
func TestSidecarSetTakeover(t *testing.T) {
	rolled(t, "newcomer") // when this one has been reconciled, the other has been too
	rollsTo(t, "newcomer", 0, 0, 0, 0)
	for _, about := range []string{"/namespaces/" + sidecarNamespace + "/", "/sidecarsets/" + shipperName,
		"/controllerrevisions/" + shipperRevision} {
		if written := writes.with(about); len(written) > 0 {
			t.Errorf("written at rest: %v", written)
		}
	}
	set := sidecarSet(t, shipperName)
	if err := kube.Patch(t.Context(), set,
		client.RawPatch("application/json-patch+json",
			[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"example.com/shipper:2.0"}]`))); err != nil {
		t.Fatal(err)
	}
	follow(t, sidecarNamespace, "shipper", "example.com/shipper:2.0", 2)
	set = rollsTo(t, shipperName, 2, 2, 2, 2)
	revision := &appsv1.ControllerRevision{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: managerNamespace, Name: set.Status.LatestRevision}, revision); err != nil {
		t.Fatal(err)
	}
	if revision.Revision != 2 {
		t.Errorf("number of revision %s: got %d, want 2", revision.Name, revision.Revision)
	}
	if set.Status.LatestRevision == shipperRevision {
		t.Errorf("the latest revision is still %s", shipperRevision)
	}
}

// follow plays the kubelet: it restarts the sidecar of every pod whose image was changed, and returns when n
// pods have the image.
func follow(t *testing.T, namespace, container, image string, n int) {
	t.Helper()
	if err := wait(func() error {
		var list corev1.PodList
		if err := kube.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		done, down := 0, 0
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Spec.Containers[0].Name != container || pod.Spec.Containers[0].Image != image {
				continue
			}
			done++
			if pod.Status.ContainerStatuses[0].Image != image {
				down++
				if err := running(t.Context(), pod, pod.Status.ContainerStatuses[0].RestartCount+1); err != nil &&
					!apierrors.IsConflict(err) {
					return err
				}
			}
		}
		if down > 1 {
			t.Errorf("%d pods are upgraded at the same time", down)
		}
		if done < n || down > 0 {
			return fmt.Errorf("%d of %d pods have the image, %d have not restarted", done, n, down)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSidecarSetRollout: images change one pod at a time and nothing else does. If pods cannot be upgraded,
// conditions of the pods and an event of the SidecarSet say so until it is possible again (SS-190 (part),
// SS-204 (part), SS-211 (part), SS-219 (part), SS-225 (part), SS-226 (part), SS-260 to SS-262, SS-D20,
// SS-D23).
func TestSidecarSetRollout(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rolled"}}
	if err := kube.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	rolled(t, "mover")
	set := rollsTo(t, "mover", 0, 0, 0, 0)
	specs := map[string]corev1.PodSpec{}
	for i := range 3 {
		pod := injectedPod("rolled", fmt.Sprintf("p%d", i), "mover", set.Annotations[pub.SidecarSetHash],
			set.Annotations[pub.SidecarSetHashWithoutImage],
			set.Status.LatestRevision, "mover", "example.com/side:1", map[string]string{"rolled": "mover"})
		if err := kube.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		specs[pod.Name] = *pod.Spec.DeepCopy()
		if err := running(t.Context(), pod, 0); err != nil {
			t.Fatal(err)
		}
	}
	rollsTo(t, "mover", 3, 3, 3, 3)
	change := func(patch string) {
		t.Helper()
		if err := kube.Patch(t.Context(), sidecarSet(t, "mover"),
			client.RawPatch("application/json-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	change(`[{"op":"replace","path":"/spec/containers/0/image","value":"example.com/side:2"}]`)
	follow(t, "rolled", "mover", "example.com/side:2", 3)
	set = rollsTo(t, "mover", 3, 3, 3, 3)
	var list corev1.PodList
	if err := kube.List(t.Context(), &list, client.InNamespace("rolled")); err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		want := specs[pod.Name]
		want.Containers[0].Image = "example.com/side:2"
		if diff := cmp.Diff(want, pod.Spec); diff != "" {
			t.Errorf("pod %s: %s", pod.Name, diff)
		}
		for key, parts := range map[string][]string{
			pub.SidecarSetHash: {set.Annotations[pub.SidecarSetHash],
				`"controllerRevision":"` + set.Status.LatestRevision + `"`},
			pub.SidecarSetInPlaceUpdateState: {"id-of-example.com/side:1"}} {
			for _, part := range parts {
				if !strings.Contains(pod.Annotations[key], part) {
					t.Errorf("pod %s: annotation %s: got %s, want %s in it", pod.Name, key, pod.Annotations[key], part)
				}
			}
		}
	}
	upgradable(t, `{"mover":true}`)

	change(`[{"op":"replace","path":"/spec/containers/0/image","value":"example.com/side:3"},{"op":"add","path":"/spec/containers/0/env","value":[{"name":"A","value":"b"}]}]`)
	rollsTo(t, "mover", 3, 0, 3, 0)
	hasEvent(t, set, "NotUpgradablePods", "3 pods cannot be upgraded in place and keep their containers until made anew: only images can change in a running pod. What differs, by number of pods: 3: mover: env")
	upgradable(t, `{"mover":false}`)
	change(`[{"op":"replace","path":"/spec/containers/0/image","value":"example.com/side:2"},{"op":"remove","path":"/spec/containers/0/env"}]`)
	rollsTo(t, "mover", 3, 3, 3, 3)
	upgradable(t, `{"mover":true}`)

	change(`[{"op":"replace","path":"/spec/containers/0/image","value":"example.com/side:4"},{"op":"replace","path":"/spec/updateStrategy/partition","value":3}]`)
	hasEvent(t, set, "HeldBackByPartition", "partition 3 alone holds back 3 pods")

	if err := kube.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	upgradable(t, `{}`) // SS-261
}

// upgradable waits until the condition of pod p0 has the message.
func upgradable(t *testing.T, message string) {
	t.Helper()
	if err := wait(func() error {
		found := &corev1.Pod{}
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "rolled", Name: "p0"}, found); err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type == pub.SidecarSetUpgradable && c.Message == message {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", found.Status.Conditions)
	}); err != nil {
		t.Fatal(err)
	}
}
