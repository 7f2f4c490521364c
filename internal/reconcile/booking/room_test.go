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
					t.Error(err)
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
			if err := d.Decide(t.Context(), object, book("busy")); !errors.Is(err, ErrBusy) || time.Since(begin) != 0 {
				t.Error(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			waits(t.Context(), nil)
		})
		all.Wait()
		s.expect("two together", 0, 1)
		if err := d.Decide(t.Context(), object, book("late")); err != nil {
			t.Error(err)
		}
		if seats := s.stored().Status.Seats; len(seats) != 2 || !seats["late"] {
			t.Errorf("%v", seats)
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
			t.Error(err)
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
				if err := d.Decide(ctx, object, book("beside")); !errors.Is(err, ErrNotBooked) || ctx.Err() != nil {
					t.Error(err)
				}
			})
		})
		all.Wait()
		if err := d.Decide(t.Context(), object, book("later")); err != nil || time.Since(begin) != 0 {
			t.Error(err)
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
		if err := d.Decide(t.Context(), object, book("a")); err != nil || d.remembers() != 1 {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), s.stored()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := d.Decide(t.Context(), object, func(*sale, time.Duration) error { return ErrStale }); !errors.Is(err, ErrGone) || d.remembers() != 0 {
			t.Error(err, d.remembers())
		}
		if err := d.Decide(t.Context(), object, book("b")); !errors.Is(err, ErrGone) || d.remembers() != 0 {
			t.Error(err, d.remembers())
		}
		if _, err := d.WriteStatus(t.Context(), object, counting(1)); err == nil || d.remembers() != 0 {
			t.Error(err, d.remembers())
		}
		again := show(5)
		again.UID = "u2"
		if err := s.Create(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if err := d.Decide(t.Context(), object, book("b")); !errors.Is(err, ErrGone) || d.remembers() != 0 {
			t.Error(err, d.remembers())
		}
		s.reads, s.sends = 0, 0
		for _, name := range []string{"c", "d"} {
			if err := d.Decide(t.Context(), s.stored(), book(name)); err != nil || d.remembers() != 1 {
				t.Error(err, d.remembers())
			}
		}
		s.expect("what the informer still has is another one", 1, 2)
		if status := s.stored().Status; status.Free != 3 || len(status.Seats) != 2 {
			t.Errorf("%+v", status)
		}
		d.Forget("u2")
		if d.remembers() != 0 || d.Newest(again) != again || d.remembers() != 0 {
			t.Errorf("%d", d.remembers())
		}
	})
}

// Nothing is kept of an object that nobody has written or read here, or that goes while a request ends.
func TestNothingToRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(0))
		d, object := s.behind()
		if err := d.Decide(t.Context(), object, func(*sale, time.Duration) error { return errSoldOut }); !errors.Is(err, errSoldOut) ||
			d.remembers() != 0 {
			t.Error(err, d.remembers())
		}
		if _, err := d.WriteStatus(t.Context(), object, func(*Show) ([]byte, error) { return nil, nil }); err != nil || d.remembers() != 0 {
			t.Error(err, d.remembers())
		}
		d.holding(t, object, func() {
			d.Forget("u1")
			if _, err := d.WriteStatus(t.Context(), object, counting(1)); err != nil {
				t.Error(err)
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
		if err := d.Decide(ctx, object, func(s *sale, _ time.Duration) error { s.sold["a"] = true; return nil }); !errors.Is(err, ErrNotBooked) ||
			d.remembers() != 0 {
			t.Error(err, d.remembers())
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
		if err := d.Decide(t.Context(), object, book("a")); !errors.Is(err, ErrNotBooked) || !errors.Is(err, failed) || d.remembers() != 0 {
			t.Error(err)
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
		t.Error(err)
	}
	s.expect("nothing", 0, 0)
}
