package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func podOf(uid types.UID, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: uid, ResourceVersion: version}}
}

func terminating(version string) *corev1.Pod {
	pod := podOf("u", version)
	pod.DeletionTimestamp = &metav1.Time{Time: noon}
	return pod
}

// shows is a reader that knows one pod, or none, or that fails.
type shows struct {
	client.Reader
	pod   *corev1.Pod
	err   error
	reads int
}

func (s *shows) Get(_ context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.reads++
	pod, ok := into.(*corev1.Pod)
	switch {
	case s.err != nil:
		return s.err
	case s.pod == nil || !ok || name != client.ObjectKeyFromObject(s.pod):
		return apierrors.NewNotFound(corev1.Resource("pods"), name.Name)
	}
	s.pod.DeepCopyInto(pod)
	return nil
}

// seen is what a plan sees of the pod: UID, version, and whether it is going.
func seen(o *OwnWrites, cached *corev1.Pod) string {
	var list []*corev1.Pod
	if cached != nil {
		list = append(list, cached)
	}
	left := Overlay(o, "owner", list, func(*corev1.Pod) bool { return true })
	if len(left) == 0 {
		return "none"
	}
	text := string(left[0].UID) + left[0].ResourceVersion
	if left[0].DeletionTimestamp != nil {
		text += " going"
	}
	return text
}

