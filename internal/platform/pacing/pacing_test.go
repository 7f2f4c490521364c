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

// The next plan of a large object waits for more events, that of a small one hardly.
func TestWait(t *testing.T) {
	tests := map[string]struct {
		pods       int
		took, want time.Duration
	}{
		"a small one":              {pods: 10, want: 2 * time.Millisecond},
		"a large one":              {pods: 1000, want: 200 * time.Millisecond},
		"a huge one":               {pods: 20_000, want: time.Second},
		"the pass itself counts":   {pods: 1000, took: 150 * time.Millisecond, want: 50 * time.Millisecond},
		"a pass that took long":    {pods: 1000, took: time.Minute},
		"there is more to be done": {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMemory(time.Second, func(types.NamespacedName, types.UID) {})
			m.Is(web, "uid")
			if wait := m.Wait(web, noon); wait > 0 {
				t.Errorf("the first plan waits %s", wait)
			}
			m.Passed(web, noon, 20_000)
			m.Passed(web, noon, tt.pods)
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
	m.Passed(web, noon, 1000)
	m.Is(web, "third")
	if wait := m.Wait(web, noon); wait > 0 {
		t.Errorf("it waits %s for what was done to another", wait)
	}
	if got := said(); got != [2]bool{true, false} {
		t.Errorf("news of another: %v", got)
	}
	m.Is(web, "")
	m.Is(web, "")
	m.Passed(web, noon, 1000)
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
