package dashboard

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// Nothing runs for a page that was closed. This test is not parallel to others, since it counts goroutines.
func TestClosedPagesLeaveNothingBehind(t *testing.T) {
	api := plugintest.New(t, "v1beta1", web, webPod, node, united, child)
	b := open(t, api)
	visit := func(n int) {
		ctx, leave := context.WithCancel(t.Context())
		for range n {
			for _, path := range []string{"/api/overview", "/api/workload?" + about, "/api/workload?" + aboutUnited} {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL+path, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				response, err := http.DefaultClient.Do(r) //nolint:bodyclose // leave ends it
				if err != nil {
					t.Fatal(err)
				}
				if _, err := response.Body.Read(make([]byte, 10)); err != nil {
					t.Fatal(err)
				}
			}
		}
		api.AwaitWatches(t, 3*n)
		leave()
	}
	// settled returns the number of goroutines once it is not more than a limit, or after a while.
	settled := func(limit int) int {
		end := time.Now().Add(20 * time.Second)
		for runtime.NumGoroutine() > limit && time.Now().Before(end) {
			http.DefaultClient.CloseIdleConnections()
			time.Sleep(50 * time.Millisecond)
		}
		return runtime.NumGoroutine()
	}

	before := runtime.NumGoroutine()
	visit(1)
	once := settled(before + 10)
	visit(5)
	if again := settled(once + 5); again > once+5 {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after a visit, and %d after more:\n%s", before, once, again,
			stacks[:runtime.Stack(stacks, true)])
	}
}
