package restart

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The watch of requests is behind (the API server's watch cache is stuck, which takes up to a minute to be noticed),
// and a request was deleted or completed meanwhile. Each pod would be read ten times a second; the daemon may send five
// requests a second in all, so the stops and results of all others wait.
func TestARequestThatOnlyTheCacheShowsIsReadSeldom(t *testing.T) {
	w, now := quiet(t)
	w.sync()
	if err := w.api.Delete(t.Context(), now()); err != nil {
		t.Fatal(err)
	}
	var waited time.Duration
	for range 50 {
		result, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}})
		if err != nil {
			t.Fatal(err)
		}
		waited += result.RequeueAfter
		w.clock.Step(result.RequeueAfter)
	}
	if waited < 30*time.Second {
		t.Errorf("50 rounds, with a read of the API server each, about a request that is gone take %s", waited)
	}
}
