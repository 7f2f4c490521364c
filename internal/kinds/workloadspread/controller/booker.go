package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=workloadspreads,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=workloadspreads/status,verbs=get;patch

// ErrNotBooked is why a pod is not booked although it should be: the status could not be written.
var ErrNotBooked = errors.New("the status cannot be written")

// Attempts of one write, and the waits between them, which are spread by chance. They end with the time of who asks (WS-112).
const (
	bookingAttempts = 12
	bookingWait     = 10 * time.Millisecond
	bookingWaitMost = 300 * time.Millisecond
	// bookingBatch is how many pods one write books at most.
	bookingBatch = 250
)

// Booker writes decisions into the status of WorkloadSpreads. Correctness rests on the version that each write is guarded by, whatever
// number of managers book (WS-114): a decision counts only if the object was still what it was made from. Within a process the decisions
// about one WorkloadSpread come one after the other (WS-110), and those that wait meanwhile share the next write.
//
// An answer may be lost after the write has been done. The next attempt reads the object and finds the booking by its key, which is kept
// for all attempts of one request. A pod without a name of its own has another key when its controller tries again: the booking of the
// first try then expires by time (WS-152).
type Booker struct {
	client    client.Client
	live      client.Reader
	cached    func(types.NamespacedName) *appsv1beta1.WorkloadSpread
	workloads Workloads
	log       logr.Logger
	now       func() time.Time
	writes    *prometheus.CounterVec
	booked    *prometheus.CounterVec

	mu    sync.Mutex
	rooms map[types.UID]*room
}

// NewBooker returns a Booker. c patches, live reads from the API server, cached returns what the informer has, which is not changed.
func NewBooker(c client.Client, live client.Reader, cached func(types.NamespacedName) *appsv1beta1.WorkloadSpread, workloads Workloads,
	log logr.Logger, now func() time.Time) *Booker {
	return &Booker{client: c, live: live, cached: cached, workloads: workloads, log: log, now: now, rooms: map[types.UID]*room{},
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afloat_workloadspread_booking_writes_total",
			Help: "Attempts to write bookings into the status of a WorkloadSpread, by result: written, conflict, failed."}, []string{"result"}),
		booked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afloat_workloadspread_bookings_total",
			Help: "Pods whose creation or deletion was booked, and creations whose place was given back (release)."}, []string{"kind"}),
	}
}

// Metrics are for the registry.
func (b *Booker) Metrics() []prometheus.Collector { return []prometheus.Collector{b.writes, b.booked} }

// room is where the decisions about one WorkloadSpread are made.
type room struct {
	// lock is held by who reads, decides and writes.
	lock chan struct{}
	// last is the newest object that was written or read live here; fresh is when it was the newest of all for sure. doubt: the outcome of
	// a write is not known. All three are guarded by lock.
	last  *appsv1beta1.WorkloadSpread
	fresh time.Time
	doubt bool

	mu      sync.Mutex
	waiting []*booking
}

// booking is one request. Nobody waits for the answer any more once done is closed: then nothing may be booked.
type booking struct {
	done    <-chan struct{}
	arrived time.Time
	version string
	kind    string
	decide  func(*workloadspread.Ledger) (workloadspread.Decision, func())
	// prepare is called with a subset before anything is written, maybe again with another one; what it fails with is the answer.
	prepare func(workloadspread.Decision) error

	answered chan struct{}
	decision workloadspread.Decision
	err      error
}

func (k *booking) answer(err error) {
	k.err = err
	close(k.answered)
}

// awaited are those of a batch whose requests have not ended meanwhile.
func awaited(batch []*booking) []*booking {
	kept := batch[:0:0]
	for _, k := range batch {
		select {
		case <-k.done:
		default:
			kept = append(kept, k)
		}
	}
	return kept
}

