package booking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// So many requests wait for one object at most; more are refused at once. Who goes away makes room.
func TestTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(10))
		d, object := s.behind()
		d.options.Waiting = 2
		var all sync.WaitGroup
		waits := func(ctx context.Context, want error) {
			all.Go(func() {
				if err := d.Decide(ctx, object, book(fmt.Sprint(want))); !errors.Is(err, want) {
					t.Errorf("a booking that waits: got %v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		d.holding(t, object, func() {
			waits(t.Context(), nil)
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			waits(short, context.DeadlineExceeded)
			begin := time.Now()
			if err := d.Decide(t.Context(), object, book("busy")); !errors.Is(err, ErrBusy) {
				t.Errorf("a booking where too many wait: got %v, want %v", err, ErrBusy)
			}
			if took := time.Since(begin); took != 0 {
				t.Errorf("a booking where too many wait: refused after %s, want at once", took)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			waits(t.Context(), nil)
		})
		all.Wait()
		s.expect("two together", 0, 1)
		if err := d.Decide(t.Context(), object, book("late")); err != nil {
			t.Errorf("a booking when nobody waits any more: %v", err)
		}
		seats := s.stored().Status.Seats
		if len(seats) != 2 {
			t.Errorf("booked seats: got %v, want 2", seats)
		}
		if !seats["late"] {
			t.Errorf("booked seats: got %v, want the late one among them", seats)
		}
		// Nor do those count that went away while the first of them tried to book for all.
		s.before = func(int) error { return conflict() }
		d.options.Waiting = 3
		d.holding(t, object, func() {
			for _, timeout := range []time.Duration{50, 40, 40} {
				ctx, cancel := context.WithTimeout(t.Context(), timeout*time.Millisecond)
				t.Cleanup(cancel)
				waits(ctx, context.DeadlineExceeded)
			}
		})
		all.Wait()
		s.before, d.options.Waiting = nil, 2
		if err := d.Decide(t.Context(), object, book("last")); err != nil {
			t.Errorf("a booking after those that waited went away: %v", err)
		}
	})
}

// A decision that panics fails its own request and those of the same batch, at once; others get the lock.
func TestAPanicFailsItsOwnRequestAndBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(10))
		d, object := s.behind()
		begin := time.Now()
		var all sync.WaitGroup
		d.holding(t, object, func() {
			all.Go(func() {
				defer func() { _ = recover() }()
				_ = d.Decide(t.Context(), object, func(*sale, time.Duration) error { panic("odd") })
				t.Error("no panic")
			})
			synctest.Wait()
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := d.Decide(ctx, object, book("beside")); !errors.Is(err, ErrNotBooked) {
					t.Errorf("a booking beside one that panics: got %v, want %v", err, ErrNotBooked)
				}
				if ctx.Err() != nil {
					t.Errorf("a booking beside one that panics: waited out its time (%v)", ctx.Err())
				}
			})
		})
		all.Wait()
		if err := d.Decide(t.Context(), object, book("later")); err != nil {
			t.Errorf("a booking after one that panicked: %v", err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("a booking after one that panicked: took %s, want none", took)
		}
	})
}

// remembers are the objects of which something is.
func (d *StatusBatcher[T, P, D]) remembers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queues)
}

