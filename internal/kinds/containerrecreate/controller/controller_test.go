package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// CRR-080, CRR-083, CRR-057, CRR-137: a request takes its pod out of service, lets go of it at its end, and
// tells of it once. The manager dies after every write there is, and goes on.
func TestRequestFromHoldToRelease(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	request, pod := containerrecreatetest.Request(containerrecreatetest.Grace), containerrecreatetest.Pod()
	request.ResourceVersion, pod.ResourceVersion = "", ""
	died, writes := true, 0
	dies := func(err error) error { // every other write is the last thing that a manager does
		writes++
		if died = !died; died && err == nil {
			return context.DeadlineExceeded
		}
		return err
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(request, pod).WithStatusSubresource(request, pod).
		WithIndex(request, unfinishedByPod, indexByPod).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return dies(c.Patch(ctx, o, p, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return dies(c.SubResource(sub).Patch(ctx, o, p, opts...))
		},
	}).Build()
	recorder := events.NewFakeRecorder(10)
	now := containerrecreatetest.Noon.Add(time.Second)
	r := &Reconciler{API: &own.API{Client: c, Live: c, Now: func() time.Time { return now }}, Events: own.NewRecorder(recorder)}
	key := client.ObjectKeyFromObject(request)
	passes := func() {
		t.Helper()
		for range 10 {
			_, _ = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}) // deaths are errors
		}
		for _, object := range []client.Object{request, pod} {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	passes()
	gate := readiness.Condition(pod, pub.KruisePodReady)
	if !slices.Contains(request.Finalizers, pub.RecreateUnreadyAcquired) {
		t.Errorf("finalizers of the request: got %q, want it to contain %q\n%+v\n%+v", request.Finalizers,
			pub.RecreateUnreadyAcquired, gate,
			request.Status.Conditions)
	}
	if gate.Status != "False" {
		t.Errorf("status of the gate: got %q, want %q\n%+v\n%+v", gate.Status, "False", gate,
			request.Status.Conditions)
	}
	if !strings.Contains(gate.Message, "shop/restart") {
		t.Errorf("message of the gate: got %q, want it to contain %q\n%+v\n%+v", gate.Message, "shop/restart",
			gate, request.Status.Conditions)
	}
	if len(request.Status.Conditions) != 1 {
		t.Errorf("number of conditions of the request: got %d, want 1\n%+v\n%+v", len(request.Status.Conditions),
			gate, request.Status.Conditions)
	}
	before := writes
	if passes(); writes != before {
		t.Errorf("%d writes at rest", writes-before)
	}
	if got := r.ofPod(t.Context(), pod); len(got) != 1 {
		t.Errorf("CRR-055: number of results: got %d, want 1\n%v", len(got), got)
	} else if got[0].NamespacedName != key {
		t.Errorf("CRR-055: namespaced name of the first result: got %v, want %v\n%v", got[0].NamespacedName, key,
			got)
	}
	containerrecreatetest.Succeeded(request)
	request.Status.Phase, request.Status.CompletionTime = appsv1beta1.ContainerRecreateRequestCompleted, &metav1.Time{Time: now}
	if err := c.Status().Update(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	passes()
	if gate := readiness.Condition(pod, pub.KruisePodReady); len(request.Finalizers) != 0 {
		t.Errorf("number of finalizers of the request: got %d, want 0\n%v\n%v\n%+v", len(request.Finalizers),
			request.Finalizers, request.Labels, gate)
	} else if request.Labels[pub.RecreateActive] != "" {
		t.Errorf("label recreate active of the request: got %q, want %q\n%v\n%v\n%+v",
			request.Labels[pub.RecreateActive], "",
			request.Finalizers, request.Labels, gate)
	} else if gate.Status != "True" {
		t.Errorf("status of the gate: got %q, want %q\n%v\n%v\n%+v", gate.Status, "True", request.Finalizers,
			request.Labels, gate)
	} else if gate.Message != "" {
		t.Errorf("message of the gate: got %q, want %q\n%v\n%v\n%+v", gate.Message, "", request.Finalizers,
			request.Labels, gate)
	}
	if got := r.ofPod(t.Context(), pod); len(got) != 0 {
		t.Errorf("CRR-055: a completed request is woken: %v", got)
	}
	if len(recorder.Events) != 1 {
		t.Errorf("CRR-137: told %d times", len(recorder.Events))
	}
}

// CRR-137, CRR-138: the end of a request is told and counted before the trace of it goes, so that it is not
// lost if the manager dies or the answer does not come; and once, if the write is refused or the cache lags.
func TestEndIsTold(t *testing.T) {
	for name, answer := range map[string]func(write func() error) error{
		"the answer is lost": func(write func() error) error {
			_ = write()
			return context.DeadlineExceeded
		},
		"it is refused": func(func() error) error { return apierrors.NewConflict(schema.GroupResource{}, "restart", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := appsv1beta1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			request, writes := containerrecreatetest.Request(containerrecreatetest.Succeeded), 0
			request.ResourceVersion, request.Status.Phase, request.Status.CompletionTime = "", appsv1beta1.ContainerRecreateRequestCompleted,
				&metav1.Time{Time: containerrecreatetest.Noon}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(request).WithStatusSubresource(request).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if writes++; writes == 1 {
						return answer(func() error { return c.Patch(ctx, o, p, opts...) })
					}
					return c.Patch(ctx, o, p, opts...)
				}}).Build()
			recorder, m := events.NewFakeRecorder(10), newMeters()
			r := &Reconciler{API: &own.API{Client: c, Live: c, Now: func() time.Time { return containerrecreatetest.Noon.Add(time.Second) }},
				Events: own.NewRecorder(recorder), meters: m}
			for range 4 {
				_, _ = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(request)})
			}
			n := testutil.ToFloat64(m.completed.WithLabelValues(string(containerrecreate.Succeeded)))
			if n != 1 {
				t.Errorf("n: got %v, want 1", n)
			}
			if len(recorder.Events) != 1 {
				t.Errorf("number of events of the recorder: got %d, want 1", len(recorder.Events))
			}
			told := 0
			r.told.Range(func(any, any) bool { told++; return true })
			if told > 0 {
				t.Errorf("told: got %d, want 0", told)
			}
			if writes == 0 {
				t.Errorf("writes: got %d, want another value", writes)
			}
		})
	}
}

