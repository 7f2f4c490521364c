package choose

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// reader is a client that has the objects, and fails if it is broken; asked counts.
func reader(broken bool, asked *int, objects ...client.Object) client.Reader {
	fails := func() error {
		*asked++
		if broken {
			return errors.New("no answer")
		}
		return nil
	}
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err := fails(); err != nil {
				return err
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := fails(); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
}

// SS-082, SS-D16: a namespace that the cache does not have is read live; an error of that is one.
func TestNamespacesAreReadLiveOnAMiss(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}}
	for name, test := range map[string]struct {
		cached, live []client.Object
		broken       bool
		asked        int
		fails        bool
	}{
		"cached":             {[]client.Object{namespace}, nil, false, 0, false},
		"live":               {nil, []client.Object{namespace}, false, 1, false},
		"nowhere":            {nil, nil, false, 1, true},
		"live, but broken":   {nil, []client.Object{namespace}, true, 1, true},
		"cached, and broken": {[]client.Object{namespace}, nil, true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var ofCache, ofLive int
			n := &namespaces{reader(false, &ofCache, test.cached...), reader(test.broken, &ofLive, test.live...)}
			labels, err := n.Labels(t.Context(), "shop")
			if (err != nil) != test.fails {
				t.Errorf("err != nil: got %t, want %t; %v, %v, asked live %d times", err != nil, test.fails, labels, err, ofLive)
			} else if ofLive != test.asked {
				t.Errorf("ofLive: got %d, want %d; %v, %v, asked live %d times", ofLive, test.asked, labels, err, ofLive)
			} else if err == nil && labels["team"] != "a" {
				t.Errorf(`labels["team"]: got %q, want %q; %v, %v, asked live %d times`, labels["team"], "a", labels, err, ofLive)
			}
		})
	}
}

// SS-171, SS-172: revisions come from the install namespace alone, live if the cache has none, and what
// cannot be read is an error.
func TestStoredRevisions(t *testing.T) {
	revision := func(namespace, name, version string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{pub.SidecarSetName: "a", pub.SidecarSetCustomVersion: version}}}
	}
	var cached, live int
	s := &storedRevisions{"kruise-system", reader(false, &cached, revision("kruise-system", "a-1", "v1"), revision("other", "a-9", "v2")),
		reader(false, &live, revision("kruise-system", "a-2", "v2"), revision("other", "a-9", "v2"))}
	got := map[string]string{}
	for _, name := range []string{"a-1", "a-2", "a-9"} {
		if found, err := s.Get(t.Context(), name); err != nil {
			t.Errorf("revision %s: %v", name, err)
		} else if found != nil {
			got[name] = found.Namespace
		}
	}
	for _, version := range []string{"v1", "v2", "v3"} {
		found, err := s.OfVersion(t.Context(), "a", version)
		if err != nil {
			t.Errorf("revisions of version %s: %v", version, err)
		}
		for _, r := range found {
			got[version] += r.Namespace + "/" + r.Name
		}
	}
	want := map[string]string{"a-1": "kruise-system", "a-2": "kruise-system", "v1": "kruise-system/a-1", "v2": "kruise-system/a-2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if live != 4 {
		t.Errorf("asked live %d times", live)
	}
	s.live = reader(true, &live)
	if _, err := s.Get(t.Context(), "a-2"); err == nil {
		t.Error("what cannot be read is taken for what is not there")
	}
	if _, err := s.OfVersion(t.Context(), "a", "v2"); err == nil {
		t.Error("what cannot be read is taken for what is not there")
	}
}

