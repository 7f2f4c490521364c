package fastserver

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const image1, image2 = "nginx:1", "nginx:2"

// started starts a server with namespace d. Its nodes do every step within milliseconds if nodes is true,
// otherwise nothing for an hour.
func started(t *testing.T, nodes bool) (*Server, *rest.Config) {
	t.Helper()
	k := &Kubelets{Nodes: 2, Bind: time.Hour, Start: time.Hour, Restart: time.Hour, Ready: time.Hour, End: time.Hour}
	if nodes {
		k = &Kubelets{Nodes: 2, Bind: time.Millisecond, Start: time.Millisecond, Restart: time.Millisecond, Ready: time.Millisecond,
			End: time.Millisecond}
	}
	s, err := Start(t.Context(), time.Millisecond, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the server: %v", err)
		}
	})
	config := s.Config()
	config.QPS, config.UserAgent = -1, "test"
	if _, err := client(t, config, false).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s, config
}

func client(t *testing.T, config *rest.Config, protobuf bool) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	if protobuf {
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func podOf(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Finalizers: nil},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image1}, {Name: "side", Image: image1}},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "gate"}}}}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func until(t *testing.T, w watch.Interface, holds func(watch.Event, *corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("watched: got %+v, want a pod", e)
			}
			if holds(e, pod) {
				return pod
			}
		case <-deadline.C:
			t.Fatal("it did not happen within a minute")
		}
	}
}

