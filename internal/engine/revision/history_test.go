package revision

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func numbered(name string, number int64, age int, data string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name,
		CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))},
		Revision: number, Data: runtime.RawExtension{Raw: []byte(data)}}
}

// Revisions are ordered by number, then age, then name; the newest that holds the data is found, and the next
// number is above all.
func TestHistory(t *testing.T) {
	h := NewHistory([]*appsv1.ControllerRevision{numbered("c", 3, 0, "x"), numbered("b", 2, 5, "y"), numbered("a", 2, 5, "x"),
		numbered("d", 2, 9, "z")}, sameBytes)
	var names []string
	for _, r := range h.Stored {
		names = append(names, r.Name)
	}
	if diff := cmp.Diff([]string{"d", "a", "b", "c"}, names); diff != "" {
		t.Errorf("order of the revisions (-want +got):\n%s", diff)
	}
	if got := h.Find([]byte("x")).Name; got != "c" {
		t.Errorf("the newest revision with x: got %s, want c", got)
	}
	if got := h.Find([]byte("y")).Name; got != "b" {
		t.Errorf("the newest revision with y: got %s, want b", got)
	}
	if got := h.Find([]byte("new")); got != nil {
		t.Errorf("a revision with new data: got %v, want none", got)
	}
	if got := h.Last().Name; got != "c" {
		t.Errorf("the last revision: got %s, want c", got)
	}
	if got := h.Next(); got != 4 {
		t.Errorf("the next number: got %d, want 4", got)
	}
	none := NewHistory(nil, sameBytes)
	if got := none.Last(); got != nil {
		t.Errorf("the last revision of an empty history: got %v, want none", got)
	}
	if got := none.Next(); got != 1 {
		t.Errorf("the next number of an empty history: got %d, want 1", got)
	}
	if got := none.Find([]byte("x")); got != nil {
		t.Errorf("a revision with x in an empty history: got %v, want none", got)
	}
}

// A name that a revision with other data has is skipped, and the collision is counted. The name of one with
// the same data is used again (CS-084, SS-185).
func TestNamesOfNewRevisions(t *testing.T) {
	data, two := []byte("x"), int32(2)
	first, second := Name("web", Hash(data, 0)), Name("web", Hash(data, 1))
	tests := map[string]struct {
		stored     []*appsv1.ControllerRevision
		collisions *int32
		name       string
		count      int32
	}{
		"free":          {nil, nil, first, 0},
		"the same data": {[]*appsv1.ControllerRevision{numbered(first, 1, 0, "x")}, nil, first, 0},
		"other data":    {[]*appsv1.ControllerRevision{numbered(first, 1, 0, "y")}, nil, second, 1},
		"other data, twice": {[]*appsv1.ControllerRevision{numbered(first, 1, 0, "y"), numbered(second, 2, 0, "z")}, nil,
			Name("web", Hash(data, 2)), 2},
		"collisions are known before": {nil, &two, Name("web", Hash(data, 2)), 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, hash, collisions := NewHistory(tt.stored, sameBytes).Name("web", data, tt.collisions, tt.stored)
			count := int32(0)
			if collisions != nil {
				count = *collisions
			}
			if got != tt.name {
				t.Errorf("name of the revision: got %s, want %s", got, tt.name)
			}
			if name := Name("web", hash); name != got {
				t.Errorf("name of the revision: got %s, want that of its hash, %s", got, name)
			}
			if count != tt.count {
				t.Errorf("collisions: got %d, want %d", count, tt.count)
			}
			if want := tt.collisions == nil && tt.count == 0; (collisions == nil) != want {
				t.Errorf("no collisions are set: got %t, want %t", collisions == nil, want)
			}
		})
	}
}

func sameBytes(stored *appsv1.ControllerRevision, data []byte) bool {
	return bytes.Equal(stored.Data.Raw, data)
}
