package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// told records events.
type told []string

func (r *told) Event(about client.Object, eventType, reason, message string) {
	*r = append(*r, fmt.Sprint(about.GetName(), " ", eventType, " ", reason, ": ", message))
}

// A controller keeps what a kind remembers of an object as long as the object is there, and tells the same
// once. When it is gone, all of it is forgotten, and the kind looks after the name.
func TestController(t *testing.T) {
	name := types.NamespacedName{Namespace: "ns", Name: "web"}
	object := func(uid types.UID) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: uid}}
	}
	c := fake.NewClientBuilder().WithObjects(object("u")).Build()
	api := NewAPI(c, c, func(o any) (any, error) { return o, nil }, func() time.Time { return noonish })
	var events told
	var steps []string
	controller := &Controller[*corev1.ConfigMap, int]{API: api, Events: &events,
		Pass: func(_ context.Context, s *Session[*corev1.ConfigMap, int]) (Outcome, error) {
			*s.Kept++
			steps = append(steps, fmt.Sprintf("pass %d over %s %s", *s.Kept, s.Name, s.Object.UID))
			s.Once(corev1.EventTypeNormal, "Told", "it is there")
			return Outcome{}, nil
		},
		Absent: func(_ context.Context, of types.NamespacedName) (Outcome, error) {
			steps = append(steps, "absent "+of.String())
			return Outcome{}, nil
		},
		Forgotten: func(of types.NamespacedName, uid types.UID) {
			steps = append(steps, fmt.Sprintf("forgotten %s %s", of, uid))
		},
	}
	loop := controller.Loop(nil)
	pass := func() {
		t.Helper()
		if _, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	pass()
	if got := controller.NameOf("u"); got != name {
		t.Errorf("the name of the object: got %s, want %s", got, name)
	}
	// Handlers of events ask for any owner, beside the passes.
	if got := controller.NameOf("nobody"); got != (types.NamespacedName{}) || controller.objects.Find("nobody") != nil {
		t.Errorf("the name of an object without a pass: got %s, and something is kept of it; want neither", got)
	}
	api.Own.Created("u", object("made"), noonish)
	if err := c.Delete(t.Context(), object("u")); err != nil {
		t.Fatal(err)
	}
	pass()
	if err := c.Create(t.Context(), object("again")); err != nil {
		t.Fatal(err)
	}
	pass()
	want := []string{"pass 1 over ns/web u", "pass 2 over ns/web u", "forgotten ns/web u", "absent ns/web", "pass 1 over ns/web again"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("what was called (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(told{"web Normal Told: it is there", "web Normal Told: it is there"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if kept, again := controller.Kept("u"), api.Own.Again("u"); kept != nil || again != 0 {
		t.Errorf("of an object that is gone: %v is kept, and a pass is due in %s; want nothing", kept, again)
	}
}

// Own writes that the caches may never show call for a pass, unless this one failed: then the back-off decides,
// for no longer than the kind wants. A stale plan is no failure.
func TestWhenAControllerRequeues(t *testing.T) {
	refused, conflict := errors.New("refused"), apierrors.NewConflict(corev1.Resource("pods"), "a", nil)
	for what, tt := range map[string]struct {
		done        Outcome
		err         error
		created     bool
		retryAtMost time.Duration
		after       time.Duration
		failed      bool
	}{
		"nothing is due":              {},
		"something is due":            {done: Outcome{After: time.Hour}, after: time.Hour},
		"something was created":       {created: true, after: DoubtAfter},
		"created, and due before":     {done: Outcome{After: time.Second}, created: true, after: time.Second},
		"created, and failed":         {created: true, err: refused, failed: true},
		"failed, and soon again":      {err: refused, retryAtMost: time.Minute, after: time.Minute, failed: true},
		"stale":                       {err: fmt.Errorf("patching: %w", conflict), after: RetrySoon},
		"stale, and a failure":        {err: errors.Join(conflict, refused), after: RetrySoon, failed: true},
		"stale, and no failure again": {err: conflict, retryAtMost: time.Millisecond, after: RetrySoon},
	} {
		c := fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}}).Build()
		api := NewAPI(c, c, func(o any) (any, error) { return o, nil }, func() time.Time { return noonish })
		controller := &Controller[*corev1.ConfigMap, struct{}]{API: api, RetryAtMost: tt.retryAtMost,
			Pass: func(_ context.Context, s *Session[*corev1.ConfigMap, struct{}]) (Outcome, error) {
				if tt.created {
					s.Own.Created("u", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "made"}}, noonish)
				}
				return tt.done, tt.err
			}}
		done, err := controller.Run(t.Context(), types.NamespacedName{Namespace: "ns", Name: "web"}, "u")
		if done.After != tt.after {
			t.Errorf("%s: the next pass: comes after %s, want %s", what, done.After, tt.after)
		}
		if (err != nil) != tt.failed {
			t.Errorf("%s: error %v, want one: %t", what, err, tt.failed)
		}
	}
}
