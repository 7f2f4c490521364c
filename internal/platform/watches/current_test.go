package watches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// client-go spaces out the errors that it logs by a clock that is none of a synctest bubble, in which it then sleeps for ever.
func init() { utilruntime.ErrorHandlers = nil }

// store is an API server with Secrets. What changes is at once in its lists, but the watches of informers show nothing before they are
// let go.
type store struct {
	mu      sync.Mutex
	version int
	changes []apiwatch.Event
	// informers are the watches of informers. held is closed when they may show changes.
	held chan struct{}
	// many is true if the first page does not have all Secrets. err answers all requests, and pages counts those of Current.
	many  bool
	err   error
	pages int
}

func (s *store) change(kind apiwatch.EventType, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.changes = append(s.changes, apiwatch.Event{Type: kind, Object: &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: strconv.Itoa(s.version)},
	}})
}

func (s *store) list(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	list := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	if options.Limit > 0 && options.Limit <= page {
		s.pages++
	}
	if s.many && options.Limit == few {
		list.Continue = "there are more"
	}
	for _, change := range s.changes {
		secret := *change.Object.(*corev1.Secret)
		list.Items = slices.DeleteFunc(list.Items, func(o corev1.Secret) bool { return o.Name == secret.Name })
		if change.Type != apiwatch.Deleted {
			list.Items = append(list.Items, secret)
		}
	}
	return list, nil
}

func (s *store) watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	from, events := options.ResourceVersion, apiwatch.NewRaceFreeFake()
	go func() {
		defer events.Stop()
		select {
		case <-s.held:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		changes := slices.Clone(s.changes)
		s.mu.Unlock()
		for _, change := range changes {
			if Older(from, versionOf(change.Object)) {
				events.Action(change.Type, change.Object)
			}
		}
		<-ctx.Done()
	}()
	return events, nil
}

