package watches

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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

// cacheOf is a cache that the test moves on by itself.
type cacheOf struct {
	*watch
	at     atomic.Value // its version
	filled atomic.Bool
}

type listing = toolscache.ListWithContextFunc

func newCacheOf(kind, at string, filled bool, list listing) *cacheOf {
	c := &cacheOf{}
	c.at.Store(at)
	c.filled.Store(filled)
	c.watch = &watch{
		kind:    schema.GroupVersionKind{Version: "v1", Kind: kind},
		synced:  c.filled.Load,
		stopped: func() bool { return false },
		store:   toolscache.NewStore(toolscache.MetaNamespaceKeyFunc),
		version: func() string { return c.at.Load().(string) },
		source:  noWatchList{&toolscache.ListWatch{ListWithContextFunc: list}},
	}
	return c
}

func secret(name, version string) corev1.Secret {
	return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: version}}
}

func secrets(version string, items ...corev1.Secret) *corev1.SecretList {
	return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: items}
}

func (c *cacheOf) catchUp(to string, items ...corev1.Secret) {
	for i := range items {
		_ = c.store.Add(&items[i])
	}
	c.at.Store(to)
}

// OPS-028 (part): the informer was rejected once 90 s before, and is once, 20 s later, as by an API server that starts: it lists at once after that.
func TestCurrentTwoRejectionsFarApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		took, current, log := beginToLead(t, h, func(w *Watches) {
			w.list()[0].failed(leaderChanged, time.Now())
			time.Sleep(90 * time.Second)
			h.change(apiwatch.Added, "new")
			time.AfterFunc(20*time.Second, func() { w.list()[0].failed(rbacStarting, time.Now()) })
		})
		if !current {
			t.Errorf("controllers begin after %s, and the cache lacks an object that was stored\n%s", took, log)
		}
	})
}

// OPS-028 (part): own requests are answered by one 403 of an API server that starts, 20 s of refused connections, one 403 of the next that starts, and answers from then on.
func TestCurrentTwoRejectionsAndNoAnswerBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		h.lists = func(_ context.Context, n int) error {
			switch {
			case n == 1 || n == 20:
				return rbacStarting
			case n < 20:
				return errors.New("connection refused")
			}
			return nil
		}
		took, current, log := beginToLead(t, h, func(*Watches) { h.change(apiwatch.Added, "new") })
		if !current {
			t.Errorf("controllers begin after %s, and the cache lacks an object that was stored\n%s", took, log)
		}
	})
}

// OPS-028 (part): a page hangs, and the cache shows a second later what was stored.
func TestCurrentAPageHangsAndTheCacheIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := 0
		c := newCacheOf("Secret", "50", true, func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			if pages++; pages > 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			list := secrets("100", secret("a", "10"))
			list.Continue = "more"
			return list, nil
		})
		time.AfterFunc(time.Second, func() { c.catchUp("100", secret("a", "10")) })
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		w.all = append(w.all, c.watch)
		log := &lines{}
		began := time.Now()
		w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("all controllers waited %s for a cache that was current after 1s\n%s", took, log)
		}
	})
}

// OPS-028 (part): the lists of 40 kinds hang on one dead connection. The last ones begin after 18 s, when they are let through, and are answered by one 403 at once.
func TestCurrentWaitingForTheTurnCountsAsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		began := time.Now()
		dead := func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			select {
			case <-time.After(time.Until(began.Add(30 * time.Second))):
				return secrets("100"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		asked := 0
		c := newCacheOf("Late", "50", true, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if asked++; asked == 1 {
				return nil, rbacStarting
			}
			return secrets("100", secret("new", "90")), nil
		})
		time.AfterFunc(25*time.Second, func() { c.catchUp("100", secret("new", "90")) })
		// the kinds before it got their turns first
		for i := range 36 {
			w.all = append(w.all, newCacheOf(fmt.Sprint("Kind", i), "50", true, dead).watch)
		}
		log := &lines{}
		go w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		synctest.Wait()
		w.mu.Lock()
		w.all = append(w.all, c.watch)
		w.mu.Unlock()
		time.Sleep(time.Millisecond)
		w.close(t.Context())
		<-c.gap.done
		if _, there, _ := c.store.GetByKey("n/new"); !there || c.gap.result == rejected {
			t.Errorf("a kind counts as rejected after %s by %d answers that took no time; its cache lacks an object", time.Since(began), asked)
		}
		time.Sleep(time.Minute)
	})
}

// OPS-028 (part): a standby replica whose kind is rejected for long begins to lead: the log says why it does not wait.
func TestCurrentTheLogSaysWhyAKindIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf("Secret", "", false, func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, forbidden })
		c.failed(forbidden, time.Now()) // the informer asks at most once in 30 s to 60 s
		time.Sleep(20 * time.Second)
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		w.all = append(w.all, c.watch)
		log := &lines{}
		w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		if !strings.Contains(log.String(), "forbidden") {
			t.Errorf("the log does not say what the API server answers:\n%s", log)
		}
	})
}

