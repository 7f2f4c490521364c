package change

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzPatch: a patch applies to the object that it is based on, makes the wanted one, and begins with the
// resourceVersion if the object has one.
func FuzzPatch(f *testing.F) {
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","resourceVersion":"5"},"spec":{"a/b":[1,2,{"c":"~"}],"d":null,"big":9007199254740993}}`
	f.Add(object, []byte("\x01\x00\x02\x01\x03"))
	f.Add(object, []byte("lists that are longer and shorter"))
	f.Fuzz(func(t *testing.T, document string, changes []byte) {
		before, after := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		if before.UnmarshalJSON([]byte(document)) != nil || after.UnmarshalJSON([]byte(fuzzing.Edit(document,
			changes, "a/b", "~", ""))) != nil {
			return
		}
		after.SetResourceVersion(before.GetResourceVersion())
		body, err := Patch(before, after)
		if err != nil {
			t.Fatalf("from %s to %s: %v", fuzzing.JSON(before), fuzzing.JSON(after), err)
		}
		patch, err := jsonpatch.DecodePatch(body)
		if err != nil {
			t.Fatalf("%s is no patch: %v", body, err)
		}
		if version := before.GetResourceVersion(); version != "" {
			if len(patch) == 0 || patch[0].Kind() != "replace" {
				t.Errorf("%s has no precondition", body)
			}
		}
		from, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		made, err := patch.Apply(from)
		if err != nil {
			t.Fatalf("%s does not apply to %s: %v", body, from, err)
		}
		if got, want := fuzzing.JSON(fuzzing.Value(string(made))),
			fuzzing.JSON(fuzzing.Value(fuzzing.JSON(after))); got != want {
			t.Errorf("%s makes %s, want %s", body, got, want)
		}
	})
}
