package watches

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// OPS-028 (part): etcd was restored from a backup, so that versions went back, and the cache shows what is there no more until the watch of the informer
// breaks.
func TestCurrentVersionsThatGoBack(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprint("many=", many), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &store{version: 9, held: make(chan struct{}), many: many}
				s.change(apiwatch.Added, "old")
				watch := func(ctx context.Context, _ metav1.ListOptions) (apiwatch.Interface, error) {
					events := apiwatch.NewRaceFreeFake()
					go func() {
						select {
						case <-ctx.Done():
							return
						case <-s.held: // the API server, which was started anew, says that the version is none of its own
						}
						expired := apierrors.NewResourceExpired("too old").Status()
						events.Error(&expired)
					}()
					return events, nil
				}
				w := New(clientgoscheme.Scheme, clock.RealClock{})
				secrets := w.Following(nil)(noWatchList{&toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: watch}},
					&corev1.Secret{}, 0, nil)
				go secrets.RunWithContext(ctx)
				synctest.Wait()

				s.mu.Lock() // the backup is of version 5, and the former leader, which knew that, has made "new"
				s.version, s.changes = 5, nil
				s.mu.Unlock()
				s.change(apiwatch.Added, "new")
				time.AfterFunc(20*time.Second, func() { close(s.held) })
				log := &lines{}
				began := time.Now()
				w.Current(ctx, funcr.New(log.write, funcr.Options{}), 2*time.Minute)
				took := time.Since(began)
				_, current, _ := secrets.GetStore().GetByKey("n/new")
				time.Sleep(90 * time.Second)
				_, later, _ := secrets.GetStore().GetByKey("n/new")
				if !current {
					t.Errorf("controllers begin after %s, and the cache lacks an object that was stored; it has it later: %v\n%s", took, later, log)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// OPS-028 (part): one cache is behind for the whole time. Those that are made meanwhile are looked at beside it, so that they are known to be current when its
// time is over, which is not made longer by them.
func TestCurrentCachesAreWaitedForSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		follow := w.Following(nil)
		stuck, well := newFaultyStore(), newFaultyStore()
		go follow(noWatchList{&toolscache.ListWatch{ListWithContextFunc: stuck.list, WatchFuncWithContext: stuck.watch}}, &corev1.Secret{}, 0, nil).RunWithContext(ctx)
		synctest.Wait()
		stuck.change(apiwatch.Added, "new")
		log := &lines{}
		wait := func() { w.Current(ctx, funcr.New(log.write, funcr.Options{}), 2*time.Minute) }
		began := time.Now()
		first := make(chan struct{})
		go func() { defer close(first); wait() }()
		synctest.Wait()

		well.many = true
		go follow(noWatchList{&toolscache.ListWatch{ListWithContextFunc: well.list, WatchFuncWithContext: well.watch}}, &corev1.ConfigMap{}, 0, nil).RunWithContext(ctx)
		synctest.Wait()
		well.mu.Lock()
		well.version = 30
		well.mu.Unlock()
		wait() // of the controller of the other kind
		took := time.Since(began)
		<-first
		if took != 2*time.Minute || strings.Contains(log.String(), "ConfigMap") {
			t.Errorf("a controller begins after %s, want 2m; the log may not say that its cache, of which all is well, is behind:\n%s", took, log)
		}
		cancel()
		synctest.Wait()
	})
}

// OPS-028 (part): what the API server has is read page by page where there are many objects, and compared. A page that fails is asked for again, and all
// of them if they are too old. Nothing more is read when the informer shows what was stored.
func TestCurrentReadsPages(t *testing.T) {
	failed := func(err error, page int) func(int) error {
		return func(n int) error {
			if n == page {
				return err
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		fails func(page int) error
		// lacks is an object that the informer shows after half a minute.
		lacks string
		// shows is when the informer shows that, and pages how many pages are read.
		shows         time.Duration
		pages         int
		least, atMost time.Duration
	}{
		"the cache has all":              {pages: 4, atMost: 300 * time.Millisecond},
		"a page fails":                   {fails: failed(leaderChanged, 3), pages: 5, atMost: 1500 * time.Millisecond},
		"the pages are too old":          {fails: failed(apierrors.NewResourceExpired("too old"), 3), pages: 7, atMost: 1500 * time.Millisecond},
		"the cache lacks an object":      {lacks: "s-099", shows: 30 * time.Second, pages: 4, least: 30 * time.Second, atMost: 31 * time.Second},
		"the cache shows it soon":        {lacks: "s-099", shows: 30 * time.Millisecond, pages: 2, atMost: 300 * time.Millisecond},
		"a page fails, and it shows all": {fails: failed(leaderChanged, 3), lacks: "s-099", shows: 500 * time.Millisecond, pages: 3, atMost: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
				all := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "900"}}
				for i := range 130 {
					secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprintf("s-%03d", i), ResourceVersion: strconv.Itoa(i + 1)}}
					all.Items = append(all.Items, secret)
					if secret.Name != tt.lacks {
						_ = store.Add(&secret)
					}
				}
				began, pages := time.Now(), 0
				one := &watch{store: store, synced: func() bool { return true }, stopped: func() bool { return false },
					version: func() string {
						if tt.shows > 0 && time.Since(began) >= tt.shows {
							return "900"
						}
						return "500"
					},
					source: noWatchList{&toolscache.ListWatch{ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
						time.Sleep(20 * time.Millisecond)
						if pages++; tt.fails != nil {
							if err := tt.fails(pages); err != nil {
								return nil, err
							}
						}
						from, _ := strconv.Atoi(o.Continue)
						list := &corev1.SecretList{ListMeta: all.ListMeta, Items: all.Items[from:min(from+int(o.Limit), len(all.Items))]}
						if to := from + len(list.Items); to < len(all.Items) {
							list.Continue = strconv.Itoa(to)
						}
						return list, nil
					}}}}
				w := New(clientgoscheme.Scheme, clock.RealClock{})
				w.all = append(w.all, one)
				w.Current(ctx, funcr.New(func(_, _ string) {}, funcr.Options{}), 2*time.Minute)
				if took := time.Since(began); took < tt.least || took > tt.atMost || pages != tt.pages {
					t.Errorf("waited %s and read %d pages, want %s to %s and %d pages", took, pages, tt.least, tt.atMost, tt.pages)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
