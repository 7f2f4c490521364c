package resourcedistribution

import (
	"strings"
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzRead: a resource is read the same each time, has a name and a kind that is allowed, and an error does
// not have what may be secret.
func FuzzRead(f *testing.F) {
	for _, text := range []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","labels":{"a":"b"}},"data":{"a":"hunter2"},"binaryData":{"b":"AAAA"}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","annotations":{"a":"b"}},"stringData":{"password":"hunter2"},"type":"Opaque","immutable":true}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"password":"hunter2"}}`, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":"hunter2"}`,
		`null`, `{}`, `[]`, `"hunter2"`} {
		f.Add(text, []byte{})
		f.Add(text, []byte("\x01\x00\x02\x03\x01\x05"))
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte) {
		text = fuzzing.Edit(text, changes, "data", "binaryData", "stringData", "immutable", "type", "metadata",
			"finalizers", "labels")
		d := &appsv1beta1.ResourceDistribution{}
		d.Name, d.Spec.Resource.Raw = "d", []byte(text)
		first, err := Read(d)
		second, err2 := Read(d)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%s is read with %v, and then with %v", text, err, err2)
		}
		if err != nil {
			if strings.Contains(err.Error(), "hunter2") && !strings.Contains(text, `"hunter2":`) {
				t.Errorf("%s: the error is %q", text, err)
			}
			if !strings.HasPrefix(err.Error(), "spec.resource") || len(err.Error()) > 1000+len(text) {
				t.Errorf("%s: the error is %q", text, err)
			}
			return
		}
		if first.Name == "" || first.Kind != Secret && first.Kind != ConfigMap || first.Hash != second.Hash {
			t.Errorf("%s is read as %+v", text, first)
		}
	})
}
