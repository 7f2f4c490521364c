package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	build "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/resourcedistributiontest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

var team = map[string]string{"team": "x"}

// spread is a world with namespaces a and b of the team, c of none, and a ResourceDistribution to the team
// and to namespace later.
func spread(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 1)
	w.space("a", team)
	w.space("b", team)
	w.space("c", nil)
	w.put(build.Distribution("a", build.Document(w.document("1")), build.Labelled("team", "x"), build.To("later")))
	w.quiet()
	return w
}

// has fails unless the namespaces have copies with these contents.
func (w *world) has(want string) {
	w.t.Helper()
	var got []string
	for _, space := range []string{"a", "b", "c", "later"} {
		got = append(got, w.value(space))
	}
	if text := strings.Join(got, ","); text != want {
		w.t.Errorf("copies are %s, want %s\n%s", text, want, w.describe())
	}
}

// says fails unless the status has these counters and failures.
func (w *world) says(want string) {
	w.t.Helper()
	status := w.rd("a").Status
	got := fmt.Sprintf("%d/%d/%d", status.Desired, status.Succeeded, status.Failed)
	for _, c := range status.Conditions {
		if c.Status == corev1.ConditionTrue {
			got += fmt.Sprintf(" %s%v", c.Type, c.FailedNamespaces)
		}
	}
	if got != want {
		w.t.Errorf("status is %s, want %s", got, want)
	}
}

// RD-001, RD-002, RD-056, RD-080, RD-D3, RD-D7: copies come, are restored, follow the spec and the
// namespaces, and go, by events alone: no time passes but what batches statuses.
func TestCopiesFollow(t *testing.T) {
	w := spread(t)
	w.has("1,1,,")
	w.says("3/2/1 NamespaceNotExists[later]")
	step := func(name, copies, status string, do func()) {
		t.Helper()
		do()
		w.quiet()
		w.has(copies)
		w.says(status)
		if t.Failed() {
			t.Fatalf("the step %q failed", name)
		}
	}
	step("a namespace comes", "1,1,,1", "3/3/0", func() { w.space("later", nil) })
	step("a label comes", "1,1,1,1", "4/4/0", func() {
		w.Change(simulation.Key{Kind: "Namespace", Name: "c"}, func(o client.Object) { o.SetLabels(team) })
	})
	step("a label goes", "1,1,,1", "3/3/0", func() {
		w.Change(simulation.Key{Kind: "Namespace", Name: "c"}, func(o client.Object) { o.SetLabels(nil) })
	})
	step("a copy is changed", "1,1,,1", "3/3/0", func() {
		w.Change(w.key("a"), func(o client.Object) { o.SetLabels(nil) })
	})
	if w.Get(w.key("a")).GetLabels()["l"] != "1" {
		t.Error("RD-D1: labels are not restored")
	}
	step("a copy is deleted", "1,1,,1", "3/3/0", func() { w.EndGracefully(w.key("b")) })
	step("the content changes", "2,2,,2", "3/3/0", func() {
		w.put(build.Distribution("a", build.Document(w.document("2")), build.Labelled("team", "x"), build.To("later")))
	})
	step("a copy loses its owner (RD-074)", "2,2,,2", "3/2/1 ConflictOccurred[a]", func() {
		w.Change(w.key("a"), func(o client.Object) { o.SetOwnerReferences(nil) })
	})
	step("the conflict goes (RD-D3)", "2,2,,2", "3/3/0", func() { w.EndGracefully(w.key("a")) })
	if metav1.GetControllerOf(w.Get(w.key("a"))) == nil {
		t.Error("the copy in a is nobody's")
	}
	step("a namespace begins to end, and is gone (RD-D7)", "2,,,2", "2/2/0", func() { w.EndGracefully(simulation.Key{Kind: "Namespace", Name: "b"}) })
	step("targets change", "2,,2,", "2/2/0", func() {
		w.put(build.Distribution("a", build.Document(w.document("2")), build.To("c", "a"), build.Not("later")))
	})
	w.Remove(simulation.Key{Kind: resourcedistribution.Name, Name: "a"})
	w.quiet()
	w.has(",,,")
	n := w.r.watches.count()
	if n != 0 {
		t.Errorf("number of watches: got %d, want 0", n)
	}
	if len(w.r.distributions) != 0 {
		t.Errorf("number of distributions: got %d, want 0", len(w.r.distributions))
	}
}

