//go:build integration

package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestManifestsAreAppliedAgain: the manager owns no field that the manifests set. Applying them a second time
// causes no conflict, and changes nothing that the manager has written (OPS-062, OPS-064, OPS-071 (part)).
func TestManifestsAreAppliedAgain(t *testing.T) {
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../config/webhook/mutating.yaml", "../../config/webhook/validating.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(data, &object.Object); err != nil {
				t.Fatal(err)
			}
			if _, webhooks := object.Object["webhooks"]; webhooks { // this manager is called by URL, unlike in the manifests
				for _, hook := range object.Object["webhooks"].([]any) {
					delete(hook.(map[string]any), "clientConfig")
				}
				live := object.DeepCopy()
				if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), live); err != nil {
					t.Fatal(err)
				}
				configs := map[any]any{}
				for _, hook := range live.Object["webhooks"].([]any) {
					configs[hook.(map[string]any)["name"]] = hook.(map[string]any)["clientConfig"]
				}
				for _, hook := range object.Object["webhooks"].([]any) {
					hook.(map[string]any)["clientConfig"] = configs[hook.(map[string]any)["name"]]
				}
			} else {
				unstructured.RemoveNestedField(object.Object, "spec", "conversion")
			}
			before := object.DeepCopy()
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), before); err != nil {
				t.Fatal(err)
			}
			if err := kube.Patch(t.Context(), object, applied(t, object), client.FieldOwner("kubectl"), client.DryRunAll); err != nil {
				t.Fatalf("a second application: %v", err)
			}
			for _, o := range []*unstructured.Unstructured{before, object} {
				o.SetManagedFields(nil)
				o.SetResourceVersion("")
			}
			if diff := cmp.Diff(before.Object, object.Object); diff != "" {
				t.Errorf("a second application changes (-now +then):\n%s", diff)
			}
		})
	}
}

func applied(t *testing.T, object *unstructured.Unstructured) client.Patch {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return client.RawPatch(types.ApplyPatchType, body)
}