// CRR-055: which events of pods concern requests.
func TestEventsOfPodsConcernTheirRequests(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing":           {func(*corev1.Pod) {}, false},
		"a label":           {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		"a condition":       {func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"a container":       {containerrecreatetest.Restarted, true},
		"an init container": {func(p *corev1.Pod) { p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "x"}} }, true},
		"deletion":          {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: containerrecreatetest.Noon} }, true},
		"another pod":       {func(p *corev1.Pod) { p.UID = "pod-2" }, true},
	} {
		after := containerrecreatetest.Pod(test.change)
		if got := podEvents.Update(event.UpdateEvent{ObjectOld: containerrecreatetest.Pod(), ObjectNew: after}); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

// CRR-067, CRR-068: the manager's cache is behind: the daemon has completed the request since. Whatever the
// plan is, it is written for the version that it was made from, so nothing changes, and there is another try.
func TestStalePlansAreNotWritten(t *testing.T) {
	for name, change := range map[string]func(*appsv1beta1.ContainerRecreateRequest){
		"the deadline has passed": containerrecreatetest.Deadline,
		"the pod is to be held":   containerrecreatetest.Grace,
		// As a manager sees it that has just taken over: it has not written the finalizer itself.
		"the pod is to be held, by a request that had its finalizer": func(r *appsv1beta1.ContainerRecreateRequest) {
			containerrecreatetest.Grace(r)
			containerrecreatetest.Held(r)
		},
		"no answer": containerrecreatetest.Phase(""),
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1beta1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			request, pod := containerrecreatetest.Request(change), containerrecreatetest.Pod()
			request.ResourceVersion, pod.ResourceVersion = "", ""
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(request, pod).WithStatusSubresource(request, pod).Build()
			stale := &appsv1beta1.ContainerRecreateRequest{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(request), stale); err != nil {
				t.Fatal(err)
			}
			now := stale.DeepCopy()
			if now.Finalizers != nil { // released, and nobody is left to release again
				now.Finalizers = nil
				if err := api.Update(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}
			containerrecreatetest.Succeeded(now)
			containerrecreatetest.Done(now)
			if err := api.Status().Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			lagging := interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
				o client.Object, opts ...client.GetOption) error {
				if r, ok := o.(*appsv1beta1.ContainerRecreateRequest); ok {
					stale.DeepCopyInto(r)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			}})
			late := containerrecreatetest.Noon.Add(time.Hour)
			r := &Reconciler{API: &own.API{Client: lagging, Live: api, Now: func() time.Time { return late }},
				Events: own.NewRecorder(events.NewFakeRecorder(10))}
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(request)})
			if err != nil {
				t.Errorf("unexpected error: %v\n%v", err, result)
			} else if result.RequeueAfter != own.RetrySoon {
				t.Errorf("time to the next pass: got %v, want %v\n%v\n%v", result.RequeueAfter, own.RetrySoon, result,
					err)
			}
			got := &appsv1beta1.ContainerRecreateRequest{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(request), got); err != nil {
				t.Errorf("written: unexpected error: %v\n%+v", err, got.Status)
			} else if got.ResourceVersion != now.ResourceVersion {
				t.Errorf("written: resource version: got %q, want %q\n%v\n%+v", got.ResourceVersion, now.ResourceVersion,
					err, got.Status)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
				t.Errorf("the pod is held: reading the pod: unexpected error: %v\n%+v", err,
					pod.Status.Conditions)
			} else if got := readiness.Condition(pod,
				pub.KruisePodReady).Status; got != "True" {
				t.Errorf("the pod is held: condition about readiness: got %q, want %q\n%v\n%+v", got, "True", err,
					pod.Status.Conditions)
			}
		})
	}
}

