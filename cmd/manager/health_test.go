package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/platform/watches"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// told records events.
type told struct{ events []string }

func (r *told) Event(_ client.Object, _, reason, message string) {
	r.events = append(r.events, reason+": "+message)
}

// OPS-029: a leader none of whose controllers works is not healthy, and each of them is told of once; while
// one works, it is healthy, and so is a replica that does not lead.
func TestALeaderWithoutControllersIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		elected, events := make(chan struct{}), &told{}
		pulse := reconcile.NewPulse(clock.RealClock{}, time.Minute)
		h := newHealth(watches.New(clientgoscheme.Scheme, clock.RealClock{}), pulse, elected, "kruise-system")
		h.events, h.log = events, logr.Discard()
		pulse.Answered("cloneset")
		pulse.Answered("daemonset")
		pulse.Everywhere("facts") // works on each replica, leader or not
		time.Sleep(time.Hour)
		if err := h.work(nil); err != nil {
			t.Errorf("a replica that stands by: %v", err)
		}
		close(elected)
		pulse.Answered("facts")
		if err := h.work(nil); err == nil || err.Error() != "this replica leads, and none of its 2 controllers works" {
			t.Errorf("a leader whose controllers are silent: got %v, want that none of its controllers works", err)
		}
		h.look()
		h.look()
		pulse.Answered("cloneset")
		if err := h.work(nil); err != nil {
			t.Errorf("a leader with a controller that works: %v", err)
		}
		h.look()
		want := []string{
			"ControllerNotWorking: controller cloneset does not work: its caches are not filled, or its workers hang",
			"ControllerNotWorking: controller daemonset does not work: its caches are not filled, or its workers hang",
			"ControllerWorking: controller cloneset works again",
		}
		if diff := cmp.Diff(want, events.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if err := testutil.CollectAndCompare(pulse, strings.NewReader(`# HELP afloat_controller_working 1 for a controller of this replica that works, 0 for one that was started and does not: its caches are not filled, or its workers hang.
# TYPE afloat_controller_working gauge
afloat_controller_working{controller="cloneset"} 1
afloat_controller_working{controller="daemonset"} 0
afloat_controller_working{controller="facts"} 1
`)); err != nil {
			t.Errorf("metrics: %v", err)
		}
	})
}

// A kind that may not be listed is told of once by an event that says why, and shown by a metric; the replica
// serves.
func TestAKindThatCannotBeWatchedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, events := watches.New(clientgoscheme.Scheme, clock.RealClock{}), &told{}
		h := newHealth(w, reconcile.NewPulse(clock.RealClock{}, time.Minute), nil, "kruise-system")
		h.events, h.log = events, logr.Discard()
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no right"))
		informer := w.Following(nil)(&toolscache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, refused },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, refused },
		}, &corev1.Secret{}, 0, nil)
		if err := h.read(nil); err == nil {
			t.Error("the replica serves before anything was read")
		}
		go informer.RunWithContext(ctx)
		for range 100 {
			time.Sleep(lookEvery)
			h.look()
		}
		want := []string{`KindNotWatched: Secret.v1 cannot be watched, its controllers wait, those of other kinds work: failed to list *v1.Secret: secrets is forbidden: no right`}
		if diff := cmp.Diff(want, events.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		time.Sleep(toldAgain)
		h.look()
		h.look()
		if len(events.events) != 2 || events.events[1] != want[0] {
			t.Errorf("what lasts is told before the API server forgets it: got events %q, want 2 the same",
				events.events)
		}
		if err := h.read(nil); err != nil {
			t.Errorf("readiness: %v", err)
		}
		if n := testutil.CollectAndCount(w, "afloat_watch_failing"); n != 1 {
			t.Errorf("%d kinds in the metric", n)
		}
		cancel()
		synctest.Wait()
	})
}

// A kind that is refused for a moment, such as at a start because of a conversion that is late, and is read
// then, is not told of: for two minutes it was called a kind that cannot be watched.
func TestAKindThatIsRefusedForAMomentIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, events := watches.New(clientgoscheme.Scheme, clock.RealClock{}), &told{}
		h := newHealth(w, reconcile.NewPulse(clock.RealClock{}, time.Hour), nil, "kruise-system")
		h.events, h.log = events, logr.Discard()
		began := time.Now()
		informer := w.Following(nil)(ordinary{&toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if time.Since(began) < 2*time.Second {
					return nil, apierrors.NewInternalError(errors.New("conversion webhook failed"))
				}
				return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
		}}, &corev1.Secret{}, 0, nil)
		go informer.RunWithContext(ctx)
		for range 30 {
			time.Sleep(lookEvery)
			h.look()
		}
		if !informer.HasSynced() {
			t.Error("the informer has read nothing yet")
		}
		if len(events.events) > 0 {
			t.Errorf("events: got %q, want none", events.events)
		}
		cancel()
		synctest.Wait()
	})
}

// ordinary says that lists do not come by a watch.
type ordinary struct{ *toolscache.ListWatch }

func (ordinary) IsWatchListSemanticsUnSupported() bool { return true }
