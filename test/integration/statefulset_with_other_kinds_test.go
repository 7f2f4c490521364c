//go:build integration

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
)

// memberOf is the pod of an ordinal of the set web, once it is there.
func memberOf(t *testing.T, namespace string, ordinal int) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := wait(func() error {
		return kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("web-%d", ordinal)}, pod)
	}); err != nil {
		t.Fatal(err)
	}
	return pod
}

// ASTS-361, ASTS-364: pods of a StatefulSet of either version come into the subsets of a WorkloadSpread by
// their ordinals, which it may name in either version; they get sidecars and their readiness gate, and their
// containers are restarted on request.
func TestStatefulSetsTogetherWithOtherKinds(t *testing.T) {
	injecting(t, "together", "default", `{spec: {selector: {matchLabels: {together: "yes"}}, containers: [{name: beside, image: "s:1"}]}}`,
		map[string]string{"together": "yes"})
	makes(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "together"}})
	for _, versions := range [][2]string{{"v1beta1", "v1beta1"}, {"v1alpha1", "v1beta1"}, {"v1beta1", "v1alpha1"}} {
		namespace := "together-" + versions[0] + "-" + versions[1]
		makes(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		spreadIn(t, namespace, `{apiVersion: apps.kruise.io/`+versions[0]+`, kind: StatefulSet, name: web}`,
			`{name: a, maxReplicas: 2}, {name: b, maxReplicas: 1}, {name: c}`)
		asksAbout(t, namespace)
		set := created(t, versions[1], "web", `{metadata: {namespace: `+namespace+`}, spec: {replicas: 0, podManagementPolicy: Parallel,
			template: {metadata: {labels: {together: "yes"}}}}}`)
		// The first creation after the condition was written may come before the API server knows it.
		owner := metav1.OwnerReference{APIVersion: set.GetAPIVersion(), Kind: "StatefulSet", Name: "web", UID: set.GetUID(),
			Controller: new(true)}
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe-0",
			OwnerReferences: []metav1.OwnerReference{owner}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i"}}}}
		if err := wait(func() error {
			pod := probe.DeepCopy()
			if err := kube.Create(t.Context(), pod); err != nil {
				return err
			}
			remove(t, pod)
			if _, ok := pub.ParsePlacement(pod.Annotations); !ok || len(pod.Spec.ReadinessGates) == 0 {
				return fmt.Errorf("no subset, or no gate: %v, %v", pod.Annotations, pod.Spec.ReadinessGates)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		beta := in(t, "v1beta1", set)
		patch := `{"spec":{"replicas":5,"reserveOrdinals":[3],"ordinals":{"start":2}}}`
		if err := kube.Patch(t.Context(), beta, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		got := map[int]string{}
		for _, ordinal := range []int{2, 4, 5, 6, 7} {
			pod := memberOf(t, namespace, ordinal)
			placement, _ := pub.ParsePlacement(pod.Annotations)
			got[ordinal] = placement.Subset
			if names := namesOf(pod.Spec.Containers); names != "beside main" {
				t.Errorf("containers of pod %s: got %s, want beside main", pod.Name, names)
			}
			if gates := asYAML(t, pod.Spec.ReadinessGates); !strings.Contains(gates, string(pub.KruisePodReady)) {
				t.Errorf("readiness gates of pod %s: got %s, want ours in them", pod.Name, gates)
			}
		}
		if diff := cmp.Diff(map[int]string{2: "a", 4: "a", 5: "b", 6: "c", 7: "c"}, got); diff != "" {
			t.Errorf("%v: subsets of the pods (-want +got):\n%s", versions, diff)
		}
		restartOnRequest(t, memberOf(t, namespace, 2))
	}
}

// restartOnRequest lets a pod run on the node, and asks for the restart of its container main.
func restartOnRequest(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := kube.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node",
		Name: "together"}}); err != nil {
		t.Fatal(err)
	}
	status := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"main","image":"i","imageID":"i",
		"ready":true,"restartCount":0,"containerID":"containerd://1","state":{"running":{}}}]}}`
	if err := kube.Status().Patch(t.Context(), pod, client.RawPatch(types.StrategicMergePatchType, []byte(status))); err != nil {
		t.Fatal(err)
	}
	request := operation("v1beta1", "ContainerRecreateRequest", "restart", fmt.Sprintf(`{metadata: {namespace: %s}, spec: {podName: %s,
		containers: [{name: main}], strategy: {unreadyGracePeriodSeconds: 600}}}`, pod.Namespace, pod.Name))
	if err := wait(func() error { return kube.Create(t.Context(), request.DeepCopy()) }); err != nil { // the webhook reads a cache
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(t.Context(), request) }) //nolint:usetesting // the object goes with the API server
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
			return err
		}
		if request.GetLabels()[pub.RecreateNodeName] != "together" || request.GetLabels()[pub.RecreatePodUID] != string(pod.UID) {
			return fmt.Errorf("labels %v", request.GetLabels())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := kube.Status().Patch(t.Context(), request, client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"phase":"Recreating"}}`))); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error { // until the manager has taken the pod out of service
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == pub.KruisePodReady && c.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("it is in service: %+v", pod.Status.Conditions)
	}); err != nil {
		t.Errorf("pod that is taken out of service: %v", err)
	}
}

