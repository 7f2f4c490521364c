package watches

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// OPS-028 (part): the informer of metadata (Namespaces) watches by apiwatch.Filter, as controller-runtime makes it. The watch tells of what was stored, and of one
// thing more: nothing stays of it when it is known what changed.
func TestCurrentWatchOfMetadataLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf("Secret", "50", true, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit == few {
				list := secrets("100", secret("a", "10"))
				list.Continue = "more"
				return list, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		c.catchUp("50", secret("a", "10"))
		source := c.source.(noWatchList)
		source.WatchFuncWithContext = func(ctx context.Context, _ metav1.ListOptions) (apiwatch.Interface, error) {
			watch := apiwatch.NewRaceFreeFake()
			context.AfterFunc(ctx, watch.Stop)
			for _, version := range []string{"100", "101"} {
				object := secret("", version)
				watch.Action(apiwatch.Bookmark, &object)
			}
			return apiwatch.Filter(watch, func(in apiwatch.Event) (apiwatch.Event, bool) { return in, true }), nil
		}
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		w.all = append(w.all, c.watch)
		began := time.Now()
		w.Current(t.Context(), funcr.New(func(_, _ string) {}, funcr.Options{}), 2*time.Minute)
		if took := time.Since(began); took > time.Second {
			t.Errorf("waited %s", took)
		}
		synctest.Wait() // a goroutine that is left makes this bubble end with a deadlock
	})
}
