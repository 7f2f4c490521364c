package scaledown

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// OPS-166: a pod of a CloneSet that goes already, or has ended, takes no other pod with it, which nobody has
// named: nothing is written, also if it begins to go between two tries. One that is listed already was
// lowered for.
func TestAPodThatGoesAlreadyTakesNoOtherPodWithIt(t *testing.T) {
	label := func(key, value string) func(map[string]any) {
		return func(o map[string]any) { _ = unstructured.SetNestedField(o, value, "metadata", "labels", key) }
	}
	phase := func(value string) func(map[string]any) {
		return func(o map[string]any) { _ = unstructured.SetNestedField(o, value, "status", "phase") }
	}
	for name, tt := range map[string]struct {
		pod       func(map[string]any)
		set, want string
		late      bool
	}{
		"held by its hook":      {pod: label("lifecycle.apps.kruise.io/state", "PreparingDelete"), want: "pod web-a goes already: its preDelete hook holds it"},
		"while somebody writes": {pod: label("lifecycle.apps.kruise.io/state", "PreparingDelete"), want: "pod web-a goes already", late: true},
		"is to be replaced":     {pod: label("apps.kruise.io/specified-delete", "true"), want: "pod web-a goes already: it has the label"},
		"failed":                {pod: phase("Failed"), want: "pod web-a is at its end (Failed)"},
		"succeeded":             {pod: phase("Succeeded"), want: "pod web-a is at its end (Succeeded)"},
		"listed": {pod: label("lifecycle.apps.kruise.io/state", "PreparingDelete"), set: "scaleStrategy: {podsToDelete: [web-a]}, ",
			want: "cloneset.apps.kruise.io/web unchanged: it is to delete these pods already"},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, "v1beta1", "replicas: 2, "+tt.set, "")
			if !tt.late {
				s.Change(t, "pods", "web-a", tt.pod)
			}
			s.Before = func(r plugintest.Request) error {
				if s.Before = nil; !tt.late {
					return nil
				}
				s.Change(t, "pods", "web-a", tt.pod)
				return apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("somebody was faster"))
			}
			out, err := s.Run(t, New, "scaledown", "clone/web", "--pods=web-a").Output()
			if err != nil {
				out += err.Error()
			}
			replicas, _, _ := unstructured.NestedInt64(s.Get(t, "clonesets", "web").Object, "spec", "replicas")
			if replicas != 2 {
				t.Errorf("replicas: got %d, want 2", replicas)
			}
			if !strings.Contains(out, tt.want) {
				t.Errorf("output: got %q, want %q in it", out, tt.want)
			}
		})
	}
}
