package installation

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// forgetful lists five pods in pages of two, and has forgotten each continuation when it is asked for the
// first time.
type forgetful struct {
	client.Reader
	offers bool // a continuation instead of one that has expired
	asked  []string
}

func (f *forgetful) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	f.asked = append(f.asked, asked.Continue)
	from := 0
	if n, err := fmt.Sscanf(asked.Continue, "old-%d", &from); n == 1 && err == nil {
		expired := apierrors.NewResourceExpired("too old")
		if f.offers {
			expired.ErrStatus.ListMeta = metav1.ListMeta{Continue: fmt.Sprintf("new-%d", from)}
		}
		return expired
	}
	if _, err := fmt.Sscanf(asked.Continue, "new-%d", &from); err != nil && asked.Continue != "" {
		return err
	}
	pods := list.(*unstructured.UnstructuredList)
	pods.Items, pods.Object = nil, map[string]any{}
	pages := 2
	if !f.offers && len(f.asked) > 1 {
		pages = 5 // it is quicker now
	}
	for i := from; i < min(from+pages, 5); i++ {
		pod := unstructured.Unstructured{Object: map[string]any{}}
		pod.SetNamespace("shop")
		pod.SetName(fmt.Sprintf("web-%d", i))
		pods.Items = append(pods.Items, pod)
	}
	if from+pages < 5 {
		pods.SetContinue(fmt.Sprintf("old-%d", from+pages))
	}
	return nil
}

// A list that takes so long that the API server has forgotten where it was (410, Expired) is read to its end,
// and each object once.
func TestListsThatTakeLongAreReadToTheEnd(t *testing.T) {
	for _, offers := range []bool{true, false} {
		f := &forgetful{offers: offers}
		var names []string
		err := Each(t.Context(), f, Pods, func(pod *unstructured.Unstructured) error {
			names = append(names, pod.GetName())
			return nil
		})
		if err != nil {
			t.Errorf("offers %v: %v, asked for %q", offers, err, f.asked)
		}
		if diff := cmp.Diff([]string{"web-0", "web-1", "web-2", "web-3", "web-4"}, names); diff != "" {
			t.Errorf("offers %v: pods, asked for %q (-want +got):\n%s", offers, f.asked, diff)
		}
	}
}

// always has forgotten everything.
type always struct{ client.Reader }

func (always) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return apierrors.NewResourceExpired("too old")
}

// A server that never answers otherwise ends the list.
func TestListsThatNeverEndFail(t *testing.T) {
	if err := Each(t.Context(), always{}, Pods, nil); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list that never ends: got %v, want that it has expired", err)
	}
}

// OPS-189 (part): which fields a definition lacks, and in which objects they are set.
func TestFieldsOfDefinitions(t *testing.T) {
	version := func(schema string) map[string]any {
		var version map[string]any
		if err := yaml.Unmarshal([]byte("schema: {openAPIV3Schema: "+schema+"}"), &version); err != nil {
			t.Fatal(err)
		}
		return version
	}
	for name, test := range map[string]struct {
		ours, theirs string
		want         []string
	}{
		"equal":                  {"{properties: {a: {}}}", "{properties: {a: {}}}", nil},
		"more":                   {"{properties: {a: {}, b: {}}}", "{properties: {a: {}}}", nil},
		"less, and its children": {"{properties: {a: {}}}", "{properties: {a: {}, ab: {properties: {c: {}}}}}", []string{"ab"}},
		"a longer name":          {"{properties: {}}", "{properties: {a: {}, ab: {}}}", []string{"a", "ab"}},
		"in a list":              {"{properties: {a: {items: {}}}}", "{properties: {a: {items: {properties: {b: {}}}}}}", []string{"a[].b"}},
		"in a map":               {"{properties: {a: {}}}", "{properties: {a: {additionalProperties: {properties: {b: {}}}}}}", []string{"a{}.b"}},
		"ours keeps anything":    {"{properties: {a: {x-kubernetes-preserve-unknown-fields: true}}}", "{properties: {a: {properties: {b: {}}}}}", nil},
		"theirs keeps anything": {"{properties: {a: {properties: {b: {}}}}}", "{properties: {a: {x-kubernetes-preserve-unknown-fields: true}}}",
			[]string{"a"}},
	} {
		if diff := cmp.Diff(test.want, FieldsOf(version(test.ours)).Lacks(FieldsOf(version(test.theirs)))); diff != "" {
			t.Errorf("%s: fields that ours lack (-want +got):\n%s", name, diff)
		}
	}
	document := map[string]any{"a": map[string]any{"l": []any{map[string]any{"x": int64(1)}, map[string]any{"y": nil}}, "m": map[string]any{"k": map[string]any{"z": ""}}}}
	for path, want := range map[string]bool{"a": true, "a.l[].x": true, "a.l[].y": false, "a.m{}.z": true, "a.m{}.q": false, "b": false, "a.l": true} {
		if isSet(document, path) != want {
			t.Errorf("field %s is set: got %t, want %t", path, !want, want)
		}
	}
}
