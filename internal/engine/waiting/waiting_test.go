package waiting

import (
	"strings"
	"testing"
	"time"
)

// OPS-099: what holds a rollout is reported after 30 s in which nothing moved, again when the reason changes,
// and otherwise at most every ten minutes.
func TestARolloutThatStandsStillIsReported(t *testing.T) {
	wait := func(reason string) *Wait {
		w := &Wait{Reason: reason, Message: "2 of 5 pods"}
		w.Name("web-1", "ErrImagePull")
		return w
	}
	stuck := func(reason string) *Wait {
		w := wait(reason)
		w.Stuck = true
		return w
	}
	unpulled := func(reason string) *Wait {
		w := stuck(reason)
		w.Unpulled = true
		return w
	}
	for name, steps := range map[string][]struct {
		at    time.Duration
		p     Progress
		tell  string
		after time.Duration
	}{
		"held": {
			{at: 0, p: Progress{Wait: wait("A")}, after: 30 * time.Second},
			{at: 20 * time.Second, p: Progress{Wait: wait("A")}, after: 10 * time.Second},
			{at: 30 * time.Second, p: Progress{Wait: wait("A")}, tell: "A: 2 of 5 pods. pod web-1: ErrImagePull", after: 10 * time.Minute},
			{at: 40 * time.Second, p: Progress{Wait: wait("A")}, after: 590 * time.Second},
			{at: 50 * time.Second, p: Progress{Wait: wait("B")}, tell: "B: 2 of 5 pods. pod web-1: ErrImagePull", after: 10 * time.Minute},
			{at: 60 * time.Second, p: Progress{Wait: wait("A")}, after: 570 * time.Second},
			{at: 630 * time.Second, p: Progress{Wait: wait("A")}, tell: "A: 2 of 5 pods. pod web-1: ErrImagePull", after: 10 * time.Minute},
			{at: 700 * time.Second, p: Progress{Generation: 1, Wait: wait("A")}, after: 530 * time.Second},
			{at: 701 * time.Second, p: Progress{Generation: 1, Wait: wait("A"), Moved: true}, after: 30 * time.Second},
			{at: 720 * time.Second, p: Progress{Generation: 1, Wait: wait("C")}, after: 11 * time.Second},
		},
		"held while an autoscaler writes the spec again and again": {
			{at: 0, p: Progress{Generation: 1, Wait: wait("A")}, after: 30 * time.Second},
			{at: 15 * time.Second, p: Progress{Generation: 2, Wait: wait("A")}, after: 15 * time.Second},
			{at: 30 * time.Second, p: Progress{Generation: 3, Wait: wait("A")}, tell: "A: 2 of 5 pods. pod web-1: ErrImagePull",
				after: 10 * time.Minute},
			{at: 75 * time.Second, p: Progress{Generation: 4, Wait: wait("A")}, after: 555 * time.Second},
		},
		"a pull that fails only after the wait was reported": {
			{at: 0, p: Progress{Wait: wait("A")}, after: 30 * time.Second},
			{at: 30 * time.Second, p: Progress{Wait: wait("A")}, tell: "A: 2 of 5 pods. pod web-1: ErrImagePull", after: 10 * time.Minute},
			{at: 45 * time.Second, p: Progress{Wait: stuck("A")}, tell: "A: 2 of 5 pods. pod web-1: ErrImagePull", after: 10 * time.Minute},
			{at: 50 * time.Second, p: Progress{Wait: wait("A")}, after: 580 * time.Second},
			{at: 60 * time.Second, p: Progress{Wait: stuck("A")}, after: 585 * time.Second},
		},
		"a pull that fails in turn with the back-off of the container before": {
			{at: 0, p: Progress{Wait: unpulled("A")}, after: 30 * time.Second},
			{at: 30 * time.Second, p: Progress{Wait: stuck("A")}, tell: "A: 2 of 5 pods. pod web-1: ErrImagePull", after: 10 * time.Minute},
			{at: 45 * time.Second, p: Progress{Wait: unpulled("A")}, tell: "A: 2 of 5 pods. pod web-1: ErrImagePull", after: 10 * time.Minute},
			{at: 50 * time.Second, p: Progress{Wait: stuck("A")}, after: 580 * time.Second},
			{at: 60 * time.Second, p: Progress{Wait: unpulled("A")}, after: 585 * time.Second},
		},
		"another rollout with fewer that have arrived": {
			{at: 0, p: Progress{Generation: 1, Complete: true, Arrived: 10}},
			{at: time.Minute, p: Progress{Generation: 2, Wait: wait(NotReady), Arrived: 5}, after: 30 * time.Second},
			{at: 80 * time.Second, p: Progress{Generation: 2, Wait: wait(NotReady), Arrived: 6}, after: 30 * time.Second},
		},
		"moving": {
			{at: 0, p: Progress{Wait: wait("A")}, after: 30 * time.Second},
			{at: 20 * time.Second, p: Progress{Wait: wait("A"), Moved: true}, after: 30 * time.Second},
			{at: 40 * time.Second, p: Progress{Wait: wait("A"), Arrived: 1}, after: 30 * time.Second},
			{at: 60 * time.Second, p: Progress{Wait: wait("A"), Arrived: 0}, after: 10 * time.Second},
			{at: 65 * time.Second, p: Progress{Wait: wait("A"), Arrived: 1}, after: 5 * time.Second}, // a pod that crashes and starts in turn
			{at: 66 * time.Second, p: Progress{Arrived: 1}},
			{at: 67 * time.Second, p: Progress{Wait: wait("A")}, after: 30 * time.Second},
		},
		"a pod that crashes when the rollout is long over": {
			{at: 0, p: Progress{Wait: wait(NotReady)}, after: 30 * time.Second},
			{at: 10 * time.Second, p: Progress{Complete: true, Arrived: 5}},
			{at: time.Hour, p: Progress{Wait: wait(NotReady), Arrived: 4}},
			{at: 2 * time.Hour, p: Progress{Wait: wait("A"), Arrived: 4}, after: 30 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, begin := &Tracker{}, time.Unix(1, 0)
			for i, step := range steps {
				tell, after := w.Passed(step.p, begin.Add(step.at))
				if tell != step.tell {
					t.Errorf("step %d: tells %q, want %q", i, tell, step.tell)
				}
				if after != step.after {
					t.Errorf("step %d: comes back after %s, want %s", i, after, step.after)
				}
			}
		})
	}
}

