package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/podfeatures/readinessgate"
)

func gated(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: pub.KruisePodReady}}}}
	if change != nil {
		change(pod)
	}
	return pod
}

// CRR-087: every pod with the gate gets the condition once, and nothing else is written.
func TestGateIsOpenedOnce(t *testing.T) {
	yes := true
	cases := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"the gate and no condition": {gated(nil), true},
		"no gate":                   {gated(func(p *corev1.Pod) { p.Spec.ReadinessGates = nil }), false},
		"another gate":              {gated(func(p *corev1.Pod) { p.Spec.ReadinessGates[0].ConditionType = "Other" }), false},
		"being deleted":             {gated(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), false},
		"finished":                  {gated(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), false},
		"held already": {gated(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: pub.KruisePodReady, Status: corev1.ConditionFalse}}
		}), false},
		"of a CloneSet": {gated(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Controller: &yes}}
		}), false},
		"of a StatefulSet": {gated(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Controller: &yes}}
		}), false},
		"of a StatefulSet of Kubernetes": {gated(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: &yes}}
		}), true},
		"of a DaemonSet": {gated(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "DaemonSet", Controller: &yes}}
		}), false},
		"of another kind of ours": {gated(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "BroadcastJob", Controller: &yes}}
		}), true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := readinessgate.Plan(test.pod, time.Unix(100, 0)) != nil; got != test.want {
				t.Errorf("a patch: %v", got)
			}
		})
	}
	pod := gated(nil)
	c := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	r := &Reconciler{Client: c, Now: func() time.Time { return time.Unix(100, 0) }}
	key := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
	for range 2 {
		if _, err := r.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), key.NamespacedName, pod); err != nil {
		t.Fatal(err)
	}
	if got := readiness.Condition(pod, pub.KruisePodReady); got == nil {
		t.Error("readiness.Condition(pod, pub.KruisePodReady): got nil, want a value")
	} else if got.Status != corev1.ConditionTrue {
		t.Errorf("status: got %q, want %q\n%+v", got.Status, corev1.ConditionTrue, got)
	} else if got.Message != "" {
		t.Errorf("message: got %q, want %q\n%+v", got.Message, "", got)
	}
}

// A pod whose gate could not be opened for hours is opened within a minute once it can: no event tells.
func TestAGateWaitsAMinuteAtMost(t *testing.T) {
	pod, failed := gated(nil), errors.New("no answer")
	c := fake.NewClientBuilder().WithObjects(pod).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
			...client.SubResourcePatchOption) error {
			return failed
		},
	}).Build()
	r := &Reconciler{Client: c, Now: time.Now, backOff: pacing.NewBackOff(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour), time.Now)}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
	if _, err := r.Reconcile(t.Context(), request); !errors.Is(err, failed) {
		t.Fatalf("err: got %v, want %v", err, failed)
	}
	if wait := r.backOff.When(request); wait > time.Minute {
		t.Errorf("it is tried again after %s", wait)
	}
}
