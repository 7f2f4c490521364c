// Package pacing has the common parts of controllers whose passes read all pods of an object. It delays the
// next plan of a large object to collect more events, logs a plan only if it changed, and drops what it
// remembers of an object when the object is gone.
package pacing

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Shares of a worker's time that the plans of one object may take. Events arrive one by one, so without a
// pause the cost of a rollout would grow with the square of the number of pods. A plan that takes long for
// any reason, such as objects that a hostile user put beside its pods, never takes more than the larger share
// (docs/decisions/0013-where-the-time-goes.md).
const (
	share, largerShare = 40, 4
	// longest bounds the pause in any case, because the machine may have been suspended during a plan.
	longest = 30 * time.Second
)

// Pause returns how long after the beginning of a pass the next pass may begin, given the time that its plan
// took. more means that there is more work to be done immediately.
func Pause(planning time.Duration, more bool, atMost time.Duration) time.Duration {
	pause := min(largerShare*planning, longest)
	if !more {
		pause = max(pause, min(share*planning, atMost))
	}
	return pause
}

// Memory holds what a controller remembers of its objects between passes. The first event after an idle
// period triggers a pass immediately.
type Memory struct {
	atLeast, atMost time.Duration
	forget          func(types.NamespacedName, types.UID)

	mu      sync.Mutex
	objects map[types.NamespacedName]*object
}

type object struct {
	uid types.UID
	// next is the earliest time of the next plan.
	next time.Time
	// logged is the text that was logged last.
	logged string
}

// NewMemory returns a Memory whose pauses are at least atLeast and at most atMost. It calls forget for each
// object that is gone or was replaced by another object with the same name.
func NewMemory(atLeast, atMost time.Duration, forget func(types.NamespacedName, types.UID)) *Memory {
	return &Memory{
		atLeast: atLeast, atMost: atMost, forget: forget, objects: map[types.NamespacedName]*object{},
	}
}

// Is records the UID of the object with that name. An empty UID means that there is no such object.
func (m *Memory) Is(name types.NamespacedName, uid types.UID) {
	if former := m.replace(name, uid); former != nil {
		m.forget(name, former.uid)
	}
}

// replace returns the previous object of the name if the current one has another UID.
func (m *Memory) replace(name types.NamespacedName, uid types.UID) *object {
	m.mu.Lock()
	defer m.mu.Unlock()
	former := m.objects[name]
	if former != nil && former.uid == uid {
		return nil
	}
	delete(m.objects, name)
	if uid != "" {
		m.objects[name] = &object{uid: uid}
	}
	return former
}

// Wait returns how long the next plan of an object must be delayed. Zero or less means no delay.
func (m *Memory) Wait(name types.NamespacedName, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[name]; o != nil {
		return o.next.Sub(now)
	}
	return 0
}

// Passed records when a pass began, how long its plan took, and whether there is more work to be done
// immediately.
func (m *Memory) Passed(name types.NamespacedName, begin time.Time, planning time.Duration, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[name]; o != nil {
		o.next = begin.Add(max(Pause(planning, more, m.atMost), m.atLeast))
	}
}

// News reports whether the text about an object differs from the last one, and records it.
func (m *Memory) News(name types.NamespacedName, text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[name]
	if o == nil || o.logged == text {
		return false
	}
	o.logged = text
	return true
}

// BackOff is the rate limiter for failing objects. It does not delay a pass beyond the time that the plan
// asked for, because one failing pod must not delay others that are due (CS-076). A plan that repeatedly asks
// for an immediate pass without having done anything is delayed longer each time, so that it does not keep a
// worker and the API server busy whatever the cause (OPS-106).
type BackOff struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	now   func() time.Time
	mu    sync.Mutex
	due   map[reconcile.Request]time.Duration
	hurry map[reconcile.Request]hurry
	// putOff are the requests whose current pass is not made, but put off.
	putOff map[reconcile.Request]bool
	// repeated is called for each pass that is repeated without having done anything.
	repeated func()
}