// RD-059, RD-071 (part): while a ResourceDistribution is being deleted its copies are left to the garbage
// collector, also if the cache does not show that it is; and no finalizer is put on it.
func TestNothingIsDoneForWhatGoes(t *testing.T) {
	for _, shown := range []bool{true, false} {
		w := spread(t)
		key := simulation.Key{Kind: resourcedistribution.Name, Name: "a"}
		if len(w.Get(key).GetFinalizers()) != 0 {
			t.Error("it has finalizers")
		}
		before := w.Get(key)
		w.Change(key, func(o client.Object) { o.SetFinalizers([]string{"foregroundDeletion"}) })
		w.EndGracefully(key)
		writes := len(w.Writes)
		w.EndGracefully(w.key("a"))
		w.Events(100)
		if !shown {
			w.Show(key, before)
		}
		for range 5 {
			w.Queue.Add()
			w.Manage()
		}
		if len(w.Writes) != writes {
			t.Errorf("number of writes: got %d, want %d; shown %v: %v", len(w.Writes), writes, shown, w.Writes[writes:])
		}
		if got := w.value("a"); got != "" {
			t.Errorf(`value of a: got %q, want %q; shown %v: %v`, got, "", shown, w.Writes[writes:])
		}
	}
}

// RD-058, RD-D5: what cannot be changed is made anew, if it is the own copy.
func TestCopiesThatCannotBeChangedAreMadeAnew(t *testing.T) {
	w := spread(t)
	uid := w.Get(w.key("a")).GetUID()
	w.Change(w.key("a"), func(o client.Object) {
		switch o := o.(type) {
		case *corev1.Secret:
			o.Data, o.Immutable = map[string][]byte{"key": []byte("stuck")}, new(true)
		case *corev1.ConfigMap:
			o.Data, o.Immutable = map[string]string{"key": "stuck"}, new(true)
		}
	})
	w.quiet()
	w.has("1,1,,")
	if w.Get(w.key("a")).GetUID() == uid {
		t.Error("it is the same object")
	}
}

// RD-073: of two that want the same, the first to create owns, and the other one tells of it until that goes.
func TestTwoOfTheSame(t *testing.T) {
	w := spread(t)
	w.put(build.Distribution("rival", build.Document(w.document("2")), build.To("a", "c")))
	w.quiet()
	w.has("1,1,2,")
	if s := w.rd("rival").Status; s.Succeeded != 1 {
		t.Errorf("succeeded: got %d, want 1\n%+v", s.Succeeded, s)
	} else if s.Failed != 1 {
		t.Errorf("failed: got %d, want 1\n%+v", s.Failed, s)
	} else if !slices.Equal(s.Conditions[4].FailedNamespaces, []string{"a"}) {
		t.Errorf("failed namespaces of the fifth condition: got %q, want %q\n%+v", s.Conditions[4].FailedNamespaces, []string{"a"}, s)
	}
	if n := w.r.watches.count(); n != 1 {
		t.Errorf("%d watches of one name", n)
	}
	w.Remove(simulation.Key{Kind: resourcedistribution.Name, Name: "a"})
	w.settle()
	w.has("2,,2,")
}

// RD-081: what fails in one namespace is tried again later each time, and does not hold up others; conflicts
// and missing namespaces wait for events.
func TestFailuresAreRetried(t *testing.T) {
	w := spread(t)
	refused := true
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key == w.key("c") && refused {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "login", errors.New("quota"))
		}
		return merge(r)
	}
	tries := func() (n int) { return len(w.r.all()[0].failures) }
	w.Change(simulation.Key{Kind: "Namespace", Name: "c"}, func(o client.Object) { o.SetLabels(team) })
	w.Queue.Add()
	w.Events(100)
	w.Manage()
	if tries() != 1 {
		t.Error("nothing is held back")
	}
	w.quiet()
	w.says("4/2/2 CreateResourceFailed[c] NamespaceNotExists[later]")
	w.EndGracefully(w.key("a")) // it does not wait for c
	w.Events(100)
	w.Manage()
	if w.value("a") != "1" {
		t.Error("another namespace has to wait")
	}
	refused = false
	w.settle()
	w.says("4/3/1 NamespaceNotExists[later]")
	if due := w.Queue.Due(); !due.IsZero() {
		t.Errorf("a missing namespace is looked for again at %s", due)
	}
}

