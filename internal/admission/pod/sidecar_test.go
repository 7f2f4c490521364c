package pod

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/pods/sidecarset/inject"
)

// choice always chooses the same, and remembers what it was asked.
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
		spec.Containers = append(spec.Containers, appsv1beta1.SidecarContainer{SidecarContainerSpec: appsv1beta1.SidecarContainerSpec{Container: c}})
	}
	out, err := inject.NewTemplate(name, spec, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// SS-080, SS-090, SS-094, SS-103: the namespace is that of the request, launch priority counts the injected containers, warnings are told,
// and pods are counted by SidecarSet, but not what was only tried.
func TestSidecars(t *testing.T) {
	chooser := &choice{templates: []*inject.Template{template(t, "first", corev1.Container{Name: "side", Image: "i"}), template(t, "second", corev1.Container{Name: "b", Image: "i"})}}
	sidecars := NewSidecars(chooser, false, time.Now)
	chain := NewChain(Gate(true), sidecars.Step(), Launch())
	raw := []byte(`{"metadata":{"name":"p","annotations":{"apps.kruise.io/container-launch-priority":"Ordered"}},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`)
	for _, dry := range []bool{true, false} {
		changes, warnings, err := chain.Mutate(t.Context(), Request{Raw: raw, Namespace: "shop", DryRun: dry})
		if err != nil || chooser.namespace != "shop" {
			t.Fatal(err, chooser.namespace)
		}
		var paths []string
		for _, change := range changes {
			if !strings.HasPrefix(change.Path, "/metadata") {
				paths = append(paths, change.Path)
			}
		}
		want := []string{"/spec/readinessGates", "/spec/containers/1", "/spec/containers/0", "/spec/containers/0/env/-", "/spec/containers/1/env", "/spec/containers/2/env/-"}
		if diff := cmp.Diff(want, paths); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"spec.containers[1]: container b of the pod is replaced by that of SidecarSet second"}, warnings); diff != "" {
			t.Error(diff)
		}
		if n := testutil.ToFloat64(sidecars.pods.WithLabelValues("first", "injected")); dry && n != 0 || !dry && n != 1 {
			t.Errorf("dry run %t: %v pods", dry, n)
		}
	}
	if n := testutil.CollectAndCount(chain.Metric()); n != 3 {
		t.Errorf("%d steps are measured", n)
	}
	chooser.err = &inject.Error{SidecarSet: "first", Err: errors.New("no revision")}
	_, _, err := chain.Mutate(t.Context(), Request{Raw: []byte(`{"metadata":{"namespace":"own"},"spec":{}}`), Namespace: "shop"})
	var internal *InternalError
	if !errors.As(err, &internal) || err.Error() != "SidecarSet first: no revision" || chooser.namespace != "own" {
		t.Errorf("%v, %s", err, chooser.namespace)
	}
	chooser.err = errors.New("not known yet")
	if _, _, err := chain.Mutate(t.Context(), Request{Raw: raw}); !errors.As(err, &internal) {
		t.Errorf("%v", err)
	}
	if n := testutil.ToFloat64(sidecars.pods.WithLabelValues("first", "refused")); n != 1 {
		t.Errorf("%v refusals", n)
	}
}

// SS-094: a pod is injected completely or refused; a later step that refuses leaves nothing.
func TestNoPartOfAPatch(t *testing.T) {
	chooser := &choice{templates: []*inject.Template{template(t, "first", corev1.Container{Name: "side", Image: "i"})}}
	no := simple("no", func(*corev1.Pod) ([]operations.Operation, error) { return nil, errors.New("no") })
	changes, _, err := NewChain(NewSidecars(chooser, false, time.Now).Step(), no).Mutate(t.Context(), Request{Raw: []byte(`{"spec":{"containers":[{"name":"a"}]}}`)})
	if err == nil || len(changes) != 0 {
		t.Errorf("%v, %v", changes, err)
	}
}
