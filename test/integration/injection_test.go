//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// injecting makes a SidecarSet and waits until the API server sends the pods that it selects by the labels.
func injecting(t *testing.T, name, namespace, spec string, podLabels map[string]string) {
	t.Helper()
	set := operation("v1beta1", "SidecarSet", name, spec)
	unstructured.RemoveNestedField(set.Object, "spec", "selector", "matchLabels", "side") // it comes from the good manifest
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), set) })
	probe := sidecarPod(namespace, "probe", podLabels)
	if err := wait(func() error {
		pod := probe.DeepCopy()
		if err := kube.Create(t.Context(), pod, client.DryRunAll); err != nil {
			if strings.Contains(err.Error(), "SidecarSet "+name) { // a refusal shows that the pod was sent
				return nil
			}
			return err
		}
		if !strings.Contains(pod.Annotations[pub.SidecarSetInjectedList], name) {
			return errors.New("no sidecar")
		}
		return nil
	}); err != nil {
		var configuration registrationv1.MutatingWebhookConfiguration
		_ = kube.Get(t.Context(), client.ObjectKey{Name: "kruise-mutating-webhook-configuration"}, &configuration)
		t.Fatalf("%v; asked for: %+v", err, configuration.Webhooks[len(configuration.Webhooks)-1].MatchConditions)
	}
}

func sidecarPod(namespace, name string, podLabels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: podLabels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1", Env: []corev1.EnvVar{{Name: "A", Value: "a"}}}}}}
}

func namesOf(containers []corev1.Container) string {
	var names []string
	for i := range containers {
		names = append(names, containers[i].Name)
	}
	return strings.Join(names, " ")
}

// SS-003, SS-005, SS-006, SS-086, SS-102, SS-115, SS-180, SS-290 to SS-295: a pod gets its sidecars and the
// API server's defaults. Earlier pods get none, pods that do not match are not sent to the webhook, and
// injected containers outlive their SidecarSet.
func TestPodsGetSidecars(t *testing.T) {
	labels := map[string]string{"ship-logs": "yes"}
	early := sidecarPod("default", "early", labels)
	if err := kube.Create(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	defer remove(t, early)
	injecting(t, "shipping", "default", `{spec: {selector: {matchLabels: {ship-logs: "yes"}}, containers: [{name: shipper, image: "example.com/shipper:1.0", volumeMounts: [{name: spool, mountPath: /spool}]}],
		initContainers: [{name: nat, image: "nat:1", restartPolicy: Always}], volumes: [{name: spool, emptyDir: {}}]}}`, labels)
	pod := sidecarPod("default", "injected", labels)
	if err := kube.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	defer remove(t, pod)
	if got := namesOf(pod.Spec.Containers) + " | " + namesOf(pod.Spec.InitContainers); got != "shipper app | nat" {
		t.Fatalf("containers: got %s, want shipper app | nat", got)
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(early), early); err != nil {
		t.Errorf("reading the pod that was there before: %v", err)
	}
	if n := len(early.Spec.Containers); n != 1 {
		t.Errorf("containers of the pod that was there before: got %d, want 1", n)
	}
	if diff := cmp.Diff(early.Spec.Containers[0], pod.Spec.Containers[1]); diff != "" {
		t.Errorf("the pod's own container: %s", diff)
	}
	records, err := sidecarset.ReadRecords(pod.Annotations[pub.SidecarSetHash])
	if err != nil {
		t.Errorf("reading the records: %v", err)
	}
	if records["shipping"].Hash == "" {
		t.Errorf("records: got %v, want the hash of the SidecarSet", records)
	}
	if diff := cmp.Diff([]string{"nat", "shipper"}, records["shipping"].SidecarList); diff != "" {
		t.Errorf("recorded containers (-want +got):\n%s", diff)
	}
	pod.Labels["more"] = "1"
	if err := kube.Update(t.Context(), pod); err != nil {
		t.Errorf("an update of the pod: %v", err)
	}
	if list := pod.Annotations[pub.SidecarSetInjectedList]; list != "shipping" {
		t.Errorf("injected SidecarSets after an update: got %q, want shipping", list)
	}
	// SS-107: both entries send this pod, and the result is the same as if one did.
	twice := sidecarPod("default", "twice", labels)
	twice.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "1",
		Controller: new(true)}}
	if err := kube.Create(t.Context(), twice, client.DryRunAll); err != nil {
		t.Errorf("a pod that both entries send: %v", err)
	}
	if gates := twice.Spec.ReadinessGates; len(gates) != 1 {
		t.Errorf("readiness gates of a pod that both entries send: got %+v, want one", gates)
	}
	if diff := cmp.Diff(pod.Spec.Containers[:1], twice.Spec.Containers[:1],
		cmpopts.IgnoreFields(corev1.VolumeMount{}, "Name")); diff != "" {
		t.Errorf("the sidecar of a pod that both entries send (-want +got):\n%s", diff)
	}
	if got := namesOf(twice.Spec.Containers); got != "shipper app" {
		t.Errorf("containers of a pod that both entries send: got %s, want shipper app", got)
	}
	var conditions registrationv1.MutatingWebhookConfiguration
	if err := kube.Get(t.Context(), client.ObjectKey{Name: "kruise-mutating-webhook-configuration"}, &conditions); err != nil {
		t.Fatal(err)
	}
	for _, hook := range conditions.Webhooks {
		if hook.Name != "mpod-all.kb.io" {
			continue
		}
		if len(hook.MatchConditions) == 0 || !strings.Contains(hook.MatchConditions[0].Expression, "'ship-logs'") {
			t.Errorf("%s: conditions: got %+v, want ship-logs in the first", hook.Name, hook.MatchConditions)
		}
		if *hook.FailurePolicy != registrationv1.Fail {
			t.Errorf("%s: failure policy: got %s, want Fail", hook.Name, *hook.FailurePolicy)
		}
	}
	if err := kube.Delete(t.Context(), operation("v1beta1", "SidecarSet", "shipping", "")); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		late := sidecarPod("default", "late", labels)
		if err := kube.Create(t.Context(), late, client.DryRunAll); err != nil || len(late.Spec.Containers) != 1 {
			return fmt.Errorf("%d containers, %w", len(late.Spec.Containers), err)
		}
		return nil
	}); err != nil {
		t.Errorf("a pod after the SidecarSet went: %v", err)
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Errorf("reading the pod: %v", err)
	}
	if n := len(pod.Spec.Containers); n != 2 {
		t.Errorf("containers of the pod that stays: got %d, want 2", n)
	}
}

