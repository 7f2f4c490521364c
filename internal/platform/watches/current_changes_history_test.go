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

// OPS-028 (part): as TestCurrentAnObjectOfAFormerHistory, with more objects than one page has: etcd was restored at version 990, and its versions have overtaken that of the
// cache. The first page shows already that the cache is of another history. A watch that begins at the version of the cache tells nothing of what the new history has before that,
// so its bookmark does not say that the cache is current.
func TestCurrentAWatchSaysNothingOfAFormerHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf("Secret", "1000", true, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit == few {
				list := secrets("1200", secret("a", "995"))
				list.Continue = "more"
				return list, nil
			}
			select {
			case <-time.After(2 * time.Second):
				return secrets("1200", secret("b", "900")), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		c.catchUp("1000", secret("a", "999"), secret("b", "900"))
		source := c.source.(noWatchList)
		source.WatchFuncWithContext = func(ctx context.Context, _ metav1.ListOptions) (apiwatch.Interface, error) {
			watch, bookmark := apiwatch.NewRaceFreeFake(), secret("", "1200")
			context.AfterFunc(ctx, watch.Stop)
			watch.Action(apiwatch.Bookmark, &bookmark)
			return watch, nil
		}
		time.AfterFunc(10*time.Second, func() { c.catchUp("1210", secret("a", "995")) })
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		w.all = append(w.all, c.watch)
		began := time.Now()
		w.Current(t.Context(), funcr.New((&lines{}).write, funcr.Options{}), 2*time.Minute)
		if object, _, _ := c.store.GetByKey("n/a"); versionOf(object) != "995" {
			t.Errorf("controllers begin after %s, and the cache has version %s of an object, stored is 995", time.Since(began), versionOf(object))
		}
		time.Sleep(time.Minute)
	})
}
