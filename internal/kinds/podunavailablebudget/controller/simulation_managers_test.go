package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	lru "k8s.io/apimachinery/pkg/util/cache"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	clonesetcontroller "github.com/afloat-project/afloat/internal/kinds/cloneset/controller"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

func init() { bookingBackoff.Duration = 0 } // simulations have a clock of their own

// replica is one process of the manager: it answers admission by what it knows, and has controllers while it
// leads, and some time longer.
type replica struct {
	run   *budgetRun
	name  string
	view  *simulation.View
	skew  time.Duration
	watch *Watch
	led   *controllers
	// dead: it has died, and somebody has to start it. busy: it is doing something.
	dead, busy bool
	ends       time.Time // of one that leads no more; zero for others
}

// controllers are those of a manager that leads.
type controllers struct {
	budgets  *reconciler
	handler  handler.EventHandler
	queue    *pending
	loops    map[string]*reconcile.Loop
	held     bool // the CloneSet, by a budget
	informed map[string][]toolscache.ResourceEventHandler
	// counting is the budget that is being counted.
	counting string
	// passed means that the pass was made, not put off.
	passed bool
}

// pending is a work queue for objects of all kinds, which are called by kind and name.
type pending struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	now func() time.Time
	due map[ctrl.Request]time.Time
}

func (q *pending) Add(r ctrl.Request) { q.AddAfter(r, 0) }

func (q *pending) AddAfter(r ctrl.Request, after time.Duration) {
	if due, waits := q.due[r]; !waits || q.now().Add(after).Before(due) {
		q.due[r] = q.now().Add(after)
	}
}

// next is the object that is due first; false if none is.
func (q *pending) next() (ctrl.Request, time.Time, bool) {
	var first ctrl.Request
	var at time.Time
	for r, due := range q.due {
		if first.Name == "" || due.Before(at) || due.Equal(at) && r.Name < first.Name {
			first, at = r, due
		}
	}
	return first, at, first.Name != ""
}

func requestOf(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func (m *replica) now() time.Time { return m.run.Now().Add(m.skew) }

// Now is for caches with a clock.
func (m *replica) Now() time.Time { return m.now() }

// as lets the manager act, whose caches are never further behind than lagAtMost.
func (m *replica) as(act func()) {
	if m.dead || m.busy {
		return
	}
	r := m.run
	outer, dead := r.acting, r.Dead()
	r.Revive()
	r.acting, m.busy = m, true
	r.As(m.view, func() {
		r.CatchUp(lagAtMost)
		act()
	})
	m.dead = r.Dead()
	r.Revive()
	if dead {
		r.Kill()
	}
	r.acting, m.busy = outer, false
}

// start begins a new process, which knows all that there is.
func (m *replica) start() {
	m.dead, m.led, m.ends = false, nil, time.Time{}
	r := m.run
	m.watch = nil // nobody is told of what it lists
	m.as(func() {
		r.Restart()
		owners := &Owners{live: m.live(), mapper: mapper, parents: lru.NewLRUExpireCacheWithClock(ownersKept, m)}
		m.watch = newWatch(m.client(), m.live(), owners, r.options, m.now)
		m.watch.Absent()
		for _, budget := range r.List("PodUnavailableBudget", true) {
			m.watch.OnAdd(budget, true)
		}
	})
}

// lead starts the controllers.
func (m *replica) lead() {
	r := m.run
	m.as(func() {
		if r.Chance(0.5) {
			r.Deliver(1 << 20)
		}
		l := &controllers{queue: &pending{now: r.Now, due: map[ctrl.Request]time.Time{}}, informed: map[string][]toolscache.ResourceEventHandler{}}
		m.led = l
		api := reconcile.NewAPI(m.client(), m.live(), slim.Any, m.now)
		workloads := NewWorkloads(&caches{m: m}, m.live(), scales{m: m}, mapper)
		workloads.known = lru.NewLRUExpireCacheWithClock(replicasKept, m)
		m.watch.Guard.owners.watched = workloads.metadata
		l.budgets = &reconciler{watch: m.watch, meters: newMeters(), pass: &Pass{budgetController: budgetController{API: api, Events: r}, Guard: m.watch.Guard, Workloads: workloads}}
		l.handler = l.budgets.pods()
		workloads.Tell(func(namespace string, changed podunavailablebudget.Reference, moved bool) {
			l.budgets.ofWorkload(l.queue, namespace, changed, moved)
		})
		own := reconcile.NewAPI(m.client(), m.live(), slim.Any, m.now)
		own.Guard = m.watch.Guard
		sets := clonesetcontroller.New(&clonesetcontroller.Kind{
			Kube: &clonesetcontroller.Kube{Reader: podapply.Reader{API: own, Pods: r.Pods()}}, Random: r.Rand.IntN,
		}, r)
		limiter := func() workqueue.TypedRateLimiter[ctrl.Request] {
			return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, 16*time.Second)
		}
		budgets := l.budgets.controller()
		pass := budgets.Pass
		budgets.Pass = func(ctx context.Context, s *session) (reconcile.Outcome, error) {
			l.passed = true
			return pass(ctx, s)
		}
		l.loops = map[string]*reconcile.Loop{
			"budget": budgets.Loop(limiter()),
			"set": reconcile.NewLoop(reconcile.Loop{Now: m.now, Owner: reconcile.UIDs[*appsv1beta1.CloneSet](own), Forget: sets.Forget,
				Pass: func(ctx context.Context, name types.NamespacedName, owner types.UID) (reconcile.Outcome, error) {
					plan, outcome, err := sets.Run(ctx, name, owner)
					if plan == nil {
						return reconcile.Outcome{}, err
					}
					done := outcome.Loop(plan.Shared())
					l.held = done.HeldByBudget
					if r.trace {
						fmt.Print(plan)
					}
					return done, err
				}}, time.Second, limiter()),
		}
		m.watch.Guard.Tell(func(string) {
			if l.held {
				l.queue.Add(requestOf(setName))
			}
		})
		for _, budget := range r.List("PodUnavailableBudget", true) {
			l.queue.Add(requestOf(budget.GetName()))
		}
		l.queue.Add(requestOf(setName))
	})
}

