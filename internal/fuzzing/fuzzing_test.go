package fuzzing

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The same bytes give the same document, the document is JSON, and the one that it was made from stays what it was.
func FuzzEdit(f *testing.F) {
	f.Add(`{"spec":{"list":[{"a":1},2],"of":null}}`, []byte("abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, document string, changes []byte) {
		changed := Edit(document, changes, "name")
		if again := Edit(document, changes, "name"); again != changed {
			t.Errorf("the same changes gave %s, and then %s", changed, again)
		}
		if json.Valid([]byte(document)) && !json.Valid([]byte(changed)) {
			t.Errorf("%s became %s, which is no JSON", document, changed)
		}
	})
}

// The same bytes give the same object, and it can be written as JSON.
func TestFill(t *testing.T) {
	for _, data := range []string{"", "a", "afloat", "a longer text that decides about more of the pod"} {
		first, second := Fill[corev1.Pod]([]byte(data)), Fill[corev1.Pod]([]byte(data))
		if a, b := JSON(first), JSON(second); a != b {
			t.Errorf("%q gave %s, and then %s", data, a, b)
		}
	}
}
