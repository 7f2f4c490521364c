package restart

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// counting counts the hooks that are run, and calls a function after each.
type counting struct {
	*world
	hooks int
	then  func()
}

func (c *counting) Exec(context.Context, string, []string, time.Duration) error {
	c.hooks++
	c.then()
	return nil
}

// CRR-101 (part), CRR-128 (part): the API server does not answer once, just when the preStop hook has ended. The container is stopped then, or a moment
// later, but its hook, which may have drained it for minutes, is not run a second time for the same request.
func TestAHookRunsOnceAlthoughTheAPIServerDoesNotAnswerAfterIt(t *testing.T) {
	w, now := quiet(t, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.ActiveDeadlineSeconds = new(int64(600))
		r.Spec.Containers = r.Spec.Containers[:1]
		r.Spec.Containers[0].PreStop = &appsv1beta1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/drain"}}}
	})
	away := false
	live, ok := w.r.live.(client.WithWatch)
	if !ok {
		t.Fatal("no watch")
	}
	w.r.live = interceptor.NewClient(live, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
		object client.Object, opts ...client.GetOption) error {
		if away {
			away = false
			return errors.New("etcdserver: leader changed")
		}
		return c.Get(ctx, key, object, opts...)
	}})
	rt := &counting{world: w}
	rt.then = func() { away = rt.hooks == 1 }
	w.r.runtimeOf = func(string) (Runtime, error) { return rt, nil }
	for range 20 {
		_ = w.rounds(1)
		w.kubelet()
		w.manager()
		w.clock.Step(time.Second)
	}
	if s := now().Status; s.CompletionTime == nil || s.ContainerRecreateStates[0].Phase != succeeded {
		t.Errorf("the request: got %+v, want its container restarted", s)
	}
	if rt.hooks != 1 {
		t.Errorf("hooks that were run: got %d, want 1", rt.hooks)
	}
}