// work takes the next object from the queue of the controllers that is due, and tells whether there was one.
func (m *replica) work() bool {
	if m.led == nil || m.dead || m.busy {
		return false
	}
	l, r := m.led, m.run
	request, due, some := l.queue.next()
	if !some || r.Now().Before(due) {
		return false
	}
	delete(l.queue.due, request)
	m.as(func() {
		kind := "budget"
		if request.Name == setName {
			kind = "set"
		}
		begin := r.Now()
		var uid types.UID
		if kind == "budget" {
			l.counting = request.Name
			if budget := r.Cached(budgetKey(request.Name)); budget != nil {
				uid = budget.GetUID()
			}
		}
		l.passed = false
		result, err := l.loops[kind].Reconcile(log.IntoContext(context.Background(), logr.Discard()), request)
		l.counting = ""
		if uid != "" && err == nil && l.passed && result.RequeueAfter != reconcile.RetrySoon {
			r.oracle.counted(uid, begin)
		}
		r.tracef("%s %s %s: after %s err %v", m.name, kind, request.Name, result.RequeueAfter, err)
		switch {
		case err != nil:
			l.queue.AddAfter(request, l.loops[kind].BackOff().When(request))
		case result.RequeueAfter > 0:
			l.loops[kind].BackOff().Forget(request)
			l.queue.AddAfter(request, result.RequeueAfter)
		default:
			l.loops[kind].BackOff().Forget(request)
		}
	})
	return true
}

// delivered tells the process that acts what has come to its caches.
func (r *budgetRun) delivered(before, after client.Object) {
	m := r.acting
	if m == nil || m.watch == nil {
		return
	}
	object := after
	if object == nil {
		object = before
	}
	if object == nil {
		return
	}
	if budget, ok := object.(*policyv1beta1.PodUnavailableBudget); ok {
		switch {
		case after == nil:
			m.watch.OnDelete(before)
		case before == nil:
			m.watch.OnAdd(after, false)
		default:
			m.watch.OnUpdate(before, after)
		}
		if m.led != nil {
			m.led.queue.Add(requestOf(budget.Name))
		}
		return
	}
	if m.led == nil {
		return
	}
	ctx, l := context.Background(), m.led
	if _, pod := object.(*corev1.Pod); pod {
		switch {
		case after == nil:
			l.handler.Delete(ctx, event.DeleteEvent{Object: before}, l.queue)
		case before == nil:
			l.handler.Create(ctx, event.CreateEvent{Object: after}, l.queue)
		default:
			l.handler.Update(ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, l.queue)
		}
	}
	for _, told := range l.informed[kindOf(object)] {
		switch {
		case after == nil:
			told.OnDelete(before)
		case before == nil:
			told.OnAdd(after, false)
		default:
			told.OnUpdate(before, after)
		}
	}
	l.queue.Add(requestOf(setName))
}

