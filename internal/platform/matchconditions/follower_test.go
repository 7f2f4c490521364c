package matchconditions

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// following returns a Follower of ConfigMaps, with their UIDs by name as its index.
func following(index map[string]types.UID, live client.Reader) *Follower[*corev1.ConfigMap] {
	return NewFollower(live, Kind[*corev1.ConfigMap]{
		Object: &corev1.ConfigMap{},
		List:   &corev1.ConfigMapList{},
		Set:    func(c *corev1.ConfigMap) { index[c.Name] = c.UID },
		Delete: func(c *corev1.ConfigMap) { delete(index, c.Name) },
	})
}

// Each change that may matter is signalled, and many at once only once; the index gets all of them.
func TestFollower(t *testing.T) {
	index := map[string]types.UID{}
	f := following(index, nil)
	object := func(uid types.UID, generation int64) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: uid, Generation: generation}}
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
		{"added", func() { f.OnAdd(object("1", 1), true) }, true, "1"},
		{"the same", func() { f.OnUpdate(object("1", 1), object("1", 1)) }, false, "1"},
		{"its spec changes, twice", func() {
			f.OnUpdate(object("1", 1), object("1", 2))
			f.OnUpdate(object("1", 2), object("1", 3))
		}, true, "1"},
		{"another of the name", func() { f.OnUpdate(object("1", 3), object("2", 3)) }, true, "2"},
		{"gone while nobody looked", func() { f.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "one", Obj: object("2", 3)}) }, true,
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

// Where the scope depends only on which objects there are, a change of their specs is not signalled.
func TestFollowerOfNames(t *testing.T) {
	index := map[string]types.UID{}
	f := following(index, nil)
	f.kind.NamesOnly = true
	object := func(uid types.UID, generation int64) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: uid, Generation: generation}}
	}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"added", func() { f.OnAdd(object("1", 1), true) }, 1},
		{"its spec changes", func() { f.OnUpdate(object("1", 1), object("1", 2)) }, 0},
		{"another of the name", func() { f.OnUpdate(object("1", 2), object("2", 3)) }, 1},
		{"gone", func() { f.OnDelete(object("2", 3)) }, 1},
	} {
		step.do()
		if got := len(f.changed); got != step.want {
			t.Errorf("%s: %d signals, want %d", step.name, got, step.want)
		}
		for len(f.changed) > 0 {
			<-f.changed
		}
	}
}

// A read that hangs is given up after the kind's time, so that the next pod, which waits for a read of its own,
// is not refused because of it.
func TestLearnWhileAReadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		live := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
				if reads++; reads > 1 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			},
		})
		f := NewFollower(live, Kind[*corev1.ConfigMap]{List: &corev1.ConfigMapList{}, ReadWithin: 2 * time.Second})
		const podTime = 5 * time.Second
		first, second := make(chan error, 1), make(chan error, 1)
		learn := func(answer chan error) {
			ctx, cancel := context.WithTimeout(t.Context(), podTime)
			defer cancel()
			answer <- f.Learn(ctx, "ns")
		}
		go learn(first)
		synctest.Wait()
		go learn(second)
		if err := <-first; err == nil {
			t.Error("the first pod: want an error")
		}
		if err := <-second; err != nil {
			t.Errorf("the second pod: %v", err)
		}
	})
}

