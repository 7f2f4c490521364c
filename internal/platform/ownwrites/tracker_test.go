package ownwrites

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const pod Kind = "Pod"

func meta(uid types.UID, version string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: uid, ResourceVersion: version}
}

func terminating(uid types.UID, version string) *metav1.ObjectMeta {
	m := meta(uid, version)
	m.DeletionTimestamp = &metav1.Time{Time: noon}
	return m
}

var object = Object{Kind: pod, NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}}

// shows returns a reader to which one object, or none, is known.
func shows(m *metav1.ObjectMeta, reads *int) Read {
	return func(_ context.Context, o Object) (metav1.Object, error) {
		if reads != nil {
			*reads++
		}
		if m == nil || o != object {
			return nil, nil
		}
		return m, nil
	}
}

// CS-073, CS-074, CS-334: what the cache must show after each write, and what a live read settles.
func TestPending(t *testing.T) {
	created := func(t *Tracker) { t.Created("owner", pod, meta("u", "10"), noon) }
	changed := func(t *Tracker) { t.Changed("owner", pod, meta("u", "10"), noon) }
	deleted := func(t *Tracker) { t.Deleted("owner", pod, meta("u", "10"), noon) }
	unsure := func(t *Tracker) { t.Unsure("owner", object, noon) }
	tests := map[string]struct {
		write        func(*Tracker)
		cached, live *metav1.ObjectMeta
		after        time.Duration
		pending      bool
		reads        int
		leaks        int
	}{
		"nothing written":                                   {write: func(*Tracker) {}},
		"created, not shown yet":                            {write: created, live: meta("u", "10"), pending: true},
		"created, shown":                                    {write: created, cached: meta("u", "10"), live: meta("u", "10")},
		"created, shown in a newer version":                 {write: created, cached: meta("u", "11"), live: meta("u", "11")},
		"created, not shown for long, it exists":            {write: created, live: meta("u", "10"), after: DoubtAfter, pending: true, reads: 1},
		"created, not shown for long, it is gone":           {write: created, after: DoubtAfter, reads: 1, leaks: 1},
		"created, gone, replaced by another, not shown":     {write: created, live: meta("v", "12"), after: DoubtAfter, reads: 1, leaks: 1},
		"created, shown is one that came later":             {write: created, cached: meta("v", "12"), live: meta("v", "12")},
		"created, shown is one of the name from before":     {write: created, cached: meta("t", "5"), live: meta("u", "10"), pending: true},
		"changed, the old version is shown":                 {write: changed, cached: meta("u", "9"), live: meta("u", "10"), pending: true},
		"changed, the old version is shown, fewer digits":   {write: changed, cached: meta("u", "9"), live: meta("u", "10"), after: time.Hour, pending: true},
		"changed, shown":                                    {write: changed, cached: meta("u", "10"), live: meta("u", "10")},
		"changed, a newer version is shown":                 {write: changed, cached: meta("u", "100"), live: meta("u", "100")},
		"changed, gone":                                     {write: changed},
		"changed, another is shown":                         {write: changed, cached: meta("v", "12"), live: meta("v", "12")},
		"deleted, still shown":                              {write: deleted, cached: meta("u", "10"), pending: true},
		"deleted, shown as terminating":                     {write: deleted, cached: terminating("u", "11"), live: terminating("u", "11")},
		"deleted, gone":                                     {write: deleted},
		"deleted, another of the name is shown":             {write: deleted, cached: meta("v", "12"), live: meta("v", "12")},
		"answer lost, nothing exists, nothing shown":        {write: unsure, reads: 1},
		"answer lost, it exists, not shown":                 {write: unsure, live: meta("u", "10"), pending: true, reads: 1},
		"answer lost, it exists, shown before the change":   {write: unsure, cached: meta("u", "9"), live: meta("u", "10"), pending: true, reads: 1},
		"answer lost, it exists, shown as it is":            {write: unsure, cached: meta("u", "10"), live: meta("u", "10"), reads: 1},
		"answer lost, it is gone, still shown":              {write: unsure, cached: meta("u", "9"), pending: true, reads: 1},
		"answer lost, it is going, shown without":           {write: unsure, cached: meta("u", "9"), live: terminating("u", "10"), pending: true, reads: 1},
		"changed just after its creation, not shown at all": {write: both(created, func(t *Tracker) { t.Changed("owner", pod, meta("u", "11"), noon) }), live: meta("u", "11"), pending: true},
		"changed just after its creation, shown before the change": {write: both(created, func(t *Tracker) { t.Changed("owner", pod, meta("u", "11"), noon) }),
			cached: meta("u", "10"), live: meta("u", "11"), pending: true},
		"the later of two changes counts": {write: both(changed, func(t *Tracker) { t.Changed("owner", pod, meta("u", "12"), noon) }),
			cached: meta("u", "11"), live: meta("u", "12"), pending: true},
		"another owner's write":  {write: func(t *Tracker) { t.Created("other", pod, meta("u", "10"), noon) }, live: meta("u", "10")},
		"forgotten with the set": {write: both(created, func(t *Tracker) { t.Forget("owner") }), live: meta("u", "10")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tracker, reads, leaks := NewTracker(), 0, 0
			tracker.Leaked = func(owner types.UID, o Object) {
				leaks++
				if owner != "owner" || o != object {
					t.Errorf("leak of %s %v", owner, o)
				}
			}
			tt.write(tracker)
			pending, err := tracker.Pending(context.Background(), "owner", shows(tt.cached, nil), shows(tt.live, &reads), noon.Add(tt.after))
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if tt.pending {
				want = "the cache does not show the last write of Pod a yet"
			}
			if diff := cmp.Diff(want, pending); diff != "" {
				t.Error(diff)
			}
			if reads != tt.reads || leaks != tt.leaks {
				t.Errorf("%d live reads and %d leaks, want %d and %d", reads, leaks, tt.reads, tt.leaks)
			}
			// What is settled is forgotten: the next pass asks nobody; what is pending is settled as soon as the cache follows.
			if _, err := tracker.Pending(context.Background(), "owner", shows(tt.live, nil), shows(tt.live, nil), noon.Add(tt.after)); err != nil {
				t.Fatal(err)
			}
			calls := 0
			pending, err = tracker.Pending(context.Background(), "owner", shows(nil, &calls), shows(nil, &calls), noon.Add(tt.after))
			if err != nil || pending != "" || calls != 0 {
				t.Errorf("still remembered: %q, %v, %d reads", pending, err, calls)
			}
		})
	}
}