// Both encodings, and JSON with protobuf.
func TestWrites(t *testing.T) {
	for name, protobuf := range map[string]bool{"JSON": false, "protobuf": true} {
		t.Run(name, func(t *testing.T) {
			s, config := started(t, false)
			pods, get := client(t, config, protobuf).CoreV1().Pods("d"), must[*corev1.Pod](t)
			ctx := t.Context()
			first := get(pods.Create(ctx, podOf("a"), metav1.CreateOptions{}))
			if first.UID == "" || first.ResourceVersion == "" || first.Generation != 1 || first.Status.Phase != corev1.PodPending ||
				first.Spec.RestartPolicy != corev1.RestartPolicyAlways {
				t.Errorf("created: %+v", first)
			}
			if _, err := pods.Create(ctx, podOf("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("created twice: %v", err)
			}
			if _, err := client(t, config, protobuf).CoreV1().Pods("none").Create(ctx, podOf("a"),
				metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("created nowhere: %v", err)
			}
			get(pods.Create(ctx, podOf("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
			if _, err := pods.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("a dry run is stored: %v", err)
			}
			dry := first.DeepCopy()
			dry.Labels["dry"] = "run"
			if would := get(pods.Update(ctx, dry, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})); would.Labels["dry"] != "run" {
				t.Errorf("a dry run of an update: %+v", would)
			}
			if still := get(pods.Get(ctx, "a", metav1.GetOptions{})); still.ResourceVersion != first.ResourceVersion {
				t.Errorf("a dry run of an update is stored: %+v", still)
			}
			changed := first.DeepCopy()
			changed.Labels["new"], changed.Status.Message, changed.UID = "label", "not by this way", ""
			second := get(pods.Update(ctx, changed, metav1.UpdateOptions{}))
			if second.Labels["new"] != "label" || second.Status.Message != "" || second.UID != first.UID ||
				second.ResourceVersion == first.ResourceVersion || second.Generation != 1 {
				t.Errorf("updated: %+v", second)
			}
			if _, err := pods.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("an update of an old version: %v", err)
			}
			if again := get(pods.Update(ctx, second, metav1.UpdateOptions{})); again.ResourceVersion != second.ResourceVersion {
				t.Errorf("a change of nothing made version %s of %s", again.ResourceVersion, second.ResourceVersion)
			}
			changed = second.DeepCopy()
			changed.Status.Message, changed.Spec.Containers[0].Image = "by this way", image2
			third := get(pods.UpdateStatus(ctx, changed, metav1.UpdateOptions{}))
			if third.Status.Message != "by this way" || third.Spec.Containers[0].Image != image1 {
				t.Errorf("status: %+v", third)
			}
			changed = third.DeepCopy()
			changed.Spec.Containers[0].Image = image2
			if fourth := get(pods.Update(ctx, changed, metav1.UpdateOptions{})); fourth.Generation != 2 ||
				fourth.Status.Message != "by this way" {
				t.Errorf("spec: %+v", fourth)
			}
			w := s.Written()["test"]
			if w.Done["create pods"] != 2 || w.Done["update pods"] != 4 || w.Done["update pods/status"] != 1 ||
				w.Refused["update pods: 409"] != 1 {
				t.Errorf("counted: %+v", w)
			}
		})
	}
}

func TestPatchesChangeWhatTheySay(t *testing.T) {
	_, config := started(t, false)
	pods, get := client(t, config, true).CoreV1().Pods("d"), must[*corev1.Pod](t)
	ctx := t.Context()
	pod := get(pods.Create(ctx, podOf("a"), metav1.CreateOptions{}))
	patch := func(kind types.PatchType, body string, subresource ...string) (*corev1.Pod, error) {
		return pods.Patch(ctx, "a", kind, []byte(body), metav1.PatchOptions{}, subresource...)
	}
	guard := func(p *corev1.Pod) string {
		return `"uid":"` + string(p.UID) + `","resourceVersion":"` + p.ResourceVersion + `"`
	}
	next := get(patch(types.StrategicMergePatchType,
		`{"metadata":{`+guard(pod)+`,"annotations":{"x":"y"}},"spec":{"containers":[{"name":"side","image":"`+image2+`"}]}}`))
	if next.Annotations["x"] != "y" || len(next.Spec.Containers) != 2 || next.Spec.Containers[0].Image != image1 ||
		next.Spec.Containers[1].Image != image2 || next.Generation != 2 {
		t.Errorf("strategic: %+v", next)
	}
	if _, err := patch(types.StrategicMergePatchType, `{"metadata":{`+guard(pod)+`,"labels":{"x":"y"}}}`); !apierrors.IsConflict(err) {
		t.Errorf("a patch of an old version: %v", err)
	}
	if _, err := patch(types.StrategicMergePatchType, `{"metadata":{"uid":"another","labels":{"x":"y"}}}`); !apierrors.IsConflict(err) {
		t.Errorf("a patch of another pod: %v", err)
	}
	condition := func(kind, status string) string {
		return `{"status":{"conditions":[{"type":"` + kind + `","status":"` + status +
			`","reason":null,"message":null,"lastTransitionTime":"2026-01-02T03:04:05Z"}]},"spec":{"nodeName":"no"}}`
	}
	get(patch(types.StrategicMergePatchType, condition("A", "True"), "status"))
	get(patch(types.StrategicMergePatchType, condition("B", "True"), "status"))
	next = get(patch(types.StrategicMergePatchType, condition("A", "False"), "status"))
	if c := next.Status.Conditions; len(c) != 2 || c[0].Status == c[1].Status || next.Spec.NodeName != "" {
		t.Errorf("conditions by their types: %+v", next)
	}
	if same := get(patch(types.StrategicMergePatchType, condition("A", "False"), "status")); same.ResourceVersion != next.ResourceVersion {
		t.Errorf("a patch of nothing made version %s of %s", same.ResourceVersion, next.ResourceVersion)
	}
	if next = get(patch(types.MergePatchType, `{"metadata":{"annotations":{"x":null,"z":"1"}}}`)); next.Annotations["x"] != "" ||
		next.Annotations["z"] != "1" {
		t.Errorf("merge: %+v", next)
	}
	if next = get(patch(types.JSONPatchType,
		`[{"op":"replace","path":"/spec/containers/0/image","value":"nginx:3"}]`)); next.Spec.Containers[0].Image != "nginx:3" {
		t.Errorf("JSON: %+v", next)
	}
	if _, err := patch(types.JSONPatchType, `[{"op":"test","path":"/spec/containers/0/image","value":"other"}]`); !apierrors.IsInvalid(
		err) {
		t.Errorf("a test that fails: %v", err)
	}
	applied := get(pods.Patch(ctx, "b", types.ApplyYAMLPatchType,
		[]byte("metadata: {name: b}\nspec: {containers: [{name: app, image: x}]}\napiVersion: v1\nkind: Pod\n"),
		metav1.PatchOptions{FieldManager: "m"}))
	if applied.UID == "" || applied.Spec.Containers[0].Image != "x" {
		t.Errorf("applied: %+v", applied)
	}
	if _, err := pods.Patch(ctx, "none", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a patch of none: %v", err)
	}
}

func TestDeletionsObeyPreconditionsAndFinalizers(t *testing.T) {
	_, config := started(t, false)
	pods, get := client(t, config, true).CoreV1().Pods("d"), must[*corev1.Pod](t)
	ctx, none := t.Context(), int64(0)
	pod := podOf("a")
	pod.Spec.NodeName, pod.Finalizers = "n", []string{"x.dev/held"}
	pod = get(pods.Create(ctx, pod, metav1.CreateOptions{}))
	for what, p := range map[string]metav1.Preconditions{"UID": {UID: new(types.UID)}, "version": {ResourceVersion: new(string)}} {
		if err := pods.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &p}); !apierrors.IsConflict(err) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	if err := pods.Delete(ctx, "a", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a dry run of the deletion: %v", err)
	}
	if still := get(pods.Get(ctx, "a", metav1.GetOptions{})); still.DeletionTimestamp != nil {
		t.Error("a dry run deletes")
	}
	if err := pods.Delete(ctx, "a",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}}); err != nil {
		t.Errorf("deletion of this UID and version: %v", err)
	}
	if going := get(pods.Get(ctx, "a", metav1.GetOptions{})); going.DeletionTimestamp == nil || *going.DeletionGracePeriodSeconds != 30 {
		t.Errorf("with grace: %+v", going)
	}
	if err := pods.Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Errorf("deletion without grace: %v", err)
	}
	if held := get(pods.Get(ctx, "a", metav1.GetOptions{})); *held.DeletionGracePeriodSeconds != 0 {
		t.Errorf("held: %+v", held)
	}
	get(pods.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))
	if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without finalizers: %v", err)
	}
	get(pods.Create(ctx, podOf("b"), metav1.CreateOptions{}))
	if err := pods.Delete(ctx, "b", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deletion of a pod without a node: %v", err)
	}
	if err := pods.Delete(ctx, "b", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod on no node: %v", err)
	}
}

