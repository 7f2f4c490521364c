package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OPS-145: undo goes one step back from the present template, for every kind and whatever the controller has
// made of it by then: right after a bad image there is no revision of it yet, and a second undo in a row
// brings nothing bad back.
func TestUndoRightAfterABadImageBringsBackTheGoodOne(t *testing.T) {
	for _, k := range kinds("v1beta1") {
		for name, tt := range map[string]struct {
			image      string
			seen       bool
			gone       int // so many of the three revisions, the oldest first
			want, fail string
		}{
			"not seen yet":                    {image: "bad", want: "nginx:3"},
			"the first change, not seen yet":  {image: "bad", gone: 2, want: "nginx:3"},
			"seen, but stored in other words": {image: "bad", seen: true, want: "nginx:2"},
			"seen, and the first":             {image: "bad", seen: true, gone: 2, fail: "no last revision"},
			"undone twice in a row":           {want: "nginx:2"},
			"no revision at all":              {image: "bad", gone: 3, fail: "no last revision"},
		} {
			t.Run(k.named+" "+name, func(t *testing.T) {
				s := server(t, "v1beta1")
				stored := map[bool]string{true: "replicasets", false: "controllerrevisions"}[k.kind == "Deployment"]
				for n := range tt.gone {
					s.Delete(t, stored, fmt.Sprintf("web-%s-%d", strings.ReplaceAll(k.plural, ".", "-"), n+1))
				}
				if tt.image == "" {
					if result := s.Run(t, command, "rollout", "undo", k.named); result.Err != nil {
						t.Fatalf("rollout undo: %v", result)
					}
				}
				s.Change(t, k.plural, "web", func(o map[string]any) {
					if tt.image != "" {
						containers, _, _ := unstructured.NestedSlice(o, "spec", "template", "spec", "containers")
						containers[0].(map[string]any)["image"] = tt.image
						_ = unstructured.SetNestedSlice(o, containers, "spec", "template", "spec", "containers")
					}
					seen := int64(1) // the generation grows with each change
					if tt.seen {
						seen = 9
					}
					_ = unstructured.SetNestedField(o, seen, "status", "observedGeneration")
				})
				result := s.Run(t, command, "rollout", "undo", k.named)
				if tt.fail != "" {
					if result.Err == nil {
						t.Errorf("error: got nil, want an error; %v, want %q", result, tt.fail)
					} else if !strings.Contains(result.Err.Error(), tt.fail) {
						t.Errorf("error: got %q, want it to contain %q; %v, want %q", result.Err.Error(), tt.fail, result,
							tt.fail)
					}
					return
				}
				containers, _, _ := unstructured.NestedSlice(s.Get(t, k.plural, "web").Object, "spec", "template", "spec", "containers")
				got := containers[0].(map[string]any)["image"]
				if got != tt.want {
					t.Errorf(`image of the first container: got %v, want %q; %v, want %s: %v`, got, tt.want, got, tt.want,
						result)
				}
				if result.Err != nil {
					t.Errorf("error: unexpected error: %v; %v, want %s: %v", result.Err, got, tt.want, result)
				}
			})
		}
	}
}
