package dashboard

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzSetSpec: what a user writes into the page changes the spec or nothing, and the document that the page
// shows changes nothing when it comes back as it is.
func FuzzSetSpec(f *testing.F) {
	const object = `{"apiVersion":"apps.kruise.io/v1beta1","kind":"CloneSet","metadata":{"name":"web","namespace":"shop","labels":{"a":"b"}},"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"app","image":"i"}]}}},"status":{"replicas":3}}`
	f.Add("spec: {replicas: 5}", []byte{})
	f.Add("apiVersion: apps.kruise.io/v1beta1\nkind: CloneSet\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 5, a: 1.0, b: 0x10, c: yes}\n", []byte{})
	f.Add("a: &a [*a]", []byte("\x03\x01\x00\x02"))
	f.Add("spec: {a: 1, a: 2}", []byte("strange values in the spec"))
	f.Add("null", []byte{})
	f.Fuzz(func(t *testing.T, yaml string, changes []byte) {
		o := &unstructured.Unstructured{}
		if o.UnmarshalJSON([]byte(fuzzing.Edit(object, changes, "spec", "metadata", "future"))) != nil {
			return
		}
		before := o.DeepCopy()
		shown := wanted{YAML: text(documentOf(o).Object)}
		if _, ok := o.Object["spec"].(map[string]any); ok && o.GetName() != "" {
			if err := shown.setSpec(o); err == nil && !equality.Semantic.DeepEqual(o.Object, before.Object) {
				t.Errorf("what was shown of %s changed it into %s", fuzzing.JSON(before), fuzzing.JSON(o))
			}
		}
		o = before.DeepCopy()
		err := (&wanted{YAML: yaml}).setSpec(o)
		if err == nil {
			delete(o.Object, "spec")
			without := before.DeepCopy()
			delete(without.Object, "spec")
			before, o = without, o.DeepCopy()
		}
		if !equality.Semantic.DeepEqual(o.Object, before.Object) {
			t.Errorf("%q changed more than the spec, %v: %s", yaml, err, fuzzing.JSON(o))
		}
	})
}