// CS-073, CS-074, CS-334: what a plan sees after each write, what a live read finds out, and that nothing is
// remembered for ever.
func TestOwn(t *testing.T) {
	created := func(o *OwnWrites) { o.Created("owner", podOf("u", "10"), noon) }
	changed := func(o *OwnWrites) { o.Changed("owner", podOf("u", "10"), noon) }
	deleted := func(o *OwnWrites) { o.Deleted("owner", podOf("u", "10"), noon) }
	unsure := func(o *OwnWrites) { o.Unsure("owner", podOf("", ""), noon) }
	tests := map[string]struct {
		write        func(*OwnWrites)
		cached, live *corev1.Pod
		after        time.Duration
		want         string
		reads, leaks int
	}{
		"nothing written": {write: func(*OwnWrites) {}, cached: podOf("u", "9"), live: podOf("u", "9"),
			want: "u9"},
		"created, not shown yet":            {write: created, live: podOf("u", "10"), want: "u10"},
		"created, shown":                    {write: created, cached: podOf("u", "10"), live: podOf("u", "10"), want: "u10"},
		"created, shown in a newer version": {write: created, cached: podOf("u", "11"), live: podOf("u", "11"), want: "u11"},
		"created, not shown for long, it exists": {write: created, live: podOf("u", "10"), after: DoubtAfter, want: "u10",
			reads: 1},
		"created, not shown for long, it is gone": {write: created, after: DoubtAfter, want: "none", reads: 1, leaks: 1},
		"created, gone, replaced by another, not shown": {write: created, live: podOf("v", "12"), after: DoubtAfter, want: "none",
			reads: 1, leaks: 1},
		"created, shown is one that came later":         {write: created, cached: podOf("v", "12"), live: podOf("v", "12"), want: "v12"},
		"created, shown is one of the name from before": {write: created, cached: podOf("t", "5"), live: podOf("u", "10"), want: "u10"},
		"changed, the old version is shown":             {write: changed, cached: podOf("u", "8"), live: podOf("u", "10"), want: "u10"},
		"changed, the old version is shown, fewer digits": {write: changed, cached: podOf("u", "9"), live: podOf("u", "10"),
			after: time.Hour, want: "u10"},
		"changed, shown": {write: changed, cached: podOf("u", "10"), live: podOf("u", "10"), want: "u10"},
		"changed, a newer version is shown": {write: changed, cached: podOf("u", "100"), live: podOf("u", "100"),
			want: "u100"},
		"changed, gone":             {write: changed, want: "none"},
		"changed, another is shown": {write: changed, cached: podOf("v", "12"), live: podOf("v", "12"), want: "v12"},
		"deleted, still shown":      {write: deleted, cached: podOf("u", "10"), want: "u10 going"},
		"deleted, shown as terminating": {write: deleted, cached: terminating("11"), live: terminating("11"),
			want: "u11 going"},
		"deleted, gone":                              {write: deleted, want: "none"},
		"deleted, another of the name is shown":      {write: deleted, cached: podOf("v", "12"), live: podOf("v", "12"), want: "v12"},
		"answer lost, nothing exists, nothing shown": {write: unsure, want: "none", reads: 1},
		"answer lost, it exists, not shown":          {write: unsure, live: podOf("u", "10"), want: "u10", reads: 1},
		"answer lost, it exists, shown before the change": {write: unsure, cached: podOf("u", "9"), live: podOf("u", "10"), want: "u10",
			reads: 1},
		"answer lost, it exists, shown as it is": {write: unsure, cached: podOf("u", "10"), live: podOf("u", "10"), want: "u10",
			reads: 1},
		"answer lost, it is gone, still shown": {write: unsure, cached: podOf("u", "9"), want: "none", reads: 1},
		"answer lost, it is going, shown without": {write: unsure, cached: podOf("u", "9"), live: terminating("10"),
			want: "u10 going", reads: 1},
		"changed just after its creation, not shown at all": {write: func(o *OwnWrites) {
			created(o)
			o.Changed("owner", podOf("u", "11"),
				noon)
		},
			live: podOf("u", "11"), want: "u11"},
		"changed just after its creation, shown before the change": {write: func(o *OwnWrites) {
			created(o)
			o.Changed("owner", podOf("u", "11"),
				noon)
		},
			cached: podOf("u", "10"), live: podOf("u", "11"), want: "u11"},
		"the later of two changes counts": {write: func(o *OwnWrites) { changed(o); o.Changed("owner", podOf("u", "12"), noon) },
			cached: podOf("u", "11"), live: podOf("u", "12"), want: "u12"},
		"another owner's write": {write: func(o *OwnWrites) { o.Created("other", podOf("u", "10"), noon) }, live: podOf("u", "10"),
			want: "none"},
		"forgotten with its owner": {write: func(o *OwnWrites) { created(o); o.Forget("owner") }, live: podOf("u", "10"), want: "none"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cache, live, leaks := &shows{pod: tt.cached}, &shows{pod: tt.live}, 0
			o := &OwnWrites{Cache: cache, Live: live, Leaked: func(owner types.UID) {
				if leaks++; owner != "owner" {
					t.Errorf("leak of owner %s, want of \"owner\"", owner)
				}
			}}
			tt.write(o)
			now := noon.Add(tt.after)
			if err := o.Settle(t.Context(), "owner", now); err != nil {
				t.Fatal(err)
			}
			if unseen := tt.cached == nil && tt.want != "none"; unseen && o.Again("owner") == 0 {
				t.Error("nobody comes back, and the cache may never show it")
			}
			if diff := cmp.Diff(tt.want, seen(o, tt.cached)); diff != "" {
				t.Errorf("what the next plan sees (-want +got):\n%s", diff)
			}
			if live.reads != tt.reads {
				t.Errorf("live reads: got %d, want %d", live.reads, tt.reads)
			}
			if leaks != tt.leaks {
				t.Errorf("leaks: got %d, want %d", leaks, tt.leaks)
			}
			// As soon as the cache follows, all is forgotten, and the next plan asks nobody.
			cache.pod = tt.live
			if err := o.Settle(t.Context(), "owner", now); err != nil {
				t.Fatal(err)
			}
			if writes := o.pending("owner"); len(writes) > 0 {
				t.Errorf("writes that are still remembered: got %+v, want none", writes[0])
			}
		})
	}
}

// CS-074: a write whose answer was lost is looked up once; from then on the caches follow that.
func TestALostAnswerIsLookedUpOnce(t *testing.T) {
	live := &shows{pod: podOf("u", "10")}
	o := &OwnWrites{Cache: &shows{}, Live: live}
	o.Unsure("owner", podOf("", ""), noon)
	for range 3 {
		if err := o.Settle(t.Context(), "owner", noon); err != nil {
			t.Fatalf("settling a write whose answer was lost: %v", err)
		}
		if got := seen(o, nil); got != "u10" {
			t.Fatalf("the next plan sees %s, want u10", got)
		}
	}
	if live.reads != 1 {
		t.Errorf("live reads: got %d, want 1", live.reads)
	}
}

