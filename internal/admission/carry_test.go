package admission

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"
)

// OPS-072, OPS-112: an unknown field in spec.updateStrategy of another kind than CloneSet keeps its place in
// both versions, although it moves in a CloneSet.
func TestAFieldOfANewerReleaseStaysInTheUpdateStrategyOfASidecarSet(t *testing.T) {
	const members = `"kind":"SidecarSet","metadata":{"name":"s"},"spec":{"containers":[{"name":"a","image":"i"}],"updateStrategy":{"type":"RollingUpdate","future":{"x":1}}}}`
	for from, to := range map[string]string{"v1alpha1": "v1beta1", "v1beta1": "v1alpha1"} {
		there := convertOne(t, `{"apiVersion":"apps.kruise.io/`+from+`",`+members, to)
		if !has(there, "spec.updateStrategy.future.x") {
			t.Errorf("from %s: the field of a newer release has gone: %v", from, there["spec"])
		}
		if has(there, "spec.updateStrategy.rollingUpdate") {
			t.Errorf("from %s: got a rollingUpdate that nobody gave: %v", from, there["spec"])
		}
		given := `{"apiVersion":"apps.kruise.io/` + from + `",` + members
		response := sidecarSetHandler(t, nil, nil).mutate(t.Context(), sidecarSetRequest(from, given))
		text, err := json.Marshal(response.Patches)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatchapply.DecodePatch(text)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := patch.Apply([]byte(given))
		if err != nil {
			t.Fatal(err)
		}
		after, err := decodeDocument(stored)
		if err != nil {
			t.Fatal(err)
		}
		if !has(after, "spec.updateStrategy.future.x") {
			t.Errorf("%s written: the field of a newer release has gone: %s", from, text)
		}
		if has(after, "spec.updateStrategy.rollingUpdate") {
			t.Errorf("%s written: got a rollingUpdate that nobody gave: %s", from, text)
		}
	}
}

// OPS-072: a NodeImage with very many images, each with an unknown field on its tag, keeps all of them, also
// with dots in the names.
func TestNoneOfManyUnknownFieldsIsLost(t *testing.T) {
	const count = 5000
	images := document{}
	for i := range count {
		images[fmt.Sprintf("registry.example/a.b/img%d", i)] = document{
			"tags": []any{document{"tag": "1.2", "future": json.Number(fmt.Sprint(i))}}}
	}
	text, err := json.Marshal(document{"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": document{"name": "n"},
		"spec": document{"images": images}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	there := convertOne(t, string(text), "v1alpha1")
	if took := time.Since(began); took > 20*time.Second { // about 0.1 s; minutes if the time grew with the square
		t.Errorf("%d fields took %s", count, took)
	}
	if diff := cmp.Diff(any(images), there["spec"].(document)["images"]); diff != "" {
		t.Errorf("(-given +got):\n%.2000s", diff)
	}
}

// OPS-072: carried fields do not overwrite what the target has, and a path that does not exist there is
// ignored.
func TestInsertOverwritesNothing(t *testing.T) {
	target := document{"a": document{"b": 1}, "list": []any{document{}}}
	for path, listed := range map[string]int{"a.b": 0, "a.c.d": 0, "list.0.x": 2, "list.1.x": 2, "a.b.c": 0, "gone.0.x": 2} {
		insert(target, strings.Split(path, "."), listed, 2)
	}
	if diff := cmp.Diff(document{"a": document{"b": 1, "c": document{"d": 2}}, "list": []any{document{"x": 2}}}, target); diff != "" {
		t.Errorf("after the inserts (-want +got):\n%s", diff)
	}
}

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
		t.Errorf("after the insert (-want +got):\n%s", diff)
	}
}