// SS-082, SS-D16: all pods of a namespace that is created at the same moment get their sidecars.
func TestPodsOfNewNamespaces(t *testing.T) {
	labels := map[string]string{"mesh": "on"}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "payments"}}}
	}
	if err := kube.Create(t.Context(), namespace("payments")); err != nil {
		t.Fatal(err)
	}
	injecting(t, "mesh", "payments", `{spec: {selector: {matchLabels: {mesh: "on"}}, namespaceSelector: {matchLabels: {team: payments}},
		containers: [{name: proxy, image: "proxy:1", upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: "idle:1"}}]}}`,
		labels)
	for i := range 10 {
		name := fmt.Sprintf("payments-%d", i)
		if err := kube.Create(t.Context(), namespace(name)); err != nil {
			t.Fatal(err)
		}
		pod := sidecarPod(name, "first", labels)
		if err := kube.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("a pod in %s: %v", name, err)
		} else if got := namesOf(pod.Spec.Containers); got != "proxy-1 proxy-2 app" {
			t.Errorf("containers of a pod in %s: got %s, want proxy-1 proxy-2 app", name, got)
		}
	}
	pod := sidecarPod("default", "elsewhere", labels)
	if err := kube.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Errorf("a pod elsewhere: %v", err)
	} else if got := namesOf(pod.Spec.Containers); got != "app" {
		t.Errorf("containers of a pod elsewhere: got %s, want app", got)
	}
}

// SS-094, SS-131, SS-134, SS-D18: refusals name the SidecarSet and the field, and the client that creates the
// pod gets the warnings.
func TestInjectionIsRefused(t *testing.T) {
	labels := map[string]string{"refuse": "yes"}
	injecting(t, "refusing", "default", `{spec: {selector: {matchLabels: {refuse: "yes"}}, initContainers: [{name: boot, image: i}],
		containers: [{name: side, image: i, resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: "^main$", resourcesExpr: {requests: {cpu: "1"}}}}]}}`, labels)
	err := kube.Create(t.Context(), sidecarPod("default", "untargeted", labels))
	const want = `SidecarSet refusing: spec.containers[0].resourcesPolicy.targetContainersNameRegex: no containers match the regex pattern "^main$"`
	if !apierrors.IsInternalError(err) {
		t.Errorf("a pod without the container: got %v, want an internal error", err)
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("a pod without the container: got %q, want %q in it", err, want)
	}
	pod := sidecarPod("default", "clashing", labels)
	pod.Spec.Containers[0].Name = "boot"
	var status apierrors.APIStatus
	if err := kube.Create(t.Context(), pod); !errors.As(err, &status) || status.Status().Code != 422 {
		t.Errorf("a pod whose container has the name of a sidecar: got %v, want code 422", err)
	} else if field := status.Status().Details.Causes[0].Field; field != "spec.containers[0].name" {
		t.Errorf("a pod whose container has the name of a sidecar: got field %s, want spec.containers[0].name",
			field)
	} else if !strings.Contains(err.Error(), "SidecarSet refusing") {
		t.Errorf("a pod whose container has the name of a sidecar: got %q, want the SidecarSet in it", err)
	}
}

