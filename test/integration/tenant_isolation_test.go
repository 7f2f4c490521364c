//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// neighbours makes two namespaces: writes in the second one must not affect the first.
func neighbours(t *testing.T, name string) (mine, theirs string) {
	t.Helper()
	mine, theirs = name+"-mine", name+"-theirs"
	for _, namespace := range []string{mine, theirs} {
		makes(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	return mine, theirs
}

// makes creates objects, which are deleted after the test.
func makes(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), object, client.GracePeriodSeconds(0)) })
	}
}

// untouched returns an error with the changes of the objects since they were read or made.
func untouched(t *testing.T, objects ...client.Object) error {
	t.Helper()
	for _, object := range objects {
		now := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), now); err != nil {
			return err
		}
		if now.GetResourceVersion() != object.GetResourceVersion() || now.GetUID() != object.GetUID() || now.GetDeletionTimestamp() != nil {
			return fmt.Errorf("%T %s/%s was written: %+v", object, object.GetNamespace(), object.GetName(), now)
		}
	}
	return nil
}

// A user gives pods in one namespace the UID of a CloneSet in another one: the CloneSet does not delete its
// own pods because of them.
func TestPodsOfAnotherNamespace(t *testing.T) {
	neighbour := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "neighbour"}}
	set := cloneSet("v1beta1", "neighboured", `{"spec": {"replicas": 2}}`)
	for _, object := range []client.Object{neighbour, set} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = kube.Delete(t.Context(), object) }()
	}
	name := types.NamespacedName{Namespace: set.GetNamespace(), Name: set.GetName()}
	running := func(n int) (uids map[types.UID]bool, err error) {
		err = wait(func() error {
			var current appsv1beta1.CloneSet
			if err := kube.Get(t.Context(), name, &current); err != nil {
				return err
			}
			if uids = map[types.UID]bool{}; current.Status.ObservedGeneration != current.Generation {
				return fmt.Errorf("generation %d is not observed", current.Generation)
			}
			for _, pod := range pods(t, name.Name) {
				uids[pod.UID] = true
			}
			if len(uids) != n || int(current.Status.Replicas) != n {
				return fmt.Errorf("%d pods, the status has %d", len(uids), current.Status.Replicas)
			}
			return nil
		})
		return uids, err
	}
	before, err := running(2)
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	for i := range 4 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: neighbour.Name, Name: fmt.Sprintf("hostile-%d", i),
			Labels: map[string]string{"app": "neighboured"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: set.GetAPIVersion(), Kind: "CloneSet", Name: set.GetName(),
				UID: set.GetUID(), Controller: &yes}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := kube.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := kube.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 3}}`))); err != nil {
		t.Fatal(err)
	}
	after, err := running(3)
	if err != nil {
		t.Fatal(err)
	}
	for uid := range before {
		if !after[uid] {
			t.Errorf("pod %s was deleted", uid)
		}
	}
}

// In a namespace that a SidecarSet does not select, a user writes pods and ControllerRevisions that look
// injected and broken. They are neither counted nor upgraded, and do not use maxUnavailable; the pods of the
// selected namespaces are upgraded nevertheless (SS-200 (part)).
func TestForgedSidecarsOfAnotherNamespace(t *testing.T) {
	const name = "neighboured-sidecars"
	mine, theirs := neighbours(t, name)
	labels := map[string]string{"app": name}
	injecting(t, name, mine, fmt.Sprintf(`{spec: {selector: {matchLabels: {app: %s}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}, updateStrategy: {maxUnavailable: 1}}}`, name, mine), labels)
	pod := sidecarPod(mine, "own", labels)
	makes(t, pod)
	if err := running(t.Context(), pod, 0); err != nil {
		t.Fatal(err)
	}
	set := rollsTo(t, name, 1, 1, 1, 1)
	hash := set.Annotations[pub.SidecarSetHash]
	var forged []client.Object
	for i := range 3 {
		// One is up to date, the others are behind; none is ready.
		recorded := map[bool]string{true: hash, false: "another"}[i == 0]
		other := injectedPod(theirs, fmt.Sprintf("forged-%d", i), name, recorded, set.Annotations[pub.SidecarSetHashWithoutImage],
			set.Status.LatestRevision, "side", "example.com/side:1", labels)
		makes(t, other)
		forged = append(forged, other)
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: theirs, Name: set.Status.LatestRevision,
		Labels:          map[string]string{pub.SidecarSetName: name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1beta1.GroupVersion.WithKind("SidecarSet"))}},
		Revision: 1000,
		Data: runtime.RawExtension{
			Raw: []byte(`{"spec":{"$patch":"replace","containers":[{"name":"side","image":"example.com/evil:1"}]}}`)}}
	makes(t, revision)
	forged = append(forged, revision)
	if err := kube.Patch(t.Context(), set,
		client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"example.com/side:2"}]`))); err != nil {
		t.Fatal(err)
	}
	follow(t, mine, "side", "example.com/side:2", 1)
	rollsTo(t, name, 1, 1, 1, 1)
	if err := untouched(t, forged...); err != nil {
		t.Errorf("the pods that claim to be of another set: %v", err)
	}
}