func kindOf(object client.Object) string {
	switch object.(type) {
	case *appsv1beta1.CloneSet:
		return "CloneSet"
	case *appsv1.ReplicaSet:
		return "ReplicaSet"
	case *appsv1.Deployment:
		return "Deployment"
	}
	return ""
}

// unreadable is the name of objects that the API server never answers for.
const unreadable = "unreadable"

// rollouts are of a kind that is not watched.
var rollouts = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Rollout"}

// forbidden is for a Rollout that managers may not read.
const forbidden = -1

// mapper knows the kinds that workloads are of.
var mapper = func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion, corev1.SchemeGroupVersion, appsv1beta1.GroupVersion, {Group: "x.io", Version: "v1"},
		rollouts.GroupVersion()})
	m.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	m.Add(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), meta.RESTScopeNamespace)
	m.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	m.Add(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ReplicationController"), meta.RESTScopeNamespace)
	m.Add(appsv1beta1.GroupVersion.WithKind("CloneSet"), meta.RESTScopeNamespace)
	m.Add(appsv1beta1.GroupVersion.WithKind("StatefulSet"), meta.RESTScopeNamespace)
	m.Add(appsv1beta1.GroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "x.io", Version: "v1", Kind: "Fleet"}, meta.RESTScopeNamespace)
	m.Add(rollouts, meta.RESTScopeNamespace)
	return m
}()

// caches are those of a manager, for workloads.
type caches struct {
	cache.Cache
	m *replica
}

func (c *caches) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.m.run.Client().Get(ctx, key, into, options...)
}

func (c *caches) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &informer{m: c.m, kind: object.GetObjectKind().GroupVersionKind().Kind}, nil
}

type informer struct {
	cache.Informer
	m    *replica
	kind string
}

func (i *informer) HasSynced() bool { return true }

func (i *informer) AddEventHandler(do toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	l := i.m.led
	l.informed[i.kind] = append(l.informed[i.kind], do)
	return nil, nil
}

// scales reads the scale subresource from the API server.
type scales struct {
	client.SubResourceReader
	m *replica
}

func (s scales) Get(_ context.Context, object, into client.Object, _ ...client.SubResourceGetOption) error {
	r := s.m.run
	key := simulation.Key{Kind: object.GetObjectKind().GroupVersionKind().Kind, Name: object.GetName()}
	if r.Chance(r.Faults.Refuse) {
		return apierrors.NewInternalError(errors.New("the scale is not read"))
	}
	if r.unscaled {
		return apierrors.NewForbidden(schema.GroupResource{Resource: key.Kind}, key.Name, nil)
	}
	if r.noScale != nil {
		if err := r.noScale(key.Kind); err != nil {
			return err
		}
	}
	found := r.Get(key)
	if key.Kind == rollouts.Kind && r.rollout > 0 {
		replicas := int32(r.rollout)
		found = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: key.Name, UID: "rollout"}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
	}
	if found == nil || key.Kind == "DaemonSet" { // which has no scale
		return apierrors.NewNotFound(schema.GroupResource{}, object.GetName())
	}
	selector := ""
	if document, ok := found.(*unstructured.Unstructured); ok {
		selector, _, _ = unstructured.NestedString(document.Object, "spec", "selector")
	}
	into.(*unstructured.Unstructured).Object = map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale",
		"metadata": map[string]any{"name": found.GetName(), "namespace": namespace, "uid": string(found.GetUID())},
		"spec":     map[string]any{"replicas": int64(replicasOf(found))}, "status": map[string]any{"selector": selector}}
	return nil
}

