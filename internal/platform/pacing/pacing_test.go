package pacing

import (
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

// The next plan of an object waits for more events, by how long its plan took: hardly if that was short, and never takes more than a part of a worker.
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
			m := NewMemory(time.Second, func(types.NamespacedName, types.UID) {})
			m.Is(web, "uid")
			if wait := m.Wait(web, noon); wait > 0 {
				t.Errorf("the first plan waits %s", wait)
			}
			m.Passed(web, noon, time.Hour, false)
			m.Passed(web, noon, tt.planning, tt.more)
			if wait := max(m.Wait(web, noon.Add(tt.took)), 0); wait != tt.want {
				t.Errorf("waits %s, want %s", wait, tt.want)
			}
		})
	}
}

// A text is news once for each object; what is remembered of an object is dropped with it, also if another object takes its name.
func TestMemory(t *testing.T) {
	var m *Memory
	var forgotten []types.UID
	m = NewMemory(time.Second, func(name types.NamespacedName, uid types.UID) {
		if name != web || m.NameOf(uid) != (types.NamespacedName{}) { // forget may call NameOf
			t.Errorf("%s of %s is still known", uid, name)
		}
		forgotten = append(forgotten, uid)
	})
	said := func() [2]bool { return [2]bool{m.News(web, "plan"), m.News(web, "plan")} }
	if got := said(); got != [2]bool{} {
		t.Errorf("news of what does not exist: %v", got)
	}
	for _, uid := range []types.UID{"first", "first", "second"} {
		m.Is(web, uid)
		if m.NameOf(uid) != web {
			t.Errorf("%s is not known", uid)
		}
	}
	if got := said(); got != [2]bool{true, false} {
		t.Errorf("news: %v", got)
	}
	m.Passed(web, noon, time.Second, false)
	m.Is(web, "third")
	if wait := m.Wait(web, noon); wait > 0 {
		t.Errorf("it waits %s for what was done to another", wait)
	}
	if got := said(); got != [2]bool{true, false} {
		t.Errorf("news of another: %v", got)
	}
	m.Is(web, "")
	m.Is(web, "")
	m.Passed(web, noon, time.Second, false)
	if diff := cmp.Diff([]types.UID{"first", "second", "third"}, forgotten); diff != "" {
		t.Error(diff)
	}
}

// The back-off ends when the plan is due again (CS-076, WS-122).
func TestBackOff(t *testing.T) {
	request := reconcile.Request{NamespacedName: web}
	b := NewBackOff(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Minute, time.Hour))
	b.NotAfter(request, 10*time.Second)
	first := b.When(request)
	b.NotAfter(request, 0)
	if second := b.When(request); first != 10*time.Second || second != 2*time.Minute {
		t.Errorf("%s, then %s", first, second)
	}
}
