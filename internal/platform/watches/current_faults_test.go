package watches

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// faultyStore wraps the store of current_test.go.
type faultyStore struct {
	*store
	mu sync.Mutex
	// lists answers the n-th limited list (those of Current) if it is not nil.
	lists func(ctx context.Context, n int) error
	n     int
}

func (h *faultyStore) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.Limit == few && h.lists != nil {
		h.mu.Lock()
		h.n++
		n := h.n
		h.mu.Unlock()
		if err := h.lists(ctx, n); err != nil {
			return nil, err
		}
	}
	return h.store.list(ctx, o)
}

// beginToLead lets the cache be read, calls before, and lets a replica begin to lead. The watch of the informer is let go
// after half a minute. It returns how long Current waited, whether the cache had the object "new" then, and the log.
func beginToLead(t *testing.T, h *faultyStore, before func(w *Watches)) (took time.Duration, current bool, logged string) {
	ctx, cancel := context.WithCancel(t.Context())
	w := New(clientgoscheme.Scheme, clock.RealClock{})
	source := noWatchList{&toolscache.ListWatch{ListWithContextFunc: h.list, WatchFuncWithContext: h.watch}}
	secrets := w.Following(nil)(source, &corev1.Secret{}, 0, nil)
	go secrets.RunWithContext(ctx)
	synctest.Wait()
	before(w)
	var mu sync.Mutex
	var log strings.Builder
	go func() {
		time.Sleep(30 * time.Second)
		close(h.held)
	}()
	began := time.Now()
	w.Current(ctx, funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&log, time.Since(began), line)
	}, funcr.Options{}), 2*time.Minute)
	took = time.Since(began)
	_, current, _ = secrets.GetStore().GetByKey("n/new")
	time.Sleep(31 * time.Second)
	cancel()
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	return took, current, log.String()
}

func newFaultyStore() *faultyStore {
	s := &store{version: 9, held: make(chan struct{})}
	s.change(apiwatch.Added, "old")
	return &faultyStore{store: s}
}

var (
	leaderChanged = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	// badGateway is how client-go reads the 502 of a load balancer.
	badGateway   = apierrors.NewGenericServerResponse(502, "get", schema.GroupResource{Resource: "secrets"}, "", "Bad Gateway", 0, true)
	rbacStarting = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("RBAC: clusterrole not found"))
)

// One list is answered by a 500, as while etcd elects a leader, or by a 403, as while an API server starts: the kind is not
// rejected, and is to be waited for (OPS-028, part).
func TestCurrentOneErrorOfTheListDoesNotEndTheWait(t *testing.T) {
	for name, answer := range map[string]error{"500": leaderChanged, "502": badGateway, "403": rbacStarting} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFaultyStore()
				h.lists = func(_ context.Context, n int) error {
					if n == 1 {
						return answer
					}
					return nil
				}
				took, current, log := beginToLead(t, h, func(*Watches) {
					h.change(apiwatch.Added, "new")
				})
				if !current {
					t.Errorf("controllers begin after %s, and the cache lacks an object that was stored\n%s", took, log)
				}
			})
		})
	}
}

// OPS-028 (part): the informer was answered by a 500 once, a minute and a half before this replica began to lead, and has been well since.
func TestCurrentOneEarlierErrorOfTheInformerDoesNotEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		took, current, log := beginToLead(t, h, func(w *Watches) {
			w.list()[0].failed(leaderChanged, time.Now())
			time.Sleep(90 * time.Second)
			h.change(apiwatch.Added, "new")
		})
		if !current {
			t.Errorf("controllers begin after %s, and the cache lacks an object that was stored\n%s", took, log)
		}
	})
}

// OPS-028 (part): a list that is not answered at all: the log is to say which kind is waited for.
func TestCurrentAListThatHangsIsNamedInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		h.lists = func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}
		took, _, log := beginToLead(t, h, func(*Watches) { h.change(apiwatch.Added, "new") })
		first, _, _ := strings.Cut(log, " ")
		if after, err := time.ParseDuration(first); err != nil || after > 30*time.Second || !strings.Contains(log, "Secret") {
			t.Errorf("waited %s, and the log did not say for which kind before %s:\n%s", took, first, log)
		}
	})
}