// Create chooses a subset and books the pod there (WS-076). The decision has no subset if none has a free place (WS-077), or if the
// WorkloadSpread is gone (WS-113). prepare is told what is decided before that is written; its error refuses the pod, and nothing
// is booked.
func (b *Booker) Create(ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation,
	prepare func(workloadspread.Decision) error) (workloadspread.Decision,
	error) {
	decision := workloadspread.Decision{Subset: workloadspread.Alone(spread)} // WS-056
	if workloadspread.Ordinal(workloadspread.TargetOf(spread).GroupKind) && decision.Subset == nil {
		var err error
		if decision, err = b.byOrdinal(ctx, spread, pod); err != nil || decision.Subset == nil {
			return decision, err
		}
	}
	if decision.Subset != nil {
		return decision, prepare(decision)
	}
	return b.settle(ctx, spread, &booking{version: pod.Version, kind: "creation", prepare: prepare,
		decide: func(l *workloadspread.Ledger) (workloadspread.Decision, func()) { return l.Create(pod) }})
}

// byOrdinal chooses without booking. Whether subsets can be scheduled to is what was written here last, if that is newer than the cache.
func (b *Booker) byOrdinal(ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation) (workloadspread.Decision,
	error) {
	name := pod.Key
	if pod.Generated {
		name = ""
	}
	r, newest := b.room(spread.UID), spread
	select {
	case r.lock <- struct{}{}:
		if r.last != nil && older(spread, r.last) {
			newest = r.last
		}
		<-r.lock
	default: // somebody writes; what is read now may be as old as it likes
	}
	target, err := b.workload(ctx, newest)
	if err != nil {
		return workloadspread.Decision{}, fmt.Errorf("reading the StatefulSet: %w", err)
	}
	return workloadspread.ByOrdinal(newest, target, name), nil
}

// Delete books the deletion of a pod, if there is something to book (WS-102, WS-103).
func (b *Booker) Delete(ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Deletion) (workloadspread.Decision,
	error) {
	if reason := workloadspread.Unbookable(spread, pod.Subset); reason != "" {
		return workloadspread.Decision{Reason: reason}, nil
	}
	return b.settle(ctx, spread, &booking{version: pod.Version, kind: "deletion", prepare: func(workloadspread.Decision) error { return nil },
		decide: func(l *workloadspread.Ledger) (workloadspread.Decision, func()) { return l.Delete(pod) }})
}

// Release gives back the place of a pod whose creation was refused for certain, so that another one need not wait until its booking expires
// (WS-152). Who does not know that for certain must not: two pods would have the place.
func (b *Booker) Release(ctx context.Context, spread *appsv1beta1.WorkloadSpread, pod workloadspread.Creation) error {
	if workloadspread.Ordinal(workloadspread.TargetOf(spread).GroupKind) || workloadspread.Alone(spread) != nil {
		return nil
	}
	_, err := b.settle(ctx, spread, &booking{version: pod.Version, kind: "release",
		prepare: func(workloadspread.Decision) error { return nil },
		decide:  func(l *workloadspread.Ledger) (workloadspread.Decision, func()) { return l.Release(pod) }})
	return err
}

// Locked runs a write of the status that somebody else makes, such as the controller's, with the lock held that bookings take. What it
// returns, the object as it was written, is the base of the next booking (WS-110, WS-111).
func (b *Booker) Locked(ctx context.Context, uid types.UID, write func() (*appsv1beta1.WorkloadSpread, error)) error {
	r := b.room(uid)
	select {
	case r.lock <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for other writes of the status: %w", ctx.Err())
	}
	defer func() { <-r.lock }()
	begin := b.now()
	written, err := write()
	if err == nil && written != nil {
		r.remember(written, begin)
	}
	return err
}

// Forget drops what is kept of an object that is deleted (WS-115).
func (b *Booker) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.rooms, uid)
}

func (b *Booker) room(uid types.UID) *room {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rooms[uid]
	if r == nil {
		r = &room{lock: make(chan struct{}, 1)}
		b.rooms[uid] = r
	}
	return r
}

func (r *room) remember(object *appsv1beta1.WorkloadSpread, newestAt time.Time) {
	if r.last == nil || r.last.UID != object.UID || !older(object, r.last) {
		r.last = object
	}
	if newestAt.After(r.fresh) {
		r.fresh = newestAt
	}
}

