package framework

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// OPS-072: carried fields do not overwrite what the target has, and a path that does not exist there is
// ignored.
func TestInsertOverwritesNothing(t *testing.T) {
	target := Document{"a": Document{"b": 1}, "list": []any{Document{}}}
	for path, listed := range map[string]int{"a.b": 0, "a.c.d": 0, "list.0.x": 2, "list.1.x": 2, "a.b.c": 0, "gone.0.x": 2} {
		insert(target, strings.Split(path, "."), listed, 2)
	}
	if diff := cmp.Diff(Document{"a": Document{"b": 1, "c": Document{"d": 2}}, "list": []any{Document{"x": 2}}}, target); diff != "" {
		t.Errorf("after the inserts (-want +got):\n%s", diff)
	}
}

// OPS-072 (part): an unknown object is merged with one in the same place, at every depth, and overwrites
// nothing.
func TestUnknownObjectsAreMerged(t *testing.T) {
	target := Document{"a": Document{"b": Document{"known": 1, "text": "x"}}}
	insert(target, []string{"a", "b"}, 0, Document{"known": 2, "text": Document{"y": 1}, "new": Document{"deep": Document{"er": 1}}})
	want := Document{"a": Document{"b": Document{"known": 1, "text": "x", "new": Document{"deep": Document{"er": 1}}}}}
	if diff := cmp.Diff(want, target); diff != "" {
		t.Errorf("after the insert (-want +got):\n%s", diff)
	}
}
