package pod

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
)

// choice always chooses the same, and records the requests.
type choice struct {
	templates []*inject.Template
	err       error
	namespace string
}

func (c *choice) Choose(_ context.Context, _ *corev1.Pod, namespace string) ([]*inject.Template, error) {
	c.namespace = namespace
	return c.templates, c.err
}

func template(t *testing.T, name string, containers ...corev1.Container) *inject.Template {
	t.Helper()
	spec := &appsv1beta1.SidecarSetSpec{}
	for _, c := range containers {
		spec.Containers = append(spec.Containers,
			appsv1beta1.SidecarContainer{SidecarContainerSpec: appsv1beta1.SidecarContainerSpec{Container: c}})
	}
	out, err := inject.NewTemplate(name, spec, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// SS-080, SS-090, SS-094, SS-103: the namespace is that of the request, launch priority counts the injected
// containers, warnings are returned, and pods are counted by SidecarSet, except those of dry runs.
func TestSidecars(t *testing.T) {
	chooser := &choice{templates: []*inject.Template{template(t, "first", corev1.Container{Name: "side", Image: "i"}),
		template(t, "second", corev1.Container{Name: "b", Image: "i"})}}
	sidecars := NewSidecars(chooser, false, time.Now)
	chain := NewChain(Gate(true), sidecars.Step(), Launch())
	raw := []byte(`{"metadata":{"name":"p","annotations":{"apps.kruise.io/container-launch-priority":"Ordered"}},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`)
	for _, dry := range []bool{true, false} {
		changes, warnings, err := chain.Mutate(t.Context(), Request{Raw: raw, Namespace: "shop", DryRun: dry})
		if err != nil {
			t.Fatalf("changing the pod, dry run %t: %v", dry, err)
		}
		if chooser.namespace != "shop" {
			t.Fatalf("sidecars were chosen for namespace %q, want shop", chooser.namespace)
		}
		var paths []string
		for _, change := range changes {
			if !strings.HasPrefix(change.Path, "/metadata") {
				paths = append(paths, change.Path)
			}
		}
		want := []string{"/spec/readinessGates", "/spec/containers/1", "/spec/containers/0", "/spec/containers/0/env/-",
			"/spec/containers/1/env", "/spec/containers/2/env/-"}
		if diff := cmp.Diff(want, paths); diff != "" {
			t.Errorf("changes, dry run %t (-want +got):\n%s", dry, diff)
		}
		if diff := cmp.Diff([]string{"spec.containers[1]: container b of the pod is replaced by that of SidecarSet second"},
			warnings); diff != "" {
			t.Errorf("warnings, dry run %t (-want +got):\n%s", dry, diff)
		}
		counted := 1.0
		if dry {
			counted = 0
		}
		if n := testutil.ToFloat64(sidecars.pods.WithLabelValues("first", "injected")); n != counted {
			t.Errorf("dry run %t: got %v pods counted, want %v", dry, n, counted)
		}
	}
	if n := testutil.CollectAndCount(chain.Metric()); n != 3 {
		t.Errorf("%d steps are measured", n)
	}
	chooser.err = &inject.Error{SidecarSet: "first", Err: errors.New("no revision")}
	_, _, err := chain.Mutate(t.Context(), Request{Raw: []byte(`{"metadata":{"namespace":"own"},"spec":{}}`), Namespace: "shop"})
	var internal *InternalError
	if !errors.As(err, &internal) || err.Error() != "SidecarSet first: no revision" {
		t.Errorf("a SidecarSet without its revision: got %v, want an internal error that says so", err)
	}
	if chooser.namespace != "own" {
		t.Errorf("sidecars were chosen for namespace %q, want own", chooser.namespace)
	}
	chooser.err = errors.New("not known yet")
	if _, _, err := chain.Mutate(t.Context(), Request{Raw: raw}); !errors.As(err, &internal) {
		t.Errorf("while nothing is known: got %v, want an internal error", err)
	}
	if n := testutil.ToFloat64(sidecars.pods.WithLabelValues("first", "refused")); n != 1 {
		t.Errorf("%v refusals", n)
	}
}

// SS-094: a pod is injected completely or refused; a later step that refuses leaves nothing.
func TestNoPartOfAPatch(t *testing.T) {
	chooser := &choice{templates: []*inject.Template{template(t, "first", corev1.Container{Name: "side", Image: "i"})}}
	no := simple("no", func(*corev1.Pod) ([]operations.Operation, error) { return nil, errors.New("no") })
	changes, _, err := NewChain(NewSidecars(chooser, false, time.Now).Step(), no).Mutate(t.Context(),
		Request{Raw: []byte(`{"spec":{"containers":[{"name":"a"}]}}`)})
	if err == nil {
		t.Error("a step fails: want its error")
	}
	if len(changes) != 0 {
		t.Errorf("a step fails: got changes %v, want none", changes)
	}
}

// TestPodsAreCountedOnce: a pod with launch priority is sent by two entries, one after the other, and counts
// once. A pod that only the second entry sends counts too, and one that a later step refuses does not
// (SS-264).
func TestPodsAreCountedOnce(t *testing.T) {
	const ordered = `{"metadata":{"name":"p","annotations":{"apps.kruise.io/container-launch-priority":"Ordered"}},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`
	const odd = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"},{"name":"b","env":[{"name":"KRUISE_CONTAINER_PRIORITY","value":"high"}]}]}}`
	for name, test := range map[string]struct {
		pod     string
		entries []bool // for each request, whether the second entry sends it
		want    float64
	}{
		"by both":             {ordered, []bool{false, true}, 1},
		"by the first alone":  {ordered, []bool{false}, 1},
		"by the second alone": {ordered, []bool{true}, 1},
		"refused later":       {odd, []bool{false}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			chooser := &choice{templates: []*inject.Template{template(t, "first", corev1.Container{Name: "side", Image: "i"})}}
			sidecars := NewSidecars(chooser, false, time.Now)
			chain, raw := NewChain(Gate(false), sidecars.Step(), Launch()), []byte(test.pod)
			for _, again := range test.entries {
				changes, _, err := chain.Mutate(t.Context(), Request{Raw: raw, Namespace: "shop", Again: again})
				if (err == nil) != (test.want > 0) {
					t.Fatal(err)
				}
				if len(changes) > 0 {
					raw = patched(t, raw, changes)
				}
			}
			if n := testutil.ToFloat64(sidecars.pods.WithLabelValues("first", "injected")); n != test.want {
				t.Errorf("%v pods", n)
			}
		})
	}
}

func patched(t *testing.T, raw []byte, changes []operations.Operation) []byte {
	t.Helper()
	text, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = patch.Apply(raw); err != nil {
		t.Fatal(err)
	}
	return raw
}