// older compares by resource version; what cannot be compared is not older.
func older(a, b *appsv1beta1.WorkloadSpread) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// settle waits until a booking is answered: by whoever has the lock, or by itself once it has.
func (b *Booker) settle(ctx context.Context, spread *appsv1beta1.WorkloadSpread, k *booking) (workloadspread.Decision, error) {
	k.arrived, k.done, k.answered = b.now(), ctx.Done(), make(chan struct{})
	r := b.room(spread.UID)
	r.enqueue(k)
	for {
		select {
		case <-k.answered:
			return k.decision, k.err
		default:
		}
		select {
		case <-k.answered:
			return k.decision, k.err
		case <-ctx.Done():
			r.withdraw(k)
			return workloadspread.Decision{}, fmt.Errorf("%w in time: %w", ErrNotBooked, ctx.Err())
		case r.lock <- struct{}{}:
			b.serve(ctx, r, spread)
		}
	}
}

// serve decides about those that wait, and gives the lock of the room back, whatever happens.
func (b *Booker) serve(ctx context.Context, r *room, spread *appsv1beta1.WorkloadSpread) {
	defer func() { <-r.lock }()
	if batch := r.next(); len(batch) > 0 {
		// Who has no time left leaves the others to the next one.
		r.enqueue(b.pass(ctx, r, spread, batch)...)
	}
}

func (r *room) enqueue(all ...*booking) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, all...)
}

func (r *room) next() []*booking {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = awaited(r.waiting) // those of a batch that was given back too
	n := min(len(r.waiting), bookingBatch)
	batch := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	return batch
}

func (r *room) withdraw(k *booking) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.waiting {
		if r.waiting[i] == k {
			r.waiting = append(append([]*booking{}, r.waiting[:i]...), r.waiting[i+1:]...)
			return
		}
	}
}

// pass decides about a batch and writes it; it returns what it had no time for. The lock of the room is held.
func (b *Booker) pass(ctx context.Context, r *room, of *appsv1beta1.WorkloadSpread, batch []*booking) []*booking {
	live := r.doubt
	backoff := wait.Backoff{Duration: bookingWait, Factor: 2, Jitter: 1, Steps: bookingAttempts, Cap: bookingWaitMost}
	for attempt := 1; ; attempt++ {
		var err error
		if batch, err = b.attempt(ctx, r, of, batch, live); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return batch
		}
		if attempt == bookingAttempts {
			for _, k := range batch {
				k.answer(fmt.Errorf("%w in %d attempts: %w", ErrNotBooked, attempt, err))
			}
			return nil
		}
		live = true // WS-111
		pause := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
			pause.Stop()
			return batch
		case <-pause.C:
		}
	}
}

// attempt reads, decides and writes once; live has the object read from the API server. It returns the bookings that are not
// answered, with an error if there are such.
func (b *Booker) attempt(ctx context.Context, r *room, of *appsv1beta1.WorkloadSpread, batch []*booking, live bool) ([]*booking, error) {
	if batch = awaited(batch); len(batch) == 0 {
		return nil, nil
	}
	spread, err := b.read(ctx, r, of, live)
	if err != nil {
		return batch, err
	}
	if spread == nil || spread.DeletionTimestamp != nil {
		for _, k := range batch {
			k.decision = workloadspread.Decision{Gone: true, Reason: "the WorkloadSpread is gone"}
			k.answer(nil)
		}
		return nil, nil
	}
	changed, done := b.decide(r, spread, b.target(ctx, spread), batch, live)
	if !done {
		return b.attempt(ctx, r, of, batch, true)
	}
	open := batch[:0:0]
	for _, k := range batch {
		if k.err != nil {
			k.answer(k.err)
		} else {
			open = append(open, k)
		}
	}
	if len(changed) > 0 {
		if err := b.write(ctx, r, spread, changed); err != nil {
			return open, err
		}
	}
	for _, k := range open {
		if k.decision.Made {
			b.booked.WithLabelValues(k.kind).Inc()
		}
		k.answer(nil)
	}
	return nil, nil
}

