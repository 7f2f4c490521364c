package matchconditions

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// A caller does not get the result of a call that has begun before, since that may be too old: all such
// callers share the next call.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var together Together[string, int32]
		var begun atomic.Int32
		failed := errors.New("the second answer")
		slow := func(context.Context) (int32, error) {
			n := begun.Add(1)
			time.Sleep(time.Second) // by the clock of the synctest bubble
			if n == 2 {
				return n, failed
			}
			return n, nil
		}
		var all sync.WaitGroup
		var answers atomic.Int32
		ask := func(key string) {
			all.Go(func() {
				if n, err := together.Do(t.Context(), key, slow); n == 2 && errors.Is(err, failed) {
					answers.Add(1)
				}
			})
		}
		ask("a")
		synctest.Wait()
		for range 50 {
			ask("a")
		}
		synctest.Wait()
		if n := begun.Load(); n != 1 {
			t.Errorf("calls while the first one goes on: got %d, want 1", n)
		}
		all.Wait()
		synctest.Wait()
		together.mu.Lock()
		kept := len(together.keys)
		together.mu.Unlock()
		if n := begun.Load(); n != 2 {
			t.Errorf("calls for 51 callers: got %d, want 2", n)
		}
		if kept != 0 {
			t.Errorf("keys that are kept: got %d, want 0", kept)
		}
		if n := answers.Load(); n != 50 {
			t.Errorf("callers that got the second answer: got %d, want 50", n)
		}
		ask("a")
		ask("b")
		all.Wait()
		if n := begun.Load(); n != 4 {
			t.Errorf("calls in all: got %d, want 4", n)
		}
	})
}

// A caller whose context ends does not end the call for others, and a call that takes too long returns an
// error.
func TestACallOutlivesACallerThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		together := Together[string, int]{Limit: 5 * time.Second}
		var all sync.WaitGroup
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all.Go(func() {
			if _, err := together.Do(impatient, "a", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Errorf("a caller whose context ends: got %v, want %v", err, context.DeadlineExceeded)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if _, err := together.Do(t.Context(), "a", nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller of a call that takes too long: got %v, want %v",
					err, context.DeadlineExceeded)
			}
		})
		all.Wait()
	})
}

// An object that was read from the API server counts only if it is newer than that of the informer, and never
// if it was deleted.
func TestLearn(t *testing.T) {
	index := map[string]string{}
	f := NewFollower(
		func(c *corev1.ConfigMap) { index[c.Name] = c.ResourceVersion },
		func(c *corev1.ConfigMap) { delete(index, c.Name) },
		func(_, _ *corev1.ConfigMap) bool { return true })
	object := func(uid types.UID, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: uid, ResourceVersion: version}}
	}
	f.Learn(object("a", "9"))
	f.OnAdd(object("a", "5"), false)
	f.OnUpdate(object("a", "5"), object("a", "8"))
	if index["one"] != "9" {
		t.Errorf("version in the index after a live read: got %s, want 9", index["one"])
	}
	f.OnUpdate(object("a", "8"), object("a", "10"))
	if index["one"] != "10" {
		t.Errorf("version in the index after a newer event: got %s, want 10", index["one"])
	}
	f.OnDelete(object("a", "11"))
	f.Learn(object("a", "10")) // read before it was deleted
	if version, there := index["one"]; there {
		t.Errorf("version in the index of an object that was deleted: got %s, want none", version)
	}
	if len(f.newest) != 0 {
		t.Errorf("newest versions that are kept: got %v, want none", f.newest)
	}
	f.OnAdd(object("b", "12"), false)
	if index["one"] != "12" {
		t.Errorf("version in the index of an object that was made again: got %s, want 12", index["one"])
	}
}

// TestAnObjectThatWasMadeAgainStaysKnown: an object is deleted and made again under its name (kubectl replace
// --force), and a replica reads the new one from the API server before its informer delivers the deletion of
// the former. Later events of the former do not count, or pods of the new one would be missed (SS-006,
// WS-050).
func TestAnObjectThatWasMadeAgainStaysKnown(t *testing.T) {
	object := func(uid types.UID, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: uid, ResourceVersion: version}}
	}
	for name, late := range map[string]func(*Follower[*corev1.ConfigMap]){
		"its end": func(f *Follower[*corev1.ConfigMap]) { f.OnDelete(object("a", "11")) },
		"its end, found later": func(f *Follower[*corev1.ConfigMap]) {
			f.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "ns/one", Obj: object("a", "9")})
		},
		"a change before it": func(f *Follower[*corev1.ConfigMap]) { f.OnUpdate(object("a", "9"), object("a", "10")) },
		"a list from before": func(f *Follower[*corev1.ConfigMap]) { f.Learn(object("a", "9")) },
		"all of it": func(f *Follower[*corev1.ConfigMap]) {
			f.OnUpdate(object("a", "9"), object("a", "10"))
			f.OnDelete(object("a", "11"))
		},
		"the new one in its place": func(f *Follower[*corev1.ConfigMap]) {
			f.OnUpdate(object("a", "9"), object("b", "12"))
			f.Learn(object("a", "9")) // from a slow list
		},
	} {
		t.Run(name, func(t *testing.T) {
			index := map[string]types.UID{}
			f := NewFollower(func(c *corev1.ConfigMap) { index[c.Name] = c.UID }, func(c *corev1.ConfigMap) { delete(index, c.Name) },
				func(_, _ *corev1.ConfigMap) bool { return true })
			f.OnAdd(object("a", "9"), true)
			f.Learn(object("b", "12"))
			late(f)
			if index["one"] != "b" {
				t.Errorf("the object in the index: got %v, want b", index)
			}
			f.OnAdd(object("b", "12"), false)
			f.OnDelete(object("b", "13"))
			f.Learn(object("b", "12"))
			if len(index)+len(f.newest) != 0 {
				t.Errorf("left of a deleted object: %v in the index, %v as newest, want nothing",
					index, f.newest)
			}
		})
	}
}
