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
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// lines is a log that may be read.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) write(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(&l.text, line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// OPS-028 (part): the first request failed once, and the cache is behind because its watch is: the log does not give the first as the reason.
func TestCurrentTheLogDoesNotSayWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		h.lists = func(_ context.Context, n int) error {
			if n == 1 {
				return leaderChanged
			}
			return nil
		}
		_, _, log := beginToLead(t, h, func(*Watches) { h.change(apiwatch.Added, "new") })
		for line := range strings.Lines(log) {
			if strings.HasPrefix(line, "20s") && strings.Contains(line, "leader changed") {
				t.Errorf("the log gives as the reason a request that failed 20 s ago, and was answered 19 s ago:\n%s", log)
			}
		}
	})
}

// OPS-028 (part): the API server is away, and hangs at the end of the wait: the log keeps what the last answer was.
func TestCurrentTheLastLineKeepsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFaultyStore()
		began := time.Now()
		h.lists = func(ctx context.Context, _ int) error {
			if time.Since(began) < 110*time.Second {
				return errors.New("connection refused")
			}
			<-ctx.Done()
			return ctx.Err()
		}
		_, _, log := beginToLead(t, h, func(*Watches) { h.change(apiwatch.Added, "new") })
		if last := log[strings.LastIndex(strings.TrimSpace(log), "\n")+1:]; strings.Contains(last, "context deadline exceeded") {
			t.Errorf("the last line gives the end of the wait as the reason why it waited:\n%s", last)
		}
	})
}

// OPS-028 (part): the informer lacks an object, and is answered by what is no rejection: the log says that.
func TestCurrentTheLogSaysWhatTheInformerIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &store{version: 9, held: make(chan struct{})}
		s.change(apiwatch.Added, "old")
		cut := make(chan struct{})
		down := false
		watch := func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			if down {
				return nil, apierrors.NewTooManyRequests("too many watches of this kind", 1)
			}
			events, err := s.watch(ctx, o)
			go func() { <-cut; events.Stop() }()
			return events, err
		}
		list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if down && o.Limit != few {
				return nil, apierrors.NewTooManyRequests("too many watches of this kind", 1)
			}
			return s.list(ctx, o)
		}
		w := New(clientgoscheme.Scheme, clock.RealClock{})
		secrets := w.Following(nil)(noWatchList{&toolscache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: watch}}, &corev1.Secret{}, 0, nil)
		go secrets.RunWithContext(ctx)
		synctest.Wait()
		s.change(apiwatch.Added, "new")
		down = true
		close(cut)
		log := &lines{}
		w.Current(ctx, funcr.New(log.write, funcr.Options{}), 2*time.Minute)
		if !strings.Contains(log.String(), "too many watches") {
			t.Errorf("the log does not say why:\n%s", log)
		}
		cancel()
		synctest.Wait()
	})
}
