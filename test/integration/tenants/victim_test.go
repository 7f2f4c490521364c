//go:build integration

package tenants

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/test/story"
)

const (
	peacefulNamespace, small = "peaceful", "small"
	// pods is the size of the set of the other tenant.
	pods = 5
	// pause is the time from the end of a rollout until the next one begins.
	pause = 300 * time.Millisecond
)

// victim is the other tenant: its set is rolled out again and again.
type victim struct {
	w *world
	// own is the client of its user.
	own client.Client
	// around are objects of its namespace that nobody should write.
	around []client.Object
	// uids are the pods that the set had at first; updates in place keep them.
	uids map[types.UID]bool

	mu      sync.Mutex
	set     *appsv1beta1.CloneSet
	seen    time.Time // when a new generation of the set was seen last
	changed chan struct{}
	rounds  []round
	begun   int
	failed  error
}

// round is what one rollout took. Times are from the beginning of the edit.
type round struct {
	begin time.Time
	// edit is until the edit was answered, seen until a watch of its own showed it, first until the API server received
	// the manager's first write, and end until all pods were updated and ready. first is 0 if it is not known.
	edit, seen, first, end time.Duration
	// read, pod and large are what other requests took right before: a read, the creation of a pod that goes
	// to the webhook, and of an object that is large for the webhook, both as dry runs.
	read, pod, large time.Duration
	// refused are answers that its user should not get.
	refused []string
}

// startVictim creates the set, starts what stands in for its kubelet, and begins to roll it out again and
// again.
func (w *world) startVictim() *victim {
	w.t.Helper()
	w.mayEdit(peaceful, peacefulNamespace)
	own, err := story.NewClient(w.user(peaceful).Config())
	if err != nil {
		w.t.Fatal(err)
	}
	v := &victim{w: w, own: own, uids: map[types.UID]bool{}, changed: make(chan struct{}, 1)}
	v.around = []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "credentials"}},
		object(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, labels: {app: small}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`),
		object(`{apiVersion: v1, kind: Pod, metadata: {name: orphan, labels: {app: everybody}}, spec: {containers: [{name: c, image: i}]}}`),
		object(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 0, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}}`),
		object(`{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: theirs, labels: {app: everybody}}, data: {a: b}, revision: 1}`),
	}
	for _, o := range v.around {
		o.SetNamespace(peacefulNamespace)
		w.create(o)
	}
	v.watch()
	set := object(fmt.Sprintf(`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: %s, namespace: %s}, spec: {replicas: %d, revisionHistoryLimit: 3,
		selector: {matchLabels: {app: %s}}, updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceOnly, maxUnavailable: 1}},
		template: {metadata: {labels: {app: %s}}, spec: {nodeName: node-0, containers: [{name: c, image: "small:0"}]}}}}`, small, peacefulNamespace, pods, small, small))
	w.create(set)
	if err := v.rolledOut(w.t.Context(), 1); err != nil {
		w.t.Fatal(err)
	}
	var list corev1.PodList
	if err := w.kube.List(w.t.Context(), &list, client.InNamespace(peacefulNamespace), client.MatchingLabels{"app": small}); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		v.uids[list.Items[i].UID] = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	w.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		v.rollOut(ctx)
	}()
	return v
}

