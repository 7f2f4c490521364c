package firstseen

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An entry counts from when it was seen, whatever its date says. What is gone is forgotten, and one that is
// dated anew is another one.
func TestSince(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	behind, ahead := metav1.NewTime(noon.Add(-time.Minute)), metav1.NewTime(noon.Add(time.Hour))
	first, second := Times{}, Times{}
	first.Note(nil, "a", map[string]metav1.Time{"p": behind, "q": ahead, "gone": behind}, noon.Add(time.Millisecond))
	later := noon.Add(5 * time.Second)
	second.Note(first, "a", map[string]metav1.Time{"p": behind, "q": metav1.NewTime(later)}, later)
	back := Times{}
	back.Note(second, "a", map[string]metav1.Time{"q": metav1.NewTime(later)}, noon)
	for name, got := range map[string][2]time.Time{
		"what was seen":          {second.Since("a", "p", behind, later), noon},
		"dated ahead":            {first.Since("a", "q", ahead, later), noon},
		"dated anew":             {second.Since("a", "q", metav1.NewTime(later), later), later},
		"the clock was set back": {back.Since("a", "q", metav1.NewTime(later), later), noon},
		"not noted":              {second.Since("b", "p", behind, later), later},
		"nothing is noted":       {Times(nil).Since("a", "p", behind, later), behind.Time},
	} {
		if !got[0].Equal(got[1]) {
			t.Errorf("%s: counts from %s, want %s", name, got[0], got[1])
		}
	}
	if len(second) != 2 {
		t.Errorf("entries that are noted: got %v, want 2", second)
	}
}

// What is dated ahead may be old.
func TestHalfOver(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]bool{-time.Hour: true, -3 * time.Second: true, -time.Second: false, 0: false, 9 * time.Second: false,
		10 * time.Second: true, time.Hour: true} {
		if HalfOver(noon.Add(-age), 20*time.Second, noon) != want {
			t.Errorf("half of 20s is over at the age of %s: got %t, want %t", age, !want, want)
		}
	}
}