// decide decides about all of a batch, each on what those before it leave, and returns the lists to be written, by version. It is not done
// if some pod found no subset, or no booking to be given back, in an object that may be older than its request (WS-077).
func (b *Booker) decide(r *room, spread *appsv1beta1.WorkloadSpread, target *workloadspread.Target, batch []*booking,
	live bool) (changed map[string][]appsv1beta1.WorkloadSpreadSubsetStatus, done bool) {
	l := workloadspread.NewLedger(spread, target, b.now())
	for _, k := range batch {
		var commit func()
		k.err = nil
		k.decision, commit = k.decide(l)
		if k.decision.Subset == nil && k.kind != "deletion" && !live && r.fresh.Before(k.arrived) {
			return nil, false
		}
		if k.decision.Subset != nil {
			if k.err = k.prepare(k.decision); k.err != nil {
				continue
			}
		}
		commit()
	}
	return l.Changed(), true
}

// read returns the newer of what was written here last and of the informer's copy, or what the API server has (WS-111). Nil: it is gone.
func (b *Booker) read(ctx context.Context, r *room, of *appsv1beta1.WorkloadSpread, live bool) (*appsv1beta1.WorkloadSpread, error) {
	key := client.ObjectKeyFromObject(of)
	if !live {
		newest := r.last
		if cached := b.cached(key); cached != nil && cached.UID == of.UID && (newest == nil || older(newest, cached)) {
			newest = cached
		}
		if newest != nil {
			return newest, nil
		}
	}
	begin, found := b.now(), &appsv1beta1.WorkloadSpread{}
	err := b.live.Get(ctx, key, found)
	if apierrors.IsNotFound(err) || err == nil && found.UID != of.UID {
		b.Forget(of.UID)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading WorkloadSpread %s: %w", key, err)
	}
	r.last, r.doubt = nil, false
	r.remember(found, begin)
	return found, nil
}

// target is read only for quotas that depend on it. What cannot be read must not block pods: these quotas then count 0 (WS-133).
func (b *Booker) target(ctx context.Context, spread *appsv1beta1.WorkloadSpread) *workloadspread.Target {
	if !workloadspread.ReadsTarget(spread) {
		return nil
	}
	target, err := b.workload(ctx, spread)
	if err == nil && target.DesiredError != nil {
		err = target.DesiredError
	}
	if err != nil {
		b.log.Error(err, "The replicas of a workload cannot be told, percentages of them count 0", "workloadspread",
			client.ObjectKeyFromObject(spread))
		return nil
	}
	return target
}

// workload reads the target from the API server: pods come because their workload was scaled, which the cache may show later than
// they come. The cache is asked only where the API server does not answer.
func (b *Booker) workload(ctx context.Context, spread *appsv1beta1.WorkloadSpread) (*workloadspread.Target, error) {
	target, err := b.workloads.Target(ctx, spread, true)
	if err == nil {
		return target, nil
	}
	cached, errCached := b.workloads.Target(ctx, spread, false)
	if errCached != nil || !cached.Exists {
		return nil, err
	}
	b.log.V(2).Info("The workload is read from the cache", "workloadspread", client.ObjectKeyFromObject(spread), "why", err.Error())
	return cached, nil
}

// write patches the lists of some versions, for exactly this version of the object.
func (b *Booker) write(ctx context.Context, r *room, spread *appsv1beta1.WorkloadSpread,
	lists map[string][]appsv1beta1.WorkloadSpreadSubsetStatus) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": spread.UID, "resourceVersion": spread.ResourceVersion},
		"status":   map[string]any{"versionedSubsetStatuses": lists},
	})
	if err != nil {
		return fmt.Errorf("encoding the status of WorkloadSpread %s: %w", client.ObjectKeyFromObject(spread), err)
	}
	begin := b.now()
	written := &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: spread.Namespace, Name: spread.Name}}
	err = b.client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, body))
	switch {
	case apierrors.IsConflict(err):
		b.writes.WithLabelValues("conflict").Inc()
	case err != nil:
		b.writes.WithLabelValues("failed").Inc()
	default:
		b.writes.WithLabelValues("written").Inc()
		r.remember(written, begin) // it was the newest when it was replaced
		return nil
	}
	r.doubt = true
	return fmt.Errorf("patching the status of WorkloadSpread %s: %w", client.ObjectKeyFromObject(spread), err)
}