func replicasOf(object client.Object) int32 {
	switch w := object.(type) {
	case *appsv1beta1.CloneSet:
		return *w.Spec.Replicas
	case *appsv1.ReplicaSet:
		return *w.Spec.Replicas
	case *appsv1.Deployment:
		return *w.Spec.Replicas
	case *appsv1.DaemonSet:
		return w.Status.DesiredNumberScheduled
	case *appsv1beta1.DaemonSet:
		return w.Status.DesiredNumberScheduled
	case *unstructured.Unstructured: // of a kind of others
		replicas, _, _ := unstructured.NestedInt64(w.Object, "spec", "replicas")
		return int32(replicas)
	}
	panic(fmt.Sprintf("%T", object))
}

// client is that of a manager, whose requests go through admission, and between which others act.
func (m *replica) client() client.Client { return &meddled{Client: m.run.Client(), m: m} }

func (m *replica) live() client.Reader { return &meddledReader{m.run.APIReader(), m} }

type meddledReader struct {
	client.Reader
	m *replica
}

func (c *meddledReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if wrong := content.IsPathSegmentName(key.Name); len(wrong) > 0 { // as clients do before they ask
		return fmt.Errorf("invalid resource name %q: %v", key.Name, wrong)
	}
	if key.Name == unreadable {
		return apierrors.NewServiceUnavailable("whoever serves it is down")
	}
	if into.GetObjectKind().GroupVersionKind() == rollouts {
		switch resource := (schema.GroupResource{Group: rollouts.Group, Resource: "rollouts"}); c.m.run.rollout {
		case forbidden:
			return apierrors.NewForbidden(resource, key.Name, nil)
		case 0:
			return apierrors.NewNotFound(resource, key.Name)
		}
		into.SetName(key.Name)
		into.SetUID("rollout")
		return nil
	}
	err := c.Reader.Get(ctx, key, into, options...)
	c.m.run.meddle()
	return err
}

type meddled struct {
	client.Client
	m *replica
}

func (c *meddled) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := c.admitted(object, patch, ""); err != nil {
		return err
	}
	return c.Client.Patch(ctx, object, patch, options...)
}

func (c *meddled) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if pod, ok := object.(*corev1.Pod); ok {
		now, _ := c.m.run.Get(podKey(pod.Name)).(*corev1.Pod)
		if !c.m.dead && now != nil && now.ResourceVersion == pod.ResourceVersion {
			if err := c.m.run.admit(now, policyv1beta1.Delete, c.m); err != nil {
				return err
			}
		}
	}
	c.m.run.meddle()
	return c.Client.Delete(ctx, object, options...)
}

// Create creates an object; pods are told of their budget by the webhook, if it is asked.
func (c *meddled) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if document, ok := object.(*unstructured.Unstructured); ok && document.GetKind() == "Pod" {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(document.Object, pod); err != nil {
			return err
		}
		pod.Namespace = namespace
		c.m.run.mutate(pod)
		document.SetAnnotations(pod.Annotations)
	}
	c.m.run.meddle()
	return c.Client.Create(ctx, object, options...)
}

func (c *meddled) SubResource(name string) client.SubResourceClient {
	return &meddledPart{c.Client.SubResource(name), c, name}
}

type meddledPart struct {
	client.SubResourceClient
	of   *meddled
	name string
}

func (c *meddledPart) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	if c.name == "status" {
		c.of.m.run.meddle()
	} else if err := c.of.admitted(object, patch, c.name); err != nil {
		return err
	}
	return c.SubResourceClient.Patch(ctx, object, patch, options...)
}

// admitted is the admission of a patch, if it is of the newest version of a pod.
func (c *meddled) admitted(object client.Object, patch client.Patch, _ string) error {
	if _, ok := object.(*corev1.Pod); ok && !c.m.dead {
		if err := c.m.run.admitPatch(c.m, object.GetName(), patch); err != nil {
			return err
		}
	}
	c.m.run.meddle()
	return nil
}

// Event implements reconcile.Recorder.
func (r *budgetRun) Event(about client.Object, eventType, reason, message string) {
	r.tracef("event about %s: %s %s %s", about.GetName(), eventType, reason, message)
	r.told = append(r.told, about.GetName()+": "+eventType+" "+reason+" "+message)
}
