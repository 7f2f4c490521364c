package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// patience is how long nothing at all may happen before a scenario gives up.
const patience = 2 * time.Minute

// podState has what is read of a pod.
type podState struct {
	uid, image, running string
	restarts            int32
	ready, ending       bool
}

func stateOf(pod *corev1.Pod) podState {
	s := podState{uid: string(pod.UID), image: pod.Spec.Containers[0].Image, ending: pod.DeletionTimestamp != nil}
	if len(pod.Status.ContainerStatuses) > 0 {
		s.running, s.restarts = pod.Status.ContainerStatuses[0].Image, pod.Status.ContainerStatuses[0].RestartCount
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			s.ready = c.Status == corev1.ConditionTrue && !s.ending
		}
	}
	return s
}

// serves tells whether the pod is ready with that image.
func (s podState) serves(image string) bool { return s.ready && s.image == image && s.running == image }

// observer follows the pods of one namespace by one watch, so that it sees every version in order.
type observer struct {
	mu      sync.Mutex
	pods    map[string]podState
	ready   int            // pods that are ready
	serving map[string]int // pods that serve, by image
	meant   map[string]int // pods that are not ending, by the image of their spec
	events  int
	goals   []*goal
	budget  *budgetWatch
	stop    context.CancelFunc
	done    chan struct{}
}

// goal is something to be reached; of one pod, or of all if pod is empty.
type goal struct {
	pod     string
	holds   func() bool
	reached chan time.Time
}

func observe(ctx context.Context, kube kubernetes.Interface, namespace string) (*observer, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{pods: map[string]podState{}, serving: map[string]int{}, meant: map[string]int{}, stop: cancel, done: make(chan struct{})}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(namespace),
		informers.WithTransform(func(object any) (any, error) {
			if pod, ok := object.(*corev1.Pod); ok { // as small as handlers need it
				pod.ManagedFields, pod.Annotations, pod.Spec.Volumes = nil, nil, nil
			}
			return object, nil
		}))
	informer := factory.Core().V1().Pods().Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.see(object.(*corev1.Pod), false) },
		UpdateFunc: func(_, object any) { o.see(object.(*corev1.Pod), false) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			o.see(object.(*corev1.Pod), true)
		},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	go func() {
		defer close(o.done)
		informer.RunWithContext(ctx)
	}()
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		cancel()
		return nil, fmt.Errorf("watching pods: %w", context.Cause(ctx))
	}
	return o, nil
}

func (o *observer) close() {
	o.stop()
	<-o.done
}

func (o *observer) see(pod *corev1.Pod, gone bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events++
	if o.budget != nil {
		o.budget.advance(now, o)
	}
	if before, ok := o.pods[pod.Name]; ok {
		o.count(before, -1)
	}
	delete(o.pods, pod.Name)
	if !gone {
		state := stateOf(pod)
		o.pods[pod.Name] = state
		o.count(state, 1)
	}
	if o.budget != nil {
		o.budget.look(o)
	}
	kept := o.goals[:0]
	for _, g := range o.goals {
		if (g.pod == "" || g.pod == pod.Name) && g.holds() {
			g.reached <- now
		} else {
			kept = append(kept, g)
		}
	}
	clear(o.goals[len(kept):])
	o.goals = kept
}

func (o *observer) count(s podState, by int) {
	if s.ready {
		o.ready += by
	}
	if s.serves(s.image) {
		o.serving[s.image] += by
	}
	if !s.ending {
		o.meant[s.image] += by
	}
}

// expect returns a channel that gets the time when holds first returned true; holds is called under the lock
// at every event.
func (o *observer) expect(pod string, holds func() bool) <-chan time.Time {
	g := &goal{pod: pod, holds: holds, reached: make(chan time.Time, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if holds() {
		g.reached <- time.Now()
	} else {
		o.goals = append(o.goals, g)
	}
	return g.reached
}

// wait waits for a goal and fails once nothing has happened to any pod for too long.
func (o *observer) wait(ctx context.Context, what string, reached <-chan time.Time) (time.Time, error) {
	last := -1
	for {
		idle := time.NewTimer(patience)
		select {
		case at := <-reached:
			idle.Stop()
			return at, nil
		case <-ctx.Done():
			idle.Stop()
			return time.Time{}, fmt.Errorf("%s: %w: %s", what, context.Cause(ctx), o)
		case <-idle.C:
		}
		o.mu.Lock()
		events := o.events
		o.mu.Unlock()
		if events == last {
			return time.Time{}, fmt.Errorf("%s: nothing has happened to any pod for %s: %s", what, patience, o)
		}
		last = events
	}
}

// String describes the state of the pods.
func (o *observer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("%d pods, %d ready, serving by image %v", len(o.pods), o.ready, o.serving)
}

// snapshot returns the pods as they are now.
func (o *observer) snapshot() map[string]podState {
	o.mu.Lock()
	defer o.mu.Unlock()
	pods := make(map[string]podState, len(o.pods))
	for name, state := range o.pods {
		pods[name] = state
	}
	return pods
}

// budgetWatch measures how many pods are not ready while pods move to an image.
type budgetWatch struct {
	pods, budget int
	image        string
	since        time.Time
	most         int
	// used is the sum of the pods' unready seconds, and all what the budget allows, until every pod has begun
	// to move.
	used, all, full float64
	down            float64 // pods' seconds not ready until the end
	over            bool    // every pod has begun
}

// watchBudget begins to measure.
func (o *observer) watchBudget(pods, budget int, image string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.budget = &budgetWatch{pods: pods, budget: budget, image: image, since: time.Now()}
}

// endBudget ends the measurement. The use of the budget is measured until every pod had begun to move.
func (o *observer) endBudget() *budgetUse {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.budget
	o.budget = nil
	use := &budgetUse{Budget: b.budget, Most: b.most, Down: b.down / float64(b.pods)}
	if b.all > 0 {
		use.Mean, use.Full = b.used/b.all, b.full*float64(b.budget)/b.all
	}
	return use
}

// advance accounts for the time before an event.
func (b *budgetWatch) advance(now time.Time, o *observer) {
	seconds := now.Sub(b.since).Seconds()
	b.since = now
	down := b.pods - o.ready
	b.down += seconds * float64(down)
	if b.over {
		return
	}
	b.used += seconds * float64(min(down, b.budget))
	b.all += seconds * float64(b.budget)
	if 10*down >= 9*b.budget {
		b.full += seconds
	}
}

func (b *budgetWatch) look(o *observer) {
	b.most = max(b.most, b.pods-o.ready)
	b.over = b.over || o.meant[b.image] >= b.pods
}
