package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority/launchprioritytest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}}

// onServer returns a reconciler that sees all of a server with the objects but ConfigMaps without our label,
// and the server.
func onServer(funcs interceptor.Funcs, objects ...client.Object) (*Reconciler, client.WithWatch, *events.FakeRecorder) {
	server := fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).Build()
	recorder := events.NewFakeRecorder(10)
	get := funcs.Get
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
		options ...client.GetOption) error {
		read := c.Get
		if get != nil {
			read = func(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				return get(ctx, c, key, object, options...)
			}
		}
		err := read(ctx, key, object, options...)
		if m, ok := object.(*metav1.PartialObjectMetadata); ok && err == nil && m.Kind == "ConfigMap" &&
			m.Labels[pub.LaunchBarrier] != "true" {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
		}
		return err
	}
	c := interceptor.NewClient(server, funcs)
	return &Reconciler{API: own.NewAPI(c, server, slim.Any, func() time.Time { return time.Unix(100, 0) }),
		Events: own.NewRecorder(recorder)}, server, recorder
}

func barrierOn(t *testing.T, server client.Client) *corev1.ConfigMap {
	t.Helper()
	m := &corev1.ConfigMap{}
	if err := server.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "p-barrier"}, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// ND-136, ND-139, ND-144: what becomes of a ConfigMap that is there already, with our label or without.
func TestConfigMapOfThatName(t *testing.T) {
	had := func(owner types.UID, label bool) *corev1.ConfigMap {
		meta := launchprioritytest.ConfigMap(owner, "p_1,p_0").ObjectMeta
		if !label {
			meta.Labels, meta.Annotations = nil, nil
		}
		return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"p_1": "true", "p_0": "true", "p_unheard": "true"}}
	}
	nobodys := had("u", false)
	nobodys.OwnerReferences = nil
	fresh := map[string]string{"p_1": "true"}
	cases := map[string]struct {
		barrier *corev1.ConfigMap
		want    map[string]string
		event   string
		after   time.Duration
	}{
		"none":                       {nil, fresh, "", 0},
		"an earlier pod's":           {had("former", true), fresh, "", 0},
		"an earlier pod's, no label": {had("former", false), fresh, "", 0},
		"its own, of the reference":  {had("u", false), map[string]string{"p_1": "true", "p_0": "true", "p_unheard": "true"}, "", 0},
		"somebody else's, without label": {nobodys, map[string]string{"p_1": "true", "p_0": "true", "p_unheard": "true"}, "LaunchBlocked",
			30 * time.Second},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{launchprioritytest.Pod([]int{1, 0})}
			if test.barrier != nil {
				objects = append(objects, test.barrier.DeepCopy())
			}
			writes := 0
			count := interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
					err := c.Create(ctx, o, options...)
					if err == nil {
						writes++
					}
					return err
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
					writes++
					return c.Patch(ctx, o, p, options...)
				}}
			r, server, recorder := onServer(count, objects...)
			for range 3 {
				result, err := r.Reconcile(t.Context(), request)
				if err != nil {
					t.Fatalf("unexpected error: %v\n%v", err, result)
				} else if result.RequeueAfter != test.after {
					t.Fatalf("requeue after: got %v, want %v\n%v\n%v", result.RequeueAfter, test.after, result, err)
				}
			}
			got := barrierOn(t, server)
			if diff := cmp.Diff(test.want, got.Data); diff != "" {
				t.Errorf("got.Data (-want +got):\n%s", diff)
			}
			if test.event != "" {
				if event := <-recorder.Events; !strings.Contains(event, test.event) {
					t.Errorf("<-recorder.Events: got %q, want it to contain %q; %s, %d writes, %+v", event, test.event, event, writes, got)
				} else if !strings.Contains(event, "p-barrier") {
					t.Errorf("<-recorder.Events: got %q, want it to contain %q; %s, %d writes, %+v", event, "p-barrier", event, writes, got)
				} else if writes > 0 {
					t.Errorf("writes: got %d, want 0; %s, %d writes, %+v", writes, event, writes, got)
				} else if len(got.OwnerReferences) > 0 {
					t.Errorf("owner references: got %v, want none; %s, %d writes, %+v", got.OwnerReferences, event, writes, got)
				} else if got.Labels != nil {
					t.Errorf("labels: got %v, want nil; %s, %d writes, %+v", got.Labels, event, writes, got)
				}
				return
			}
			if writes != 1 {
				t.Errorf("%d writes", writes)
			}
			owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}
			if diff := cmp.Diff(owner, got.OwnerReferences); diff != "" || got.Labels[pub.LaunchBarrier] != "true" ||
				got.Annotations[pub.LaunchReleased] != "p_1" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// ND-139: while the cache shows a pod that another has replaced, nothing is written that could let containers
