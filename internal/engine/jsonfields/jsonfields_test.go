package jsonfields

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type inner struct {
	Deep  int `json:"deep"`
	Taken int `json:"taken"`
}

type other struct{ Beside int }

type outer struct {
	Taken  string `json:"taken,omitempty"`
	inner  `json:",inline"`
	Named  inner `json:"named"`
	Hidden int   `json:"-"`
	Plain  int
	Listed other `json:",inline"`
	*other
	secret int
}

// The fields of a struct are those that encoding/json writes: those of inlined structs are included, and of
// two with the same name the outer one.
func TestFieldsAreThoseThatEncodingJSONWrites(t *testing.T) {
	_ = outer{secret: 1}
	got := Of(reflect.TypeFor[outer]())
	if diff := cmp.Diff([]string{"Beside", "Plain", "deep", "named", "taken"}, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("names of the fields (-want +got):\n%s", diff)
	}
	if want := reflect.TypeFor[string](); got["taken"] != want {
		t.Errorf("type of the field taken: got %v, want %v", got["taken"], want)
	}
	if want := reflect.TypeFor[inner](); got["named"] != want {
		t.Errorf("type of the field named: got %v, want %v", got["named"], want)
	}
	if want := reflect.TypeFor[int](); got["deep"] != want {
		t.Errorf("type of the field deep: got %v, want %v", got["deep"], want)
	}
	if again := Of(reflect.TypeFor[outer]()); !maps.Equal(got, again) {
		t.Errorf("fields the second time: got %v, want %v", again, got)
	}
}

func TestElem(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[int](), reflect.TypeFor[*int](), reflect.TypeFor[**int]()} {
		if got := Elem(of); got != reflect.TypeFor[int]() {
			t.Errorf("%v leads to %v, want int", of, got)
		}
	}
}

func TestWhoReadsAndWritesItself(t *testing.T) {
	for of, want := range map[reflect.Type]bool{reflect.TypeFor[metav1.Time](): true, reflect.TypeFor[time.Time](): true,
		reflect.TypeFor[inner](): false, reflect.TypeFor[int](): false} {
		if got := Encodes(of); got != want {
			t.Errorf("%v encodes itself: got %t, want %t", of, got, want)
		}
		if got := Decodes(of); got != want {
			t.Errorf("%v decodes itself: got %t, want %t", of, got, want)
		}
	}
}
