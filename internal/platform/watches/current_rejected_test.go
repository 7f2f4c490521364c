package watches

import (
	"context"
	"errors"
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

// OPS-028 (part): the first list is answered, and the kind is rejected from then on, as when its CRD is deleted, or the role changes. The informer lacks an
// object. Kinds that are rejected are waited for 15 s.
func TestCurrentAKindThatIsRejectedAfterTheFirstAnswer(t *testing.T) {
	for name, many := range map[string]bool{"few objects": false, "many objects": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &store{version: 9, held: make(chan struct{}), many: many}
				s.change(apiwatch.Added, "old")
				cut := make(chan struct{})
				watch := func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
					events, err := s.watch(ctx, o)
					if err == nil {
						go func() { <-cut; events.Stop() }()
					}
					return events, err
				}
				w := New(clientgoscheme.Scheme, clock.RealClock{})
				secrets := w.Following(nil)(noWatchList{&toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: watch}},
					&corev1.Secret{}, 0, nil)
				go secrets.RunWithContext(ctx)
				synctest.Wait()
				s.change(apiwatch.Added, "new")
				time.AfterFunc(5*time.Second, func() {
					s.mu.Lock()
					s.err = forbidden
					s.mu.Unlock()
					close(cut)
				})
				log := &lines{}
				began := time.Now()
				w.Current(ctx, funcr.New(log.write, funcr.Options{}), 2*time.Minute)
				if took := time.Since(began); took > 25*time.Second {
					t.Errorf("the controllers of all kinds waited %s for a kind that was rejected after 5 s (known to the manager: %v), want 15 s to 25 s\n%s",
						took, len(w.Failures()) > 0, log)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// OPS-028 (part): the kind is rejected all the time, but one in five answers is a 429 of an API server that is overloaded. That says nothing about the kind.
func TestCurrentARejectionBetweenOverloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		h.lists = func(_ context.Context, n int) error {
			if n%5 == 0 {
				return apierrors.NewTooManyRequests("too many requests", 1)
			}
			return forbidden
		}
		took, _, log := beginToLead(t, h, func(*Watches) { h.change(apiwatch.Added, "new") })
		if took > 40*time.Second {
			t.Errorf("waited %s for a kind that is never answered, but rejected, want 15 s to 40 s\n%s", took, log)
		}
	})
}

// OPS-028 (part): while etcd elects a leader, which lets leases run out, too, the first list of a cache that is made when the replica begins to lead is
// answered by a 500. A second later the informer lists again, and the API server that answers lags. Other controllers do not wait for that cache, and its own
// does.
func TestCurrentACacheWhoseFirstListFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := newFaultyStore()
		h.change(apiwatch.Added, "new")
		time.AfterFunc(30*time.Second, func() { close(h.held) })
		failed := false
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		secrets := w.Following(nil)(noWatchList{&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				if o.ResourceVersion == "0" && !failed {
					failed = true
					return nil, leaderChanged
				}
				list, err := h.list(ctx, o)
				if all, ok := list.(*corev1.SecretList); ok && o.ResourceVersion == "0" {
					all.Items, all.ResourceVersion = all.Items[:1], "10"
				}
				return list, err
			}, WatchFuncWithContext: h.watch}}, &corev1.Secret{}, 0, nil)
		go secrets.RunWithContext(ctx)
		synctest.Wait()
		log := &lines{}
		began := time.Now()
		wait := func() { w.Current(ctx, funcr.New(log.write, funcr.Options{}), 2*time.Minute) }
		wait() // the manager's own, or that of any other controller
		first := time.Since(began)
		for !secrets.HasSynced() { // as controller-runtime does before a controller's first pass
			time.Sleep(100 * time.Millisecond)
		}
		wait() // that of the controller of this kind
		took := time.Since(began)
		if _, there, _ := secrets.GetStore().GetByKey("n/new"); !there {
			t.Errorf("the first wait ended after %s, the controller of the kind begins after %s, and its cache lacks an object that was stored\n%s", first, took, log)
		}
		time.Sleep(time.Minute)
		cancel()
		synctest.Wait()
	})
}

// OPS-028 (part): one kind cannot be read, and the API server does not say that it rejects it: its watch cache is not ready (429 "storage is
// (re)initializing", for instance because one object cannot be decrypted), or what serves it is down (503). Other controllers wait for it for 15 s.
func TestCurrentAKindThatWasNeverReadAndIsNotRejected(t *testing.T) {
	starting := apierrors.NewTooManyRequests("storage is (re)initializing", 1)
	for name, tt := range map[string]struct{ informer, own error }{
		"429 to the informer, 500 to the leader's question": {starting, apierrors.NewInternalError(errors.New("unable to transform key"))},
		"429 to both": {starting, starting},
		"503 to both": {apierrors.NewServiceUnavailable("down"), apierrors.NewServiceUnavailable("down")},
		"429 to the informer, an answer to the leader's question": {starting, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				w := New(clientgoscheme.Scheme, clock.RealClock{})
				follow := w.Following(nil)
				well, broken := newFaultyStore(), newFaultyStore()
				secrets := follow(noWatchList{&toolscache.ListWatch{ListWithContextFunc: well.list, WatchFuncWithContext: well.watch}},
					&corev1.Secret{}, 0, nil)
				go secrets.RunWithContext(ctx)
				maps := follow(noWatchList{&toolscache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						if o.Limit != few {
							return nil, tt.informer
						}
						if tt.own != nil {
							return nil, tt.own
						}
						return broken.list(ctx, o)
					}, WatchFuncWithContext: broken.watch}}, &corev1.ConfigMap{}, 0, nil)
				go maps.RunWithContext(ctx)
				synctest.Wait()
				log := &lines{}
				began := time.Now()
				w.Current(ctx, funcr.New(log.write, funcr.Options{}), 2*time.Minute)
				if took := time.Since(began); took > 40*time.Second {
					first, _, _ := strings.Cut(log.String(), "\n")
					t.Errorf("the controllers of all kinds waited %s for a kind that none of them can read\n%s", took, first)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// OPS-028 (part): one request of a new leader is answered by a 500, while the informer is never rejected: the kind does not count as one that cannot be
// watched.
func TestCurrentOneErrorIsNoKindThatCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		h.lists = func(_ context.Context, n int) error {
			if n == 1 {
				return leaderChanged
			}
			return nil
		}
		var of *Watches
		beginToLead(t, h, func(w *Watches) { of = w })
		if failures := of.Failures(); len(failures) > 0 { // half a minute later
			t.Errorf("a kind counts as one that cannot be watched, whose informer was never rejected: %v", failures[0].Err)
		}
	})
}

// OPS-028 (part): one API server of two hangs, and the load balancer answers a 502 for it after 20 s. All other requests are answered: the kind is not
// rejected.
func TestCurrentOneLateAnswerOfALoadBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		h.lists = func(ctx context.Context, n int) error {
			if n > 1 {
				return nil
			}
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
			}
			return badGateway
		}
		took, current, log := beginToLead(t, h, func(*Watches) { h.change(apiwatch.Added, "new") })
		if !current {
			t.Errorf("controllers begin after %s and one answer, and the cache lacks an object that was stored\n%s", took, log)
		}
	})
}