// OPS-028: a replica that begins to lead waits until its caches show what was stored then, however long its watches have
// been broken, and no longer than that.
func TestCurrent(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(s *store)
		// later happens half a minute after the replica began to lead.
		later           func(s *store)
		atLeast, atMost time.Duration
		logged          string
		// pages is how many lists are read, or negative if that is left to chance.
		pages int
	}{
		"nothing changed since the cache was read": {
			before: func(s *store) { s.many = true },
			atMost: 100 * time.Millisecond, logged: "The caches show", pages: 1},
		"other kinds changed": {
			before: func(s *store) { s.version, s.many = 20, true },
			atMost: 100 * time.Millisecond, logged: "The caches show", pages: 2},
		"other kinds changed, and there are few objects": {
			before: func(s *store) { s.version = 20 },
			atMost: 100 * time.Millisecond, logged: "The caches show", pages: 1},
		"the watch is held back": {
			before:  func(s *store) { s.change(apiwatch.Added, "new"); s.version, s.many = 20, true },
			later:   func(s *store) { close(s.held) },
			atLeast: 30 * time.Second, atMost: 31 * time.Second, logged: "do not show yet", pages: 2},
		"a deletion is held back": {
			before:  func(s *store) { s.change(apiwatch.Deleted, "old"); s.version, s.many = 20, true },
			later:   func(s *store) { close(s.held) },
			atLeast: 30 * time.Second, atMost: 31 * time.Second, logged: "do not show yet", pages: 2},
		"one of few objects is held back": {
			before:  func(s *store) { s.change(apiwatch.Added, "new"); s.version = 20 },
			later:   func(s *store) { close(s.held) },
			atLeast: 30 * time.Second, atMost: 31 * time.Second, logged: `"why"={"Secret"="it shows version 10, and 20 was stored"}`, pages: 1},
		"a change of one of few objects is held back": {
			before:  func(s *store) { s.change(apiwatch.Modified, "old"); s.version = 20 },
			later:   func(s *store) { close(s.held) },
			atLeast: 30 * time.Second, atMost: 31 * time.Second, logged: "do not show yet", pages: 1},
		"the deletion of one of few objects is held back": {
			before:  func(s *store) { s.change(apiwatch.Deleted, "old"); s.version = 20 },
			later:   func(s *store) { close(s.held) },
			atLeast: 30 * time.Second, atMost: 31 * time.Second, logged: "do not show yet", pages: 1},
		"what is held back is deleted meanwhile": {
			before:  func(s *store) { s.change(apiwatch.Added, "new"); s.version = 20 },
			later:   func(s *store) { s.change(apiwatch.Deleted, "new"); close(s.held) },
			atLeast: 30 * time.Second, atMost: 31 * time.Second, logged: "do not show yet", pages: 1},
		"the API server is away for a while": {
			before:  func(s *store) { s.version, s.err = 20, errors.New("connection refused") },
			later:   func(s *store) { s.mu.Lock(); s.err = nil; s.mu.Unlock() },
			atLeast: 30 * time.Second, atMost: 33 * time.Second, logged: "connection refused", pages: -1},
		"the kind may not be read any more": {
			before:  func(s *store) { s.version, s.err = 20, forbidden },
			atLeast: 15 * time.Second, atMost: 17 * time.Second, logged: `although the API server rejects kinds" "kinds"=["Secret"] "why"={"Secret"="`, pages: -1},
		"the watch stays held back": {
			before:  func(s *store) { s.change(apiwatch.Added, "new") },
			atLeast: 2 * time.Minute, atMost: 2*time.Minute + time.Second, logged: "begin although", pages: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &store{version: 9, held: make(chan struct{})}
				s.change(apiwatch.Added, "old")
				w := New(clientgoscheme.Scheme, clock.RealClock{})
				source := noWatchList{&toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}}
				secrets := w.Following(nil)(source, &corev1.Secret{}, 0, nil)
				go secrets.RunWithContext(ctx)
				synctest.Wait()
				if tt.before != nil {
					tt.before(s)
				}
				var mu sync.Mutex
				var log strings.Builder
				began, done := time.Now(), make(chan struct{})
				go func() {
					defer close(done)
					w.Current(ctx, funcr.New(func(_, line string) {
						mu.Lock()
						defer mu.Unlock()
						fmt.Fprintln(&log, line)
					}, funcr.Options{}), 2*time.Minute)
				}()
				if tt.later != nil {
					time.Sleep(30 * time.Second)
					tt.later(s)
				}
				<-done
				if took := time.Since(began); took < tt.atLeast || took > tt.atMost {
					t.Errorf("waited %s, want %s to %s\n%s", took, tt.atLeast, tt.atMost, &log)
				}
				if !strings.Contains(log.String(), tt.logged) {
					t.Errorf("the log lacks %q:\n%s", tt.logged, &log)
				}
				if tt.pages >= 0 && s.pages != tt.pages {
					t.Errorf("lists: got %d, want %d", s.pages, tt.pages)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// OPS-028 (part): a cache that lists what is stored after the replica began to lead shows all at once, whatever other kinds
// change meanwhile: its objects are not compared. It is not given up because the API server rejected the first question about it.
func TestCurrentOfACacheThatListsLater(t *testing.T) {
	for name, first := range map[string]error{"the first question is answered": nil, "it is rejected": forbidden} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &store{version: 9, many: true, held: make(chan struct{}), err: first}
				s.change(apiwatch.Added, "old")
				w := New(clientgoscheme.Scheme, clock.RealClock{})
				source := noWatchList{&toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}}
				secrets := w.Following(nil)(source, &corev1.Secret{}, 0, nil)
				began, took := time.Now(), make(chan time.Duration, 1)
				go func() {
					defer func() { took <- time.Since(began) }()
					w.Current(ctx, funcr.New(func(_, _ string) {}, funcr.Options{}), 2*time.Minute)
				}()
				time.Sleep(500 * time.Millisecond)
				s.mu.Lock()
				s.err = nil
				s.mu.Unlock()
				time.Sleep(4500 * time.Millisecond)
				go secrets.RunWithContext(ctx)
				synctest.Wait()
				s.mu.Lock()
				s.version = 30
				s.mu.Unlock()
				if took := <-took; took < 5*time.Second || took > 5200*time.Millisecond {
					t.Errorf("waited %s, want 5s", took)
				}
				if want := 1; first == nil && s.pages != want {
					t.Errorf("lists: got %d, want %d", s.pages, want)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