// A user's pods in another namespace name a WorkloadSpread and the UID of its workload: the WorkloadSpread
// counts, ranks and books only its own pods (WS-150 (part)).
func TestForgedPodsOfAWorkloadSpread(t *testing.T) {
	const name = "neighboured-spread"
	_, theirs := neighbours(t, name)
	deployment := made(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: default},
  spec: {replicas: 2, selector: {matchLabels: {app: %s}}, template: %s}}`, name, name, fmt.Sprintf(spreadTemplate, name, "", "v1")))
	replicas := replicaSet(t, deployment, "v1")
	made(t, fmt.Sprintf(`{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {name: %s, namespace: default}, spec: {
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %s}, subsets: [{name: a, maxReplicas: 2}, {name: b}]}}`, name, name))
	asksAbout(t, "default")
	podOf(t, replicas, name+"-1", "")
	countsBecome(t, name, map[string]string{"": "a 1 1, b 0 -1", "v1": "a 1 1, b 0 -1"})
	var forged []client.Object
	for i := range 3 {
		yes := true
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: theirs, Name: fmt.Sprintf("%s-1", name), Labels: replicas.GetLabels(),
			Annotations: map[string]string{pub.MatchedWorkloadSpread: fmt.Sprintf(`{"name":%q,"subset":"a"}`, name)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: replicas.GetName(),
				UID: replicas.GetUID(), Controller: &yes}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if i > 0 {
			pod.Name = fmt.Sprintf("forged-%d", i)
		}
		makes(t, pod)
		if pod.Annotations[pub.PodDeletionCost] != "" {
			t.Errorf("cost of deleting the pod: got annotations %+v, want none", pod.Annotations)
		}
		forged = append(forged, pod)
	}
	podOf(t, replicas, name+"-2", "")
	podOf(t, replicas, name+"-3", "")
	countsBecome(t, name, map[string]string{"": "a 2 0, b 1 -1", "v1": "a 2 0, b 1 -1"})
	for _, pod := range forged { // the deletion of this pod must not count for a booked pod with the same name
		if err := untouched(t, pod); err != nil {
			t.Errorf("the pod that claims a place: %v", err)
		}
		if err := kube.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	made(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s-4, namespace: default, labels: {app: %s, pod-template-hash: v1},
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: %s, uid: %s, controller: true}]}, spec: {containers: [{name: c, image: app}]}}`, name, name, replicas.GetName(), replicas.GetUID()))
	countsBecome(t, name, map[string]string{"": "a 2 0, b 2 -1", "v1": "a 2 0, b 2 -1"})
}

