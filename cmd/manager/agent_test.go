package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/platform/observe"
)

// OPS-022: requests of the manager have its name and that of the controller; TestEveryControllerIsNamed
// covers all controllers, and TestEventsNameComponentAndNode the daemon.
func TestRequestsNameTheirController(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r.UserAgent()) }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parseOptions([]string{"--kubeconfig=" + file})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := restConfig(o)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ask := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, clients.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	})
	for _, r := range []reconcile.Reconciler{ask, observe.WithUserAgent("cloneset", ask)} {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"kruise-manager", "kruise-manager/cloneset"}; !slices.Equal(seen, want) {
		t.Errorf("user agents: got %q, want %q", seen, want)
	}
}
