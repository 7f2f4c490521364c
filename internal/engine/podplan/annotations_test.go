package podplan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
)

// CS-082 (part): claim templates are remembered by a revision as far as its annotations have room for them,
// what they replace there aside.
func TestAnnotationsHaveRoom(t *testing.T) {
	workload := &Workload{}
	if err := workload.Claims.UnmarshalJSON([]byte(`[{"metadata":{"name":"data"}}]`)); err != nil {
		t.Fatal(err)
	}
	p := New(workload, &Snapshot{}, &Plan{ClaimFingerprint: "print"})
	text := p.rememberedClaims()
	if text == "" {
		t.Fatal("nothing is remembered")
	}
	room := annotationRoom - len(pub.ClaimTemplateFingerprint) - len("print") - len(pub.ClaimTemplates) - len(text)
	for name, tt := range map[string]struct {
		present map[string]string
		fits    bool
	}{
		"nothing else":            {nil, true},
		"just enough":             {map[string]string{"a": strings.Repeat("x", room-1)}, true},
		"one byte too much":       {map[string]string{"a": strings.Repeat("x", room)}, false},
		"what is replaced":        {map[string]string{pub.ClaimTemplates: strings.Repeat("x", room+1), pub.ClaimTemplateFingerprint: "old"}, true},
		"too much in two of them": {map[string]string{"a": strings.Repeat("x", room/2), "b": strings.Repeat("x", room/2+1)}, false},
	} {
		got := p.raisedClaims(tt.present)
		if (got == text) != tt.fits {
			t.Errorf("%s: %d bytes are remembered, want all %d: %t", name, len(got), len(text), tt.fits)
		}
		if got != "" && got != text {
			t.Errorf("%s: %d bytes are remembered, want all %d or none", name, len(got), len(text))
		}
		made := p.revisionAnnotations(tt.present)
		if made[pub.ClaimTemplates] != text {
			t.Errorf("%s: a new revision has the claims %.40q, want %.40q",
				name, made[pub.ClaimTemplates], text)
		}
		if got := made[pub.ClaimTemplateFingerprint]; got != "print" {
			t.Errorf("%s: a new revision has the fingerprint %q, want \"print\"", name, got)
		}
		if _, kept := made["a"]; kept != (tt.present["a"] != "" && tt.fits || name == "too much in two of them") {
			t.Errorf("%s: a new revision has the annotation: got %t, want %t", name, kept, !kept)
		}
	}
}

// CS-052 (part): the label of a revision is its name as long as that fits.
func TestRevisionLabelsAreFullNamesAsLongAsTheyFit(t *testing.T) {
	p := New(&Workload{}, &Snapshot{}, &Plan{})
	fits := strings.Repeat("a", maxLabelValue-5) + "-hash"
	for name, want := range map[string]string{fits: fits, "a" + fits: "hash"} {
		if got := p.revisionLabel(name); got != want {
			t.Errorf("label of a revision with a name of %d characters: got %s, want %s",
				len(name), got, want)
		}
	}
}

// CS-201 to 203 (part): a job for images that are pulled ahead has what the template has, and no empty lists.
func TestPullJobDocument(t *testing.T) {
	document := func(change func(*corev1.PodTemplateSpec)) map[string]any {
		of := &template.PodTemplate{}
		change(&of.PodTemplateSpec)
		workload := &Workload{Template: of, Selector: &metav1.LabelSelector{}}
		p := New(workload, &Snapshot{}, &Plan{UpdateRevision: "web-hash"})
		p.Update = &Revision{Name: "web-hash", object: &appsv1.ControllerRevision{}}
		return p.pullJobDocument("job", "nginx:2")
	}
	labels := map[string]string{"app": "web"}
	for name, tt := range map[string]struct {
		change  func(*corev1.PodTemplateSpec)
		secrets any
		sandbox any
	}{
		"nothing":     {func(*corev1.PodTemplateSpec) {}, nil, nil},
		"labels":      {func(s *corev1.PodTemplateSpec) { s.Labels = labels }, nil, map[string]any{"labels": map[string]any{"app": "web"}}},
		"annotations": {func(s *corev1.PodTemplateSpec) { s.Annotations = labels }, nil, map[string]any{"annotations": map[string]any{"app": "web"}}},
		"secrets": {func(s *corev1.PodTemplateSpec) {
			s.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: ""}, {Name: "pull"}, {Name: "a/b"}} // of a chart
		},
			[]any{"pull"}, nil},
		"just small enough": {func(s *corev1.PodTemplateSpec) {
			s.Labels = map[string]string{"a": strings.Repeat("x", pub.MaxPullSandboxBytes-1)}
		}, nil, map[string]any{"labels": map[string]any{"a": strings.Repeat("x", pub.MaxPullSandboxBytes-1)}}},
		"too large": {func(s *corev1.PodTemplateSpec) {
			s.Annotations = map[string]string{"a": strings.Repeat("x", pub.MaxPullSandboxBytes)}
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := document(tt.change)
			spec, _ := got["spec"].(map[string]any)
			metadata, _ := got["metadata"].(map[string]any)
			made, _ := metadata["labels"].(map[string]any)
			if made[pub.RevisionHash] != "hash" {
				t.Errorf("labels of the job: got %v, want the hash of the revision among them", made)
			}
			if diff := cmp.Diff([]any{tt.secrets, tt.sandbox}, []any{spec["pullSecrets"], spec["sandboxConfig"]}); diff != "" {
				t.Errorf("pull secrets and configuration of the sandbox (-want +got):\n%s", diff)
			}
		})
	}
	name := strings.Repeat("a", maxObjectName-2)
	if got, want := pullJobName(name, "b"), name+"-b"; got != want {
		t.Errorf("the longest name: got %s, want %s", got, want)
	}
	if n := len(pullJobName(name, "bc")); n != maxObjectName {
		t.Errorf("a name that is too long: has %d bytes, want %d", n, maxObjectName)
	}
}
