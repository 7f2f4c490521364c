package podplan

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/afloat-project/afloat/api/template"
)

// TestKnowledgeIsSmall: what is known of a workload holds no second copy of its template, which may be large,
// and nothing of revisions that are not stored.
func TestKnowledgeIsSmall(t *testing.T) {
	text := []byte(`{"metadata":{},"spec":{"containers":[{"name":"main","image":"nginx:1"}]}}`)
	of := &template.PodTemplate{}
	if err := of.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	known, workload := &Knowledge{}, &Workload{Name: "web", Template: of}
	plan := func(stored ...*appsv1.ControllerRevision) *Plan {
		out := &Plan{}
		p := New(workload, &Snapshot{Known: known, Revisions: stored}, out)
		if err := p.DetermineRevisions(); err != nil {
			t.Fatal(err)
		}
		p.Conclude()
		return out
	}
	revision := plan().NewRevision
	if revision == nil {
		t.Fatal("the plan has no new revision")
	}
	if len(known.contents) != 0 {
		t.Fatalf("contents that are known of revisions that are not stored: got %v, want none",
			known.contents)
	}
	if len(known.changes) != 0 {
		t.Fatalf("changes that are known of revisions that are not stored: got %v, want none", known.changes)
	}
	stored := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: revision.Name, UID: "uid", ResourceVersion: "1"},
		Data: runtime.RawExtension{Raw: append([]byte(nil), revision.Data.Raw...)}, Revision: 1}
	for range 2 {
		out := plan(stored)
		if out.NewRevision != nil {
			t.Fatalf("new revision beside the stored one: got %v, want none", out.NewRevision)
		}
		if &known.data[0] != &stored.Data.Raw[0] {
			t.Fatal("a copy of the stored revision is kept")
		}
	}
}
