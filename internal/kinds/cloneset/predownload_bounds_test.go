package cloneset

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// CS-202 (part): a template with more labels, annotations and pull secrets than an ImagePullJob may have is
// pulled ahead nevertheless: what would be refused again and again is left out.
func TestAJobForALargeTemplateIsNotRefused(t *testing.T) {
	var secrets []string
	for i := range 40 {
		secrets = append(secrets, fmt.Sprintf(`{"name":"s%d"}`, i))
	}
	for note, kept := range map[int]bool{pub.MaxPullSandboxBytes - len("appweb") - len("note"): true,
		pub.MaxPullSandboxBytes - len("appweb") - len("note") + 1: false} {
		set := clonesettest.Set(5)
		clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web"},"annotations":{"note":"`+strings.Repeat("n",
			note)+`"}},"spec":{"imagePullSecrets":[`+
			strings.Join(secrets, ",")+`],"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
		first := planFor(set).NewRevision
		set.Status.CurrentRevision = first.Name
		clonesettest.SetTemplate(set, strings.Replace(string(set.Spec.Template.Raw()), "nginx:1", "nginx:2", 1))
		plan := planFor(set, func(s *Snapshot) {
			s.Features.PreDownload, s.PullJobsServed = true, true
			s.Revisions = []*appsv1.ControllerRevision{first}
		})
		if len(plan.Pulls) != 1 {
			t.Fatalf("no job:\n%s", plan)
		}
		spec := object(plan.Pulls[0].Document, "spec")
		if _, has := spec["sandboxConfig"]; has != kept {
			t.Errorf("a note of %d bytes: sandboxConfig is %v", note, spec["sandboxConfig"])
		}
		if names, _ := spec["pullSecrets"].([]any); len(names) != pub.MaxPullSecrets {
			t.Errorf("number of names: got %d, want %d; pull secrets %v", len(names), pub.MaxPullSecrets, names)
		} else if names[0] != "s0" {
			t.Errorf("first name: got %v, want %q; pull secrets %v", names[0], "s0", names)
		}
	}
}