// watch follows the set and its pods. Each change of a pod is answered like a kubelet would.
func (v *victim) watch() {
	v.w.t.Helper()
	watched, err := cache.New(v.w.root, cache.Options{Scheme: v.w.kube.Scheme(), DefaultNamespaces: map[string]cache.Config{peacefulNamespace: {}}})
	if err != nil {
		v.w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	v.w.t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() { _ = watched.Start(ctx) })
	sets, err := watched.GetInformer(ctx, &appsv1beta1.CloneSet{})
	if err != nil {
		v.w.t.Fatal(err)
	}
	seen := func(given any) {
		if set, ok := given.(*appsv1beta1.CloneSet); ok && set.Name == small {
			v.mu.Lock()
			if v.set == nil || v.set.Generation != set.Generation {
				v.seen = time.Now()
			}
			v.set = set
			v.mu.Unlock()
			select {
			case v.changed <- struct{}{}:
			default:
			}
		}
	}
	if _, err := sets.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, now any) { seen(now) }}); err != nil {
		v.w.t.Fatal(err)
	}
	own, err := watched.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		v.w.t.Fatal(err)
	}
	due := make(chan *corev1.Pod, 1000)
	queue := func(given any) {
		if pod, ok := given.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			due <- pod
		}
	}
	if _, err := own.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: queue, UpdateFunc: func(_, now any) { queue(now) }}); err != nil {
		v.w.t.Fatal(err)
	}
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case pod := <-due:
				_ = within(ctx, patience, func() error { return v.kubelet(ctx, pod.DeepCopy()) })
			}
		}
	})
}

// kubelet makes the containers of a pod run what the pod asks for. A conflict means that a newer version of
// the pod will come.
func (v *victim) kubelet(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return client.IgnoreNotFound(v.w.kube.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	}
	before := pod.DeepCopy()
	pod.Status.Phase, pod.Status.PodIP, pod.Status.ObservedGeneration = corev1.PodRunning, "10.0.0.1", pod.Generation
	statuses := make([]corev1.ContainerStatus, 0, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		c, yes := pod.Spec.Containers[i], true
		s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "sha256:" + c.Image, ContainerID: "containerd://" + c.Image, Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now().Rfc3339Copy()}}}
		if i < len(pod.Status.ContainerStatuses) {
			if is := pod.Status.ContainerStatuses[i]; is.Image == c.Image {
				s = is
			} else {
				s.RestartCount = is.RestartCount + 1
			}
		}
		statuses = append(statuses, s)
	}
	pod.Status.ContainerStatuses = statuses
	ready := corev1.ConditionTrue
	for _, gate := range pod.Spec.ReadinessGates {
		if !has(pod, gate.ConditionType) {
			ready = corev1.ConditionFalse
		}
	}
	for kind, status := range map[corev1.PodConditionType]corev1.ConditionStatus{corev1.PodScheduled: corev1.ConditionTrue,
		corev1.PodInitialized: corev1.ConditionTrue, corev1.ContainersReady: corev1.ConditionTrue, corev1.PodReady: ready} {
		set(pod, kind, status)
	}
	if equality.Semantic.DeepEqual(before.Status, pod.Status) {
		return nil
	}
	err := v.w.kube.Status().Update(ctx, pod)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func has(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func set(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, metav1.Now().Rfc3339Copy()
			}
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions,
		corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.Now().Rfc3339Copy()})
}

// rolledOut waits until all pods of the set are updated to the generation, and ready.
func (v *victim) rolledOut(ctx context.Context, generation int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		v.mu.Lock()
		set := v.set
		v.mu.Unlock()
		if set != nil && set.Status.ObservedGeneration >= generation && set.Status.UpdatedReadyReplicas == pods && set.Status.Replicas == pods {
			return nil
		}
		select {
		case <-ctx.Done():
			status := "it does not exist"
			if set != nil {
				status = fmt.Sprintf("%+v", set.Status)
			}
			return fmt.Errorf("the set of the other tenant is not updated to generation %d: %w: %s", generation, ctx.Err(), status)
		case <-v.changed:
		}
	}
}

