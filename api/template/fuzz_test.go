package template_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

var templates = []string{
	`{"metadata":{"labels":{"app":"web"},"creationTimestamp":null},"spec":{"containers":[{"name":"app","image":"i","future":12345678901234567890}],"x":1.50}}`,
	`{"spec":{"containers":[{"name":"a","env":[{"name":"e","value":"1"},{"name":"e","value":"2"}],"ports":[{"containerPort":1},{"containerPort":1,"protocol":"UDP"}]}]}}`,
	`null`, `"broken"`, `[]`, `{"spec":5}`, `[{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}]`, `{"no":"list"}`,
}

// FuzzPodTemplate: a template is written as it was read, a template that does not fit the types has an
// error and no typed view, and a changed image changes nothing else.
func FuzzPodTemplate(f *testing.F) {
	for _, text := range templates {
		f.Add(text, []byte{})
		f.Add(text, []byte("\x01\x00\x02\x03\x01"))
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte) {
		text = fuzzing.Edit(text, changes, "future", "name", "spec", "containers", "image")
		var read template.PodTemplate
		if !json.Valid([]byte(text)) || strings.TrimSpace(text) == "null" { // that is no template
			return
		}
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			t.Fatalf("%s is JSON, and reading it fails: %v", text, err)
		}
		sameJSON(t, text, read)
		sameJSON(t, text, *read.DeepCopy())
		if read.DecodeError() != nil && len(read.Spec.Containers) > 0 {
			t.Errorf("%s does not fit the types, and has containers", text)
		}
		if len(read.Spec.Containers) == 0 || read.DecodeError() != nil {
			return
		}
		before := read.Spec.Containers[0].Image
		read.Spec.Containers[0].Image = before + "x"
		changed, err := json.Marshal(read)
		if err != nil {
			t.Fatalf("writing %s with another image: %v", text, err)
		}
		var again template.PodTemplate
		if err := json.Unmarshal(changed, &again); err != nil || len(again.Spec.Containers) == 0 {
			t.Fatalf("reading %s: %v", changed, err)
		}
		if got := again.Spec.Containers[0].Image; got != before+"x" {
			t.Errorf("the image of %s is %q in %s", text, got, changed)
		}
		again.Spec.Containers[0].Image = before
		if _, given := imageOf(text); given { // an image that was not there is empty now
			sameJSON(t, text, again)
		}
	})
}

func imageOf(text string) (string, bool) {
	var document struct {
		Spec struct {
			Containers []map[string]any `json:"containers"`
		} `json:"spec"`
	}
	if json.Unmarshal([]byte(text), &document) != nil || len(document.Spec.Containers) == 0 {
		return "", false
	}
	image, ok := document.Spec.Containers[0]["image"].(string)
	return image, ok && image != ""
}

// FuzzVolumeClaimTemplates: a list is written as it was read, also if it is none or its elements do not
// fit.
func FuzzVolumeClaimTemplates(f *testing.F) {
	for _, text := range templates {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var read template.VolumeClaimTemplates
		if !json.Valid([]byte(text)) {
			return
		}
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			t.Fatalf("%s is JSON, and reading it fails: %v", text, err)
		}
		sameJSON(t, text, read)
		sameJSON(t, text, read.DeepCopy())
		var containers template.EphemeralContainers
		if err := json.Unmarshal([]byte(text), &containers); err != nil {
			t.Fatalf("%s is JSON, and reading it fails: %v", text, err)
		}
		if strings.TrimSpace(text) != "null" {
			sameJSON(t, text, containers)
		}
	})
}

func sameJSON(t *testing.T, text string, value any) {
	t.Helper()
	written, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("writing %s: %v", text, err)
	}
	if !reflect.DeepEqual(fuzzing.Value(text), fuzzing.Value(string(written))) {
		t.Errorf("%s is written as %s", text, written)
	}
}
