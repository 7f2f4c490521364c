package pacing

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var (
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	web  = types.NamespacedName{Namespace: "default", Name: "web"}
)

// The next plan of an object waits for more events, by how long its plan took: hardly if that was short, and
// never takes more than a part of a worker.
func TestWait(t *testing.T) {
	tests := map[string]struct {
		planning, took, want time.Duration
		more                 bool
	}{
		"a small one":                {planning: 100 * time.Microsecond, want: 4 * time.Millisecond},
		"a large one":                {planning: 5 * time.Millisecond, want: 200 * time.Millisecond},
		"a huge one":                 {planning: 50 * time.Millisecond, want: time.Second},
		"a hostile one":              {planning: 2 * time.Second, want: 8 * time.Second},
		"after a sleep":              {planning: time.Hour, want: 30 * time.Second},
		"the pass itself counts":     {planning: 5 * time.Millisecond, took: 150 * time.Millisecond, want: 50 * time.Millisecond},
		"a pass that took long":      {planning: 5 * time.Millisecond, took: time.Minute},
		"there is more to be done":   {planning: 5 * time.Millisecond, more: true, want: 20 * time.Millisecond},
		"hostile, and more to do":    {planning: 2 * time.Second, more: true, want: 8 * time.Second},
		"nothing was planned at all": {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMemory(0, time.Second, func(types.NamespacedName, types.UID) {})
			m.Is(web, "uid")
			if wait := m.Wait(web, noon); wait > 0 {
				t.Errorf("the first plan waits %s, want no wait", wait)
			}
			m.Passed(web, noon, time.Hour, false)
			m.Passed(web, noon, tt.planning, tt.more)
			if wait := max(m.Wait(web, noon.Add(tt.took)), 0); wait != tt.want {
				t.Errorf("waits %s, want %s", wait, tt.want)
			}
		})
	}
}

// A text is news once for each object; what is remembered of an object is dropped with it, also if another
// object takes its name.
func TestMemory(t *testing.T) {
	var m *Memory
	var forgotten []types.UID
	m = NewMemory(0, time.Second, func(name types.NamespacedName, uid types.UID) {
		if name != web {
			t.Errorf("%s is forgotten of %s, want of %s", uid, name, web)
		}
		m.News(name, "") // forget may call methods
		forgotten = append(forgotten, uid)
	})
	said := func() [2]bool { return [2]bool{m.News(web, "plan"), m.News(web, "plan")} }
	if got := said(); got != [2]bool{} {
		t.Errorf("news of what does not exist: got %v, want none", got)
	}
	for _, uid := range []types.UID{"first", "first", "second"} {
		m.Is(web, uid)
	}
	if got := said(); got != [2]bool{true, false} {
		t.Errorf("news: got %v, want the first time alone", got)
	}
	m.Passed(web, noon, time.Second, false)
	m.Is(web, "third")
	if wait := m.Wait(web, noon); wait > 0 {
		t.Errorf("it waits %s for what was done to another", wait)
	}
	if got := said(); got != [2]bool{true, false} {
		t.Errorf("news of another: got %v, want the first time alone", got)
	}
	m.Is(web, "")
	m.Is(web, "")
	m.Passed(web, noon, time.Second, false)
	if diff := cmp.Diff([]types.UID{"first", "second", "third"}, forgotten); diff != "" {
		t.Errorf("objects that are forgotten (-want +got):\n%s", diff)
	}
}

// The back-off ends when the plan is due again (CS-076, WS-122).
func TestBackOff(t *testing.T) {
	request := reconcile.Request{NamespacedName: web}
	b := NewBackOff(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Minute, time.Hour), time.Now)
	b.NotAfter(request, 10*time.Second)
	first := b.When(request)
	b.NotAfter(request, 0)
	if first != 10*time.Second {
		t.Errorf("first pause: got %s, want 10s", first)
	}
	if second := b.When(request); second != 2*time.Minute {
		t.Errorf("second pause: got %s, want 2m", second)
	}
}

// A pass that is put off does not end the back-off of its request; one that is made does.
func TestAPassThatIsPutOffDoesNotEndTheBackOff(t *testing.T) {
	request, other := reconcile.Request{NamespacedName: web}, reconcile.Request{}
	b := NewBackOff(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Hour), time.Now)
	for want := time.Second; want < time.Minute; want *= 2 {
		if got := b.When(request); got != want {
			t.Errorf("waits %s, want %s", got, want)
		}
		want := reconcile.Result{RequeueAfter: time.Millisecond}
		if result := b.PutOff(request, time.Millisecond); result != want {
			t.Errorf("a pass that is put off: got %+v, want %+v", result, want)
		}
		b.When(other)
		b.Forget(other)
		b.Forget(request)
	}
	if b.NumRequeues(other) != 0 {
		t.Error("another request counts as put off")
	}
	b.Forget(request)
	if n := b.NumRequeues(request); n != 0 {
		t.Errorf("failures that are remembered after a success: got %d, want 0", n)
	}
	if len(b.putOff) != 0 {
		t.Errorf("passes that are remembered as put off after a success: got %v, want none", b.putOff)
	}
}

