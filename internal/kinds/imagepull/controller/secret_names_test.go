package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
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
// request for such names, and returns an error that is not "not found". Either admission refuses the job, or it goes on
// without that secret, as it does without one that does not exist (IMG-116): it does not hang for ever, beyond its
// deadline (IMG-093), without pulling anything.
func TestAPullSecretWhoseNameIsNone(t *testing.T) {
	for _, name := range []string{"", "shop/login"} {
		job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.ResourceVersion, j.Spec.PullSecrets = "", []string{name}
			j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(600))
		})
		if imagepull.CheckJob(job, nil) != nil {
			continue
		}
		node := imagepulltest.Blank("n")
		node.ResourceVersion = ""
		c := interceptor.NewClient(fakeClient(t, job, node).(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if _, secret := object.(*corev1.Secret); secret { // as rest.Request.Name
					if key.Name == "" {
						return errors.New("resource name may not be empty")
					}
					if wrong := path.IsValidPathSegmentName(key.Name); len(wrong) > 0 {
						return fmt.Errorf("invalid resource name %q: %v", key.Name, wrong)
					}
				}
				return c.Get(ctx, key, object, opts...)
			}})
		now := imagepulltest.Noon
		r := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return now }), Events: own.NewRecorder(&told{}),
			Secrets: secretsOn(c), Random: func() float64 { return 0 }}
		loop := r.controller().Loop(nil)
		var last error
		for range 60 {
			_, last = loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
			now = now.Add(time.Minute)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
			t.Fatal(err)
		}
		if job.Status.CompletionTime.IsZero() {
			t.Errorf("pull secret %q: an hour later the job, whose deadline is 10 minutes, has not ended: message %q, error of the last pass: %v",
				name, job.Status.Message, last)
		}
	}
}