// of that one start early.
func TestReplacedPodWritesNothing(t *testing.T) {
	old := launchprioritytest.Pod([]int{1, 0}, launchprioritytest.Running(true, 0))
	for name, live := range map[string]*corev1.Pod{"replaced": launchprioritytest.Pod([]int{1, 0}, func(p *corev1.Pod) { p.UID = "new" }),
		"gone": nil,
		"going": launchprioritytest.Pod([]int{1, 0}, func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"f"}
		})} {
		for _, left := range []*corev1.ConfigMap{nil, {ObjectMeta: launchprioritytest.ConfigMap("another", "p_1").ObjectMeta,
			Data: map[string]string{"p_1": "true"}}} {
			var objects []client.Object
			if live != nil {
				objects = append(objects, live.DeepCopy())
			}
			if left != nil {
				objects = append(objects, left.DeepCopy())
			}
			stale := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
				options ...client.GetOption) error {
				if pod, ok := object.(*corev1.Pod); ok {
					old.DeepCopyInto(pod)
					return nil
				}
				return c.Get(ctx, key, object, options...)
			}}
			r, server, _ := onServer(stale, objects...)
			if result, err := r.Reconcile(t.Context(), request); err != nil {
				t.Errorf("%s: unexpected error: %v\n%v", name, err, result)
			} else if result.RequeueAfter == 0 {
				t.Errorf("%s: result.RequeueAfter: got %v, want another value\n%v\n%v", name, result.RequeueAfter, result, err)
			}
			var all corev1.ConfigMapList
			if err := server.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			if left == nil && len(all.Items) > 0 {
				t.Errorf("%s: all.Items: got %v, want none", name, all.Items)
			} else if left != nil && len(all.Items[0].Data) != 1 {
				t.Errorf("%s: len(all.Items[0].Data): got %d, want 1\n%+v", name, len(all.Items[0].Data), all.Items)
			}
		}
	}
}

// A refusal of the server is an event of the pod, and a namespace that goes is none.
func TestRefusedConfigMaps(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "p-barrier", context.DeadlineExceeded)
	going := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "p-barrier", context.Canceled)
	going.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		err   error
		event bool
	}{"a quota": {quota, true}, "a namespace that goes": {going, false}} {
		r, _, recorder := onServer(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object,
			...client.CreateOption) error {
			return test.err
		}}, launchprioritytest.Pod([]int{1, 0}))
		_, err := r.Reconcile(t.Context(), request)
		if (err != nil) != test.event {
			t.Errorf("%s: err != nil: got %t, want %t; %v, %d events", name, err != nil, test.event, err, len(recorder.Events))
		} else if len(recorder.Events) > 0 != test.event {
			t.Errorf("%s: len(recorder.Events) > 0: got %t, want %t; %v, %d events", name, len(recorder.Events) > 0, test.event, err,
				len(recorder.Events))
		}
	}
}

// TestAPodWaitsForItsConfigMapAMinuteAtMost: a quota was used up for hours, so that the back-off is long.
// When there is room again no event tells; the pod starts within a minute.
func TestAPodWaitsForItsConfigMapAMinuteAtMost(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "p-barrier", context.DeadlineExceeded)
	r, _, _ := onServer(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object,
		...client.CreateOption) error {
		return quota
	}}, launchprioritytest.Pod([]int{1, 0}))
	r.backOff = pacing.NewBackOff(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour), time.Now)
	if _, err := r.Reconcile(t.Context(), request); err == nil {
		t.Fatal("no quota")
	}
	if wait := r.backOff.When(request); wait > time.Minute {
		t.Errorf("it is tried again after %s", wait)
	}
}

