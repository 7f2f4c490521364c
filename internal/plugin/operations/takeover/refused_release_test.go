package takeover

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// A policy of some tenant forbids to change a run of an AdvancedCronJob, so that it keeps its finalizer. All of the other installation is
// put back and serves: its webhooks stay in force as they were, and the way back is verified, and says what is left.
func TestOneRunThatKeepsItsFinalizerLeavesTheWebhooksInForce(t *testing.T) {
	w := newWorld(t, "")
	w.manifests = withoutSchemas(t)
	before := w.state()
	folder := filepath.Join(t.TempDir(), "backup")
	if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	child := &appsv1beta1.BroadcastJob{}
	child.Namespace, child.Name, child.Finalizers = "shop", "nightly-1893502800", []string{pub.UnrecordedRun}
	if err := w.bare.Create(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		back := w.command(folder, io.Discard)
		back.back = true
		back.client = interceptor.NewClient(w, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
				if o.GetName() == child.Name {
					return apierrors.NewForbidden(schema.GroupResource{Group: "apps.kruise.io", Resource: "broadcastjobs"}, child.Name, errors.New("a policy says no"))
				}
				return c.Patch(ctx, o, patch, options...)
			},
		})
		t.Log("the way back:", back.run(t.Context()))
	}
	if different := differences(before, w.state()); len(different) > 0 {
		t.Errorf("after the way back, and the same once more, %d objects of the other installation are not as they were: %.1500q", len(different), different)
	}
}
