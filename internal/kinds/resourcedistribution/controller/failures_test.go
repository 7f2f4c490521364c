package controller

import (
	"bytes"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	build "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/resourcedistributiontest"
	"github.com/afloat-project/afloat/internal/simulation"
)

var secrets = schema.GroupResource{Resource: "secrets"}

// An answer that there is nothing, which comes after the watch told of an object that was created meanwhile,
// does not hide it.
func TestLateAnswerOfNothing(t *testing.T) {
	w := spread(t)
	creations := 0
	w.Answer = func(r *simulation.Request) error {
		switch {
		case r.Key != w.key("c"):
		case r.Verb == "create" && creations == 0:
			creations++
			return apierrors.NewTimeoutError("lost", 1)
		case r.Verb == "create":
			creations++
		case r.Verb == "get" && w.Get(w.key("c")) == nil: // it is read, then somebody creates one, which the watch tells, and then the answer arrives
			w.foreign("c", "")
			w.Events(100)
			return apierrors.NewNotFound(secrets, "login")
		}
		return merge(r)
	}
	w.Change(simulation.Key{Kind: "Namespace", Name: "c"}, func(o client.Object) { o.SetLabels(team) })
	w.settle()
	w.says("4/2/2 ConflictOccurred[c] NamespaceNotExists[later]")
	if creations != 1 {
		t.Errorf("%d creations of what is there", creations)
	}
}

// A copy that cannot be changed stays until the API server would take another one: what pods need does not go
// for what is refused.
func TestWhatIsRefusedReplacesNothing(t *testing.T) {
	w := spread(t)
	refused := true
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key == w.key("a") && refused {
			return apierrors.NewForbidden(secrets, "login", errors.New("a policy of the namespace"))
		}
		return merge(r)
	}
	w.Change(w.key("a"), func(o client.Object) {
		switch o := o.(type) {
		case *corev1.Secret:
			o.Immutable = new(true)
		case *corev1.ConfigMap:
			o.Immutable = new(true)
		}
	})
	w.Events(100)
	for range 20 {
		w.Pass(10 * time.Second)
		w.Queue.Add()
		w.quiet()
	}
	w.has("1,1,,")
	w.says("3/1/2 UpdateResourceFailed[a] NamespaceNotExists[later]")
	refused = false
	w.settle()
	w.says("3/2/1 NamespaceNotExists[later]")
}

// Without a list, a namespace that comes is told once, and does not keep the passes running.
func TestWithoutTheListThereIsRest(t *testing.T) {
	w := newWorld(t, 1)
	w.space("a", team)
	w.space("b", team)
	w.blind = errors.New("secrets is forbidden")
	w.put(build.Distribution("a", build.Document(w.document("1")), build.Labelled("team", "x")))
	w.settle()
	w.space("c", team)
	w.Remove(simulation.Key{Kind: "Namespace", Name: "b"})
	w.settle()
	w.says("2/0/2 GetResourceFailed[a c]")
	if due := w.Queue.Due(); !due.IsZero() {
		t.Errorf("a pass is due at %s, for nothing", due)
	}
}

// After the cluster's storage was restored from a backup versions are lower than those that are known: a list
// tells how it is.
func TestVersionsGoBack(t *testing.T) {
	w := spread(t)
	c := w.r.watches.all()[0]
	var list []any
	for _, object := range w.List(w.kind, false) {
		old := object.DeepCopyObject().(client.Object)
		old.SetResourceVersion("1")
		if old.GetNamespace() == "a" {
			list = append(list, seenOf(old))
		}
	}
	if err := c.Replace(list, "2"); err != nil {
		t.Fatal(err)
	}
	a, _ := c.in("a")
	b, _ := c.in("b")
	if a == nil {
		t.Errorf("a: got nil, want a value\n%+v", b)
	} else if a.Version != "1" {
		t.Errorf("version: got %q, want %q\n%+v\n%+v", a.Version, "1", a, b)
	} else if b != nil {
		t.Errorf("b: got %+v, want nil\n%+v", b, a)
	}

}

// Namespaces that end while a write in them fails are not remembered for ever.
func TestNamespacesThatEndAreForgotten(t *testing.T) {
	w := spread(t)
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key == w.key("c") {
			return apierrors.NewForbidden(secrets, "login", errors.New("quota"))
		}
		return merge(r)
	}
	space := simulation.Key{Kind: "Namespace", Name: "c"}
	w.Change(space, func(o client.Object) { o.SetLabels(team) })
	w.quiet()
	w.says("4/2/2 CreateResourceFailed[c] NamespaceNotExists[later]")
	w.Remove(space)
	w.settle()
	w.says("3/2/1 NamespaceNotExists[later]")
	if n := len(w.r.all()[0].failures); n != 0 {
		t.Errorf("%d namespaces are remembered", n)
	}
}

// A webhook that makes something else of each write is told as such, the same after each attempt, and
// attempts are ever further apart.
func TestWhatWebhooksChange(t *testing.T) {
	w := spread(t)
	told, writes := map[string]bool{}, 0
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "patch" && r.Key == w.key("a") {
			writes++
			r.Body = bytes.ReplaceAll(r.Body, []byte(`labels/l","value":"1"`), []byte(`labels/l","value":"theirs"`))
		}
		return merge(r)
	}
	w.Change(w.key("a"), func(o client.Object) { o.SetLabels(map[string]string{"l": "2"}) })
	for range 300 {
		w.Events(100)
		w.Queue.Add()
		w.Manage()
		w.Pass(time.Second)
		for _, c := range w.rd("a").Status.Conditions {
			if c.Type == appsv1beta1.ResourceDistributionUpdateResourceFailed && c.Status == corev1.ConditionTrue {
				told[c.Reason] = true
			}
		}
	}
	if len(told) != 1 {
		t.Errorf("told: number told: got %d, want 1\n%v", len(told), told)
	}
	if !told[errStored.Error()] {
		t.Errorf("told: the stored error is told: got false, want true\n%v", told)
	}
	if writes < 4 {
		t.Errorf("writes: got %d, want at least 4", writes)
	}
	if writes > 15 {
		t.Errorf("writes: got %d, want at most 15", writes)
	}
}
