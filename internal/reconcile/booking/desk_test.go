package booking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

func (s *server) expect(name string, reads, sends int) {
	s.t.Helper()
	if s.reads != reads {
		s.t.Errorf("%s: %d reads, want %d", name, s.reads, reads)
	}
	if s.sends != sends {
		s.t.Errorf("%s: %d writes, want %d", name, s.sends, sends)
	}
	s.reads, s.sends = 0, 0
}

// Several hundred requests at once share few writes, as many each as a write may hold, and each decides on
// what those before it leave.
func TestRequestsShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(600))
		d, object := s.behind()
		d.options.Batch = 250
		var all sync.WaitGroup
		d.holding(t, object, func() {
			for i := range 600 {
				all.Go(func() {
					if err := d.Decide(t.Context(), object, book(fmt.Sprint(i))); err != nil {
						t.Errorf("booking of seat %d: %v", i, err)
					}
				})
			}
		})
		all.Wait()
		status := s.stored().Status
		if status.Free != 0 {
			t.Errorf("free seats: got %d, want 0", status.Free)
		}
		if len(status.Seats) != 600 {
			t.Errorf("booked seats: got %d, want 600", len(status.Seats))
		}
		s.expect("600 by 250", 0, 3)
		if got := testutil.ToFloat64(d.options.Writes.WithLabelValues("written")); got != 3 {
			t.Errorf("writes that are counted as written: got %v, want 3", got)
		}
	})
}

// Two replicas book at the same time: no seat is sold twice, and none is kept back.
func TestTwoReplicasSellNoSeatTwice(t *testing.T) {
	s := serve(t, show(100))
	var desks [2]*shows
	var object *Show
	for i := range desks {
		desks[i], object = s.behind()
		desks[i].options.Backoff.Duration, desks[i].options.Backoff.Steps = time.Millisecond, 20
	}
	var sold atomic.Int32
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			switch err := desks[i%2].Decide(t.Context(), object, book(fmt.Sprint(i))); {
			case err == nil:
				sold.Add(1)
			case !errors.Is(err, errSoldOut):
				t.Errorf("booking of seat %d: %v, want no error or that all are sold", i, err)
			}
		})
	}
	all.Wait()
	status := s.stored().Status
	if status.Free != 0 {
		t.Errorf("free seats: got %d, want 0", status.Free)
	}
	if len(status.Seats) != 100 {
		t.Errorf("booked seats: got %d, want 100", len(status.Seats))
	}
	if sold.Load() != 100 {
		t.Errorf("bookings that were told to have a seat: got %d, want 100", sold.Load())
	}
}

// PUB-090: the first attempt is made from the newer of what was written here and what the informer has; each
// further one from a live read. That bookings of one object are made one after the other shows
// TestRequestsShareWrites.
func TestAfterAConflictALiveReadFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(3))
		d, object := s.behind()
		s.change(func(status *ShowStatus) { status.Free = 2 }) // by another replica
		begin := time.Now()
		if err := d.Decide(t.Context(), object, book("a")); err != nil {
			t.Fatal(err)
		}
		s.expect("after a conflict", 1, 2)
		if waited := time.Since(begin); waited != 100*time.Millisecond {
			t.Errorf("pause after a conflict: waited %s, want 100ms", waited)
		}
		if err := d.Decide(t.Context(), object, book("b")); err != nil {
			t.Fatal(err)
		}
		s.expect("what was written here is newer than the cache", 0, 1)
		s.change(func(status *ShowStatus) { status.Free = 1 })
		seen := s.stored()
		d.options.Cached = func(types.NamespacedName) *Show { return seen }
		if err := d.Decide(t.Context(), object, book("c")); err != nil {
			t.Fatal(err)
		}
		s.expect("the cache is newer", 0, 1)
		if diff := cmp.Diff(ShowStatus{Free: 0, Seats: map[string]bool{"a": true, "b": true, "c": true}}, s.stored().Status); diff != "" {
			t.Errorf("what is booked (-want +got):\n%s", diff)
		}
		if got := testutil.ToFloat64(d.options.Writes.WithLabelValues("conflict")); got != 1 {
			t.Errorf("writes that are counted as conflicts: got %v, want 1", got)
		}
	})
}

// A write that was done although its answer was lost books once.
func TestAWriteWhoseAnswerWasLostBooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(3))
		d, object := s.behind()
		s.after = func(n int) error {
			if n == 1 {
				return apierrors.NewTimeoutError("no answer", 1)
			}
			return nil
		}
		if err := d.Decide(t.Context(), object, book("a")); err != nil {
			t.Errorf("a booking whose answer was lost: %v", err)
		}
		if free := s.stored().Status.Free; free != 2 {
			t.Errorf("free seats: got %d, want 2", free)
		}
		s.expect("found", 1, 1)
		if got := testutil.ToFloat64(d.options.Writes.WithLabelValues("failed")); got != 1 {
			t.Errorf("writes that are counted as failed: got %v, want 1", got)
		}
	})
}

