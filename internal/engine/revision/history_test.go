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
		t.Error(diff)
	}
	if h.Find([]byte("x")).Name != "c" || h.Find([]byte("y")).Name != "b" || h.Find([]byte("new")) != nil {
		t.Error("another revision is found")
	}
	if h.Last().Name != "c" || h.Next() != 4 {
		t.Errorf("last %s, next %d", h.Last().Name, h.Next())
	}
	if none := NewHistory(nil, sameBytes); none.Last() != nil || none.Next() != 1 || none.Find([]byte("x")) != nil {
		t.Error("there is something in an empty history")
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
			if got != tt.name || Name("web", hash) != got || count != tt.count ||
				(collisions == nil) != (tt.collisions == nil && tt.count == 0) {
				t.Errorf("%s after %d collisions, want %s after %d", got, count, tt.name, tt.count)
			}
		})
	}
}

func sameBytes(stored *appsv1.ControllerRevision, data []byte) bool {
	return bytes.Equal(stored.Data.Raw, data)
}