// CRR-138: completed requests by result, once each, and how long they took.
func TestCompletedRequestsAreCountedOnce(t *testing.T) {
	m := newMeters()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	request := containerrecreatetest.Request(containerrecreatetest.Succeeded, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.ResourceVersion, r.Status.Phase, r.Status.CompletionTime = "", "Completed",
			&metav1.Time{Time: containerrecreatetest.Noon.Add(5 * time.Second)}
	})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(request).WithStatusSubresource(request).Build()
	r := &Reconciler{API: &own.API{Client: c, Live: c, Now: func() time.Time { return containerrecreatetest.Noon.Add(time.Minute) }},
		Events: own.NewRecorder(events.NewFakeRecorder(10)), meters: m}
	for range 3 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(request)}); err != nil {
			t.Fatal(err)
		}
	}
	want := `
# HELP afloat_container_recreate_requests_completed_total Completed ContainerRecreateRequests, by result.
# TYPE afloat_container_recreate_requests_completed_total counter
afloat_container_recreate_requests_completed_total{result="Succeeded"} 1
`
	if err := testutil.CollectAndCompare(m.completed, strings.NewReader(want)); err != nil {
		t.Errorf("completed requests: %v", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.duration)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	took := families[0].GetMetric()[0].GetHistogram()
	if got := took.GetSampleCount(); got != 1 {
		t.Errorf("number of samples: got %d, want 1\n%v", got, took)
	}
	if got := took.GetSampleSum(); got != 5 {
		t.Errorf("sum of the samples: got %v, want 5\n%v", got, took)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(request), request); apierrors.IsNotFound(err) {
		t.Error("CRR-012: deleted without a TTL")
	}
}