// RD-057: an update is of the version that was read; if that is old, it is refused, the object is read, and
// what is decided then is done.
func TestUpdatesAreOfOneVersion(t *testing.T) {
	w := spread(t)
	before := w.Get(w.key("a"))
	sent := 0
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "patch" && r.Key == w.key("a") {
			if sent++; sent == 1 { // somebody is faster
				w.Change(w.key("a"), func(o client.Object) { o.SetLabels(map[string]string{"theirs": "kept"}) })
			}
		}
		return merge(r)
	}
	w.Change(w.key("a"), func(o client.Object) { o.SetLabels(nil) })
	w.quiet()
	after := w.Get(w.key("a"))
	if sent != 2 {
		t.Errorf("sent: got %d, want 2; %d patches, %v", sent, sent, after.GetLabels())
	}
	if after.GetLabels()["theirs"] != "kept" {
		t.Errorf(`label theirs: got %q, want %q; %d patches, %v`, after.GetLabels()["theirs"], "kept", sent,
			after.GetLabels())
	}
	if after.GetLabels()["l"] != "1" {
		t.Errorf(`label l: got %q, want %q; %d patches, %v`, after.GetLabels()["l"], "1", sent, after.GetLabels())
	}
	if after.GetUID() != before.GetUID() {
		t.Errorf("UID: got %q, want %q; %d patches, %v", after.GetUID(), before.GetUID(), sent, after.GetLabels())
	}
}

// RD-051: batches are of 1, 2, 4 and so on, each namespace is attempted in each round, and errors do not stop
// the rest.
func TestCopiesComeInGrowingBatches(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 20 {
		w.space(fmt.Sprintf("n%02d", i), team)
	}
	w.put(build.Distribution("a", build.Document(w.document("1")), build.Labelled("team", "x")))
	tried, batches := map[string]int{}, map[int]int{}
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" {
			tried[r.Key.Name]++
			batches[w.r.all()[0].batch]++
			if len(tried)%3 == 1 {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "login", errors.New("quota"))
			}
		}
		return merge(r)
	}
	w.Events(100)
	w.Manage()
	w.Manage() // the list is there
	if fmt.Sprint(batches) != "map[1:1 2:2 4:4 8:8 16:5]" {
		t.Errorf("batches: got %q, want %q", fmt.Sprint(batches), "map[1:1 2:2 4:4 8:8 16:5]")
	}
	if len(tried) != 20 {
		t.Errorf("number tried: got %d, want 20", len(tried))
	}
}

// A user who deletes a copy again and again gets it back at once a few times, and then later each time;
// copies in other namespaces do not wait.
func TestACopyThatIsDeletedAgainAndAgainComesBackLater(t *testing.T) {
	w := spread(t)
	back := 0
	for range 50 {
		if w.Get(w.key("a")) != nil {
			back++
			w.EndGracefully(w.key("a"))
		}
		w.Pass(100 * time.Millisecond)
		w.Events(100)
		w.Queue.Add()
		w.Manage()
	}
	if back < freeRepairs {
		t.Errorf("back: got %d, want at least %d", back, freeRepairs)
	}
	if back > 2*freeRepairs {
		t.Errorf("back: got %d, want at most %d", back, 2*freeRepairs)
	}
	w.EndGracefully(w.key("b"))
	w.Events(100)
	w.Manage()
	if w.value("b") != "1" {
		t.Error("b waits for a")
	}
	if !strings.Contains(w.describe(), errRestless.Error()) {
		t.Error("nobody is told")
	}
	w.settle()
	w.has("1,1,,")
	if n := len(w.r.all()[0].failures); n != 0 {
		t.Errorf("%d namespaces are remembered for ever", n)
	}
}

// RD-095, RD-097: status changes ask for no pass, statuses are written only when they change, and events tell
// once what is news.
func TestEventsAndStatus(t *testing.T) {
	old, status, spec := &appsv1beta1.ResourceDistribution{}, &appsv1beta1.ResourceDistribution{}, &appsv1beta1.ResourceDistribution{}
	status.Status.Desired, spec.Generation = 3, 2
	if changed(event.UpdateEvent{ObjectOld: old, ObjectNew: status}) {
		t.Error("of changes, the status counts and the spec does not: a change of the status counts: got true, want false")
	}
	if !changed(event.UpdateEvent{ObjectOld: old, ObjectNew: spec}) {
		t.Error("of changes, the status counts and the spec does not: a change of the spec counts: got false, want true")
	}
	w := spread(t)
	w.space("later", nil)
	w.settle()
	w.foreign("c", "")
	w.Change(simulation.Key{Kind: "Namespace", Name: "c"}, func(o client.Object) { o.SetLabels(team) })
	w.settle()
	got := strings.Join(w.told, "\n")
	if strings.Count(got, "Distributed: all 3 namespaces have a copy") != 1 {
		t.Errorf("number of events Distributed: got %d, want 1\n%s",
			strings.Count(got, "Distributed: all 3 namespaces have a copy"), got)
	}
	if strings.Count(got, "Conflict: ConflictOccurred in 1 namespaces, the first is c") != 1 {
		t.Errorf("number of events Conflict: got %d, want 1\n%s",
			strings.Count(got, "Conflict: ConflictOccurred in 1 namespaces, the first is c"), got)
	}
	if strings.Count(got, "DistributeFailed: NamespaceNotExists") != 1 {
		t.Errorf("number of events DistributeFailed: got %d, want 1\n%s",
			strings.Count(got, "DistributeFailed: NamespaceNotExists"), got)
	}
	if len(w.told) != 3 {
		t.Errorf("number told: got %d, want 3\n%s", len(w.told), got)
	}
	writes := len(w.Writes)
	w.start()
	w.settle()
	if len(w.Writes) != writes || len(w.told) > 4 { // a new manager tells once what still fails
		t.Errorf("a new manager wrote %v, want nothing; told %q, want 4 at most", w.Writes[writes:], w.told)
	}
}

