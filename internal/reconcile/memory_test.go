package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Several things may call for another pass, and none makes it later than what comes before (CS-076 (part)).
func TestTheSoonerOfTwoTimesCounts(t *testing.T) {
	after := time.Duration(0)
	for _, other := range []time.Duration{0, time.Minute, time.Second, 0, time.Hour} {
		MinRequeue(&after, other)
	}
	if after != time.Second {
		t.Errorf("the next pass: comes after %s, want %s", after, time.Second)
	}
}

// What is kept of an owner stays until it is forgotten, and is no other's.
func TestMemory(t *testing.T) {
	var m Memory[News]
	m.Of("a").Is("Reason", "x")
	m.Of("b").Is("Reason", "y")
	if m.Of("a").Is("Reason", "x") {
		t.Error("what owner a was told is told again, want it kept")
	}
	if m.Of("b").Is("Reason", "y") {
		t.Error("what owner b was told is told again, want it kept")
	}
	m.Forget("a")
	if !m.Of("a").Is("Reason", "x") {
		t.Error("what a forgotten owner was told is still kept")
	}
	if m.Of("b").Is("Reason", "y") {
		t.Error("another owner is forgotten")
	}
}

// An event is news when it is about something else than the last one of its reason; that there is nothing to
// tell is no event (CS-237 (part)).
func TestNews(t *testing.T) {
	var n News
	var told []bool
	for _, about := range []string{"", "x", "x", "y", "", "y"} {
		told = append(told, n.Is("Reason", about))
	}
	if diff := cmp.Diff([]bool{false, true, false, true, false, true}, told); diff != "" {
		t.Errorf("which events are news (-want +got):\n%s", diff)
	}
	if !n.Is("Other", "y") {
		t.Error("the news of one reason are those of another")
	}
}

// A status of which only numbers change is written twice a second at most; any other at once.
func TestAStatusOfNumbersIsWrittenTwiceASecond(t *testing.T) {
	var p StatusThrottle
	steps := []struct {
		at          time.Duration
		onlyNumbers bool
		want        time.Duration
	}{
		{0, true, 0},
		{100 * time.Millisecond, true, 400 * time.Millisecond},
		{200 * time.Millisecond, false, 0},
		{600 * time.Millisecond, true, 100 * time.Millisecond},
		{700 * time.Millisecond, true, 0},
	}
	for _, step := range steps {
		if wait := p.Wait(noon.Add(step.at), step.onlyNumbers); wait != step.want {
			t.Errorf("after %s: waits %s, want %s", step.at, wait, step.want)
		}
	}
}

type statusOf struct {
	Replicas int    `json:"replicas"`
	Message  string `json:"message,omitempty"`
}

// The first status is written whole, later ones by what differs; removed members are null, and nothing is
// written that is so already.
func TestStatusPatch(t *testing.T) {
	tests := map[string]struct {
		old, new statusOf
		want     string
	}{
		"the first, with a zero": {statusOf{}, statusOf{Message: "m"},
			`{"metadata":{"resourceVersion":"1","uid":"u"},"status":{"message":"m","replicas":0}}`},
		"a number": {statusOf{1, "m"}, statusOf{2, "m"},
			`{"metadata":{"resourceVersion":"1","uid":"u"},"status":{"replicas":2}}`},
		"a member goes": {statusOf{1, "m"}, statusOf{1, ""},
			`{"metadata":{"resourceVersion":"1","uid":"u"},"status":{"message":null}}`},
		"nothing": {statusOf{1, "m"}, statusOf{1, "m"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := StatusPatch(podOf("u", "1"), &tt.old, &tt.new)
			if err != nil {
				t.Errorf("the patch of a status: %v", err)
			}
			if diff := cmp.Diff(tt.want, string(body)); diff != "" {
				t.Errorf("the patch of a status (-want +got):\n%s", diff)
			}
		})
	}
}

