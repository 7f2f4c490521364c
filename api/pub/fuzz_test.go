package pub

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// FuzzPlacement: what can be read has a name and a subset, and is read again as the same after it was
// written.
func FuzzPlacement(f *testing.F) {
	for _, text := range []string{`{"name":"web","subset":"zone-a"}`, `{"name":"web","subset":"a","uid":"1"}`, `{}`, `null`, `"web"`,
		`{"Name":"web","SUBSET":"\ud800"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := ParsePlacement(map[string]string{MatchedWorkloadSpread: text})
		if !ok {
			if p != (Placement{}) {
				t.Errorf("%q is no placement, and is read as %+v", text, p)
			}
			return
		}
		if p.Name == "" || p.Subset == "" {
			t.Errorf("%q is read as %+v", text, p)
		}
		if again, ok := ParsePlacement(map[string]string{MatchedWorkloadSpread: p.String()}); !ok || again != p {
			t.Errorf("%q is read as %+v, and after it was written as %+v, %t", text, p, again, ok)
		}
	})
}

// FuzzInjectedSidecarSets: the names are sorted, each occurs once and in the text, and there is a bound of
// their number.
func FuzzInjectedSidecarSets(f *testing.F) {
	for _, text := range []string{"", ",", "logs,mesh", " mesh , logs,logs", strings.Repeat("a,", 300)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		names := InjectedSidecarSets(text)
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) ||
			len(names) > MaxSidecarSets {
			t.Errorf("%q has the names %q", text, names)
		}
		for _, name := range names {
			if name == "" || strings.Contains(name, ",") || !strings.Contains(text, name) {
				t.Errorf("%q has the name %q", text, name)
			}
		}
		if again := InjectedSidecarSets(strings.Join(names, ",")); !slices.Equal(again, names) {
			t.Errorf("%q has the names %q, which are read again as %q", text, names, again)
		}
	})
}

// FuzzLaunchBarrierPriority: a key has a priority exactly if it is the key of that priority.
func FuzzLaunchBarrierPriority(f *testing.F) {
	for _, key := range []string{"p_0", "p_-5", "p_+1", "p_007", "p_2147483648", "p_", "x"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		priority, ok := LaunchBarrierPriority(key)
		if ok != (ok && LaunchBarrierKey(priority) == key) {
			t.Errorf("%q has priority %d, whose key is %q", key, priority, LaunchBarrierKey(priority))
		}
		if n, err := strconv.Atoi(strings.TrimPrefix(key, "p_")); err == nil && LaunchBarrierKey(n) == key && !ok {
			t.Errorf("%q has no priority, and should have %d", key, n)
		}
	})
}