// What was stored before it was validated is told, and nothing is done for it, nor to its copies.
func TestWhatCannotBeRead(t *testing.T) {
	w := spread(t)
	for _, change := range []func(*appsv1beta1.ResourceDistribution){
		func(rd *appsv1beta1.ResourceDistribution) { rd.Spec.Resource.Raw = []byte(`{"kind":"Pod"}`) },
		func(rd *appsv1beta1.ResourceDistribution) { build.Labelled("a b", "c")(rd) },
	} {
		rd := build.Distribution("a", build.Document(w.document("3")))
		change(rd)
		w.put(rd)
		w.settle()
		w.has("1,1,,")
		c := w.rd("a").Status.Conditions[0]
		if c.Status != corev1.ConditionTrue {
			t.Errorf("status: got %q, want %q\n%+v", c.Status, corev1.ConditionTrue, c)
		}
		if !strings.HasPrefix(c.Reason, "spec.") {
			t.Errorf("reason: got %q, want it to begin with %q\n%+v", c.Reason, "spec.", c)
		}
		if !strings.Contains(strings.Join(w.told, "\n"), c.Reason) {
			t.Errorf("told: got %q, want it to contain %q\n%+v", strings.Join(w.told, "\n"), c.Reason, c)
		}
	}
	w.put(build.Distribution("a", build.Document(w.document("3")), build.Labelled("team", "x")))
	w.settle()
	w.has("3,3,,")
	w.says("2/2/0")
}

// GetResourceFailed: without a list nothing is written, and the reason is told of every target.
func TestWithoutTheList(t *testing.T) {
	w := newWorld(t, 1)
	w.space("a", team)
	w.blind = errors.New("secrets is forbidden")
	w.put(build.Distribution("a", build.Document(w.document("1")), build.Labelled("team", "x"), build.To("later")))
	w.settle()
	w.says("2/0/2 GetResourceFailed[a later]")
	if c := w.rd("a").Status.Conditions[0]; c.Reason != "secrets is forbidden" {
		t.Errorf("reason: got %q, want %q", c.Reason, "secrets is forbidden")
	}
	w.blind = nil
	for _, c := range w.r.watches.all() {
		w.list(c)
	}
	w.settle()
	w.has("1,,,")
	w.says("2/1/1 NamespaceNotExists[later]")
}

// Watches begin with their first user, and end with the last.
func TestWatchesEndWithTheirLastUser(t *testing.T) {
	synctest.Test(t, watchesEnd)
}

func watchesEnd(t *testing.T) {
	var running atomic.Int32
	w := &watches{changed: func(*copies, string) {}, follow: func(ctx context.Context, _ *copies) {
		running.Add(1)
		context.AfterFunc(ctx, func() { running.Add(-1) })
	}}
	w.start(t.Context())
	of := resourcedistribution.Of{Kind: resourcedistribution.Secret, Name: "s"}
	for range 100 {
		a := w.use(of, "a", &distribution{})
		if b := w.use(of, "b", &distribution{}); a != b {
			t.Fatalf("two watches of one name: a: got %+v, want %+v", a, b)
		}
		if got := len(w.users(a)); got != 2 {
			t.Fatalf("two watches of one name: number of users: got %d, want 2", got)
		}
		w.leave(a, "a")
		w.leave(a, "a")
		if w.count() != 1 {
			t.Fatal("it ends while it is used")
		}
		w.leave(a, "b")
	}
	synctest.Wait()
	if n := running.Load(); n != 0 {
		t.Errorf("watches that run: got %d, want 0", n)
	}
	if n := w.count(); n != 0 {
		t.Errorf("watches that are kept: got %d, want 0", n)
	}
}