// SS-193 (part): an object that was gone when a lost answer was looked up may come back under its name, as a
// pod of a StatefulSet does at once.
func TestAnObjectThatCameBack(t *testing.T) {
	cache, live := &shows{pod: podOf("u", "9")}, &shows{}
	o := &OwnWrites{Cache: cache, Live: live}
	o.Unsure("owner", podOf("", ""), noon)
	steps := []struct {
		name         string
		cached, live *corev1.Pod
		after        time.Duration
		want         string
	}{
		{"gone, still shown", podOf("u", "9"), nil, 0, "none"},
		{"back, the former shown", podOf("u", "9"), podOf("v", "12"), DoubtAfter, "v12"},
		{"gone again, the former shown", podOf("u", "9"), nil, 2 * DoubtAfter, "v12"},
		{"back, shown", podOf("w", "14"), podOf("w", "14"), 3 * DoubtAfter, "w14"},
	}
	for _, step := range steps {
		cache.pod, live.pod = step.cached, step.live
		if err := o.Settle(t.Context(), "owner", noon.Add(step.after)); err != nil {
			t.Errorf("%s: settling: %v", step.name, err)
		}
		if got := seen(o, step.cached); got != step.want {
			t.Errorf("%s: the next plan sees %s, want %s", step.name, got, step.want)
		}
	}
	if len(o.pending("owner")) > 0 {
		t.Error("it is still remembered")
	}
}

// A read that fails lets no plan be made, and settles nothing; without a callback a leak is settled all the
// same.
func TestAReadThatFailsLetsNoPlanBeMade(t *testing.T) {
	broken, late := &shows{err: errors.New("no route")}, noon.Add(DoubtAfter)
	o := &OwnWrites{}
	o.Created("owner", podOf("u", "10"), noon)
	for name, readers := range map[string][2]client.Reader{"cache": {broken, &shows{}}, "live": {&shows{}, broken}} {
		o.Cache, o.Live = readers[0], readers[1]
		if err := o.Settle(t.Context(), "owner", late); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if seen(o, nil) != "u10" {
		t.Errorf("the next plan sees %s, want the write that was not settled, u10", seen(o, nil))
	}
	o.Cache, o.Live = &shows{}, &shows{}
	if err := o.Settle(t.Context(), "owner", late); err != nil {
		t.Errorf("settling once both can be read: %v", err)
	}
	if got := seen(o, nil); got != "none" {
		t.Errorf("the next plan sees %s, want none", got)
	}
	o.Unsure("owner", podOf("", ""), noon)
	o.Live = broken
	if err := o.Settle(t.Context(), "owner", noon); err == nil {
		t.Error("settling a doubt where live reads fail: no error")
	}
}

// What a write made the owner's, or took from it, is so before the caches show it.
func TestOwnWritesOfOwnersCountBeforeTheCachesShowThem(t *testing.T) {
	mine := func(pod *corev1.Pod) bool { return pod.Labels["of"] == "owner" }
	labelled := func(name, version, of string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version,
			Labels: map[string]string{"of": of}}}
	}
	o := &OwnWrites{Cache: &shows{pod: labelled("going", "7", "nobody")}}
	o.Changed("owner", labelled("released", "10", "nobody"), noon)
	o.Changed("owner", labelled("adopted", "11", "owner"), noon)
	o.Changed("owner", labelled("going", "12", "owner"), noon) // the cache shows it as nobody's until it shows that it is going
	o.Deleted("owner", labelled("going", "12", "owner"), noon)
	o.Deleted("owner", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "another", Labels: map[string]string{"of": "another"}}}, noon)
	var names []string
	for _, pod := range Overlay(o, "owner", []*corev1.Pod{labelled("released", "5", "owner"), labelled("stays", "6", "owner")}, mine) {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"adopted", "going", "stays"}, names); diff != "" {
		t.Errorf("pods of the owner (-want +got):\n%s", diff)
	}
}

// Claims that nothing holds are gone when they are deleted; those with a finalizer are going.
func TestClaimsThatNothingHoldsAreGoneWhenDeleted(t *testing.T) {
	claim := func(finalizers ...string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "u", ResourceVersion: "1",
			Finalizers: finalizers}}
	}
	for want, object := range map[int]*corev1.PersistentVolumeClaim{0: claim(), 1: claim("kubernetes.io/pvc-protection")} {
		o := &OwnWrites{}
		o.Deleted("owner", object, noon)
		left := Overlay(o, "owner", []*corev1.PersistentVolumeClaim{object}, func(*corev1.PersistentVolumeClaim) bool { return true })
		if len(left) != want {
			t.Errorf("claims left with finalizers %v: got %d, want %d", object.Finalizers, len(left), want)
		} else if want == 1 && left[0].DeletionTimestamp == nil {
			t.Errorf("the claim that is left with finalizers %v is not going", object.Finalizers)
		}
	}
}