// OPS-028 (part): a list hangs: the log says that there is no answer.
func TestCurrentTheLogSaysThatThereIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf("Secret", "50", true, func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		w.all = append(w.all, c.watch)
		log := &lines{}
		go w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		time.Sleep(25 * time.Second)
		if strings.Contains(log.String(), "and  was stored") {
			t.Errorf("the reason is none:\n%s", log)
		}
		time.Sleep(2 * time.Minute)
	})
}

// OPS-028 (part): the cache is filled at the moment at which another controller gave up to wait for it: its own controller calls Current before that is recorded.
func TestCurrentACacheThatIsFilledWhenItIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newCacheOf("Secret", "", false, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return secrets("100", secret("new", "90")), nil
		})
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		w.all = append(w.all, c.watch)
		log := &lines{}
		wait := func() { w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute) }
		own := make(chan bool, 1)
		asked := 0
		c.synced = func() bool {
			filled := c.filled.Load()
			if time.Since(began) >= grace && !filled {
				if asked++; asked == 2 { // that of fill, after until: the scheduler takes the processor away here
					c.filled.Store(true)
					c.at.Store("50")
					go func() {
						wait()
						_, there, _ := c.store.GetByKey("n/new")
						own <- there
					}()
					time.Sleep(time.Millisecond)
				}
			}
			return filled
		}
		time.AfterFunc(40*time.Second, func() { c.catchUp("100", secret("new", "90")) })
		wait()
		if there := <-own; !there {
			t.Errorf("the controller of the kind begins after %s, and its cache, which nobody compared, lacks an object that was stored\n%s", time.Since(began), log)
		}
		time.Sleep(time.Minute)
	})
}

// OPS-028 (part): a kind is filled at the end of the 15 s for which another controller waits for it, long after the replica began to lead: what is left of these is no time to
// compare it, and its own controller does not wait.
func TestCurrentACacheThatIsFilledLateIsComparedForNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		log := &lines{}
		wait := func() { w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute) }
		wait() // when it begins to lead
		time.Sleep(10 * time.Minute)

		c := newCacheOf("Secret", "", false, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return secrets("100", secret("new", "90")), nil
		})
		w.all = append(w.all, c.watch)
		began := time.Now()
		go wait() // another controller, whose kind is served now, too
		time.Sleep(14500 * time.Millisecond)
		c.at.Store("50") // it lists, and the API server lags
		c.filled.Store(true)
		time.AfterFunc(5*time.Second, func() { c.catchUp("100", secret("new", "90")) })
		time.Sleep(100 * time.Millisecond)
		wait() // its own controller
		if _, there, _ := c.store.GetByKey("n/new"); !there {
			t.Errorf("the controller of the kind begins %s after its cache was filled, and that lacks an object; want it to wait for 15s\n%s",
				time.Since(began)-14500*time.Millisecond, log)
		}
		time.Sleep(time.Minute)
	})
}

// OPS-028 (part): the context of one that waits ends, and others wait for the same cache.
func TestCurrentTheContextOfTheFirstEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf("Secret", "50", true, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return secrets("100", secret("new", "90")), nil
		})
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		w.all = append(w.all, c.watch)
		log := &lines{}
		first, cancel := context.WithCancel(t.Context())
		go w.Current(first, funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		time.Sleep(time.Second)
		time.AfterFunc(time.Second, cancel)
		time.AfterFunc(20*time.Second, func() { c.catchUp("100", secret("new", "90")) })
		began := time.Now()
		w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		if _, there, _ := c.store.GetByKey("n/new"); !there {
			t.Errorf("another controller begins after %s, and the cache lacks an object that was stored; log: %q", time.Since(began), log)
		}
		time.Sleep(time.Minute)
	})
}

// OPS-028 (part): the pages are always too old, as with etcd that keeps 1000 revisions (--auto-compaction-mode=revision), or continue tokens are not understood by another API server.
func TestCurrentPagesThatCannotBeRead(t *testing.T) {
	for name, answer := range map[string]error{"410": apierrors.NewResourceExpired("too old"), "400": apierrors.NewBadRequest("continue key is not valid")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := []corev1.Secret{secret("a", "10"), secret("b", "20"), secret("new", "90")}
				c := newCacheOf("Secret", "50", true, func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
					switch {
					case o.Continue != "":
						return nil, answer
					case o.Limit == 0 || o.Limit >= 100:
						return secrets("100", all...), nil
					}
					list := secrets("100", all[0])
					list.Continue = "more"
					return list, nil
				})
				c.catchUp("50", all[0], all[1])
				w := New(clientgoscheme.Scheme, clock.RealClock{})
				w.all = append(w.all, c.watch)
				time.AfterFunc(25*time.Second, func() { c.catchUp("95", secret("new", "90")) })
				log := &lines{}
				began := time.Now()
				w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute)
				_, there, _ := c.store.GetByKey("n/new")
				if took := time.Since(began); took > 30*time.Second || !there {
					t.Errorf("waited %s for a cache that has all after 25s; it has all: %v\n%s", took, there, log)
				}
			})
		})
	}
}