func TestWatchesShowEveryChange(t *testing.T) {
	for name, protobuf := range map[string]bool{"JSON": false, "protobuf": true} {
		t.Run(name, func(t *testing.T) {
			s, config := started(t, false)
			pods, get := client(t, config, protobuf).CoreV1().Pods("d"), must[*corev1.Pod](t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			get(pods.Create(ctx, podOf("a"), metav1.CreateOptions{}))
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app in (a, c)"})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 1 || list.Items[0].Name != "a" {
				t.Fatalf("selected pods: got %v, want a alone", list)
			}
			get(pods.Create(ctx, podOf("b"), metav1.CreateOptions{}))
			get(pods.Create(ctx, podOf("c"), metav1.CreateOptions{}))
			get(pods.Patch(ctx, "c", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"b"}}}`), metav1.PatchOptions{}))
			get(pods.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"1"}}}`), metav1.PatchOptions{}))
			seen := func(options metav1.ListOptions, n int) []string {
				w, err := pods.Watch(ctx, options)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Stop()
				var all []string
				until(t, w, func(e watch.Event, pod *corev1.Pod) bool {
					all = append(all, string(e.Type)+" "+pod.Name)
					return len(all) == n
				})
				return all
			}
			expect := func(got []string, want ...string) {
				t.Helper()
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("%v, want %v", got, want)
					}
				}
			}
			expect(seen(metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "app in (a, c)"}, 3), "ADDED c",
				"DELETED c", "MODIFIED a")
			expect(seen(metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=a"}, 1), "MODIFIED a")
			expect(seen(metav1.ListOptions{}, 3), "ADDED a", "ADDED b", "ADDED c")
			one, err := client(t, config, protobuf).CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/d/pods/b").Param("watch",
				"true").Watch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if until(t, one, func(watch.Event, *corev1.Pod) bool { return true }).Name != "b" {
				t.Error("a watch of one object shows another")
			}
			one.Stop()
			yes := true
			if _, err := pods.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes}); !apierrors.IsInvalid(err) {
				t.Errorf("lists by watches are not served: %v", err)
			}
			r := s.resource(corev1.SchemeGroupVersion.WithResource("pods"))
			v := r.get(keyOf("d", "a"))
			for range 2 * history {
				r.change(ctx, v.key, func(o object) object { return o.DeepCopyObject().(object) })
			}
			w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
				t.Errorf("a version that is not kept any more: %+v", e)
			}
		})
	}
}