// Answers that come late, and lists that are old, do not hide what a watch has told.
func TestVersionsOfCopies(t *testing.T) {
	c := newCopies(resourcedistribution.Of{Kind: resourcedistribution.Secret, Name: "s"}, func(*copies, string) {})
	object := func(version string) *seen {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s", UID: types.UID("u"), ResourceVersion: version}}
		return seenOf(secret)
	}
	is := func(step, want string) {
		t.Helper()
		got := ""
		if copied, _ := c.in("a"); copied != nil {
			got = copied.Version
		}
		if got != want {
			t.Errorf("%s: version %q, want %q", step, got, want)
		}
	}
	_ = c.Replace(nil, "5")
	c.answered("a", object("7").copied)
	is("an own creation", "7")
	_ = c.Replace(nil, "6")
	is("a list from before it", "7")
	_ = c.Add(object("7"))
	_ = c.Delete(object("9"))
	is("deleted by others", "")
	c.answered("a", object("8").copied)
	is("an answer from before that", "")
	c.answered("a", object("11").copied)
	_ = c.Update(object("10"))
	is("an event from before an answer", "11")
	copied, _ := c.in("a")
	c.deleted("a", copied)
	_ = c.Update(object("11"))
	is("an own deletion", "")
	_ = c.Add(object("14"))
	is("another one", "14")
	_ = c.Bookmark("20")
	c.answered("a", object("19").copied)
	is("an answer from before a bookmark", "14")
	_ = c.Replace(nil, "21")
	is("a list without it", "")
}

// One namespace among many, and one copy, cost a look at that one, for each of the distributions that it
// concerns: operations are counted, not time.
func TestWorkForOneNamespace(t *testing.T) {
	const spaces, distributions = 1000, 5
	w := newWorld(t, 2)
	w.BeforeWrite, w.Apart = nil, false
	for i := range spaces {
		w.space(fmt.Sprintf("n%05d", i), team)
	}
	w.CatchUp(0)
	all := &counting{Client: w.r.Client}
	w.r.Client = all
	for i := range distributions {
		raw := w.document("1")
		raw["metadata"] = map[string]any{"name": fmt.Sprint("login", i)}
		w.Store(simulation.Key{Kind: resourcedistribution.Name, Name: fmt.Sprint("rd", i)}, build.Distribution(fmt.Sprint("rd", i), build.Document(raw), build.Labelled("team", "x"), unborn))
	}
	pass := func() {
		for range 200 {
			w.Deliver(1 << 20)
			names := w.names
			w.names = map[string]bool{}
			for name := range names {
				if _, err := w.loop.Reconcile(t.Context(), reconcile.Request("", name)); err != nil {
					t.Fatal(err)
				}
			}
			left := 0
			for _, d := range w.r.all() {
				n, _ := d.left()
				if left += n; n > 0 {
					w.names[d.name] = true
				}
			}
			w.Pass(time.Second)
			if left == 0 && w.Undelivered() == 0 {
				return
			}
		}
		t.Fatal("no end")
	}
	pass()
	if n := len(w.List(w.kind, false)); n != spaces*distributions {
		t.Fatalf("%d copies", n)
	}
	pass()
	for step, do := range map[string]func(){
		"a namespace": func() { w.space("one-more", team) },
		"a copy":      func() { w.EndGracefully(simulation.Key{Kind: w.kind, Name: "n00007/login3"}) },
	} {
		all.gets, all.lists = 0, 0
		writes := len(w.Writes)
		do()
		pass()
		n := map[string]int{"a namespace": distributions, "a copy": 1}[step]
		made := len(w.Writes) - writes
		if all.lists != 0 {
			t.Errorf("%s: lists: got %d, want 0", step, all.lists)
		}
		if all.gets > 12*distributions {
			t.Errorf("%s: reads: got %d, want at most %d", step, all.gets, 12*distributions)
		}
		if made < n {
			t.Errorf("%s: number of new writes: got %d, want at least %d", step, made, n)
		}
		if made > 3*n {
			t.Errorf("%s: number of new writes: got %d, want at most %d", step, made, 3*n)
		}
	}
}

func unborn(rd *appsv1beta1.ResourceDistribution) { rd.UID, rd.Generation = "", 0 }

// counting counts reads of the caches.
type counting struct {
	client.Client
	gets, lists int
}

// Get implements client.Reader.
func (c *counting) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	c.gets++
	return c.Client.Get(ctx, key, into, options...)
}

// List implements client.Reader.
func (c *counting) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.lists++
	return c.Client.List(ctx, into, options...)
}
