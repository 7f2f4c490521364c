package imagepull

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// IMG-130 to IMG-133, IMG-142 to IMG-144: users change the spec, the daemon is restarted, the cache lags,
// writes conflict or time out after they succeeded, pulls fail and hang. Tags that are recorded as finished
// are not pulled again, no more pulls run at once than allowed, every tag ends with the result of its
// version, and then nothing is written.
func TestSimulatedPulls(t *testing.T) {
	simulationtest.Seeds(t, 100, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { simulate(t, rand.New(rand.NewPCG(seed, 0))) })
	})
}

func simulate(t *testing.T, random *rand.Rand) {
	const workers = 2
	b := newBench(t, workers, spec(nil, "0"))
	calm, running := false, atomic.Int32{}
	lag := b.object()
	b.store.pull = func(ctx context.Context, image string, _ runtime.Auth) error {
		if now := running.Add(1); now > workers {
			t.Errorf("pulls at once: got %d, want %d at most", now, workers)
		}
		defer running.Add(-1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(20 * time.Second)):
		}
		if strings.HasSuffix(image, "3") {
			return errors.New("simulated")
		}
		return nil
	}
	cached := interceptor.NewClient(b.api.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			if n, ok := object.(*appsv1beta1.NodeImage); ok {
				lag.DeepCopyInto(n)
				return nil
			}
			return c.Get(ctx, name, object)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, object client.Object, patch client.Patch,
			_ ...client.SubResourcePatchOption) error {
			fault := random.IntN(8)
			if !calm && fault == 0 {
				return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("simulated"))
			}
			before := b.object()
			if err := c.Status().Patch(ctx, object, patch); err != nil {
				return err
			}
			unchanged(t, before, b.object())
			if !calm && fault == 1 {
				return errors.New("timed out after it succeeded")
			}
			return nil
		},
	})
	restart := func() *reconciler {
		return newReconciler(cached, b.api, func() (Images, error) { return b.store, nil },
			Options{Node: "node", Events: b.events, Workers: workers})
	}
	end := func(r *reconciler) {
		r.stop(r.all()...)
		r.running.Wait()
	}
	pass := func(r *reconciler) error {
		for len(b.events.Events) > 50 {
			<-b.events.Events
		}
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}})
		return err
	}
	r := restart()
	for range 60 {
		switch random.IntN(8) {
		case 0:
			now := b.object()
			image := appsv1beta1.ImageSpec{}
			for i := range random.IntN(5) {
				image.Tags = append(image.Tags,
					appsv1beta1.ImageTagSpec{Tag: fmt.Sprint(i), Version: int64(random.IntN(3)), ImagePullPolicy: appsv1beta1.PullAlways})
			}
			now.Spec.Images = map[string]appsv1beta1.ImageSpec{"img": image}
			if err := b.api.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		case 1:
			end(r)
			r = restart()
		case 2, 3:
			time.Sleep(time.Duration(random.IntN(15)) * time.Second)
		case 4, 5:
			lag = b.object()
		default:
			_ = pass(r)
		}
	}
	calm = true
	for range 120 {
		lag = b.object()
		if err := pass(r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
	}
	now := b.object()
	for _, tag := range now.Spec.Images["img"].Tags {
		if s := recorded(now, key{"img", tag.Tag}, tag.Version); !finished(s) {
			t.Errorf("tag %s, version %d: got %+v, want it finished", tag.Tag, tag.Version, s)
		}
	}
	s := now.Status
	if want := len(now.Spec.Images["img"].Tags); int(s.Desired) != want {
		t.Errorf("tags that are desired: got %d, want %d", s.Desired, want)
	}
	if s.Desired != s.Succeeded+s.Failed {
		t.Errorf("tags that have ended: got %d and %d, want %d in all", s.Succeeded, s.Failed, s.Desired)
	}
	if s.Waiting+s.Pulling > 0 {
		t.Errorf("tags that have not ended: got %d waiting, %d pulling, want none", s.Waiting, s.Pulling)
	}
	if len(r.tasks) > 0 {
		t.Errorf("tasks that are left: got %d, want 0", len(r.tasks))
	}
	if n := running.Load(); n > 0 {
		t.Errorf("pulls that are left: got %d, want 0", n)
	}
	version := now.ResourceVersion
	lag = now
	for range 3 {
		if err := pass(r); err != nil {
			t.Errorf("a pass at rest: %v", err)
		}
		if is := b.object().ResourceVersion; is != version {
			t.Errorf("written at rest: version %s, want %s", is, version)
		}
	}
	end(r)
}

// unchanged checks that a write does not change a finished tag while the spec has its version.
func unchanged(t *testing.T, before, after *appsv1beta1.NodeImage) {
	t.Helper()
	for _, tag := range before.Spec.Images["img"].Tags {
		k := key{"img", tag.Tag}
		if was := recorded(before, k, tag.Version); finished(was) {
			is := recorded(after, k, tag.Version)
			if is.Phase != was.Phase {
				t.Errorf("phase of the finished tag %s: was %s and is %s", tag.Tag, was.Phase, is.Phase)
			}
			if !is.CompletionTime.Equal(was.CompletionTime) {
				t.Errorf("end of the finished tag %s: was %s and is %s",
					tag.Tag, was.CompletionTime, is.CompletionTime)
			}
		}
	}
	if before.Status.FirstSyncStatus != nil && after.Status.FirstSyncStatus.Message != before.Status.FirstSyncStatus.Message {
		t.Error("firstSyncStatus is written twice")
	}
}
