package watches

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// server answers lists of Secrets with err, if there is one, and lists of ConfigMaps always.
type server struct{ err atomic.Pointer[error] }

func (s *server) refuse(err error) { s.err.Store(&err) }

func (s *server) secrets() toolscache.ListerWatcher {
	return lister(func() (runtime.Object, error) {
		if err := *s.err.Load(); err != nil {
			return nil, err
		}
		return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
	})
}

func configMaps() toolscache.ListerWatcher {
	return lister(func() (runtime.Object, error) {
		return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
	})
}

func lister(list func() (runtime.Object, error)) toolscache.ListerWatcher {
	return noWatchList{&toolscache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list() },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) { return apiwatch.NewFake(), nil },
	}}
}

// noWatchList says that lists do not come by a watch.
type noWatchList struct{ *toolscache.ListWatch }

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

func (l noWatchList) WatchWithContext(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	if l.WatchFuncWithContext == nil {
		return nil, errors.New("there is no watch")
	}
	return l.ListWatch.WatchWithContext(ctx, o)
}

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no right"))

// A kind that may not be listed does not keep the caches of others from being used; it is named, and joins
// when it can be read.
func TestAKindThatMayNotBeListedStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, api := New(clientgoscheme.Scheme, clock.RealClock{}), &server{}
		api.refuse(forbidden)
		follow := w.Following(nil)
		secrets, configs := follow(api.secrets(), &corev1.Secret{}, 0, nil), follow(configMaps(), &corev1.ConfigMap{}, 0, nil)
		go secrets.RunWithContext(ctx)
		go configs.RunWithContext(ctx)
		inner := &unsynced{synced: secrets.HasSynced}
		waited := make(chan time.Duration, 1)
		go func() {
			began := time.Now()
			if (&tolerant{Cache: inner, settled: func() bool { return len(w.Failures()) > 0 && w.settled(grace) }}).WaitForCacheSync(ctx) {
				waited <- time.Since(began)
			}
		}()
		time.Sleep(time.Second)
		if !w.Read() {
			t.Error("a replica that has read what it can does not serve")
		}
		if took := <-waited; took < grace || took > grace+5*time.Second {
			t.Errorf("controllers of other kinds waited for %s, want %s to %s",
				took, grace, grace+5*time.Second)
		}
		want := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Secret")}
		if diff := cmp.Diff(want, kinds(w)); diff != "" {
			t.Errorf("kinds that cannot be read (-want +got):\n%s", diff)
		}
		api.refuse(nil)
		time.Sleep(recent)
		if !secrets.HasSynced() {
			t.Error("the kind is not read after rights were given")
		}
		if failures := w.Failures(); len(failures) != 0 {
			t.Errorf("failures after rights were given: got %v, want none", failures)
		}
		cancel()
		synctest.Wait()
	})
}

// An API server that does not answer, or is busy, says nothing about a kind: it is waited for.
func TestAnAPIServerThatIsAwayIsWaitedFor(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		err    error
		counts bool
	}{
		"no connection":     {err: errors.New("connection refused")},
		"the watch ended":   {err: io.EOF},
		"busy":              {err: apierrors.NewTooManyRequestsError("busy")},
		"too slow":          {err: apierrors.NewTimeoutError("slow", 1)},
		"going down":        {err: apierrors.NewServiceUnavailable("down")},
		"too old":           {err: apierrors.NewResourceExpired("old")},
		"no right":          {err: forbidden, counts: true},
		"not there":         {err: apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, ""), counts: true},
		"conversion failed": {err: apierrors.NewInternalError(errors.New("conversion webhook failed")), counts: true},
	} {
		t.Run(name, func(t *testing.T) {
			one := &watch{kind: corev1.SchemeGroupVersion.WithKind("Secret"), synced: func() bool { return false }}
			if counts := one.failed(test.err, now); counts != test.counts {
				t.Errorf("counts: %v, want %v", counts, test.counts)
			}
			if _, _, err := one.refused(now.Add(time.Second)); (err != nil) != test.counts {
				t.Errorf("refused: %v", err)
			}
			if _, _, err := one.refused(now.Add(2 * recent)); err != nil {
				t.Errorf("refused for ever: %v", err)
			}
		})
	}
}

func kinds(w *Watches) (kinds []schema.GroupVersionKind) {
	for _, failure := range w.Failures() {
		kinds = append(kinds, failure.Kind)
	}
	return kinds
}

// unsynced is a cache that waits until it is synced.
type unsynced struct {
	cache.Cache
	synced func() bool
}

func (u *unsynced) WaitForCacheSync(ctx context.Context) bool {
	return toolscache.WaitForCacheSync(ctx.Done(), u.synced)
}