// Nobody is refused because of a booking of the same batch that could not be written.
func TestRefusalsOnWhatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(1))
		d, object := s.behind()
		s.before = func(n int) error {
			if n == 1 { // another replica is faster
				s.change(func(status *ShowStatus) { status.Free = 2 })
			}
			return nil
		}
		var all sync.WaitGroup
		d.holding(t, object, func() {
			for _, name := range []string{"a", "b"} {
				all.Go(func() {
					if err := d.Decide(t.Context(), object, book(name)); err != nil {
						t.Errorf("booking of seat %s: %v", name, err)
					}
				})
			}
		})
		all.Wait()
		if diff := cmp.Diff(ShowStatus{Free: 0, Seats: map[string]bool{"a": true, "b": true}}, s.stored().Status); diff != "" {
			t.Errorf("what is booked (-want +got):\n%s", diff)
		}
	})
}

// What cannot be written is an error after the last attempt; who has less time ends earlier. What became of
// the last write is found out before the next one.
func TestWhatCannotBeWrittenIsAnErrorAfterTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(3))
		d, object := s.behind()
		s.before = func(int) error { return conflict() }
		begin := time.Now()
		err := d.Decide(t.Context(), object, book("a"))
		if !errors.Is(err, ErrNotBooked) {
			t.Errorf("a booking that conflicts always: got %v, want %v", err, ErrNotBooked)
		}
		if !apierrors.IsConflict(err) {
			t.Errorf("a booking that conflicts always: got %v, want the conflict", err)
		}
		if took := time.Since(begin); took != 700*time.Millisecond {
			t.Errorf("a booking that conflicts always: ended after %s, want 700ms", took)
		}
		s.expect("four attempts", 3, 4)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begin = time.Now()
		err = d.Decide(ctx, object, book("a"))
		if !errors.Is(err, ErrNotBooked) {
			t.Errorf("a booking with less time: got %v, want %v", err, ErrNotBooked)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a booking with less time: got %v, want that its time is over", err)
		}
		if took := time.Since(begin); took != 50*time.Millisecond {
			t.Errorf("a booking with less time: ended after %s, want 50ms", took)
		}
		s.expect("one attempt", 1, 1)
		s.before = nil
		if err := d.Decide(t.Context(), object, book("a")); err != nil {
			t.Errorf("a booking after one in doubt: %v", err)
		}
		s.expect("in doubt", 1, 1)
	})
}

// Before a request is refused, the API server is asked, once for all that asked before; not if the object is
// known to be new enough.
func TestRefusalsAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(0))
		d, object := s.behind()
		if err := d.Decide(t.Context(), object, book("a")); !errors.Is(err, errSoldOut) {
			t.Errorf("a booking where no seat is free: got %v, want %v", err, errSoldOut)
		}
		s.expect("read", 1, 0)
		s.change(func(status *ShowStatus) { status.Free = 1 })
		time.Sleep(time.Second)
		if err := d.Decide(t.Context(), object, book("a")); err != nil {
			t.Errorf("a booking of a seat that another replica freed: %v", err)
		}
		s.expect("freed by another replica", 1, 1)
		time.Sleep(time.Second)
		var all sync.WaitGroup
		if _, err := d.WriteStatus(t.Context(), object, func(newest *Show) ([]byte, error) {
			for range 20 {
				all.Go(func() {
					if err := d.Decide(t.Context(), object, book("b")); !errors.Is(err, errSoldOut) {
						t.Errorf("a booking where no seat is free: got %v, want %v", err, errSoldOut)
					}
				})
			}
			synctest.Wait() // they wait for the lock
			time.Sleep(time.Second)
			return counting(1)(newest)
		}); err != nil {
			t.Fatalf("the controller's write of the status: %v", err)
		}
		all.Wait()
		s.expect("what was written after they came is new enough", 0, 1)
		if err := d.Decide(t.Context(), object, func(*sale, time.Duration) error { return ErrStale }); !errors.Is(err, ErrStale) {
			t.Errorf("a decision that no read is new enough for: got %v, want %v", err, ErrStale)
		}
	})
}

// What is booked already, or refused, is not written; the others of its batch are.
func TestOnlyChangesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(3))
		d, object := s.behind()
		if err := d.Decide(t.Context(), object, book("a")); err != nil {
			t.Fatal(err)
		}
		s.expect("booked", 0, 1)
		refused := errors.New("never")
		refuse := func(*sale, time.Duration) error { return refused }
		for _, decide := range []func(*sale, time.Duration) error{book("a"), func(*sale, time.Duration) error { return nil }} {
			if err := d.Decide(t.Context(), object, decide); err != nil {
				t.Errorf("a booking that changes nothing: %v", err)
			}
		}
		if err := d.Decide(t.Context(), object, refuse); !errors.Is(err, refused) {
			t.Errorf("a booking that is refused: got %v, want %v", err, refused)
		}
		s.expect("nothing to write", 0, 0)
		var all sync.WaitGroup
		d.holding(t, object, func() {
			all.Go(func() {
				if err := d.Decide(t.Context(), object, refuse); !errors.Is(err, refused) {
					t.Errorf("a booking that is refused beside another: got %v, want %v", err, refused)
				}
			})
			all.Go(func() {
				if err := d.Decide(t.Context(), object, book("b")); err != nil {
					t.Errorf("a booking beside one that is refused: %v", err)
				}
			})
		})
		all.Wait()
		s.expect("one of two", 0, 1)
		if free := s.stored().Status.Free; free != 1 {
			t.Errorf("free seats: got %d, want 1", free)
		}
	})
}

