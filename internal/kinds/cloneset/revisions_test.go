package cloneset

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// TestRevisionsAreReadOnce: what does not change is not read again, however many and large the revisions are
// that a user puts beside those of a set; and a plan that knows of former ones is the same as one that does
// not.
func TestRevisionsAreReadOnce(t *testing.T) {
	var revisions []*appsv1.ControllerRevision
	for i := range 20 {
		large := storedRevision(int64(100+i), clonesettest.Both(clonesettest.Image(fmt.Sprint("foreign:", i)),
			annotatedTemplate("note", strings.Repeat("x", 100_000))))
		revisions = append(revisions, large)
	}
	revisions = append(revisions, storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2")))
	for i, r := range revisions {
		r.UID, r.ResourceVersion = types.UID(fmt.Sprint("uid-", i)), "1"
	}
	set := clonesettest.Set(3, clonesettest.Image("nginx:2"))
	known := &podplan.Knowledge{}
	plan := func(known *podplan.Knowledge) *Plan {
		var pods []*corev1.Pod
		for _, name := range []string{"a", "b", "c"} {
			pods = append(pods, clonesettest.Pod(name, revisions[20].Name))
		}
		return Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Pods: pods, Revisions: revisions, Known: known, Now: clonesettest.Now},
			Random: counting()})
	}
	fresh := testing.AllocsPerRun(3, func() { plan(nil) })
	first := plan(known).String()
	if got := plan(nil).String(); got != first {
		t.Errorf("plan without what is known: got %s, want %s", got, first)
	}
	if got := plan(known).String(); got != first {
		t.Errorf("plan for the second time: got %s, want %s", got, first)
	}
	if again := testing.AllocsPerRun(3, func() { plan(known) }); again > fresh/5 {
		t.Errorf("%.0f allocations where %.0f are made at first", again, fresh)
	}
	// Another version of a revision is read, and so is another template.
	changed := storedRevision(1, clonesettest.Image("nginx:2"))
	changed.UID, changed.ResourceVersion = revisions[20].UID, "2"
	changed.Name = revisions[20].Name
	revisions[20] = changed
	set = clonesettest.Set(3, clonesettest.Image("nginx:3"))
	if got, want := plan(known).String(), plan(nil).String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func annotatedTemplate(key, value string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { set.Spec.Template.Annotations = map[string]string{key: value} }
}