// A plan that asks again and again to be made at once does not keep a worker busy, with errors or without: it
// waits longer each time, and is counted. One that goes on, or that waits for a time, is not slowed down
// (OPS-106).
func TestAPlanThatAsksForTheSameAgainIsSlowedDownAndCounted(t *testing.T) {
	request, failed := reconcile.Request{NamespacedName: web}, errors.New("webhook is down")
	for name, tt := range map[string]struct {
		after       time.Duration
		err         error
		progress    bool
		least, most time.Duration // of 60 passes
		counted     bool
	}{
		"a time that has passed":       {after: time.Millisecond, least: 30 * time.Minute, most: time.Hour, counted: true},
		"with errors":                  {after: time.Millisecond, err: failed, least: 30 * time.Minute, most: time.Hour, counted: true},
		"it goes on":                   {after: time.Millisecond, progress: true, least: 60 * time.Millisecond, most: 60 * time.Millisecond},
		"it waits":                     {after: time.Second, least: time.Minute, most: time.Minute},
		"errors beside what is due":    {after: time.Second, err: failed, least: 50 * time.Second, most: time.Minute},
		"errors, and nothing is due":   {err: failed, least: time.Hour, most: 24 * time.Hour},
		"nothing more is to be done":   {},
		"it asks only now and then":    {after: atOnce, least: 60 * atOnce, most: 60 * atOnce},
		"it goes on, though one fails": {after: time.Millisecond, progress: true, err: failed, least: 60 * time.Millisecond, most: 60 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			counted, now := false, noon
			b := NewBackOff(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 1000*time.Second),
				func() time.Time { return now })
			b.OnRepeat(func() { counted = true })
			for range 60 {
				if tt.progress {
					b.Progressed(request)
				}
				result, err := b.Answer(request, tt.after, tt.err)
				if now = now.Add(result.RequeueAfter); err != nil {
					now = now.Add(b.When(request))
				}
			}
			if took := now.Sub(noon); took < tt.least || took > tt.most {
				t.Errorf("60 passes took %s, want %s to %s", took, tt.least, tt.most)
			}
			if counted != tt.counted {
				t.Errorf("the repetition is counted: got %t, want %t", counted, tt.counted)
			}
			if _, err := b.Answer(request, 0, nil); err != nil {
				t.Errorf("a pass that asks for no other: %v", err)
			}
			if len(b.hurry) != 0 {
				t.Errorf("plans that are remembered as in a hurry: got %v, want none", b.hurry)
			}
		})
	}
}

// A plan that events cause before the time that the one before had asked for is not slowed down, however many
// they are: it has not been made again because it asked for that (OPS-106).
func TestEventsDoNotSlowDownWhatIsDueSoon(t *testing.T) {
	request, now, counted := reconcile.Request{NamespacedName: web}, noon, 0
	b := NewBackOff(nil, func() time.Time { return now })
	b.OnRepeat(func() { counted++ })
	asks := func(after, want time.Duration) {
		t.Helper()
		result, err := b.Answer(request, after, nil)
		if err != nil {
			t.Errorf("%s later: %v", now.Sub(noon), err)
		}
		if result.RequeueAfter != want {
			t.Errorf("%s later: again after %s, want %s", now.Sub(noon), result.RequeueAfter, want)
		}
	}
	for left := atOnce - time.Millisecond; left > 0; left -= time.Millisecond { // all ask for the same time
		asks(left, left)
		now = now.Add(time.Millisecond)
	}
	for range patience - 1 {
		asks(time.Millisecond, time.Millisecond)
		now = now.Add(time.Millisecond)
	}
	if counted != 0 {
		t.Errorf("repetitions that are counted: got %d, want 0", counted)
	}
	for _, slowed := range []time.Duration{2, 4, 8} { // now it repeats itself, and events do not hide that
		asks(time.Millisecond, slowed*time.Millisecond)
		now = now.Add(time.Millisecond)
		asks(time.Millisecond, slowed*time.Millisecond)
		now = now.Add(slowed * time.Millisecond)
	}
	if counted != 3 {
		t.Errorf("repetitions that are counted: got %d, want 3", counted)
	}
}
