package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority/launchprioritytest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// formers is the ConfigMap that an earlier pod of that name has left.
func formers() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: launchprioritytest.ConfigMap("former", "p_1,p_0").ObjectMeta,
		Data: map[string]string{"p_1": "true", "p_0": "true"}}
}

// ND-139 (part): the ConfigMap of a pod that another has replaced is not taken over for the one that the
// cache still shows: the new one's containers would start by it, and its owner would be gone.
func TestAReplacedPodTakesNoConfigMapOver(t *testing.T) {
	cached := launchprioritytest.Pod([]int{1, 0})
	stale := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
		options ...client.GetOption) error {
		if pod, ok := object.(*corev1.Pod); ok {
			cached.DeepCopyInto(pod)
			return nil
		}
		return c.Get(ctx, key, object, options...)
	}}
	for name, replaced := range map[string]bool{"it is still there": false, "another is there": true} {
		live := cached.DeepCopy()
		if replaced {
			live.UID = "new"
		}
		r, server, _ := onServer(stale, live, formers())
		before := barrierOn(t, server)
		result, err := r.Reconcile(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		after := barrierOn(t, server)
		if diff := cmp.Diff(before, after); (diff == "") != replaced {
			t.Errorf("%s: diff == \"\": got %t, want %t\n%s", name, diff == "", replaced, result.RequeueAfter)
		}
		if (result.RequeueAfter == own.RetrySoon) != replaced {
			t.Errorf("%s: result.RequeueAfter == own.RetrySoon: got %t, want %t\n%s", name, result.RequeueAfter == own.RetrySoon, replaced,
				result.RequeueAfter)
		}
	}
}

// A write that the server refuses is an error or a reason to look again, and never passes for done; what
// became of one without an answer is looked up, and a refusal is certain.
func TestWritesThatFail(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, tt := range map[string]struct {
		err     error
		again   bool
		failed  string
		pending bool
	}{
		"a conflict":             {apierrors.NewConflict(resource, "p-barrier", errors.New("changed")), true, "", false},
		"a request that is bad":  {apierrors.NewBadRequest("why"), false, "why", false},
		"an error of the server": {apierrors.NewInternalError(errors.New("why")), false, "why", true},
		"no answer":              {errors.New("cut off"), false, "cut off", true},
		"none":                   {nil, false, "", false},
	} {
		fails := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			options ...client.PatchOption) error {
			if tt.err != nil {
				return tt.err
			}
			return c.Patch(ctx, o, p, options...)
		}}
		r, _, _ := onServer(fails, launchprioritytest.Pod([]int{1, 0}), formers())
		result, err := r.Reconcile(t.Context(), request)
		if tt.failed == "" && err != nil || tt.failed != "" && (err == nil || !strings.Contains(err.Error(), tt.failed)) ||
			(result.RequeueAfter == own.RetrySoon) != tt.again {
			t.Errorf("%s: %v, %v", name, result, err)
		}
		unsure := false
		r.Own.Live = interceptor.NewClient(r.Live.(client.WithWatch), interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch,
			_ client.ObjectKey, o client.Object, _ ...client.GetOption) error { //nolint:forcetypeassert // fakes watch
			unsure = unsure || o.GetObjectKind().GroupVersionKind().Kind == "ConfigMap"
			return errors.New("asked")
		}})
		_ = r.Own.Settle(t.Context(), ownerOf(request.NamespacedName), r.Now())
		if unsure != tt.pending {
			t.Errorf("%s: in doubt %v", name, unsure)
		}
	}
}