// SS-171, SS-172: the revision that is named is found in the install namespace, also right after it was made;
// if it is missing, pods are refused.
func TestNamedRevisionsAreFoundInTheInstallNamespace(t *testing.T) {
	labels := map[string]string{"revised": "yes"}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}}
	if err := kube.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	var old appsv1beta1.SidecarSetSpec
	if err := json.Unmarshal([]byte(`{"containers":[{"name":"side","image":"side:old"}]}`), &old); err != nil {
		t.Fatal(err)
	}
	content, err := sidecarset.Content(&old)
	if err != nil {
		t.Fatal(err)
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "revised-1",
		Labels: map[string]string{pub.SidecarSetName: "revised"}},
		Data: runtime.RawExtension{Raw: content}, Revision: 1}
	if err := kube.Create(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	defer remove(t, revision)
	injecting(t, "revised", "default", `{spec: {selector: {matchLabels: {revised: "yes"}}, injectionStrategy: {revision: {revisionName: revised-1}}, containers: [{name: side, image: "side:new"}]}}`, labels)
	pod := sidecarPod("default", "revised", labels)
	if err := kube.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Errorf("a pod of an older revision: %v", err)
	}
	if image := pod.Spec.Containers[0].Image; image != "side:old" {
		t.Errorf("sidecar of an older revision: got image %s, want side:old", image)
	}
	if hash := pod.Annotations[pub.SidecarSetHash]; !strings.Contains(hash, `"controllerRevision":"revised-1"`) {
		t.Errorf("record of an older revision: got %s, want revised-1 in it", hash)
	}
	if err := kube.Delete(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		err := kube.Create(t.Context(), sidecarPod("default", "revised", labels), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "there is no ControllerRevision revised-1") {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	}); err != nil {
		t.Errorf("a pod of a revision that is gone: %v", err)
	}
}

// SS-090, SS-254, SS-D24: changes of an earlier webhook count and stay, and a launch priority that the
// SidecarSet sets applies to the sidecars.
func TestInjectionAfterOtherWebhooks(t *testing.T) {
	// The other webhook adds a label that the SidecarSet selects by, a container, and something to the pod's
	// container.
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: &kind, Patch: []byte(`[
			{"op":"add","path":"/metadata/labels/by-other","value":"yes"},
			{"op":"add","path":"/spec/containers/0","value":{"name":"theirs","image":"theirs:1"}},
			{"op":"add","path":"/spec/containers/1/resizePolicy","value":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}]`)}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer other.Close()
	none, all := registrationv1.SideEffectClassNone, "/"
	url := other.URL + all
	configuration := &registrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a-before-ours"},
		Webhooks: []registrationv1.MutatingWebhook{{
			Name: "theirs.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
			ClientConfig: registrationv1.WebhookClientConfig{URL: &url,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"changed": "yes"}},
			Rules: []registrationv1.RuleWithOperations{{Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule: registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}}}
	if err := kube.Create(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	defer remove(t, configuration)
	labels := map[string]string{"changed": "yes"}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-configuration"},
		Data: map[string]string{"SidecarSet_PatchPodMetadata_WhiteList": `{"rules":[{"allowedAnnotationKeyExprs":["launch-priority"]}]}`}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}}
	if err := kube.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	defer remove(t, config)
	injecting(t, "second", "default", `{spec: {selector: {matchLabels: {by-other: "yes"}}, containers: [{name: side, image: i}],
		patchPodMetadata: [{annotations: {apps.kruise.io/container-launch-priority: Ordered}}]}}`, labels)
	pod := sidecarPod("default", "changed", labels)
	if err := kube.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if got := namesOf(pod.Spec.Containers); got != "side theirs app" {
		t.Fatalf("containers: got %s, want side theirs app", got)
	}
	if policy := pod.Spec.Containers[2].ResizePolicy; resizes(t) && (len(policy) == 0 || policy[0].RestartPolicy != corev1.RestartContainer) {
		t.Errorf("resize policy of the pod's container: got %+v, want RestartContainer", policy)
	}
	var barriers []string
	for _, c := range pod.Spec.Containers {
		for _, env := range c.Env {
			if env.Name == pub.ContainerBarrierEnv {
				barriers = append(barriers, env.ValueFrom.ConfigMapKeyRef.Key)
			}
		}
	}
	if diff := cmp.Diff([]string{"p_0", "p_-1", "p_-2"}, barriers); diff != "" {
		t.Errorf("barriers of the launch order (-want +got):\n%s", diff)
	}
}