// OPS-099: three pods are named, and the text about each is bounded.
func TestThreePodsAreNamed(t *testing.T) {
	w := &Wait{Reason: "A", Message: "m"}
	for range 5 {
		w.Name("p", strings.Repeat("é", 5000))
	}
	text := w.String()
	if len(text) > 800 {
		t.Errorf("length of the wait: got %d bytes, want 800 at most: %s", len(text), text)
	}
	if n := strings.Count(text, "pod p: "); n != 3 {
		t.Errorf("pods that are named: got %d, want 3: %s", n, text)
	}
	if !strings.HasSuffix(text, ". And 2 more") {
		t.Errorf("end of the wait: want that there are 2 more: %s", text)
	}
}

// OPS-099 (part): a reason is cut after exactly 200 bytes, and a wait that concerns no pod names none.
func TestWhatAWaitSays(t *testing.T) {
	w := &Wait{Reason: "A", Message: "b"}
	if got := w.String(); got != "A: b" {
		t.Errorf("a wait that concerns no pod: got %q, want \"A: b\"", got)
	}
	w.Name("p", strings.Repeat("x", 200))
	w.Name("q", strings.Repeat("x", 201))
	if got, want := w.String(), "A: b. pod p: "+strings.Repeat("x", 200)+". pod q: "+strings.Repeat("x", 200)+"…"; got != want {
		t.Errorf("a wait with long reasons: got %q, want %q", got, want)
	}
}
