package imagepull

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// The API server does not answer for ten seconds (its load balancer fails over) when the pull of a workload's job
// (backoffLimit 1, IMG-190) begins. A failed tag is never tried again (IMG-144), so this must not use up its attempts,
// as a runtime that is away does not.
func TestAPIServerAwayForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := spec(policy(1, 300, 0), "1")
		image := n.Spec.Images["img"]
		image.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "cfg", Name: "one"}}
		n.Spec.Images["img"] = image
		b := newBench(t, 0, n, secret("one", "ann", "docker.io"))
		back := time.Now().Add(10 * time.Second)
		b.puller.secrets = newSecrets(interceptor.NewClient(b.api.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, object client.Object,
				opts ...client.GetOption) error {
				if _, ok := object.(*corev1.Secret); ok && time.Now().Before(back) {
					return errors.New("dial tcp 10.0.0.1:6443: connect: connection refused")
				}
				return c.Get(ctx, name, object, opts...)
			}}), b.puller.clock)
		b.pass()
		b.running.Wait()
		time.Sleep(time.Minute)
		if b.pass(); b.tags() != "1 Succeeded" {
			t.Errorf("tag after an API server that was away for 10 s: got %q, want \"1 Succeeded\"", b.tags())
		}
	})
}

// containerd is restarted (its package is upgraded) in the middle of a pull: no attempt is used up.
func TestRuntimeRestartsInAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(policy(0, 600, 0), "1"))
		away := fmt.Errorf("pulling: %w: connection reset", runtime.ErrUnavailable)
		first := true
		b.store.pull = func(context.Context, string, runtime.Auth) error {
			if first {
				first = false
				return away
			}
			return nil
		}
		b.pass()
		b.running.Wait()
		time.Sleep(time.Minute)
		if b.pass(); b.tags() != "1 Succeeded" {
			t.Errorf("tag whose pull a restart of the runtime broke off: got %q, want \"1 Succeeded\"", b.tags())
		}
	})
}
