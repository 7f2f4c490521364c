package watches

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// OPS-028 (part): where there are many objects, a watch that begins at the version of the informer says what it lacks, once that has told of the
// version that was stored. A watch that ends, fails or is silent says nothing, and the pages answer.
func TestCurrentWatchesWhatChanged(t *testing.T) {
	event := func(kind apiwatch.EventType, name, version string) apiwatch.Event {
		object := secret(name, version)
		return apiwatch.Event{Type: kind, Object: &object}
	}
	tooOld := apierrors.NewResourceExpired("too old").Status()
	const pages = 40 * time.Second // the pages hang until then
	for name, tt := range map[string]struct {
		// events are those of each watch, one a second. After the last one watches fail.
		events [][]apiwatch.Event
		// lacks is what the informer has after 30 s, or does not have any more.
		lacks, gone   string
		least, atMost time.Duration
	}{
		"nothing changed": {
			events: [][]apiwatch.Event{{event(apiwatch.Bookmark, "", "100")}}, atMost: 1200 * time.Millisecond},
		"a bookmark says less than was stored, and the next enough": {
			events: [][]apiwatch.Event{{event(apiwatch.Bookmark, "", "80")}, {event(apiwatch.Bookmark, "", "101")}}, least: 3 * time.Second, atMost: 3200 * time.Millisecond},
		"an object was made": {
			events: [][]apiwatch.Event{{event(apiwatch.Added, "new", "60"), event(apiwatch.Bookmark, "", "100")}}, lacks: "new", least: 30 * time.Second, atMost: 30200 * time.Millisecond},
		"an object changed after all that was stored": {
			events: [][]apiwatch.Event{{event(apiwatch.Modified, "a", "101")}}, lacks: "a", least: 30 * time.Second, atMost: 30200 * time.Millisecond},
		"an object was deleted": {
			events: [][]apiwatch.Event{{event(apiwatch.Deleted, "a", "60"), event(apiwatch.Bookmark, "", "100")}}, gone: "a", least: 30 * time.Second, atMost: 30200 * time.Millisecond},
		"a bookmark says too little":    {events: [][]apiwatch.Event{{event(apiwatch.Bookmark, "", "99")}}, least: pages, atMost: pages + time.Second},
		"the watch ends":                {events: [][]apiwatch.Event{{}}, least: pages, atMost: pages + time.Second},
		"the watch fails":               {least: pages, atMost: pages + time.Second},
		"the version is too old for it": {events: [][]apiwatch.Event{{{Type: apiwatch.Error, Object: &tooOld}, event(apiwatch.Bookmark, "", "100")}}, least: pages, atMost: pages + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, lists := time.Now(), 0
				c := newCacheOf("Secret", "50", true, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					if lists++; o.Limit == few {
						list := secrets("100", secret("a", "10"))
						list.Continue = "more"
						return list, nil
					}
					select {
					case <-time.After(pages - time.Since(began)):
						return secrets("100", secret("b", "11")), nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				c.catchUp("50", secret("a", "10"), secret("b", "11"))
				source := c.source.(noWatchList)
				n := 0
				source.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
					if o.ResourceVersion == "" || !o.AllowWatchBookmarks || o.TimeoutSeconds == nil {
						t.Errorf("a watch without a version, bookmarks or an end: %+v", o)
					}
					if n == len(tt.events) {
						return nil, errors.New("there are no more watches")
					}
					n++
					events, watch := tt.events[n-1], apiwatch.NewRaceFreeFake()
					go func() {
						defer watch.Stop()
						for _, event := range events {
							select {
							case <-time.After(time.Second):
								watch.Action(event.Type, event.Object)
							case <-ctx.Done():
							}
						}
					}()
					return watch, nil
				}
				time.AfterFunc(30*time.Second, func() {
					if tt.lacks != "" {
						c.catchUp("50", secret(tt.lacks, "101"))
					}
					_ = c.store.Delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: tt.gone}})
				})
				w := New(clientgoscheme.Scheme, clock.RealClock{})
				w.all = append(w.all, c.watch)
				w.Current(t.Context(), funcr.New(func(_, _ string) {}, funcr.Options{}), 2*time.Minute)
				if took := time.Since(began); took < tt.least || took > tt.atMost {
					t.Errorf("waited %s, want %s to %s", took, tt.least, tt.atMost)
				}
			})
		})
	}
}