// TestActionsAreCountedWhenTheyAreDone: afloat_launch_barrier_actions_total counts what was done, and a
// ConfigMap of somebody else once, however often it is looked at.
func TestActionsAreCountedWhenTheyAreDone(t *testing.T) {
	foreign := &corev1.ConfigMap{ObjectMeta: launchprioritytest.ConfigMap("u", "").ObjectMeta}
	foreign.OwnerReferences = nil
	failing := 2
	create := func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
		if failing--; failing >= 0 {
			return apierrors.NewInternalError(context.DeadlineExceeded)
		}
		return c.Create(ctx, object, options...)
	}
	for name, test := range map[string]struct {
		funcs   interceptor.Funcs
		objects []client.Object
		want    map[string]float64
	}{
		"created at the third try": {interceptor.Funcs{Create: create}, []client.Object{launchprioritytest.Pod([]int{1, 0})},
			map[string]float64{"Create": 1}},
		"of somebody else": {interceptor.Funcs{}, []client.Object{launchprioritytest.Pod([]int{1, 0}), foreign},
			map[string]float64{"Refuse": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, recorder := onServer(test.funcs, test.objects...)
			r.actions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "actions"}, []string{"action"})
			for range 5 {
				_, _ = r.Reconcile(t.Context(), request)
				for len(recorder.Events) > 0 {
					<-recorder.Events
				}
			}
			for _, action := range []string{"Create", "Release", "Reset", "Refuse"} {
				if got := testutil.ToFloat64(r.actions.WithLabelValues(action)); got != test.want[action] {
					t.Errorf("%s: testutil.ToFloat64(r.actions.WithLabelValues(action)): got %v, want %v", action, got, test.want[action])
				}
			}
		})
	}
}

// ND-142, ND-145: events of ConfigMaps lead to their pod when something changed that a plan reads.
func TestEventsOfConfigMaps(t *testing.T) {
	barrier := launchprioritytest.ConfigMap("u", "p_1")
	if got := podOf(t.Context(), barrier); len(got) != 1 {
		t.Errorf("len(got): got %d, want 1\n%v", len(got), got)
	} else if got[0] != request {
		t.Errorf("got[0]: got %v, want %v\n%v", got[0], request, got)
	}
	other := launchprioritytest.ConfigMap("u", "p_1")
	other.Name = "something"
	if got := podOf(t.Context(), other); got != nil {
		t.Errorf("podOf(t.Context(), other): got %v, want nil", got)
	}
	more, owned := launchprioritytest.ConfigMap("u", "p_1,p_0"), launchprioritytest.ConfigMap("v", "p_1")
	for name, test := range map[string]struct {
		after client.Object
		want  bool
	}{"nothing": {launchprioritytest.ConfigMap("u", "p_1"), false}, "keys": {more, true}, "its owner": {owned, true}} {
		if got := barrierEvents.Update(event.UpdateEvent{ObjectOld: barrier, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
	if barrierEvents.Create(event.CreateEvent{Object: barrier}) {
		t.Error("a new one is looked at, or the end of one is not: barrierEvents.Create(event.CreateEvent{Object: barrier}): got true, want false")
	}
	if !barrierEvents.Delete(event.DeleteEvent{Object: barrier}) {
		t.Error("a new one is looked at, or the end of one is not: barrierEvents.Delete(event.DeleteEvent{Object: barrier}): got false, want true")
	}
	pod := launchprioritytest.Pod([]int{1, 0})
	done := launchprioritytest.Pod([]int{1, 0}, launchprioritytest.Finished, launchprioritytest.Running(true, 0, 1))
	if !podEvents.Create(event.CreateEvent{Object: pod}) {
		t.Error("events of pods: podEvents.Create(event.CreateEvent{Object: pod}): got false, want true")
	}
	if !podEvents.Update(event.UpdateEvent{ObjectOld: done, ObjectNew: pod}) {
		t.Error("events of pods: podEvents.Update(event.UpdateEvent{ObjectOld: done, ObjectNew: pod}): got false, want true")
	}
	if podEvents.Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: done}) {
		t.Error("events of pods: podEvents.Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: done}): got true, want false")
	}
	if !podEvents.Delete(event.DeleteEvent{Object: done}) {
		t.Error("events of pods: podEvents.Delete(event.DeleteEvent{Object: done}): got false, want true")
	}
}