func both(a, b func(*Tracker)) func(*Tracker) { return func(t *Tracker) { a(t); b(t) } }

// CS-074: never blocked for ever. A write whose answer was lost is looked up once; from then on the cache has to follow that.
func TestALostAnswerIsLookedUpOnce(t *testing.T) {
	tracker, reads := NewTracker(), 0
	tracker.Unsure("owner", object, noon)
	for range 3 {
		if pending, err := tracker.Pending(context.Background(), "owner", shows(nil, nil), shows(meta("u", "10"), &reads), noon); err != nil || pending == "" {
			t.Fatalf("%q, %v", pending, err)
		}
	}
	if reads != 1 {
		t.Errorf("%d live reads", reads)
	}
	if pending, err := tracker.Pending(context.Background(), "owner", shows(meta("u", "10"), nil), shows(nil, &reads), noon); err != nil || pending != "" {
		t.Errorf("%q, %v", pending, err)
	}
}

// SS-193: an object that was gone when a lost answer was looked up may come back under its name, as a pod of a StatefulSet does at once; the cache,
// which never shows that it was gone, is waited for no longer than until it shows the new one.
func TestAnObjectThatCameBack(t *testing.T) {
	tracker := NewTracker()
	tracker.Unsure("owner", object, noon)
	steps := []struct {
		name         string
		cached, live *metav1.ObjectMeta
		after        time.Duration
		pending      bool
	}{
		{"gone, still shown", meta("u", "9"), nil, 0, true},
		{"back, the former shown", meta("u", "9"), meta("v", "12"), DoubtAfter, true},
		{"gone again, the former shown", meta("u", "9"), nil, DoubtAfter, true},
		{"back, shown", meta("v", "12"), meta("v", "12"), 2 * DoubtAfter, false},
	}
	for _, step := range steps {
		pending, err := tracker.Pending(context.Background(), "owner", shows(step.cached, nil), shows(step.live, nil), noon.Add(step.after))
		if err != nil || (pending != "") != step.pending {
			t.Errorf("%s: %q, %v", step.name, pending, err)
		}
	}
}

// A read that fails settles nothing; without a callback a leak is settled all the same.
func TestFailedReads(t *testing.T) {
	broken := func(context.Context, Object) (metav1.Object, error) { return nil, errors.New("no route") }
	tracker := NewTracker()
	tracker.Created("owner", pod, meta("u", "10"), noon)
	late := noon.Add(DoubtAfter)
	for name, readers := range map[string][2]Read{"cache": {broken, shows(nil, nil)}, "live": {shows(nil, nil), broken}} {
		if _, err := tracker.Pending(context.Background(), "owner", readers[0], readers[1], late); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if pending, err := tracker.Pending(context.Background(), "owner", shows(nil, nil), shows(meta("u", "10"), nil), late); err != nil || pending == "" {
		t.Errorf("the write was forgotten: %q, %v", pending, err)
	}
	if pending, err := tracker.Pending(context.Background(), "owner", shows(nil, nil), shows(nil, nil), late); err != nil || pending != "" {
		t.Errorf("%q, %v", pending, err)
	}
	tracker.Unsure("owner", object, noon)
	if _, err := tracker.Pending(context.Background(), "owner", shows(nil, nil), broken, noon); err == nil {
		t.Error("no error")
	}
}
