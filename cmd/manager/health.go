package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/platform/watches"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Reasons of the events about the manager's Deployment.
const (
	kindNotWatched       = "KindNotWatched"
	kindWatched          = "KindWatched"
	controllerNotWorking = "ControllerNotWorking"
	controllerWorking    = "ControllerWorking"
)

const (
	// lookEvery is the pause between looks at what is watched and at which controllers work.
	lookEvery = 10 * time.Second
	// toldAfter is for how long a kind must be refused until that is told of: a conversion may be a moment
	// late at every start.
	toldAfter = 15 * time.Second
	// toldAgain is the pause until what lasts is told of again: API servers forget events after an hour.
	toldAgain = 30 * time.Minute
)

// managerDeployment is what the events are about.
const managerDeployment = "kruise-controller-manager"

// health tells whether this replica does what it is there for: it serves once it knows what it must, and its
// controllers work.
type health struct {
	watches *watches.Watches
	pulse   *reconcile.Pulse
	events  reconcile.Recorder
	log     logr.Logger
	clock   clock.PassiveClock
	about   client.Object
	// elected is closed when this replica leads.
	elected <-chan struct{}

	// refused and silent are what lasts, with the time at which it was told of last.
	refused map[schema.GroupVersionKind]time.Time
	silent  map[string]time.Time
}

// newHealth returns the health of a replica whose installation is in the namespace. Nothing has been told
// yet.
func newHealth(
	w *watches.Watches, pulse *reconcile.Pulse, elected <-chan struct{}, namespace string,
) *health {
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = namespace, managerDeployment
	return &health{
		watches: w,
		pulse:   pulse,
		elected: elected,
		clock:   clock.RealClock{},
		about:   deployment,
		refused: map[schema.GroupVersionKind]time.Time{},
		silent:  map[string]time.Time{},
	}
}

// read is the readiness check "caches-read": what webhooks need was read, or is refused by the API server.
func (h *health) read(*http.Request) error {
	if !h.watches.Read() {
		return errors.New("this replica has just started and has not read all that its webhooks need")
	}
	return nil
}

// work is the liveness check "controllers": it fails on a leader none of whose controllers works, so that
// another replica leads.
func (h *health) work(*http.Request) error {
	select {
	case <-h.elected:
		if idle := h.pulse.Idle(); idle > 0 {
			return fmt.Errorf("this replica leads, and none of its %d controllers works", idle)
		}
	default:
	}
	return nil
}

// Start implements manager.Runnable: it tells of what changes.
func (h *health) Start(ctx context.Context) error {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			h.look()
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (h *health) NeedLeaderElection() bool { return false }

// look tells of each kind that cannot be watched and of each controller that does not work, again if that
// lasts, and once when it is over. The log has it once.
func (h *health) look() {
	now := h.clock.Now()
	var refused []lasting[schema.GroupVersionKind]
	for _, failure := range h.watches.Failures() {
		if failure.Last.Sub(failure.Since) < toldAfter {
			continue
		}
		refused = append(refused, lasting[schema.GroupVersionKind]{failure.Kind, func(first bool) {
			what := "its controllers wait, those of other kinds work"
			if failure.Before {
				what = "what is known of it gets old"
			}
			if first {
				h.log.Error(failure.Err, "A kind cannot be watched: "+what, "kind", failure.Kind)
			}
			h.events.Event(h.about, corev1.EventTypeWarning, kindNotWatched,
				fmt.Sprintf("%s cannot be watched, %s: %v", named(failure.Kind), what, failure.Err))
		}})
	}

	h.refused = tell(now, h.refused, refused, func(kind schema.GroupVersionKind) {
		h.log.Info("A kind can be watched again", "kind", kind)
		h.events.Event(h.about, corev1.EventTypeNormal, kindWatched, named(kind)+" can be watched again")
	})
	names := h.pulse.Silent()
	var silent []lasting[string]
	for _, name := range names {
		silent = append(silent, lasting[string]{name, func(first bool) {
			if first {
				h.log.Info("A controller does not work: its caches are not filled, or its workers hang",
					"controller", name)
			}
			h.events.Event(h.about, corev1.EventTypeWarning, controllerNotWorking,
				fmt.Sprintf("controller %s does not work: its caches are not filled, or its workers hang",
					name))
		}})
	}

	h.silent = tell(now, h.silent, silent, func(name string) {
		h.log.Info("A controller works again", "controller", name)
		h.events.Event(h.about, corev1.EventTypeNormal, controllerWorking, "controller "+name+" works again")
	})
}

// lasting is something that is so, and how it is told.
type lasting[K comparable] struct {
	what K
	say  func(first bool)
}

// tell tells what is so and was not told of for a while, and what is over, and returns when what is so was
// told of last.
func tell[K comparable](now time.Time, told map[K]time.Time, is []lasting[K], over func(K)) map[K]time.Time {
	left := map[K]time.Time{}
	for _, one := range is {
		last, before := told[one.what]
		if left[one.what] = last; !before || now.Sub(last) >= toldAgain {
			left[one.what] = now
			one.say(!before)
		}
	}

	for what := range told {
		if _, lasts := left[what]; !lasts {
			over(what)
		}
	}

	return left
}

// named is a kind in words, such as CloneSet.v1beta1.apps.kruise.io.
func named(kind schema.GroupVersionKind) string {
	return strings.TrimSuffix(kind.Kind+"."+kind.Version+"."+kind.Group, ".")
}
