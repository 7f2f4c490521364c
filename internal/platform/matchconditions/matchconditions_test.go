package matchconditions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		if diff := cmp.Diff(step.want, m.Recall(func() map[string]string { return step.asked }, noon.Add(step.at))); diff != "" {
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