// rollOut rolls the set out again and again, until one rollout does not end.
func (v *victim) rollOut(ctx context.Context) {
	for i := 1; ctx.Err() == nil; i++ {
		v.mu.Lock()
		v.begun = i
		v.mu.Unlock()
		r, err := v.round(ctx, i)
		v.mu.Lock()
		if err == nil {
			v.rounds = append(v.rounds, r)
		} else if ctx.Err() == nil {
			v.failed = err
		}
		failed := v.failed
		v.mu.Unlock()
		if failed != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// round makes one rollout. Requests that are refused are repeated, and noted.
func (v *victim) round(ctx context.Context, i int) (r round, err error) {
	timed := func(what string, do func() error) time.Duration {
		begin := time.Now()
		if err := do(); err != nil && ctx.Err() == nil {
			r.refused = append(r.refused, fmt.Sprintf("%s: %s", what, brief(err)))
		}
		return time.Since(begin)
	}
	r.read = timed("read", func() error {
		return v.own.Get(ctx, client.ObjectKey{Namespace: peacefulNamespace, Name: "settings"}, &corev1.ConfigMap{})
	})
	yes := true
	r.pod = timed("pod", func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: peacefulNamespace, Name: "tried", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "tried", UID: "tried", Controller: &yes}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		return v.own.Create(ctx, pod, client.DryRunAll)
	})
	r.large = timed("large object", func() error {
		return v.own.Create(ctx, workload("CloneSet", peacefulNamespace, "tried", 0, environment(1000)), client.DryRunAll)
	})
	edited := &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: peacefulNamespace, Name: small}}
	patch := client.RawPatch(types.JSONPatchType, []byte(fmt.Sprintf(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "small:%d"}]`, i)))
	r.begin = time.Now()
	if err := within(ctx, patience, func() error {
		err := v.own.Patch(ctx, edited, patch)
		if err != nil {
			r.refused = append(r.refused, "edit: "+brief(err))
		}
		return err
	}); err != nil {
		return r, err
	}
	r.edit = time.Since(r.begin)
	if err := v.rolledOut(ctx, edited.Generation); err != nil {
		return r, err
	}
	r.end = time.Since(r.begin)
	v.mu.Lock()
	r.seen = v.seen.Sub(r.begin)
	v.mu.Unlock()
	if at, ok := v.w.audit.first(r.begin); ok {
		r.first = max(at.Sub(r.begin), 0)
	}
	return r, nil
}

// brief returns the beginning of an error, which can have kilobytes.
func brief(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), 200)], "")
}

// next waits until n rollouts that begin from now on have ended, and returns an error if one does not end.
func (v *victim) next(ctx context.Context, n int) error {
	v.mu.Lock()
	goal := v.begun + n
	v.mu.Unlock()
	return within(ctx, 2*patience, func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.failed == nil && len(v.rounds) < goal {
			return fmt.Errorf("%d of %d rollouts have ended", len(v.rounds), goal)
		}
		return nil
	})
}

// since returns the rollouts that began after a time, and an error if one did not end.
func (v *victim) since(begin time.Time) (rounds []round, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.rounds {
		if r.begin.After(begin) {
			rounds = append(rounds, r)
		}
	}
	return rounds, v.failed
}

// untouched returns an error if something of the other tenant was changed that it did not change itself.
func (v *victim) untouched(ctx context.Context) error {
	var errs []error
	for _, o := range v.around {
		now := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy
		if err := v.w.kube.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
			errs = append(errs, err)
		} else if now.GetUID() != o.GetUID() || now.GetResourceVersion() != o.GetResourceVersion() {
			errs = append(errs, fmt.Errorf("%T %s was written: %+v", o, o.GetName(), now))
		}
	}
	var list corev1.PodList
	if err := v.w.kube.List(ctx, &list, client.InNamespace(peacefulNamespace), client.MatchingLabels{"app": small}); err != nil {
		errs = append(errs, err)
	}
	if len(list.Items) != pods {
		errs = append(errs, fmt.Errorf("the set has %d pods, want %d", len(list.Items), pods))
	}
	for i := range list.Items {
		if pod := &list.Items[i]; !v.uids[pod.UID] || pod.DeletionTimestamp != nil {
			errs = append(errs, fmt.Errorf("pod %s was made anew, or is being deleted", pod.Name))
		}
	}
	return errors.Join(errs...)
}
