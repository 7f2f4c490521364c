package podpatch

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// livePod has fields that our types do not know and what other writers added: an injected sidecar with a
// defaulted field, a condition of another controller, and a foreign finalizer and owner.
const livePod = `{
  "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "future": {"a": 1},
    "labels": {"app": "web", "theirs": "x"}, "annotations": {"theirs": "y"}, "finalizers": ["theirs/one", "ours/two"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "ours", "future": true}, {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "theirs", "future": true}]},
  "spec": {"futurePodField": [1, 2],
    "containers": [
      {"name": "nginx", "image": "nginx:1", "futureField": {"deep": [1]}, "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired", "future": 1}]},
      {"name": "sidecar", "image": "proxy:3", "futureField": "kept", "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}]},
  "status": {"futureStatus": 1, "conditions": [
      {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3, "future": 1},
      {"type": "InPlaceUpdateReady", "status": "False", "reason": "StartInPlaceUpdate", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
      {"type": "Theirs", "status": "Unknown"}]}
}`

// applied returns the pod after the patch as the API server applies it, without our types in between.
func applied(t *testing.T, live string, build func(*Patch)) map[string]any {
	t.Helper()
	patch := &Patch{}
	build(patch)
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(live), &pod); err != nil {
		t.Fatal(err)
	}
	body, err := patch.JSON(&pod)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch([]byte(live), body, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	return document(t, string(merged))
}

func document(t *testing.T, text string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func at(doc map[string]any, path ...string) map[string]any {
	for _, key := range path {
		doc = doc[key].(map[string]any)
	}
	return doc
}

// IPU-084, IPU-183, IPU-313: a patch changes what it names and nothing else, also where the pod has fields
// that our types do not know.
func TestAPatchChangesWhatItNamesAlone(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 5, time.FixedZone("x", 7200))
	tests := map[string]struct {
		build func(*Patch)
		want  func(pod map[string]any)
	}{
		"nothing": {func(*Patch) {}, func(map[string]any) {}},
		"image of a container beside an injected one": {
			func(p *Patch) { p.Image("nginx", "nginx:2") },
			func(pod map[string]any) {
				at(pod, "spec")["containers"].([]any)[0].(map[string]any)["image"] = "nginx:2"
			}},
		"labels set and removed": {
			func(p *Patch) {
				p.Label("app", "api")
				p.Label("new", "")
				p.RemoveLabel("theirs")
				p.RemoveLabel("absent")
			},
			func(pod map[string]any) { at(pod, "metadata")["labels"] = map[string]any{"app": "api", "new": ""} }},
		"annotations set and removed": {
			func(p *Patch) { p.Annotation("k", `{"a":"b"}`); p.RemoveAnnotation("theirs") },
			func(pod map[string]any) { at(pod, "metadata")["annotations"] = map[string]any{"k": `{"a":"b"}`} }},
		"IPU-158 keys and values with special characters": {
			func(p *Patch) { p.Label(`a"b\c/d`, "\"}\n\u2028"); p.Annotation(`x~1y/"z"`, `</script>`) },
			func(pod map[string]any) {
				at(pod, "metadata", "labels")[`a"b\c/d`] = "\"}\n\u2028"
				at(pod, "metadata", "annotations")[`x~1y/"z"`] = `</script>`
			}},
		"finalizers added and removed, those of others kept": {
			func(p *Patch) { p.Finalizers([]string{`ours/"three"`, "theirs/one"}, []string{"ours/two", "absent"}) },
			func(pod map[string]any) { at(pod, "metadata")["finalizers"] = []any{`ours/"three"`, "theirs/one"} }},
		"CS-056 release removes our owner reference alone": {
			func(p *Patch) { p.ReleaseOwner("ours") },
			func(pod map[string]any) {
				metadata := at(pod, "metadata")
				metadata["ownerReferences"] = metadata["ownerReferences"].([]any)[1:]
			}},
		"a condition is set with reason and message": {
			func(p *Patch) {
				p.Condition(corev1.PodCondition{Type: "Ready", Status: "False", Reason: "R", Message: "M",
					LastTransitionTime: metav1.NewTime(now)})
			},
			func(pod map[string]any) {
				ready := at(pod, "status")["conditions"].([]any)[0].(map[string]any)
				ready["status"], ready["reason"], ready["message"], ready["lastTransitionTime"] = "False", "R", "M", "2026-05-01T10:00:00Z"
			}},
		"a condition loses reason and message; without a time it keeps the one it has": {
			func(p *Patch) { p.Condition(corev1.PodCondition{Type: "InPlaceUpdateReady", Status: "True"}) },
			func(pod map[string]any) {
				conditions := at(pod, "status")["conditions"].([]any)
				conditions[1] = map[string]any{"type": "InPlaceUpdateReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
			}},
		"IPU-307 a new condition, none of the others restored or lost": {
			func(p *Patch) { p.Condition(corev1.PodCondition{Type: "KruisePodReady", Status: "True"}) },
			func(pod map[string]any) {
				status := at(pod, "status")
				status["conditions"] = append(status["conditions"].([]any), map[string]any{"type": "KruisePodReady", "status": "True"})
			}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := document(t, livePod)
			tt.want(want)
			got := applied(t, livePod, tt.build)
			for _, pod := range []map[string]any{want, got} { // the order within lists has no meaning
				tidy(at(pod, "status")["conditions"], "type")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the pod after the patch (-want +got):\n%s", diff)
			}
		})
	}
}

