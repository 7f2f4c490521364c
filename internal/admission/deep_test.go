package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// OPS-072 (part): what is unknown may be deep and wide at the same time. Its many fields must not each cost a
// walk of the whole depth, since anybody who can reach the port can send such an object.
func TestDeepAndWideUnknownFieldsAreCarriedInOneWalk(t *testing.T) {
	const depth, width = 8000, 40000
	var wide []string
	for i := range width {
		wide = append(wide, fmt.Sprintf(`"k%d":1`, i))
	}
	text := `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"CloneSet","metadata":{"name":"a"},"spec":{"unknown":` +
		strings.Repeat(`{"a":`, depth) + "{" + strings.Join(wide, ",") + "}" + strings.Repeat("}", depth) + "}}"
	began := time.Now()
	there := convertOne(t, text, "v1beta1")
	if took := time.Since(began); took > 8*time.Second { // about 0.3 s; with a walk for each field it was 12 s
		t.Errorf("%d KiB took %s", len(text)>>10, took)
	}
	carried := there["spec"].(document)["unknown"]
	for range depth {
		carried, _ = member(carried, "a")
	}
	if members, ok := carried.(document); !ok || len(members) != width {
		t.Errorf("at the end of the depth are %d fields, want %d", len(members), width)
	}
}

// OPS-072 (part): an unknown object is merged with one in the same place, at every depth, and overwrites
// nothing.
func TestUnknownObjectsAreMerged(t *testing.T) {
	target := document{"a": document{"b": document{"known": 1, "text": "x"}}}
	insert(target, []string{"a", "b"}, 0, document{"known": 2, "text": document{"y": 1}, "new": document{"deep": document{"er": 1}}})
	want := document{"a": document{"b": document{"known": 1, "text": "x", "new": document{"deep": document{"er": 1}}}}}
	if diff := cmp.Diff(want, target); diff != "" {
		t.Error(diff)
	}
}
