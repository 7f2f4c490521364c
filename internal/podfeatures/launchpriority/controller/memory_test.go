package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority"
	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority/launchprioritytest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// remembers tells whether a write about the pod is remembered.
func remembers(r *Reconciler) bool {
	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", ResourceVersion: "1"}}
	newest, _ := own.Newest(r.Own, ownerOf(request.NamespacedName), before, true)
	return newest != before
}

// A pod lives for long after it has started, and no event of it is looked at then (ND-138 (part)). What was
// written to it is remembered until the cache shows it, not for as long as the pod lives.
func TestACompletedPodIsNotRemembered(t *testing.T) {
	r, server, _ := onServer(interceptor.Funcs{}, launchprioritytest.Pod([]int{1, 0}, launchprioritytest.Running(true, 0)))
	now := time.Unix(100, 0)
	r.Now = func() time.Time { return now }
	result, err := r.Reconcile(t.Context(), request)
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	} else if !remembers(r) {
		t.Fatalf("remembers(r): got false, want true; nothing was written, %v", err)
	}
	pod := &corev1.Pod{}
	if err := server.Get(t.Context(), request.NamespacedName, pod); err != nil {
		t.Fatalf("server.Get(t.Context(), request.NamespacedName, pod): unexpected error: %v", err)
	} else if pod.Annotations[pub.LaunchCompleted] != "true" {
		t.Fatalf("pod.Annotations[pub.LaunchCompleted]: got %q, want %q\n%v", pod.Annotations[pub.LaunchCompleted], "true", err)
	}
	launchprioritytest.Running(true, 0, 1)(pod)
	if err := server.Status().Update(t.Context(), pod); err != nil {
		t.Fatalf("server.Status().Update(t.Context(), pod): unexpected error: %v", err)
	} else if launchpriority.Concerns(pod) {
		t.Fatalf("launchpriority.Concerns(pod): got true, want false\n%v", err)
	}
	for passes := 0; result.RequeueAfter > 0; passes++ {
		if passes == 5 {
			t.Fatal("passes are repeated for ever")
		}
		now = now.Add(result.RequeueAfter)
		if result, err = r.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if remembers(r) {
		t.Error("the whole pod is remembered, and nobody comes back")
	}
}

// ND-144 (part): the answer of a creation is lost, and the ConfigMap that is there is somebody else's, which
// no cache ever shows. The pod is looked at as rarely as any other whose ConfigMap is refused.
func TestSomebodyElsesConfigMapAfterALostAnswer(t *testing.T) {
	foreign := &corev1.ConfigMap{ObjectMeta: launchprioritytest.ConfigMap("u", "").ObjectMeta}
	foreign.OwnerReferences, foreign.Labels = nil, nil
	lost := 1
	r, _, recorder := onServer(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object,
		options ...client.CreateOption) error {
		if lost--; lost >= 0 {
			return apierrors.NewTimeoutError("lost", 1)
		}
		return c.Create(ctx, object, options...)
	}}, launchprioritytest.Pod([]int{1, 0}), foreign)
	now := time.Unix(100, 0)
	r.Now = func() time.Time { return now }
	if _, err := r.Reconcile(t.Context(), request); err == nil {
		t.Fatal("no answer was lost")
	}
	for range 5 {
		result, err := r.Reconcile(t.Context(), request)
		if err != nil {
			t.Errorf("unexpected error: %v; again after %s, %v", err, result.RequeueAfter, err)
		} else if result.RequeueAfter < 30*time.Second {
			t.Errorf("requeue after: got %v, want at least %v; again after %s, %v", result.RequeueAfter, 30*time.Second,
				result.RequeueAfter, err)
		}
		now = now.Add(result.RequeueAfter)
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
}
