package takeover

import (
	"io"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// An AdvancedCronJob's run begins in the moment in which Afloat's manager is stopped for the way back: the child
// is there, and its finalizer, which OpenKruise does not know, is still on it. After the way back nobody would
// ever take it off: the child, and its namespace, could not be deleted any more.
func TestTheWayBackLeavesNoFinalizerThatOnlyAfloatTakesOff(t *testing.T) {
	w := newWorld(t, "")
	w.manifests = withoutSchemas(t)
	folder := filepath.Join(t.TempDir(), "backup")
	if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	child := &appsv1beta1.BroadcastJob{}
	child.Namespace, child.Name, child.Finalizers = "shop", "nightly-1893502800", []string{pub.UnrecordedRun}
	if err := w.bare.Create(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	back := w.command(folder, io.Discard)
	back.back = true
	if err := back.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.bare.Get(t.Context(), client.ObjectKeyFromObject(child), child); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(child.Finalizers, pub.UnrecordedRun) {
		t.Errorf("finalizers of BroadcastJob %s after the way back: got %q, want none that only Afloat's manager takes off", child.Name, child.Finalizers)
	}
}