// SS-082, SS-091: events change what is chosen and tell that the scope may have changed, unless only the
// status did; before all SidecarSets are known pods wait, and are refused in the end.
func TestWatchFollowsEvents(t *testing.T) {
	index := &Index{}
	w := &Watch{Selector: NewChooser(index, &world{}, &world{}, nil), Scope: NewScope(index, time.Now), Follower: follow(index, nil)}
	told := func() bool {
		select {
		case <-w.Changed():
			return true
		default:
			return false
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Choose(ctx, labelled("app", "x"), "d"); err == nil {
		t.Error("err: got nil, want an error")
	} else if !strings.Contains(err.Error(), "does not know all objects yet") {
		t.Errorf("err: got %q, want it to contain %q", err.Error(), "does not know all objects yet")
	}
	w.Absent()
	set := selecting("a", matching("app", "x"), nil)
	set.Generation = 1
	changed := set.DeepCopy()
	changed.Generation, changed.Spec.Selector = 2, matching("app", "y")
	counted := changed.DeepCopy()
	counted.Status.MatchedPods = 1
	for _, step := range []struct {
		name string
		do   func()
		told bool
		x, y int
	}{
		{"created", func() { w.OnAdd(set, true) }, true, 1, 0},
		{"changed", func() { w.OnUpdate(set, changed) }, true, 0, 1},
		{"counted", func() { w.OnUpdate(changed, counted) }, false, 0, 1},
		{"something else", func() { w.OnAdd(labelled(), false); w.OnUpdate(set, labelled()); w.OnDelete(labelled()) }, false,
			0, 1},
		{"deleted, seen late", func() { w.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: counted}) }, true, 0, 0},
	} {
		step.do()
		x, errX := w.Choose(t.Context(), labelled("app", "x"), "d")
		y, errY := w.Choose(t.Context(), labelled("app", "y"), "d")
		if got := told(); got != step.told {
			t.Errorf("%s: told(): got %t, want %t\n%d\n%d\n%v\n%v", step.name, got, step.told, len(x), len(y), errX, errY)
		} else if len(x) != step.x {
			t.Errorf("%s: len(x): got %d, want %d\n%d\n%v\n%v", step.name, len(x), step.x, len(y), errX, errY)
		} else if len(y) != step.y {
			t.Errorf("%s: len(y): got %d, want %d\n%d\n%v\n%v", step.name, len(y), step.y, len(x), errX, errY)
		} else if errX != nil {
			t.Errorf("%s: errX: unexpected error: %v\n%d\n%d\n%v", step.name, errX, len(x), len(y), errY)
		} else if errY != nil {
			t.Errorf("%s: errY: unexpected error: %v\n%d\n%d\n%v", step.name, errY, len(x), len(y), errX)
		}
	}
	var _ toolscache.ResourceEventHandler = w
}

// A SidecarSet that the cache does not have yet is chosen once it was read from the API server; what is older
// than what the cache has is not.
func TestLearn(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := appsv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	index := &Index{}
	stored := selecting("a", matching("app", "x"), nil)
	stored.UID = "u"
	w := &Watch{Selector: NewChooser(index, &world{}, &world{}, nil),
		Follower: follow(index, fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build())}
	w.Absent()
	chosen := func(app string) int {
		templates, err := w.Choose(t.Context(), labelled("app", app), "d")
		if err != nil {
			t.Fatal(err)
		}
		return len(templates)
	}
	if chosen("x") != 0 {
		t.Error("chosen before it is known")
	}
	if err := w.Learn(t.Context(), "d"); err != nil {
		t.Errorf(`w.Learn(t.Context(), "d"): unexpected error: %v; %v, %d chosen`, err, err, chosen("x"))
	} else if got := chosen("x"); got != 1 {
		t.Errorf(`chosen("x"): got %d, want 1; %v, %d chosen`, got, err, chosen("x"))
	}
	newer := stored.DeepCopy()
	newer.ResourceVersion, newer.Generation, newer.Spec.Selector = "1000000", 2, matching("app", "y")
	w.OnAdd(newer, false)
	if err := w.Learn(t.Context(), "d"); err != nil {
		t.Errorf(`w.Learn(t.Context(), "d"): unexpected error: %v; %v, %d chosen`, err, err, chosen("y"))
	} else if got := chosen("y"); got != 1 {
		t.Errorf(`chosen("y"): got %d, want 1; %v, %d chosen`, got, err, chosen("y"))
	} else if got := chosen("x"); got != 0 {
		t.Errorf(`chosen("x"): got %d, want 0; %v, %d chosen`, got, err, chosen("y"))
	}
}