// Kinds of definitions have a status that changes separately, and a scale; their metadata alone is served in
// both encodings.
func TestDefinitionsHaveStatusAndScale(t *testing.T) {
	_, config := started(t, false)
	ctx := t.Context()
	documents, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1",
		Kind: "CustomResourceDefinition"}, ObjectMeta: metav1.ObjectMeta{Name: "sets.x.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "x.dev", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "sets", Kind: "Set"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true},
				{Name: "v1", Served: true, Storage: true,
					Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
						Scale: &apiextensionsv1.CustomResourceSubresourceScale{}}}}}}
	text, err := json.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	definition := &unstructured.Unstructured{}
	if err := definition.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	get := must[*unstructured.Unstructured](t)
	get(documents.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}).Create(ctx, definition, metav1.CreateOptions{}))
	resources, err := client(t, config, false).Discovery().ServerResourcesForGroupVersion("x.dev/v1")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resources.APIResources); n != 3 {
		t.Fatalf("resources: got %d, want 3: %v", n, resources)
	}
	kind := schema.GroupVersionResource{Group: "x.dev", Version: "v1", Resource: "sets"}
	sets := documents.Resource(kind).Namespace("d")
	number := func(o *unstructured.Unstructured, path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, path...)
		return n
	}
	set := get(sets.Create(ctx,
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.dev/v1", "kind": "Set", "metadata": map[string]any{"name": "s"},
			"spec": map[string]any{"replicas": int64(3)}, "status": map[string]any{"replicas": int64(9)}}}, metav1.CreateOptions{}))
	if number(set, "status", "replicas") != 0 || set.GetGeneration() != 1 {
		t.Errorf("created: %v", set)
	}
	set = get(sets.Patch(ctx, "s", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"no":"no"}},"spec":{"replicas":7},"status":{"replicas":2}}`), metav1.PatchOptions{}, "status"))
	if number(set, "status", "replicas") != 2 || number(set, "spec", "replicas") != 3 || set.GetGeneration() != 1 ||
		len(set.GetLabels()) != 0 {
		t.Errorf("status: %v", set)
	}
	scale := get(sets.Patch(ctx, "s", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}, "scale"))
	set = get(sets.Get(ctx, "s", metav1.GetOptions{}))
	if scale.GetKind() != "Scale" || number(scale, "spec", "replicas") != 5 || number(scale, "status", "replicas") != 2 ||
		number(set, "spec", "replicas") != 5 || set.GetGeneration() != 2 {
		t.Errorf("scale: %v of %v", scale, set)
	}
	if _, err := sets.Patch(ctx, "s", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"},"spec":{"replicas":6}}`),
		metav1.PatchOptions{}, "scale"); !apierrors.IsConflict(err) {
		t.Errorf("a scale of an old version: %v", err)
	}
	if _, err := sets.Patch(ctx, "s", types.StrategicMergePatchType, []byte(`{}`),
		metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("a strategic patch: %v", err)
	}
	alone, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := alone.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "s" || list.Items[0].Namespace != "d" {
		t.Errorf("metadata: %+v, %v", list, err)
	}
}

// The nodes start a pod, restart a container in place, set Ready as the readiness gates change, and end the
// pod.
func TestKubelets(t *testing.T) {
	_, config := started(t, true)
	pods, get := client(t, config, true).CoreV1().Pods("d"), must[*corev1.Pod](t)
	ctx := t.Context()
	w, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	get(pods.Create(ctx, podOf("a"), metav1.CreateOptions{}))
	pod := until(t, w, func(_ watch.Event, pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	if pod.Spec.NodeName == "" {
		t.Error("the pod that runs has no node")
	}
	if isTrue(pod, corev1.PodReady) || !isTrue(pod, corev1.ContainersReady) {
		t.Errorf("conditions: got %+v, want the containers ready, the pod not", pod.Status.Conditions)
	}
	if n := len(pod.Status.ContainerStatuses); n != 2 {
		t.Errorf("containers of the status: got %d, want 2", n)
	}
	gate := func(status string) {
		t.Helper()
		get(pods.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"gate","status":"`+status+`"}]}}`),
			metav1.PatchOptions{}, "status"))
	}
	gate("True")
	until(t, w, func(_ watch.Event, pod *corev1.Pod) bool { return isTrue(pod, corev1.PodReady) })
	gate("False")
	until(t, w, func(_ watch.Event, pod *corev1.Pod) bool {
		return !isTrue(pod, "gate") && !isTrue(pod, corev1.PodReady)
	})
	get(pods.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"app","image":"`+image2+`"}]}}`),
		metav1.PatchOptions{}))
	pod = until(t, w, func(_ watch.Event, pod *corev1.Pod) bool { return pod.Status.ContainerStatuses[0].Image == image2 })
	if c := pod.Status.ContainerStatuses; c[0].RestartCount != 1 || c[1].RestartCount != 0 {
		t.Errorf("containers after an update in place: got %+v, want the first restarted alone", c)
	}
	if err := pods.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deletion: %v", err)
	}
	until(t, w, func(e watch.Event, _ *corev1.Pod) bool { return e.Type == watch.Deleted })
}

func TestTheAcceptHeaderDecidesTheEncoding(t *testing.T) {
	built, document := &kind{typed: true}, &kind{}
	for header, want := range map[string]struct{ built, document form }{
		"":                             {},
		"*/*":                          {},
		"text/plain, application/json": {},
		"application/vnd.kubernetes.protobuf, */*":         {built: form{protobuf: true}},
		"application/vnd.kubernetes.protobuf;stream=watch": {built: form{protobuf: true}},
		"text/plain;as=PartialObjectMetadata":              {},
		"application/json;as=Table;v=v1;g=meta.k8s.io":     {},
		"application/json;as=PartialObjectMetadata;v=v1,application/json": {form{partial: true},
			form{partial: true}},
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1,application/json": {form{protobuf: true, partial: true},
			form{protobuf: true, partial: true}},
	} {
		if got := accepted(header, built); got != want.built {
			t.Errorf("form of a built-in kind for %q: got %+v, want %+v", header, got, want.built)
		}
		if got := accepted(header, document); got != want.document {
			t.Errorf("%q, a document: %+v", header, got)
		}
	}
}