// eventsOf waits for an event about the set web with these words.
func eventsOf(t *testing.T, namespace, eventType, reason string, words ...string) {
	t.Helper()
	if err := wait(func() error {
		var list eventsv1.EventList
		if err := kube.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var seen []string
		for i := range list.Items {
			e := &list.Items[i]
			seen = append(seen, e.ReportingController+": "+e.Type+" "+e.Reason+" "+e.Note)
			missing := 0
			for _, word := range words {
				if !strings.Contains(e.Note, word) {
					missing++
				}
			}
			if missing == 0 && e.Reason == reason && e.Type == eventType && e.Regarding.Kind == "StatefulSet" && e.Regarding.Name == "web" &&
				e.ReportingController == "statefulset-controller" {
				return nil
			}
		}
		return fmt.Errorf("no %s among %q", reason, seen)
	}); err != nil {
		t.Errorf("events: %v", err)
	}
}

// ASTS-308 (part): the events of a set name the controller as their source.
func TestEventsOfAStatefulSet(t *testing.T) {
	const namespace = "set-events"
	makes(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	set := created(t, "v1beta1", "web", `{metadata: {namespace: `+namespace+`}, spec: {replicas: 1}}`)
	memberOf(t, namespace, 0)
	eventsOf(t, namespace, "Normal", "SuccessfulCreate", "web-0")
	if err := kube.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))); err != nil {
		t.Fatal(err)
	}
	eventsOf(t, namespace, "Normal", "SuccessfulDelete", "web-0")
}

// ASTS-273 (part), ASTS-275 (part), ASTS-277 (part), ASTS-279 (part): through the API server, a claim with a
// volume grows where its storage class allows that; where it does not, the refusal of the API server is told,
// and an error.
func TestClaimsOfStatefulSetsGrow(t *testing.T) {
	const namespace = "set-claims"
	makes(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for name, allowed := range map[string]bool{"may-grow": true, "may-not-grow": false} {
		class := &storagev1.StorageClass{Provisioner: "example.org/none", AllowVolumeExpansion: &allowed}
		class.Name = name
		makes(t, class)
	}
	// The template names no class, so that the webhook lets its size change.
	set := created(t, "v1beta1", "web", `{metadata: {namespace: `+namespace+`}, spec: {replicas: 2, podManagementPolicy: Parallel,
		updateStrategy: {rollingUpdate: {maxUnavailable: 2}}, volumeClaimUpdateStrategy: {type: OnPodRollingUpdate},
		volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}`)
	claims := map[int]*corev1.PersistentVolumeClaim{}
	for ordinal, class := range map[int]string{0: "may-grow", 1: "may-not-grow"} {
		claim := &corev1.PersistentVolumeClaim{}
		claims[ordinal] = claim
		if err := wait(func() error {
			return kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("data-web-%d", ordinal)}, claim)
		}); err != nil {
			t.Fatal(err)
		}
		bind := `{"spec":{"storageClassName":"` + class + `","volumeName":"pv-` + class + `"}}`
		bound := `{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`
		if err := errors.Join(kube.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(bind))),
			kube.Status().Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(bound)))); err != nil {
			t.Fatal(err)
		}
	}
	grow := `[{"op":"replace","path":"/spec/volumeClaimTemplates/0/spec/resources/requests/storage","value":"2Gi"}]`
	if err := kube.Patch(t.Context(), set, client.RawPatch(types.JSONPatchType, []byte(grow))); err != nil {
		t.Fatal(err)
	}
	eventsOf(t, namespace, "Warning", "FailedResize", "claim data-web-1 of pod web-1 ", "must support resize")
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(claims[1]), claims[1]); err != nil {
		t.Errorf("reading the claim: %v", err)
	}
	if size := claims[1].Spec.Resources.Requests.Storage().String(); size != "1Gi" {
		t.Errorf("size of a claim that cannot grow: got %s, want 1Gi", size)
	}
	if err := wait(func() error {
		conditions, _, _ := unstructured.NestedSlice(in(t, "v1beta1", set).Object, "status", "conditions")
		if !strings.Contains(fmt.Sprint(conditions), "data-web-1") {
			return fmt.Errorf("conditions %v", conditions)
		}
		return nil
	}); err != nil {
		t.Errorf("conditions about the claim that cannot grow: %v", err)
	}
	// Its user scales it in: the other claim grows.
	if err := kube.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		claim := claims[0]
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if got := claim.Spec.Resources.Requests.Storage().String(); got != "2Gi" || claim.Annotations[pub.OwnedByStatefulSet] != "web" {
			return fmt.Errorf("it asks for %s, annotations %v", got, claim.Annotations)
		}
		return nil
	}); err != nil {
		t.Errorf("the other claim: %v", err)
	}
	eventsOf(t, namespace, "Normal", "SuccessfulResize", "claim data-web-0 of pod web-0 ")
	counted := func(want string) func() error {
		return func() error {
			list, _, _ := unstructured.NestedSlice(in(t, "v1beta1", set).Object, "status", "volumeClaims")
			if got := asJSON(t, list); got != want {
				return errors.New(got)
			}
			return nil
		}
	}
	if err := wait(counted(`[{"compatibleReadyReplicas":0,"compatibleReplicas":1,"volumeClaimName":"data"}]`)); err != nil {
		t.Errorf("claims of the status before one has grown: %v", err)
	}
	grown := `{"status":{"capacity":{"storage":"2Gi"}}}`
	if err := kube.Status().Patch(t.Context(), claims[0], client.RawPatch(types.MergePatchType, []byte(grown))); err != nil {
		t.Fatal(err)
	}
	if err := wait(counted(`[{"compatibleReadyReplicas":1,"compatibleReplicas":1,"volumeClaimName":"data"}]`)); err != nil {
		t.Errorf("claims of the status after one has grown: %v", err)
	}
}