// holding begins requests while the lock is held, so that they wait together. It is called in a bubble.
func (d *StatusBatcher[T, P, D]) holding(t *testing.T, object P, begin func()) {
	t.Helper()
	if _, err := d.WriteStatus(t.Context(), object, func(P) ([]byte, error) {
		begin()
		synctest.Wait()
		return nil, nil
	}); err != nil {
		t.Fatalf("holding the lock: %v", err)
	}
}

// Who has no time left leaves the others, which it was about to book, to one of them. What it asked for
// itself is not booked.
func TestWhoGoesAwayLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(4))
		d, object := s.behind()
		var failing atomic.Bool
		failing.Store(true)
		s.before = func(int) error {
			if failing.Load() {
				return conflict()
			}
			return nil
		}
		var all sync.WaitGroup
		short := func(timeout time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			all.Go(func() {
				defer cancel()
				if err := d.Decide(ctx, object, book("short")); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a booking that has %s: got %v, want that its time is over", timeout, err)
				}
			})
			synctest.Wait() // the first of all has the lock when it is given back, and books for all
		}
		d.holding(t, object, func() {
			short(60 * time.Millisecond)
			short(50 * time.Millisecond)
			for i := range 2 {
				all.Go(func() {
					if err := d.Decide(t.Context(), object, book(fmt.Sprint(i))); err != nil {
						t.Errorf("booking of seat %d: %v", i, err)
					}
				})
			}
		})
		time.Sleep(70 * time.Millisecond)
		failing.Store(false)
		all.Wait()
		failing.Store(true)
		d.holding(t, object, func() {
			all.Go(func() {
				if err := d.Decide(t.Context(), object, book("2")); err != nil {
					t.Errorf("booking of seat 2: %v", err)
				}
			})
			synctest.Wait()
			short(50 * time.Millisecond) // somebody else has the lock
		})
		time.Sleep(70 * time.Millisecond)
		failing.Store(false)
		all.Wait()
		if diff := cmp.Diff(ShowStatus{Free: 1, Seats: map[string]bool{"0": true, "1": true, "2": true}}, s.stored().Status); diff != "" {
			t.Errorf("what is booked (-want +got):\n%s", diff)
		}
	})
}

// What a decision tells its caller may be read once Do has returned, whoever decides.
func TestNoDecisionAfterTheEnd(t *testing.T) {
	s := serve(t, show(1_000_000))
	d, object := s.behind()
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*100*time.Microsecond)
			defer cancel()
			decisions, returned := 0, atomic.Bool{}
			_ = d.Decide(ctx, object, func(draft *sale, age time.Duration) error {
				decisions++
				if returned.Load() {
					t.Error("somebody decides about a request that has ended")
				}
				return book(fmt.Sprint(i))(draft, age)
			})
			returned.Store(true)
			if decisions < 0 {
				t.Errorf("decisions about one request: got %d, want none or more", decisions)
			}
		})
	}
	all.Wait()
}

// A draft that was begun as its request ended may lack what could not be read: nobody is refused because of
// it.
func TestDraftsOfEndedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(1))
		d, object := s.behind()
		begin, begun := d.options.Begin, 0
		d.options.Begin = func(ctx context.Context, object *Show) *sale {
			if begun++; begun == 1 {
				<-ctx.Done() // what it reads has no answer
				return &sale{}
			}
			return begin(ctx, object)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		if _, err := d.WriteStatus(t.Context(), object, func(newest *Show) ([]byte, error) {
			all.Go(func() {
				if err := d.Decide(ctx, object, book("a")); !errors.Is(err, context.Canceled) {
					t.Errorf("a booking whose request ended: got %v, want %v", err, context.Canceled)
				}
			})
			synctest.Wait() // it has the lock next, and decides for both
			all.Go(func() {
				if err := d.Decide(t.Context(), object, book("b")); err != nil {
					t.Errorf("a booking beside a request that ended: %v", err)
				}
			})
			synctest.Wait()
			time.Sleep(time.Second) // what is written is newer than both
			return counting(1)(newest)
		}); err != nil {
			t.Fatalf("the controller's write of the status: %v", err)
		}
		synctest.Wait()
		cancel()
		all.Wait()
		want := ShowStatus{Seats: map[string]bool{"b": true}, Counted: 1}
		if diff := cmp.Diff(want, s.stored().Status); diff != "" {
			t.Errorf("what is booked and counted (-want +got):\n%s", diff)
		}
		if begun != 2 {
			t.Errorf("drafts that were begun: got %d, want 2", begun)
		}
	})
}
