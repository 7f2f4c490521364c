package main

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// WS-152: the refused creation of a pod is passed on, for every form in which the pod is sent; nothing else
// is.
func TestRefusedPodsArePassedOn(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("exceeded quota"))
	document := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "p", "namespace": "d"}}}
	for name, test := range map[string]struct {
		object client.Object
		err    error
		told   bool
	}{
		"a pod":             {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p"}}, forbidden, true},
		"its document":      {document, forbidden, true},
		"a claim":           {&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p"}}, forbidden, false},
		"one that may come": {document, apierrors.NewTimeoutError("no answer", 1), false},
		"one that comes":    {document, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			told := false
			refused := func(_ context.Context, pod client.Object) { told = pod.GetName() == "p" }
			c := &creations{Client: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return test.err },
			}).Build()}
			if err := c.Create(t.Context(), test.object); !errors.Is(err, test.err) {
				t.Errorf("before somebody listens: got %v, want %v", err, test.err)
			}
			if told {
				t.Error("before somebody listens: told")
			}
			c.refused.Store(&refused)
			if err := c.Create(t.Context(), test.object); !errors.Is(err, test.err) {
				t.Errorf("creation: got %v, want %v", err, test.err)
			}
			if told != test.told {
				t.Errorf("told: got %t, want %t", told, test.told)
			}
		})
	}
}
