// Package pacing has the common parts of controllers whose passes read all pods of an object. The next plan
// of a large object waits for more events, a plan is logged only if it changed, and what is remembered of an
// object is dropped with it.
package pacing

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Shares of a worker's time that the plans of one object may take: events come one by one, and without a
// pause the cost of a rollout would grow with the square of the pods. A plan that takes long for whatever
// reason, such as what a hostile user put beside its pods, takes no more than the larger share
// (docs/decisions/0013-where-the-time-goes.md).
const (
	share, largerShare = 40, 4
	// longest bounds a pause even so: the machine may have slept.
	longest = 30 * time.Second
)

// Pause is the time from the beginning of a pass whose plan took so long to the next one; more tells that
// there is more to be done at once.
func Pause(planning time.Duration, more bool, atMost time.Duration) time.Duration {
	pause := min(largerShare*planning, longest)
	if !more {
		pause = max(pause, min(share*planning, atMost))
	}
	return pause
}

// Memory is what a controller remembers of its objects between passes. The first event after a quiet time
// causes a pass at once.
type Memory struct {
	atMost time.Duration
	forget func(types.NamespacedName, types.UID)

	mu      sync.Mutex
	objects map[types.NamespacedName]*object
}

type object struct {
	uid types.UID
	// next is when a plan may be made again.
	next time.Time
	// logged is the text that was logged last.
	logged string
}

// NewMemory returns a Memory whose pauses are at most atMost. It calls forget for each object that is gone or
// was replaced by another of the same name.
func NewMemory(atMost time.Duration, forget func(types.NamespacedName, types.UID)) *Memory {
	return &Memory{atMost: atMost, forget: forget, objects: map[types.NamespacedName]*object{}}
}

// Is records the UID of the object with that name; an empty UID means that there is none.
func (m *Memory) Is(name types.NamespacedName, uid types.UID) {
	if former := m.replace(name, uid); former != nil {
		m.forget(name, former.uid)
	}
}

// replace returns the former object of a name if the present one is another.
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

// Wait returns how long the next plan of an object has to wait; zero or less means not at all.
func (m *Memory) Wait(name types.NamespacedName, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[name]; o != nil {
		return o.next.Sub(now)
	}
	return 0
}

// Passed notes that a pass began then, that its plan took so long, and whether there is more to be done at
// once.
func (m *Memory) Passed(name types.NamespacedName, begin time.Time, planning time.Duration, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[name]; o != nil {
		o.next = begin.Add(Pause(planning, more, m.atMost))
	}
}

// News tells whether the text about an object differs from the last one.
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

// NameOf returns the name of the object with that UID, empty if it is not known.
func (m *Memory) NameOf(uid types.UID) types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, o := range m.objects {
		if o.uid == uid {
			return name
		}
	}
	return types.NamespacedName{}
}

// BackOff is the back-off of failing objects. It does not delay a pass beyond the time that the plan asked
// for: one failing pod must not delay others that are due (CS-076). A plan that asks to be made again at
// once, and then again without having done anything, waits longer each time (OPS-106): whatever is wrong with
// it, it must not keep a worker and the API server busy.
type BackOff struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	mu  sync.Mutex
	due map[reconcile.Request]time.Duration
	// hurry is how many plans of a request in a row asked to be made again at once.
	hurry map[reconcile.Request]int
	// repeated is called for each pass that is repeated without having done anything.
	repeated func()
}

const (
	// atOnce is what counts as at once.
	atOnce = 100 * time.Millisecond
	// patience is how many plans in a row may ask for that.
	patience = 5
	// mostHurry bounds the pause at 65 s.
	mostHurry = 16
)

// NewBackOff returns a BackOff with the pauses of the limiter; nil means the library's default.
func NewBackOff(limiter workqueue.TypedRateLimiter[reconcile.Request]) *BackOff {
	if limiter == nil {
		limiter = workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	}
	return &BackOff{
		TypedRateLimiter: limiter,
		due:              map[reconcile.Request]time.Duration{},
		hurry:            map[reconcile.Request]int{},
		repeated:         func() {},
	}
}

// OnRepeat has passes counted that are repeated without having done anything.
func (b *BackOff) OnRepeat(count func()) { b.repeated = count }

// Progressed notes that the pass which is about to be answered did something, so that the next one finds
// news.
func (b *BackOff) Progressed(request reconcile.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hurry, request)
}

// slowed is the time after which a request may be worked on again that asks for that one.
func (b *BackOff) slowed(request reconcile.Request, after time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after <= 0 || after >= atOnce {
		delete(b.hurry, request)
		return after
	}
	b.hurry[request] = min(b.hurry[request]+1, patience+mostHurry)
	if n := b.hurry[request] - patience; n > 0 {
		b.repeated()
		return max(after, time.Millisecond<<n)
	}
	return after
}

// Answer returns what a reconciler returns after a pass that is to be repeated after that time, 0 for not at
// all. The time counts also if there is an error; the library alone would ignore it then.
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

// NotAfter bounds the next wait of a request; 0 means no bound.
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