// hurry describes the plans of a request that ask for an immediate pass.
type hurry struct {
	// plans counts the consecutive ones, each made at the time that the previous one had asked for, or later.
	// A plan that an event causes before that time does not count.
	plans int
	// next is the time that the last one asked for.
	next time.Time
}

const (
	// atOnce is the requeue delay below which a pass counts as immediate.
	atOnce = 100 * time.Millisecond
	// patience is how many consecutive plans may ask for an immediate pass before they are delayed.
	patience = 5
	// mostHurry bounds the delay at 65 s.
	mostHurry = 16
)

// NewBackOff returns a BackOff based on the given limiter. nil means the default of controller-runtime. now
// returns the current time.
func NewBackOff(limiter workqueue.TypedRateLimiter[reconcile.Request], now func() time.Time) *BackOff {
	if limiter == nil {
		limiter = workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	}
	return &BackOff{
		TypedRateLimiter: limiter,
		now:              now,
		due:              map[reconcile.Request]time.Duration{},
		hurry:            map[reconcile.Request]hurry{},
		putOff:           map[reconcile.Request]bool{},
		repeated:         func() {},
	}
}

// OnRepeat sets a function that is called for each pass that is repeated without having done anything.
func (b *BackOff) OnRepeat(count func()) { b.repeated = count }

// Progressed records that the current pass did something, so that an immediate next pass is justified.
func (b *BackOff) Progressed(request reconcile.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hurry, request)
}

// slowed returns the delay after which a request may be processed again if its plan asked for the given
// delay.
func (b *BackOff) slowed(request reconcile.Request, after time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after <= 0 || after >= atOnce {
		delete(b.hurry, request)
		return after
	}
	now, h := b.now(), b.hurry[request]
	asked := !now.Before(h.next)
	if asked {
		h.plans = min(h.plans+1, patience+mostHurry)
	}
	if n := h.plans - patience; n > 0 {
		after = max(after, time.Millisecond<<n)
		if asked {
			b.repeated()
		}
	}
	h.next = now.Add(after)
	b.hurry[request] = h
	return after
}

// Answer returns the result of a reconciler whose pass must be repeated after the given time, or not at all
// if it is 0. The time also applies if there is an error, whereas controller-runtime ignores it then.
func (b *BackOff) Answer(
	request reconcile.Request, after time.Duration, err error,
) (reconcile.Result, error) {
	after = b.slowed(request, after)
	if err != nil {
		b.NotAfter(request, after)
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// PutOff returns the result of a reconciler that makes no pass now, but after the given time. It says nothing
// about the object, so that the object's back-off goes on, whereas controller-runtime ends it after every
// result without an error: a retry that always comes too early would never be delayed longer.
func (b *BackOff) PutOff(request reconcile.Request, after time.Duration) reconcile.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putOff[request] = true
	return reconcile.Result{RequeueAfter: after}
}

// Forget implements workqueue.TypedRateLimiter. The queue calls it after each result without an error.
func (b *BackOff) Forget(request reconcile.Request) {
	b.mu.Lock()
	putOff := b.putOff[request]
	delete(b.putOff, request)
	b.mu.Unlock()
	if !putOff {
		b.TypedRateLimiter.Forget(request)
	}
}

// NotAfter limits the next back-off of a request to the given time. 0 means no limit.
func (b *BackOff) NotAfter(request reconcile.Request, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after > 0 {
		b.due[request] = after
	}
}

// When implements workqueue.TypedRateLimiter.
func (b *BackOff) When(request reconcile.Request) time.Duration {
	wait := b.TypedRateLimiter.When(request)
	b.mu.Lock()
	defer b.mu.Unlock()
	if due, ok := b.due[request]; ok {
		delete(b.due, request)
		return min(wait, due)
	}
	return wait
}