// A loop spaces out the passes of large objects, comes back when a pass asks for it whatever the back-off
// says, and forgets what is gone (CS-076 (part), OPS-096 (part)).
func TestLoop(t *testing.T) {
	now, owner, passes := noon, types.UID("u"), 0
	var forgotten []types.UID
	done, fails := Outcome{Planning: 5 * time.Millisecond, After: time.Minute}, error(nil)
	loop := NewLoop(Loop{
		Now:   func() time.Time { return now },
		Owner: func(context.Context, types.NamespacedName) (types.UID, error) { return owner, nil },
		Pass: func(_ context.Context, _ types.NamespacedName, of types.UID) (Outcome, error) {
			passes++
			if of != owner {
				t.Errorf("a pass is over the owner %s, want %s", of, owner)
			}
			return done, fails
		},
		Forget: func(_ types.NamespacedName, of types.UID) { forgotten = append(forgotten, of) },
	}, time.Second, workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Hour, time.Hour))
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}}
	pass := func(want time.Duration) {
		t.Helper()
		result, err := loop.Reconcile(t.Context(), request)
		if err != nil {
			t.Errorf("a pass: %v", err)
		}
		if result.RequeueAfter != want {
			t.Errorf("the next pass: comes after %s, want %s", result.RequeueAfter, want)
		}
	}
	pass(time.Minute)
	pass(200 * time.Millisecond) // for more events: the plan took so long
	if passes != 1 {
		t.Errorf("passes: got %d, want 1", passes)
	}
	now, fails = now.Add(time.Second), errors.New("refused")
	if _, err := loop.Reconcile(t.Context(), request); err == nil {
		t.Error("a pass that is refused: no error")
	}
	if pause := loop.BackOff().When(request); pause != time.Minute {
		t.Errorf("what is due in a minute waits %s for the back-off", pause)
	}
	fails = nil
	pass(20 * time.Millisecond) // after a failure the queue decides, but no plan takes more than a part of a worker
	now = now.Add(20 * time.Millisecond)
	pass(time.Minute)
	owner = ""
	now = now.Add(time.Hour)
	pass(time.Minute)
	if diff := cmp.Diff([]types.UID{"u"}, forgotten); diff != "" {
		t.Errorf("owners that are forgotten (-want +got):\n%s", diff)
	}
}

// An object whose passes all fail is tried less and less often, also if a retry comes before the next pass
// may begin and is put off; it was tried ten times a second for ever. A pass that succeeds ends the back-off,
// and what is due does not wait for it (CS-076 (part), OPS-106 (part)).
func TestAPassThatIsPutOffDoesNotEndTheBackOff(t *testing.T) {
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		every time.Duration
		done  Outcome
		fails func(now time.Time) bool
		want  int // passes in ten minutes
	}{
		"it takes time to plan":        {done: Outcome{Planning: 50 * time.Millisecond}, want: 18},
		"there is a pause in any case": {every: 100 * time.Millisecond, want: 18},
		"something is due":             {every: 100 * time.Millisecond, done: Outcome{After: time.Minute}, want: 25},
		"it fails for five seconds":    {every: 100 * time.Millisecond, done: Outcome{After: time.Minute}, fails: func(now time.Time) bool { return now.Sub(noon) < 5*time.Second }, want: 22},
	} {
		t.Run(name, func(t *testing.T) {
			now, passes := noon, 0
			loop := NewLoop(Loop{
				Now:    func() time.Time { return now },
				Every:  tt.every,
				Owner:  func(context.Context, types.NamespacedName) (types.UID, error) { return "u", nil },
				Forget: func(types.NamespacedName, types.UID) {},
				Pass: func(context.Context, types.NamespacedName, types.UID) (Outcome, error) {
					passes++
					if tt.fails == nil || tt.fails(now) {
						return tt.done, refused
					}
					return tt.done, nil
				},
			}, time.Second, workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, 1000*time.Second))
			request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}}
			for now.Sub(noon) < 10*time.Minute { // as controller-runtime does
				result, err := loop.Reconcile(t.Context(), request)
				after := result.RequeueAfter
				if err != nil {
					after = loop.BackOff().When(request)
				} else {
					loop.BackOff().Forget(request)
				}
				now = now.Add(max(after, time.Millisecond))
			}
			if passes > tt.want {
				t.Errorf("passes in ten minutes: got %d, want %d at most", passes, tt.want)
			}
			if passes < 10 {
				t.Errorf("passes in ten minutes: got %d, want 10 at least", passes)
			}
			if failed := loop.BackOff().NumRequeues(request); (failed == 0) != (tt.fails != nil) {
				t.Errorf("failures that are remembered: got %d; the last pass failed: %t",
					failed, tt.fails == nil)
			}
		})
	}
}
