package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// IMG-112, IMG-093: the secret of a job cannot be read for a long time, so that no node gets the job. Its deadline counts nevertheless, and the
// job ends when that is over, whatever the back-off of its errors is by then, which is up to 1000 s by default (--rate-limiter-max-delay).
func TestTheDeadlineDoesNotWaitForTheBackOffOfSecrets(t *testing.T) {
	endsInTime(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, secret := object.(*corev1.Secret); secret {
				return errors.New("no answer")
			}
			return c.Get(ctx, key, object, opts...)
		}}, "login")
}

// IMG-093: as above, while the NodeImage of a node cannot be written, because a webhook of somebody else does not answer.
func TestTheDeadlineDoesNotWaitForTheBackOffOfNodeImages(t *testing.T) {
	refused := 0
	endsInTime(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if object.GetName() == "n" {
				refused++
				return apierrors.NewInternalError(errors.New(`failed calling webhook "x.example.com": no answer`))
			}
			return c.Patch(ctx, object, patch, opts...)
		}})
	if refused == 0 {
		t.Error("nothing was written")
	}
}

// endsInTime runs a job with these secrets and a deadline of 700 s, and requires that it ends within a minute of that.
func endsInTime(t *testing.T, faults interceptor.Funcs, secrets ...string) {
	t.Helper()
	const deadline = 700 * time.Second
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.ResourceVersion, j.Spec.PullSecrets = "", secrets
		j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(deadline / time.Second))
	})
	node := imagepulltest.Blank("n")
	node.ResourceVersion = ""
	c := interceptor.NewClient(fakeClient(t, job, node).(client.WithWatch), faults) //nolint:forcetypeassert // fakes watch
	now := imagepulltest.Noon
	r := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return now }), Events: own.NewRecorder(&told{}),
		Secrets: secretsOn(c), Random: func() float64 { return 0 }}
	// As cmd/manager makes it.
	loop := r.controller().Loop(workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, 1000*time.Second))
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)}
	began := now
	for {
		result, err := loop.Reconcile(t.Context(), request)
		if e := c.Get(t.Context(), request.NamespacedName, job); e != nil {
			t.Fatal(e)
		}
		if !job.Status.CompletionTime.IsZero() || now.Sub(began) > time.Hour {
			break
		}
		// What the queue does.
		if err != nil {
			now = now.Add(loop.BackOff().When(request))
		} else {
			loop.BackOff().Forget(request)
			now = now.Add(max(result.RequeueAfter, time.Millisecond))
		}
	}
	if took := now.Sub(began); took > deadline+time.Minute {
		t.Errorf("a job whose deadline is %s ended after %s: %q", deadline, took, job.Status.Message)
	}
}
