package controller

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/watches"
)

// A manager that had just started refused the first evictions, because it began to read PodDisruptionBudgets
// with the first one. A replica is ready when it has read them, or may not read them, and reads nothing if no
// budget limits evictions (OPS-039 (part), PUB-016 (part)).
func TestAManagerThatHasJustStartedKnowsPodDisruptionBudgets(t *testing.T) {
	for name, tt := range map[string]struct {
		gates   string
		refused bool
		reads   bool
	}{
		"budgets limit evictions":  {reads: true},
		"it may not read them":     {refused: true, reads: true},
		"no budgets":               {gates: "PodUnavailableBudgetDeleteGate=false,PodUnavailableBudgetUpdateGate=false"},
		"budgets of updates alone": {gates: "PodUnavailableBudgetDeleteGate=false,PodUnavailableBudgetUpdateGate=true"},
		"webhooks of pods are off": {gates: "PodWebhook=false"},
	} {
		t.Run(name, func(t *testing.T) {
			gates, err := features.Parse(tt.gates)
			if err != nil {
				t.Fatal(err)
			}
			asked, answer := atomic.Bool{}, make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Store(true)
				select {
				case <-answer: // the API server is slow
				case <-r.Context().Done():
					return
				}
				w.Header().Set("Content-Type", "application/json")
				switch {
				case tt.refused:
					w.WriteHeader(http.StatusForbidden)
					_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403})
				case r.URL.Query().Get("sendInitialEvents") != "": // the list comes by itself
					w.WriteHeader(http.StatusUnprocessableEntity)
					_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422})
				case r.URL.Query().Get("watch") != "":
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				default:
					_ = json.NewEncoder(w).Encode(map[string]any{"kind": "PodDisruptionBudgetList", "apiVersion": "policy/v1", "metadata": map[string]any{"resourceVersion": "1"},
						"items": []any{map[string]any{"metadata": map[string]any{"namespace": "ns", "name": "web"}}}})
				}
			}))
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(func() { cancel(); server.CloseClientConnections(); server.Close() })

			kinds := meta.NewDefaultRESTMapper(nil)
			kinds.Add(schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, meta.RESTScopeNamespace)
			watched := watches.New(scheme.Scheme, clock.RealClock{})
			cached, err := watched.Cache(&rest.Config{Host: server.URL}, cache.Options{Scheme: scheme.Scheme, Mapper: kinds})
			if err != nil {
				t.Fatal(err)
			}
			if err := followDisruptionBudgets(ctx, gates, cached); err != nil {
				t.Fatal(err)
			}
			if ready := watched.Read(); ready == tt.reads {
				t.Errorf("ready before anything is read: %t", ready)
			}
			go func() { _ = cached.Start(ctx) }()
			close(answer)
			ready := func(context.Context) (bool, error) { return watched.Read(), nil }
			if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 30*time.Second, true, ready); err != nil {
				t.Fatal("the replica does not become ready")
			}
			if asked.Load() != tt.reads {
				t.Errorf("reads: %t, want %t", asked.Load(), tt.reads)
			}
			if !tt.reads || tt.refused {
				return
			}
			at, done := context.WithTimeout(ctx, time.Second)
			defer done()
			var all policyv1.PodDisruptionBudgetList
			if err := cached.List(at, &all); err != nil {
				t.Errorf("listing budgets: %v", err)
			} else if len(all.Items) != 1 {
				t.Errorf("budgets: got %v, want one", all.Items)
			}
		})
	}
}
