package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var noonish = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// A pass begins with the newest version of its owner, and with none if that is gone, or another of its name
// has come.
func TestBegin(t *testing.T) {
	name := types.NamespacedName{Namespace: "ns", Name: "owner"}
	object := func(uid types.UID) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: uid}}
	}
	later := func(o client.Object) client.Object { o.SetResourceVersion("1000"); return o }
	for what, tt := range map[string]struct {
		cached, live client.Object
		unsure       bool
		want         bool
	}{
		"it is there":                      {cached: object("u"), live: object("u"), want: true},
		"a lost answer, and it is there":   {cached: object("u"), live: object("u"), unsure: true, want: true},
		"a lost answer, and it is gone":    {cached: object("u"), unsure: true},
		"a lost answer, and it is another": {cached: object("u"), live: later(object("again")), unsure: true},
		"it is gone":                       {},
		"another has come":                 {cached: object("again"), live: object("again")},
	} {
		of := func(o client.Object) client.Client {
			if o == nil {
				return fake.NewClientBuilder().Build()
			}
			return fake.NewClientBuilder().WithObjects(o.DeepCopyObject().(client.Object)).Build() //nolint:forcetypeassert // copies are of the same type
		}
		api := NewAPI(of(tt.cached), of(tt.live), func(o any) (any, error) { return o, nil }, func() time.Time { return noonish })
		if tt.unsure {
			api.Own.Unsure("u", object("u"), noonish)
		}
		s, err := (&Controller[*corev1.ConfigMap, struct{}]{API: api}).Begin(t.Context(), name, "u")
		switch {
		case err != nil:
			t.Errorf("%s: beginning a pass: %v", what, err)
		case (s != nil) != tt.want:
			t.Errorf("%s: the session of a pass: got %v, want one: %t", what, s, tt.want)
		case s != nil && s.Object.UID != "u":
			t.Errorf("%s: the UID of the owner: got %q, want \"u\"", what, s.Object.UID)
		}
		uid, err := UIDs[*corev1.ConfigMap](api)(t.Context(), name)
		if err != nil {
			t.Errorf("%s: looking up the UID: %v", what, err)
		}
		if (uid == "") != (tt.cached == nil) {
			t.Errorf("%s: UID %q; the cache has the owner: %t", what, uid, tt.cached != nil)
		}
	}
}

// A status is written at the end of a pass if it changed and is not to wait; who wrote in between calls for
// another pass.
func TestAStatusAtTheEndOfAPass(t *testing.T) {
	var answer error
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	writes := 0
	c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod).Build(), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
			...client.SubResourcePatchOption) error {
			writes++
			return answer
		}})
	now := noonish
	api := NewAPI(c, c, func(o any) (any, error) { return o, nil }, func() time.Time { return now })
	pace, old, changed := &StatusThrottle{}, &corev1.PodStatus{Message: "a"}, &corev1.PodStatus{Message: "b"}
	expect := func(what string, new *corev1.PodStatus, onlyNumbers bool, after time.Duration, sent int, failed error) {
		t.Helper()
		before := writes
		got, err := pace.Write(t.Context(), api.For("u"), pod, old, new, onlyNumbers)
		if got != after {
			t.Errorf("%s: another pass after %s, want %s", what, got, after)
		}
		if writes-before != sent {
			t.Errorf("%s: %d writes, want %d", what, writes-before, sent)
		}
		if !errors.Is(err, failed) {
			t.Errorf("%s: got error %v, want %v", what, err, failed)
		}
	}
	expect("nothing changed", old, false, 0, 0, nil)
	expect("it changed", changed, true, 0, 1, nil)
	expect("only numbers, again", changed, true, statusEvery, 0, nil)
	answer = ErrStalePlan
	expect("somebody wrote in between", changed, false, RetryAfter, 1, nil)
	answer = errors.New("no")
	now = now.Add(time.Minute)
	expect("it is refused", changed, true, 0, 1, answer)
}
