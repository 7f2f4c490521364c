package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// A request whose feature gate was turned off can be deleted, and lets its pod into service unless somebody
// else holds it; what is not being deleted, and kinds that are on, are left alone.
func TestObjectsOfKindsThatAreOffGo(t *testing.T) {
	gate := []corev1.PodReadinessGate{{ConditionType: pub.KruisePodReady}}
	held := func(name string, by ...readiness.Holder) *corev1.Pod {
		text, err := json.Marshal(by)
		if err != nil {
			t.Fatal(err)
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{ReadinessGates: gate},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: pub.KruisePodReady, Status: corev1.ConditionFalse, Message: string(text)}}}}
	}
	mine := func(name string) readiness.Holder {
		return readiness.Holder{UserAgent: pub.RecreateUserAgent, Key: "shop/" + name}
	}
	alone, shared := held("alone", mine("first")), held("shared", mine("second"), readiness.Holder{UserAgent: "other", Key: "k"})
	request := func(name, pod string, deleted bool) *unstructured.Unstructured {
		r := object(group.WithKind("ContainerRecreateRequest"), "shop", name)
		r.SetFinalizers([]string{"example.com/mine", pub.RecreateUnreadyAcquired})
		r.Object["spec"] = map[string]any{"podName": pod}
		if deleted {
			r.SetDeletionTimestamp(&metav1.Time{Time: metav1.Now().Time})
		}
		return r
	}
	first, second, stays := request("first", "alone", true), request("second", "shared", true), request("third", "alone", false)
	job := object(group.WithKind("ImagePullJob"), "shop", "pull")
	job.SetFinalizers([]string{"example.com/mine", pub.PullJobProtection})
	job.SetDeletionTimestamp(&metav1.Time{Time: metav1.Now().Time})
	g, _ := guard(t, interceptor.Funcs{}, first, second, stays, job, alone, shared)
	if err := g.UnholdKinds(t.Context(), []schema.GroupKind{{Group: "apps.kruise.io", Kind: "ContainerRecreateRequest"}}); err != nil {
		t.Fatal(err)
	}
	for o, want := range map[*unstructured.Unstructured]int{first: 1, second: 1, stays: 2, job: 2} {
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Errorf("reading %s: %v", o.GetName(), err)
		}
		if got := o.GetFinalizers(); len(got) != want {
			t.Errorf("finalizers of %s: got %v, want %d", o.GetName(), got, want)
		}
	}
	for pod, want := range map[*corev1.Pod]corev1.ConditionStatus{alone: corev1.ConditionTrue, shared: corev1.ConditionFalse} {
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		c := readiness.Condition(pod, pub.KruisePodReady)
		if c.Status != want {
			t.Errorf("condition of pod %s: got %+v, want %s", pod.Name, c, want)
		}
		if strings.Contains(c.Message, "shop/") {
			t.Errorf("condition of pod %s: got %+v, want it held by no request", pod.Name, c)
		}
	}
}

// An object that a policy keeps as it is does not hold all others, of its kind and of the next ones: these
// could not be deleted either.
func TestAnObjectThatCannotBeChangedHoldsNoOther(t *testing.T) {
	leaving := func(kind, name, finalizer string) *unstructured.Unstructured {
		o := object(group.WithKind(kind), "shop", name)
		o.SetFinalizers([]string{"example.com/mine", finalizer})
		o.SetDeletionTimestamp(&metav1.Time{Time: metav1.Now().Time})
		return o
	}
	kept, next := leaving("ImagePullJob", "kept", pub.PullJobProtection), leaving("ImagePullJob", "next", pub.PullJobProtection)
	request := leaving("ContainerRecreateRequest", "first", pub.RecreateUnreadyAcquired)
	g, _ := guard(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		if o.GetName() == "kept" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "imagepulljobs"}, "kept", errors.New("a policy"))
		}
		return c.Patch(ctx, o, p, options...)
	}}, kept, next, request)
	err := g.UnholdKinds(t.Context(), []schema.GroupKind{{Group: "apps.kruise.io", Kind: "ImagePullJob"}, {Group: "apps.kruise.io", Kind: "ContainerRecreateRequest"}})
	if err == nil {
		t.Error("an object that cannot be changed: no error")
	} else if !strings.Contains(err.Error(), "ImagePullJob.apps.kruise.io shop/kept") {
		t.Errorf("an object that cannot be changed: got error %v, want one that names shop/kept", err)
	}
	for _, o := range []*unstructured.Unstructured{next, request} {
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Errorf("reading %s: %v", o.GetName(), err)
		}
		if got := o.GetFinalizers(); len(got) != 1 {
			t.Errorf("finalizers of %s: got %v, want 1", o.GetName(), got)
		}
	}
}
