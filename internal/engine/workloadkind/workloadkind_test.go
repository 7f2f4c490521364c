package workloadkind

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Every kind has a type in its version, New makes an object of that type, and StateOf knows it.
func TestTheTableFitsTheTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme),
		appsv1beta1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	for name, kind := range kinds {
		want, ok := scheme.AllKnownTypes()[kind.GroupVersionKind()]
		if !ok {
			t.Errorf("%s: there is no type %s", name, kind.GroupVersionKind())
			continue
		}
		for _, child := range kind.Children {
			if Of(child).Version == "" {
				t.Errorf("%s: its children %s are not in the table", name, child)
			}
		}
		if len(kind.Templates) == 0 {
			t.Errorf("%s: it has no pod templates", name)
		}
		if kind.New == nil {
			continue
		}
		object := kind.New()
		if got := reflect.TypeOf(object).Elem(); got != want {
			t.Errorf("%s: New makes a %s, want a %s", name, got, want)
		}
		if state, ok := StateOf(object); !ok || state.Kind != name || state.Pods() != 1 {
			t.Errorf("%s: StateOf returns %+v, %t", name, state, ok)
		}
	}
	if state, ok := StateOf(&appsv1beta1.SidecarSet{}); ok {
		t.Errorf("a SidecarSet is no workload: StateOf returns %+v", state)
	}
}

// A typed object and its document want the same pods.
func TestStateOf(t *testing.T) {
	const text = `{
		metadata: {name: web, generation: 4},
		spec: {replicas: 7, parallelism: 7, ordinals: {start: 3}, selector: {matchLabels: {app: web}}},
		status: {observedGeneration: 3, replicas: 6, readyReplicas: 5}}`
	for name, kind := range kinds {
		if kind.New == nil || name == Job {
			continue
		}
		object := kind.New()
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			t.Fatal(err)
		}
		document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		want := State{Kind: name, Desired: Desired{Replicas: new(int32(7))}, ObservedGeneration: 3, Total: 6,
			Ready: 5, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
		if kind.Ordinals {
			want.Start = 3
		}
		got, _ := StateOf(object)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(want.Desired, DesiredOf(document)); diff != "" {
			t.Errorf("%s as a document (-want +got):\n%s", name, diff)
		}
	}

	job := Of(Job).New()
	if err := yaml.Unmarshal([]byte(text), job); err != nil {
		t.Fatal(err)
	}
	if got, _ := StateOf(job); got.Pods() != 7 || got.Selector == nil {
		t.Errorf("a Job: got %+v", got)
	}
}

func TestDesiredOfADocument(t *testing.T) {
	for name, document := range map[string]map[string]any{
		"nothing":           {},
		"no integers":       {"spec": map[string]any{"replicas": "3", "ordinals": map[string]any{"start": 1.5}}},
		"a spec of numbers": {"spec": map[string]any{"replicas": nil, "ordinals": int64(3)}},
	} {
		if got := DesiredOf(document); got.Replicas != nil || got.Start != 0 || got.Pods() != 1 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestPathsDoNotShareMemory(t *testing.T) {
	path := Path{"spec", "template"}
	a, b := path.Child("a"), path.Child("b")
	if !slices.Equal(a, Path{"spec", "template", "a"}) || !slices.Equal(b, Path{"spec", "template", "b"}) {
		t.Errorf("got %v and %v", a, b)
	}
}
