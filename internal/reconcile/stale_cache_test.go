package reconcile

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CS-073 (part): a pod is created and deleted again before the cache shows it at all. That the cache shows
// none is not its end: the cache shows it alive next, and a plan that took it for one more pod would delete
// another.
func TestDeletedBeforeItWasShown(t *testing.T) {
	for name, former := range map[string]*corev1.Pod{"none of its name is shown": nil,
		"one of the name from before is shown": podOf("t", "5")} {
		t.Run(name, func(t *testing.T) {
			cache, live := &shows{pod: former}, &shows{pod: terminating("11")}
			leaks := 0
			o := &OwnWrites{Cache: cache, Live: live, Leaked: func(types.UID) { leaks++ }}
			o.Created("owner", podOf("u", "10"), noon)
			o.Deleted("owner", podOf("u", "10"), noon)
			steps := []struct {
				name         string
				cached, live *corev1.Pod
				after        time.Duration
				want         string
				reads        int
			}{
				{"not shown yet", former, terminating("11"), 0, "u10 going", 0},
				{"not shown for long", former, terminating("11"), DoubtAfter, "u10 going", 1},
				{"looked up a moment ago", former, terminating("11"), DoubtAfter + time.Second, "u10 going", 1},
				{"shown as it was created", podOf("u", "10"), terminating("11"), 2 * DoubtAfter, "u10 going", 1},
				{"shown as going", terminating("11"), terminating("11"), 2 * DoubtAfter, "u11 going", 1},
			}
			for _, step := range steps {
				cache.pod, live.pod = step.cached, step.live
				if err := o.Settle(t.Context(), "owner", noon.Add(step.after)); err != nil {
					t.Errorf("%s: settling: %v", step.name, err)
				}
				if got := seen(o, step.cached); got != step.want {
					t.Errorf("%s: the next plan sees %s, want %s", step.name, got, step.want)
				}
				if live.reads != step.reads {
					t.Errorf("%s: %d live reads, want %d", step.name, live.reads, step.reads)
				}
				if unseen := step.cached == former; unseen && o.Again("owner") == 0 {
					t.Errorf("%s: nobody comes back, and the cache may never show it", step.name)
				}
			}
			if n := len(o.pending("owner")); n > 0 {
				t.Errorf("writes that are still remembered: got %d, want 0", n)
			}
			if leaks > 0 {
				t.Errorf("leaks: got %d, want 0", leaks)
			}
		})
	}
}

// CS-074 (part): a pod that was created and deleted between two events of the cache is forgotten. That it
// went is no leak: we deleted it.
func TestDeletedAndGoneBeforeItWasShown(t *testing.T) {
	leaks := 0
	o := &OwnWrites{Cache: &shows{}, Live: &shows{}, Leaked: func(types.UID) { leaks++ }}
	o.Created("owner", podOf("u", "10"), noon)
	o.Deleted("owner", podOf("u", "10"), noon)
	if err := o.Settle(t.Context(), "owner", noon.Add(DoubtAfter)); err != nil {
		t.Errorf("settling: %v", err)
	}
	if got := seen(o, nil); got != "none" {
		t.Errorf("the next plan sees %s, want none", got)
	}
	if n := len(o.pending("owner")); n > 0 {
		t.Errorf("writes that are still remembered: got %d, want 0", n)
	}
	if leaks != 0 {
		t.Errorf("leaks: got %d, want 0", leaks)
	}
}

// SS-193 (part): what a live read shows is known to the next plan also where the cache still has one of the
// same name from before.
func TestReadBehindAnotherOfTheName(t *testing.T) {
	api := NewAPI(&server{}, &shows{pod: podOf("u", "11")}, withoutManagers, func() time.Time { return noon })
	former := podOf("t", "5")
	api.Own.Cache = &shows{pod: former}
	if err := api.For("owner").Read(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &corev1.Pod{}); err != nil {
		t.Fatal(err)
	}
	if err := api.Own.Settle(t.Context(), "owner", noon); err != nil {
		t.Errorf("settling: %v", err)
	}
	if got := seen(api.Own, former); got != "u11" {
		t.Errorf("the next plan sees %s, want u11", got)
	}
}

// CS-074 (part): as long as the cache shows what is gone, it is looked up every two seconds, not at every
// pass.
func TestGoneIsNotLookedUpAtEveryPass(t *testing.T) {
	live := &shows{}
	o := &OwnWrites{Cache: &shows{pod: podOf("u", "9")}, Live: live}
	o.Unsure("owner", podOf("", ""), noon)
	for i := range 50 { // five seconds
		if err := o.Settle(t.Context(), "owner", noon.Add(time.Duration(i)*100*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	if live.reads != 3 {
		t.Errorf("live reads in five seconds: got %d, want 3", live.reads)
	}
}