// A user's ContainerRecreateRequests in another namespace restart nothing here, and take no pod out of
// service: neither by the name of a pod, nor by an own pod of the same name with forged labels
// (CRR-035 (part), CRR-046 (part)).
func TestRecreateRequestsOfAnotherNamespace(t *testing.T) {
	const name = "neighboured-restart"
	mine, theirs := neighbours(t, name)
	makes(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	podIn := func(namespace string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: corev1.PodSpec{NodeName: name,
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: pub.KruisePodReady}},
			Containers:     []corev1.Container{{Name: "app", Image: "i"}}}}
		makes(t, pod)
		created := pod.DeepCopy()
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: pub.KruisePodReady, Status: corev1.ConditionTrue}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "containerd://of-" + namespace,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		if err := kube.Status().Patch(t.Context(), pod, client.MergeFrom(created)); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	victim := podIn(mine)
	hostile := operation("v1beta1", "ContainerRecreateRequest", "hostile",
		fmt.Sprintf(`{metadata: {namespace: %s, labels: {crr.apps.kruise.io/pod-uid: %q, crr.apps.kruise.io/node-name: %s}},
  spec: {podName: web, strategy: {unreadyGracePeriodSeconds: 600}}}`, theirs, victim.UID, name))
	if err := kube.Create(t.Context(), hostile.DeepCopy()); err == nil {
		t.Error("a request for a pod that is not in its namespace is taken")
	}
	own := podIn(theirs)
	makes(t, hostile)
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(hostile), hostile); err != nil {
			return err
		}
		if hostile.GetLabels()[pub.RecreateNodeName] != name {
			return errors.New("the request is not filled in")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if uid := hostile.GetLabels()[pub.RecreatePodUID]; uid != string(own.UID) {
		t.Errorf("label pod-uid %s, want %s", uid, own.UID)
	}
	text := asYAML(t, hostile.Object["spec"])
	if !strings.Contains(text, "of-"+theirs) {
		t.Errorf("spec of the request: got %s, want the container of its own namespace", text)
	}
	if strings.Contains(text, "of-"+mine) {
		t.Errorf("spec of the request: got %s, want nothing of the other namespace", text)
	}
	if err := kube.Patch(t.Context(), hostile.DeepCopy(),
		client.RawPatch(types.MergePatchType,
			[]byte(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, pub.RecreatePodUID, victim.UID)))); !apierrors.IsForbidden(err) {
		t.Errorf("another pod's UID is taken: %v", err)
	}
	// as the node does
	if err := kube.Status().Patch(t.Context(), hostile.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Recreating"}}`))); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error { // until the manager has acted on the request
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(own), own); err != nil {
			return err
		}
		for _, c := range own.Status.Conditions {
			if c.Type == pub.KruisePodReady && c.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return errors.New("the pod of the request is still in service")
	}); err != nil {
		t.Fatal(err)
	}
	if err := untouched(t, victim); err != nil {
		t.Errorf("the pod of the other namespace: %v", err)
	}
}

// A user's jobs in another namespace get no credentials of this one by the name of a secret, and do not count
// as jobs of a list here, whatever their owner references say (IMG-110 (part), IMG-150 (part)).
func TestImagePullJobsOfAnotherNamespace(t *testing.T) {
	const name = "neighboured-pulls"
	mine, theirs := neighbours(t, name)
	makes(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "credentials"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{}}`)}})
	if err := kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pub.DaemonConfigNamespace}}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	list := operation("v1beta1", "ImageListPullJob", "list",
		fmt.Sprintf(`{metadata: {namespace: %s}, spec: {images: ["registry.example.com/shop/a:1"], selector: {names: [%s]}}}`, mine, name))
	makes(t, list)
	jobs := func(namespace string) []appsv1beta1.ImagePullJob {
		var all appsv1beta1.ImagePullJobList
		if err := kube.List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		return all.Items
	}
	if err := wait(func() error {
		if n := len(jobs(mine)); n != 1 {
			return fmt.Errorf("%d jobs of the list", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	hostile := operation("v1beta1", "ImagePullJob", "hostile", fmt.Sprintf(`{metadata: {namespace: %s, ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: ImageListPullJob, name: list, uid: %s, controller: true}]},
  spec: {image: "registry.example.com/shop/secret:1", pullSecrets: [credentials], selector: {names: [%s]}}}`, theirs, list.GetUID(), name))
	makes(t, hostile)
	image := &appsv1beta1.NodeImage{}
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKey{Name: name}, image); err != nil {
			return err
		}
		if len(image.Spec.Images) != 2 {
			return fmt.Errorf("images %+v", image.Spec.Images)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	hasEvent(t, hostile, "MissingPullSecret", "pull secret credentials does not exist in namespace "+theirs)
	if secrets := image.Spec.Images["registry.example.com/shop/secret"].PullSecrets; len(secrets) != 0 {
		t.Errorf("pulled with %v", secrets)
	}
	var copies corev1.SecretList
	if err := kube.List(t.Context(), &copies, client.InNamespace(pub.DaemonConfigNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, secret := range copies.Items {
		if secret.Annotations[pub.SecretSource] == mine+"/credentials" {
			t.Errorf("the credentials were copied for %s", secret.Annotations[pub.SecretReferences])
		}
	}
	if err := kube.Patch(t.Context(), list,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"images":["registry.example.com/shop/b:1"]}}`))); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		own := jobs(mine)
		if len(own) != 1 || own[0].Spec.Image != "registry.example.com/shop/b:1" {
			return fmt.Errorf("%d jobs of the list", len(own))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	current := &appsv1beta1.ImageListPullJob{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(list), current); err != nil {
		t.Errorf("reading the list: %v", err)
	} else if n := current.Status.Desired; n != 1 {
		t.Errorf("desired jobs of the list: got %d, want 1: %+v", n, current.Status)
	}
	if left := jobs(theirs); len(left) != 1 || left[0].DeletionTimestamp != nil {
		t.Errorf("jobs of the other namespace: got %+v, want one that stays", left)
	}
}