// OPS-028 (part): etcd loses its quorum for 20 s when this replica has begun to lead: requests about all kinds are answered by a 500, which says nothing about any kind.
// (Leadership changes at such times.) The watches go on 10 s later.
func TestCurrentAllKindsAreAnsweredByA500(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		began := time.Now()
		var all []*cacheOf
		for i := range 10 {
			c := newCacheOf(fmt.Sprint("Kind", i), "50", true, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if time.Since(began) < 20*time.Second {
					return nil, apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
				}
				return secrets("100", secret("new", "90")), nil
			})
			time.AfterFunc(30*time.Second, func() { c.catchUp("100", secret("new", "90")) })
			all = append(all, c)
			w.all = append(w.all, c.watch)
		}
		log := &lines{}
		w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		for _, c := range all {
			if _, there, _ := c.store.GetByKey("n/new"); !there {
				t.Errorf("controllers begin after %s, and the cache of %s lacks an object that was stored", time.Since(began), c.kind.Kind)
				break
			}
		}
		time.Sleep(time.Minute)
	})
}

// OPS-028 (part): etcd was restored, and its versions have overtaken those of the cache already: an object has a version of the former history in the cache, which is newer than
// the one in the list, and not newer than the list. That cannot be in one history.
func TestCurrentAnObjectOfAFormerHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf("Secret", "1000", true, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return secrets("1200", secret("a", "995")), nil
		})
		c.catchUp("1000", secret("a", "999"))
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

// OPS-028 (part): a context that has ended makes nobody wait for the caches it was used for, ever.
func TestCurrentAContextThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf("Secret", "50", true, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return secrets("100", secret("new", "90")), nil
		})
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		w.all = append(w.all, c.watch)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		w.Current(ended, funcr.New((&lines{}).write, funcr.Options{}), 2*time.Minute)
		synctest.Wait()
		began := time.Now()
		w.Current(t.Context(), funcr.New((&lines{}).write, funcr.Options{}), 2*time.Minute)
		if time.Since(began) == 0 {
			t.Errorf("nothing was waited for: the cache lacks an object")
		}
	})
}

// OPS-028 (part): two informers of a kind (two namespaces, OPS-034): the reasons of both are in the log.
func TestCurrentTwoInformersOfAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		for _, err := range []error{errors.New("connection refused by the first"), nil} {
			c := newCacheOf("Secret", "50", true, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return secrets("100", secret("new", "90")), err
			})
			w.all = append(w.all, c.watch)
		}
		log := &lines{}
		go w.Current(t.Context(), funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		time.Sleep(11 * time.Second)
		if !strings.Contains(log.String(), "connection refused by the first") {
			t.Errorf("the log lacks one of two reasons:\n%s", log)
		}
		time.Sleep(2 * time.Minute)
	})
}

// OPS-028 (part): many controllers call Current at the same time, caches are made and filled at any time, contexts end: nothing hangs or stays behind.
func TestCurrentManyAtTheSameTime(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			w := New(clientgoscheme.Scheme, clock.RealClock{})
			var mu sync.Mutex
			chance := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			add := func(i int) {
				c := newCacheOf(fmt.Sprint("Kind", i), "50", chance(2) == 0, func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
					switch chance(8) {
					case 0:
						return nil, leaderChanged
					case 1:
						<-ctx.Done()
						return nil, ctx.Err()
					case 2:
						return nil, forbidden
					case 3:
						time.Sleep(time.Duration(chance(5000)) * time.Millisecond)
					}
					return secrets("100", secret("new", "90")), nil
				})
				time.AfterFunc(time.Duration(chance(60000))*time.Millisecond, func() { c.filled.Store(true) })
				time.AfterFunc(time.Duration(chance(90000))*time.Millisecond, func() { c.catchUp("100", secret("new", "90")) })
				w.mu.Lock()
				w.all = append(w.all, c.watch)
				w.mu.Unlock()
			}
			var group sync.WaitGroup
			for i := range 20 {
				add(i)
			}
			for i := range 40 {
				group.Go(func() {
					time.Sleep(time.Duration(chance(150000)) * time.Millisecond)
					if chance(4) == 0 {
						add(20 + i)
					}
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if chance(10) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(chance(20000))*time.Millisecond)
					}
					defer cancel()
					began := time.Now()
					w.Current(ctx, funcr.New((&lines{}).write, funcr.Options{}), 2*time.Minute)
					if took := time.Since(began); took > 2*time.Minute+grace {
						t.Errorf("waited %s", took)
					}
				})
			}
			group.Wait()
			time.Sleep(3 * time.Minute)
		})
	}
}