func tidy(list any, key string) {
	entries := list.([]any)
	for _, entry := range entries { // null in a new entry reads as absent
		maps.DeleteFunc(entry.(map[string]any), func(_ string, value any) bool { return value == nil })
	}
	for i := range entries {
		for j := i; j > 0 && entries[j].(map[string]any)[key].(string) < entries[j-1].(map[string]any)[key].(string); j-- {
			entries[j], entries[j-1] = entries[j-1], entries[j]
		}
	}
}

// IPU-084: a patch is made for one version of one pod; the API server refuses it for any other. Its
// containers stand in the pod's order, because another order in the patch would reorder the pod's.
func TestAPatchIsGuarded(t *testing.T) {
	patch := &Patch{}
	patch.Image("b", "2")
	patch.Image("a", "1")
	body, err := patch.JSON(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", ResourceVersion: "7"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "b"}, {Name: "c"}, {Name: "a"}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"resourceVersion":"7","uid":"u1"},"spec":{"containers":[{"image":"2","name":"b"},{"image":"1","name":"a"}]}}`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("the patch (-want +got):\n%s", diff)
	}
}

func TestEmptyOnStatusAndWords(t *testing.T) {
	tests := map[string]struct {
		build    func(*Patch)
		onStatus bool
		words    string
	}{
		"label":              {func(p *Patch) { p.Label("k", "v") }, false, "label k=v"},
		"removed label":      {func(p *Patch) { p.RemoveLabel("k") }, false, "no label k"},
		"annotation":         {func(p *Patch) { p.Annotation("k", "v") }, false, "annotation k"},
		"removed annotation": {func(p *Patch) { p.RemoveAnnotation("k") }, false, "no annotation k"},
		"image":              {func(p *Patch) { p.Image("c", "i:1") }, false, "image of c=i:1"},
		"owner":              {func(p *Patch) { p.ReleaseOwner("u") }, false, "no owner"},
		"added finalizer":    {func(p *Patch) { p.Finalizers([]string{"f"}, nil) }, false, "finalizer f"},
		"removed finalizer":  {func(p *Patch) { p.Finalizers(nil, []string{"f"}) }, false, "no finalizer f"},
		"condition":          {func(p *Patch) { p.Condition(corev1.PodCondition{Type: "Ready", Status: "False"}) }, true, "Ready=False"},
		"several": {func(p *Patch) { p.Label("b", "2"); p.Label("a", "1"); p.Image("c", "i") }, false,
			"image of c=i, label a=1, label b=2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			patch := &Patch{}
			tt.build(patch)
			if patch.Empty() {
				t.Error("empty")
			}
			if (patch.Subresource() == "status") != tt.onStatus {
				t.Errorf("subresource %q, want the status: %t", patch.Subresource(), tt.onStatus)
			}
			if diff := cmp.Diff(tt.words, patch.String()); diff != "" {
				t.Errorf("the patch in words (-want +got):\n%s", diff)
			}
		})
	}
	var none *Patch
	if !none.Empty() {
		t.Error("no patch is not empty")
	}
	nothing := &Patch{}
	if !nothing.Empty() {
		t.Error("a patch of nothing is not empty")
	}
	if got := nothing.Subresource(); got != "" {
		t.Errorf("subresource of a patch of nothing: got %q, want none", got)
	}
	if got := nothing.String(); got != "" {
		t.Errorf("a patch of nothing in words: got %q, want none", got)
	}
}

// A patch with changes of several kinds is not empty, also if there are equally many of each.
func TestAPatchIsEmptyOnlyWithoutAnyChange(t *testing.T) {
	kinds := map[string]func(*Patch){
		"a label":       func(p *Patch) { p.Label("a", "b") },
		"no label":      func(p *Patch) { p.RemoveLabel("a") },
		"an annotation": func(p *Patch) { p.Annotation("a", "b") },
		"a finalizer":   func(p *Patch) { p.Finalizers([]string{"f"}, nil) },
		"no finalizer":  func(p *Patch) { p.Finalizers(nil, []string{"f"}) },
		"an image":      func(p *Patch) { p.Image("c", "i") },
		"resources":     func(p *Patch) { p.Resources("c", corev1.ResourceRequirements{}) },
		"a condition":   func(p *Patch) { p.Condition(corev1.PodCondition{Type: "C"}) },
		"no owner":      func(p *Patch) { p.ReleaseOwner("u") },
	}
	for first, one := range kinds {
		for second, other := range kinds {
			p := &Patch{}
			if !p.Empty() {
				t.Fatal("a new patch is not empty")
			}
			one(p)
			other(p)
			if p.Empty() {
				t.Errorf("%s with %s passes for no change", first, second)
			}
		}
	}
	if !(*Patch)(nil).Empty() {
		t.Error("no patch at all is not empty")
	}
}

// IPU-112 (part): resources of several containers go into one patch, each of its own container.
func TestResourcesOfSeveralContainers(t *testing.T) {
	p := &Patch{}
	p.Resources("nginx", corev1.ResourceRequirements{})
	p.Resources("sidecar", corev1.ResourceRequirements{})
	if got, want := p.String(), "resources of nginx, resources of sidecar"; got != want {
		t.Errorf("the patch in words: got %q, want %q", got, want)
	}
}

// A patch without anything of the spec does not mention it.
func TestAPatchOfMetadataHasNoSpec(t *testing.T) {
	p := &Patch{}
	p.Label("a", "b")
	body, err := p.JSON(&corev1.Pod{})
	if err != nil {
		t.Errorf("encoding the patch: %v", err)
	}
	if want := `{"metadata":{"labels":{"a":"b"},"resourceVersion":"","uid":""}}`; string(body) != want {
		t.Errorf("the patch: got %s, want %s", body, want)
	}
}