// Wait returns an error when its context ends, and nil once all objects are known, or that there are none.
func TestWait(t *testing.T) {
	f := following(map[string]types.UID{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := f.Wait(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("waiting when the context has ended: got %v, want %v", err, context.Canceled)
	}
	if err != nil && !strings.HasPrefix(err.Error(), "ConfigMaps: ") {
		t.Errorf("the error does not begin with the name of the objects: %v", err)
	}
	if f.Synced() {
		t.Error("all objects are known before the kind is followed")
	}
	f.Absent()
	if err := f.Wait(ctx); err != nil {
		t.Errorf("waiting for a kind that is not served: %v", err)
	}
	if !f.Synced() {
		t.Error("not all objects of a kind that is not served are known")
	}
	if len(f.Changed()) != 1 {
		t.Error("it is not signalled that a kind is not served")
	}
}

// Learn reads the objects of the namespace alone, or all of a kind without namespaces, and says that the scope
// may have changed if it finds new ones. A kind that is not served has none; no other error is overlooked.
func TestLearn(t *testing.T) {
	of := func(namespace, name, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: version}}
	}
	broken := errors.New("no answer")
	for name, test := range map[string]struct {
		answer  error
		cluster bool
		want    []string
		err     error
	}{
		"of a namespace":          {want: []string{"here", "newer"}},
		"of the cluster":          {cluster: true, want: []string{"here", "newer", "there"}},
		"unknown to the mapper":   {answer: &meta.NoKindMatchError{}},
		"unknown to the server":   {answer: apierrors.NewNotFound(schema.GroupResource{}, "")},
		"the server does not say": {answer: broken, err: broken},
	} {
		t.Run(name, func(t *testing.T) {
			index := map[string]types.UID{}
			f := following(index, fake.NewClientBuilder().WithObjects(of("a", "here", "1"), of("a", "newer", "1"), of("b", "there", "1")).
				WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					return cmp.Or(test.answer, c.List(ctx, list, options...))
				}}).Build())
			f.kind.Cluster = test.cluster
			if test.err == nil && len(test.want) > 0 {
				f.OnAdd(of("a", "newer", "7"), true)
				<-f.Changed()
			}
			if err := f.Learn(t.Context(), "a"); !errors.Is(err, test.err) {
				t.Errorf("reading: got error %v, want %v", err, test.err)
			}
			if got := slices.Sorted(maps.Keys(index)); !slices.Equal(got, test.want) {
				t.Errorf("known objects: got %v, want %v", got, test.want)
			}
			if got, want := len(f.Changed()), min(len(test.want), 1); got != want {
				t.Errorf("signals: got %d, want %d", got, want)
			}
			if version := f.newest[types.NamespacedName{Namespace: "a", Name: "newer"}].version; test.want != nil && version != "7" {
				t.Errorf("version %s replaced a newer one", version)
			}
		})
	}
}

// An object that was read from the API server counts only if it is newer than that of the informer, and never
// if it was deleted.
func TestANewerVersionCounts(t *testing.T) {
	index := map[string]string{}
	f := following(nil, nil)
	f.kind.Set = func(c *corev1.ConfigMap) { index[c.Name] = c.ResourceVersion }
	f.kind.Delete = func(c *corev1.ConfigMap) { delete(index, c.Name) }
	object := func(uid types.UID, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: uid, ResourceVersion: version}}
	}
	f.OnAdd(object("a", "9"), false)
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
	f.OnAdd(object("a", "10"), false) // read before it was deleted
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
		"a list from before": func(f *Follower[*corev1.ConfigMap]) { f.OnAdd(object("a", "9"), false) },
		"all of it": func(f *Follower[*corev1.ConfigMap]) {
			f.OnUpdate(object("a", "9"), object("a", "10"))
			f.OnDelete(object("a", "11"))
		},
		"the new one in its place": func(f *Follower[*corev1.ConfigMap]) {
			f.OnUpdate(object("a", "9"), object("b", "12"))
			f.OnAdd(object("a", "9"), false) // from a slow list
		},
	} {
		t.Run(name, func(t *testing.T) {
			index := map[string]types.UID{}
			f := following(index, nil)
			f.OnAdd(object("a", "9"), true)
			f.OnAdd(object("b", "12"), false)
			late(f)
			if index["one"] != "b" {
				t.Errorf("the object in the index: got %v, want b", index)
			}
			f.OnAdd(object("b", "12"), false)
			f.OnDelete(object("b", "13"))
			f.OnAdd(object("b", "12"), false)
			if len(index)+len(f.newest) != 0 {
				t.Errorf("left of a deleted object: %v in the index, %v as newest, want nothing",
					index, f.newest)
			}
		})
	}
}