// Nothing is kept of objects that are gone, and what was kept is not used for another one of the same name.
func TestWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(10))
		d, object := s.behind()
		if err := d.Decide(t.Context(), object, book("a")); err != nil {
			t.Fatalf("the first booking: %v", err)
		}
		if n := d.remembers(); n != 1 {
			t.Fatalf("objects that are kept after a booking: got %d, want 1", n)
		}
		if err := s.Delete(t.Context(), s.stored()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stale := func(*sale, time.Duration) error { return ErrStale }
		if err := d.Decide(t.Context(), object, stale); !errors.Is(err, ErrGone) {
			t.Errorf("a decision on an object that is gone: got %v, want %v", err, ErrGone)
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after a decision on one that is gone: got %d, want 0", n)
		}
		if err := d.Decide(t.Context(), object, book("b")); !errors.Is(err, ErrGone) {
			t.Errorf("a booking in an object that is gone: got %v, want %v", err, ErrGone)
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after a booking in one that is gone: got %d, want 0", n)
		}
		if _, err := d.WriteStatus(t.Context(), object, counting(1)); err == nil {
			t.Error("the controller's write of an object that is gone: no error")
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after a write of one that is gone: got %d, want 0", n)
		}
		again := show(5)
		again.UID = "u2"
		if err := s.Create(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if err := d.Decide(t.Context(), object, book("b")); !errors.Is(err, ErrGone) {
			t.Errorf("a booking in an object that another replaced: got %v, want %v", err, ErrGone)
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after a booking in a replaced one: got %d, want 0", n)
		}
		s.reads, s.sends = 0, 0
		for _, name := range []string{"c", "d"} {
			if err := d.Decide(t.Context(), s.stored(), book(name)); err != nil {
				t.Errorf("booking of seat %s in the new object: %v", name, err)
			}
			if n := d.remembers(); n != 1 {
				t.Errorf("objects that are kept after the booking of seat %s: got %d, want 1", name, n)
			}
		}
		s.expect("what the informer still has is another one", 1, 2)
		status := s.stored().Status
		if status.Free != 3 {
			t.Errorf("free seats of the new object: got %d, want 3", status.Free)
		}
		if len(status.Seats) != 2 {
			t.Errorf("booked seats of the new object: got %v, want 2", status.Seats)
		}
		d.Forget("u2")
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after the last was forgotten: got %d, want 0", n)
		}
		if newest := d.Newest(again); newest != again {
			t.Errorf("the newest of an object that was forgotten: got %v, want what the caller has", newest)
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after a look at the newest: got %d, want 0", n)
		}
	})
}

// Nothing is kept of an object that nobody has written or read here, or that goes while a request ends.
func TestNothingToRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(0))
		d, object := s.behind()
		refuse := func(*sale, time.Duration) error { return errSoldOut }
		if err := d.Decide(t.Context(), object, refuse); !errors.Is(err, errSoldOut) {
			t.Errorf("a booking that is refused: got %v, want %v", err, errSoldOut)
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after a refusal: got %d, want 0", n)
		}
		nothing := func(*Show) ([]byte, error) { return nil, nil }
		if _, err := d.WriteStatus(t.Context(), object, nothing); err != nil {
			t.Errorf("the controller has nothing to write: %v", err)
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after nothing was written: got %d, want 0", n)
		}
		d.holding(t, object, func() {
			d.Forget("u1")
			if _, err := d.WriteStatus(t.Context(), object, counting(1)); err != nil {
				t.Errorf("the controller's write while a request ends: %v", err)
			}
		})
		if d.remembers() != 1 {
			t.Error("who was there when it was forgotten takes away what came after")
		}
		d.Forget("u1")
		if err := s.Delete(t.Context(), s.stored()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // there is no second attempt
		defer cancel()
		err := d.Decide(ctx, object, func(s *sale, _ time.Duration) error { s.sold["a"] = true; return nil })
		if !errors.Is(err, ErrNotBooked) {
			t.Errorf("a booking in an object that goes: got %v, want %v", err, ErrNotBooked)
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept after a booking in one that goes: got %d, want 0", n)
		}
	})
}

// Who cannot read finds nothing out: the object is not taken to be gone.
func TestReadsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(0))
		d, object := s.behind()
		d.options.Cached = func(types.NamespacedName) *Show { return nil }
		failed := errors.New("no answer")
		d.options.Live = unreadable{s, failed}
		err := d.Decide(t.Context(), object, book("a"))
		if !errors.Is(err, ErrNotBooked) {
			t.Errorf("a booking where reads fail: got %v, want %v", err, ErrNotBooked)
		}
		if !errors.Is(err, failed) {
			t.Errorf("a booking where reads fail: got %v, want the error of the read", err)
		}
		if n := d.remembers(); n != 0 {
			t.Errorf("objects that are kept where reads fail: got %d, want 0", n)
		}
	})
}

// Nothing is booked in an object that is going.
func TestWhatIsGoing(t *testing.T) {
	going := show(10)
	going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"x/y"}
	s := serve(t, going)
	d, object := s.behind()
	if err := d.Decide(t.Context(), object, book("a")); !errors.Is(err, ErrGone) {
		t.Errorf("a booking in an object that is going: got %v, want %v", err, ErrGone)
	}
	s.expect("nothing", 0, 0)
}
