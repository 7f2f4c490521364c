package matchconditions

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// A term that is not needed any more stays in the scope for a while; one that is needed again in that time
// stays.
func TestRecall(t *testing.T) {
	var m Memory[string]
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	both, one := map[string]string{"b": "two", "a": "one"}, map[string]string{"a": "one"}
	for _, step := range []struct {
		at    time.Duration
		asked map[string]string
		want  []string
	}{
		{0, both, []string{"one", "two"}},
		{time.Second, one, []string{"one", "two"}},
		{Remembered, both, []string{"one", "two"}},
		{Remembered + time.Second, one, []string{"one", "two"}},
		{2 * Remembered, one, []string{"one", "two"}},
		{2*Remembered + time.Second, one, []string{"one"}},
		{2*Remembered + 2*time.Second, map[string]string{"a": "another"}, []string{"another"}},
	} {
		if diff := cmp.Diff(step.want, m.Recall(step.asked, noon.Add(step.at))); diff != "" {
			t.Errorf("after %s: what is remembered (-want +got):\n%s", step.at, diff)
		}
	}
}

// A user's text cannot become code in an expression.
func TestHarmless(t *testing.T) {
	for text, want := range map[string]bool{"": true, "app.kubernetes.io/name": true, "a_b-C9": true, "it's": false, `a\`: false,
		"a b": false, "ä": false, "a\n": false} {
		if got := Harmless(text); got != want {
			t.Errorf("text %q is harmless: got %t, want %t", text, got, want)
		}
	}
}

// Each change that may matter is signalled, and many at once only once; the index gets all of them.
func TestFollower(t *testing.T) {
	index := map[string]types.UID{}
	f := NewFollower(
		func(c *corev1.ConfigMap) { index[c.Name] = c.UID },
		func(c *corev1.ConfigMap) { delete(index, c.Name) },
		func(old, c *corev1.ConfigMap) bool { return old.Data["asks"] != c.Data["asks"] })
	object := func(uid types.UID, asks string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: uid}, Data: map[string]string{"asks": asks}}
	}
	changed := func() bool {
		select {
		case <-f.Changed():
			return true
		default:
			return false
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want bool
		uid  types.UID
	}{
		{"added", func() { f.OnAdd(object("1", "a"), true) }, true, "1"},
		{"the same", func() { f.OnUpdate(object("1", "a"), object("1", "a")) }, false, "1"},
		{"asks for more, twice", func() {
			f.OnUpdate(object("1", "a"), object("1", "b"))
			f.OnUpdate(object("1", "b"), object("1", "c"))
		}, true, "1"},
		{"another of the name", func() { f.OnUpdate(object("1", "c"), object("2", "c")) }, true, "2"},
		{"gone while nobody looked", func() { f.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "one", Obj: object("2", "c")}) }, true,
			""},
		{"something else", func() { f.OnAdd("odd", false); f.OnUpdate("odd", "odd"); f.OnDelete("odd") }, false, ""},
	} {
		step.do()
		if got := changed(); got != step.want {
			t.Errorf("%s: is signalled: got %t, want %t", step.name, got, step.want)
		}
		if changed() {
			t.Errorf("%s: is signalled twice", step.name)
		}
		if index["one"] != step.uid {
			t.Errorf("%s: the index has %q, want %q", step.name, index["one"], step.uid)
		}
	}
}

// Wait returns an error when its context ends, and nil once all objects are known.
func TestWait(t *testing.T) {
	f := NewFollower(func(*corev1.ConfigMap) {}, func(*corev1.ConfigMap) {}, func(_, _ *corev1.ConfigMap) bool { return false })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting when the context has ended: got %v, want %v", err, context.Canceled)
	}
	f.Synced = func() bool { return true }
	if err := f.Wait(ctx); err != nil {
		t.Errorf("waiting once all objects are known: %v", err)
	}
}
