package podpatch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A patch with changes of several kinds is not empty, also if there are equally many of each.
func TestAPatchIsEmptyOnlyWithoutAnyChange(t *testing.T) {
	kinds := map[string]func(*Patch){
		"a label":       func(p *Patch) { p.Label("a", "b") },
		"no label":      func(p *Patch) { p.RemoveLabel("a") },
		"an annotation": func(p *Patch) { p.Annotation("a", "b") },
		"a finalizer":   func(p *Patch) { p.Finalizers([]string{"f"}, nil) },
		"no finalizer":  func(p *Patch) { p.Finalizers(nil, []string{"f"}) },
		"an image":      func(p *Patch) { p.Image("c", "i") },
		"resources":     func(p *Patch) { p.Resources("c", corev1.ResourceRequirements{}) },
		"a condition":   func(p *Patch) { p.Condition(corev1.PodCondition{Type: "C"}) },
		"no owner":      func(p *Patch) { p.ReleaseOwner("u") },
	}
	for first, one := range kinds {
		for second, other := range kinds {
			p := &Patch{}
			if !p.Empty() {
				t.Fatal("a new patch is not empty")
			}
			one(p)
			other(p)
			if p.Empty() {
				t.Errorf("%s with %s passes for no change", first, second)
			}
		}
	}
	if !(*Patch)(nil).Empty() {
		t.Error("no patch at all is not empty")
	}
}

// IPU-112 (part): resources of several containers go into one patch, each of its own container.
func TestResourcesOfSeveralContainers(t *testing.T) {
	p := &Patch{}
	p.Resources("nginx", corev1.ResourceRequirements{})
	p.Resources("sidecar", corev1.ResourceRequirements{})
	if got := p.String(); got != "resources of nginx, resources of sidecar" {
		t.Error(got)
	}
}

// A patch without anything of the spec does not mention it.
func TestAPatchOfMetadataHasNoSpec(t *testing.T) {
	p := &Patch{}
	p.Label("a", "b")
	body, err := p.JSON(&corev1.Pod{})
	if want := `{"metadata":{"labels":{"a":"b"},"resourceVersion":"","uid":""}}`; err != nil || string(body) != want {
		t.Errorf("%s, %v, want %s", body, err, want)
	}
}