// OPS-028 (part): the API server calls a conversion webhook whose pod was on a node that is gone, and rejects the list after half a minute.
// Other kinds, of which all is well, do not wait for that, and the log says what the API server answers.
func TestCurrentAListThatIsRejectedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		follow := w.Following(nil)
		for _, example := range []runtime.Object{&corev1.ConfigMap{}, &corev1.LimitRange{}, &corev1.Service{}, &corev1.Node{}, &corev1.Event{}, &corev1.Namespace{}} {
			go follow(noWatchList{&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					if o.Limit == 0 || o.Limit > page {
						return &corev1.List{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}, nil
					}
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(30 * time.Second):
						return nil, apierrors.NewInternalError(errors.New("conversion webhook failed"))
					}
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) { return apiwatch.NewFake(), nil },
			}}, example, 0, nil).RunWithContext(ctx)
		}
		synctest.Wait()
		h := newFaultyStore()
		go follow(noWatchList{&toolscache.ListWatch{ListWithContextFunc: h.list, WatchFuncWithContext: h.watch}},
			&corev1.Secret{}, 0, nil).RunWithContext(ctx)
		synctest.Wait()

		var mu sync.Mutex
		var log strings.Builder
		began := time.Now()
		w.Current(ctx, funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(&log, line)
		}, funcr.Options{}), 2*time.Minute)
		if took := time.Since(began); took < 30*time.Second || took > 35*time.Second {
			t.Errorf("waited %s, want 30s\n%s", took, &log)
		}
		if strings.Contains(log.String(), "Secret") || !strings.Contains(log.String(), "rejects kinds") || !strings.Contains(log.String(), "conversion webhook failed") {
			t.Errorf("the log names Secrets, of which all is well, or does not say why others are not waited for:\n%s", &log)
		}
		cancel()
		synctest.Wait()
	})
}

// OPS-028 (part): a controller makes its cache after the replica began to lead, and the API server answers the first list with
// what it knew long before. The controller waits for that cache, too, before its first pass, and later ones wait for nothing.
func TestCurrentOfACacheThatIsMadeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		wait := func() time.Duration {
			began := time.Now()
			w.Current(ctx, funcr.New(func(_, _ string) {}, funcr.Options{}), 2*time.Minute)
			return time.Since(began)
		}
		wait()

		h := newFaultyStore()
		h.change(apiwatch.Added, "new")
		secrets := w.Following(nil)(noWatchList{&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := h.list(ctx, o)
				if all, ok := list.(*corev1.SecretList); ok && o.ResourceVersion == "0" {
					all.Items, all.ResourceVersion = all.Items[:1], "10"
				}
				return list, err
			}, WatchFuncWithContext: h.watch}}, &corev1.Secret{}, 0, nil)
		go secrets.RunWithContext(ctx)
		time.AfterFunc(30*time.Second, func() { close(h.held) })
		took := wait()
		if _, there, _ := secrets.GetStore().GetByKey("n/new"); !there {
			t.Errorf("the controller begins after %s, and its cache lacks an object that was stored", took)
		}
		if took := wait(); took > 0 {
			t.Errorf("the next controller waits %s for caches that were waited for", took)
		}

		time.Sleep(2 * time.Minute)
		behind := newFaultyStore()
		go w.Following(nil)(noWatchList{&toolscache.ListWatch{ListWithContextFunc: behind.list, WatchFuncWithContext: behind.watch}},
			&corev1.Secret{}, 0, nil).RunWithContext(ctx)
		synctest.Wait()
		behind.change(apiwatch.Added, "new")
		if took := wait(); took < 15*time.Second || took > 16*time.Second {
			t.Errorf("a cache that is made when the time is over is waited for %s, want 15s", took)
		}
		cancel()
		synctest.Wait()
	})
}
