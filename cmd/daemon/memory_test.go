package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/racetest"
)

// hostile is a pod of somebody who wants the memory of the daemon.
func hostile(n int) *corev1.Pod {
	large := strings.Repeat("x", 300<<10)
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: fmt.Sprint("p", n), UID: types.UID(fmt.Sprint("u", n)), ResourceVersion: "1"},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "a", Image: "i"}}}}
	switch n % 6 {
	case 0:
		pod.Annotations = map[string]string{"a": large}
	case 1:
		pod.Annotations = map[string]string{pub.InPlaceUpdateState: large}
	case 2:
		pod.Spec.Containers[0].Image = large
	case 3:
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.labels['v']"}}}, {Name: "V", Value: large}}
	default:
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{large}}}}
	}
	return pod
}

// asked is a request for such a pod, as it could be without bounds.
func asked(n int) *appsv1beta1.ContainerRecreateRequest {
	large := strings.Repeat("x", 100<<10)
	return &appsv1beta1.ContainerRecreateRequest{TypeMeta: metav1.TypeMeta{APIVersion: appsv1beta1.GroupVersion.String(), Kind: "ContainerRecreateRequest"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: fmt.Sprint("r", n), UID: types.UID(fmt.Sprint("r", n)), ResourceVersion: "1",
			Labels: map[string]string{pub.RecreateActive: "true", pub.RecreateNodeName: "node"}, Annotations: map[string]string{"a": large}},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: fmt.Sprint("p", n), Containers: []appsv1beta1.ContainerRecreateRequestContainer{
			{Name: "a", PreStop: &appsv1beta1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{large}}}}}}}
}

// stream answers a watch that begins with all there is, as API servers do.
func stream[T any](n int, object func(int) T, last T, mark func(T)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		event := func(of string, object any) { _ = out.Encode(map[string]any{"type": of, "object": object}) }
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			for i := range n {
				event("ADDED", object(i))
			}
			mark(last)
			event("BOOKMARK", last)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// ND-057: 110 pods of somebody who wants the daemon of a node killed, with a request for each, take no more
// of its memory than those of anybody.
func TestHostilePodsTakeLittleMemory(t *testing.T) {
	racetest.SkipAlone(t) // it weighs memory, which the race detector multiplies
	end := map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/pods", stream(110, hostile, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}, func(p *corev1.Pod) {
		p.Annotations, p.ResourceVersion = end, "9"
	}))
	mux.HandleFunc("/apis/apps.kruise.io/v1beta1/containerrecreaterequests", stream(110, asked,
		&appsv1beta1.ContainerRecreateRequest{TypeMeta: asked(0).TypeMeta}, func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Annotations, r.ResourceVersion = end, "9"
		}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)

	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, appsv1beta1.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	options := cacheOptions("node")
	options.Scheme, options.Mapper = scheme, mapper()
	c, err := cache.New(&rest.Config{Host: server.URL}, options)
	if err != nil {
		t.Fatal(err)
	}
	used := func() int {
		goruntime.GC()
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := used()
	go func() { _ = c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("it does not start")
	}
	pods, requests := &corev1.PodList{}, &appsv1beta1.ContainerRecreateRequestList{}
	for _, list := range []client.ObjectList{pods, requests} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(pods.Items); n != 110 {
		t.Fatalf("pods: got %d, want 110", n)
	}
	if n := len(requests.Items); n != 110 {
		t.Fatalf("requests: got %d, want 110", n)
	}
	if kept := used() - before; kept > 8<<20 {
		t.Errorf("%d KiB are kept of them", kept>>10)
	}
	goruntime.KeepAlive(c)
}
