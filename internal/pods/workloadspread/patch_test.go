package workloadspread

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// WS-045, WS-048, WS-094: a patch whose merge keys are no scalars is an error; the library panics.
func TestOddMergeKeys(t *testing.T) {
	const pod = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}`
	for _, patch := range []string{`{"spec":{"containers":[{"name":{}}]}}`, `{"spec":{"containers":[{"name":["c"]}]}}`} {
		if err := tryPatch([]byte(patch)); err == nil || !strings.Contains(err.Error(), "cannot be applied") {
			t.Error(err)
		}
		subset := makeSubset("a", nil, patches(patch))
		if _, err := Inject([]byte(pod), &subset, pub.Placement{Name: "ws", Subset: "a"}); err == nil {
			t.Error("injected")
		}
		if unchanged([]byte(pod), []byte(patch)) {
			t.Error("it cannot be applied")
		}
	}
}

// What panics while a pod is prepared fails that request; those that come later get the lock.
func TestNoPanicKeepsTheLock(t *testing.T) {
	spread := bookedSpread(t, `{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b}]}}`)
	server := newBookServer(t, spread)
	booker := NewBooker(server, server, func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return nil }, nil, logr.Discard(), time.Now)
	func() {
		defer func() { _ = recover() }()
		_, _ = booker.Create(t.Context(), spread, Creation{Key: "one", Version: "v"}, func(Decision) error { panic("odd") })
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if decision, err := booker.Create(ctx, spread, Creation{Key: "two", Version: "v"}, func(Decision) error { return nil }); err != nil || !decision.Booked {
		t.Errorf("%+v, %v", decision, err)
	}
}
