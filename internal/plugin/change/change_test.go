package change

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func document(containers ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "web", "resourceVersion": "7"},
		"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}},
	}}
}

func container(name, image string) map[string]any {
	return map[string]any{"name": name, "image": image, "args": []any{"a", "b"}, "newField": true}
}

// OPS-132 (part), OPS-150 (part): a patch has what differs and nothing else, and is guarded by the version
// that was read.
func TestPatch(t *testing.T) {
	tests := map[string]struct {
		after *unstructured.Unstructured
		want  string
	}{
		"an image of one of two": {document(container("app", "nginx:1"), container("log", "fluent:2")),
			`[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},` +
				`{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"fluent:2"}]`},
		"nothing": {document(container("app", "nginx:1"), container("log", "fluent:1")),
			`[{"op":"replace","path":"/metadata/resourceVersion","value":"7"}]`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := Patch(document(container("app", "nginx:1"), container("log", "fluent:1")), tt.after)
			if err != nil {
				t.Errorf("making the patch: %v", err)
			}
			if diff := cmp.Diff(tt.want, string(body)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
