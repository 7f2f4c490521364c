package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// The template of somebody's chart makes an empty name of a pull secret, or namespace/name. The client library sends no
// request for such names, and returns an error that is not "not found". Admission refuses the job (IMG-110); one that was
// stored before can be changed, and goes on without that secret, as it does without one that does not exist (IMG-116).
// IMG-112: any other error of a secret keeps nodes from getting the job, but does not suspend its deadline (IMG-093).
func TestNoPullSecretSuspendsTheDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		valid    bool
		assigned int
		told     string
	}{
		"":           {false, 1, "it is empty"},
		"shop/login": {false, 1, "it may not contain '/'"},
		"login":      {true, 0, "no answer"},
	} {
		job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.ResourceVersion, j.Spec.PullSecrets = "", []string{name}
			j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(600))
		})
		if err := imagepull.CheckJob(job, nil); (err == nil) != test.valid ||
			err != nil && (!strings.Contains(err.Error(), "spec.pullSecrets") || !strings.Contains(err.Error(), test.told)) {
			t.Errorf("pull secret %q: admission says %v", name, err)
		}
		changed := job.DeepCopy()
		changed.Spec.Parallelism = nil
		if err := imagepull.CheckJob(changed, job); err != nil {
			t.Errorf("pull secret %q of a stored job: an update of something else is refused: %v", name, err)
		}

		node := imagepulltest.Blank("n")
		node.ResourceVersion = ""
		c := interceptor.NewClient(fakeClient(t, job, node).(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if _, secret := object.(*corev1.Secret); secret {
					return errors.New("no answer") // nor any request, if the name is none
				}
				return c.Get(ctx, key, object, opts...)
			}})
		events, now := &told{}, imagepulltest.Noon
		r := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return now }), Events: own.NewRecorder(events),
			Secrets: secretsOn(c), Random: func() float64 { return 0 }}
		loop := r.controller().Loop(nil)
		assigned := 0
		for range 15 {
			_, _ = loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
			now = now.Add(time.Minute)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			assigned = max(assigned, len(node.Spec.Images["app"].Tags))
		}
		if assigned != test.assigned {
			t.Errorf("pull secret %q: nodes that got the job: got %d, want %d", name, assigned, test.assigned)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
			t.Fatal(err)
		}
		if job.Status.CompletionTime.IsZero() {
			t.Errorf("pull secret %q: the job, whose deadline is 10 minutes, has not ended: message %q", name, job.Status.Message)
		}
		if got := strings.Join(events.take(), "\n"); !strings.Contains(got, test.told) {
			t.Errorf("pull secret %q: events: got %q, want them to contain %q", name, got, test.told)
		}
	}
}
