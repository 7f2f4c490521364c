package booking

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/reconcile"
)

// unreadable is an API server that does not answer reads.
type unreadable struct {
	client.Reader
	err error
}

func (u unreadable) Get(context.Context, types.NamespacedName, client.Object, ...client.GetOption) error {
	return u.err
}

// The controller holds the lock that bookings take: it begins with what was booked last here, and the next
// booking with what it wrote (WS-110, WS-111). After a conflict it decides again, on a live read.
func TestTheControllerTakesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, show(10))
		d, object := s.behind()
		if err := d.Decide(t.Context(), object, book("a")); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var free []int
		write := func(n int) {
			t.Helper()
			written, err := d.WriteStatus(t.Context(), object, func(newest *Show) ([]byte, error) {
				free = append(free, newest.Status.Free)
				before := s.sends
				all.Go(func() {
					if err := d.Decide(t.Context(), object, book("b")); err != nil {
						t.Errorf("a booking while the controller writes: %v", err)
					}
				})
				synctest.Wait()
				if s.sends != before {
					t.Error("the booking does not wait")
				}
				return counting(n)(newest)
			})
			all.Wait()
			if err != nil {
				t.Errorf("the controller's write of %d: %v", n, err)
			} else if written.Status.Counted != n {
				t.Errorf("what the controller wrote: got %d, want %d", written.Status.Counted, n)
			}
			if counted := d.Newest(object).Status.Counted; counted != n {
				t.Errorf("the newest after the controller's write: got %d, want %d", counted, n)
			}
		}
		write(1)
		s.expect("own writes follow each other", 0, 3)
		s.change(func(status *ShowStatus) { status.Free = 5 })
		write(2)
		s.expect("another replica has written", 1, 2)
		if diff := cmp.Diff([]int{9, 8, 5}, free); diff != "" {
			t.Errorf("free seats that the controller's writes begin with (-want +got):\n%s", diff)
		}
		want := ShowStatus{Free: 5, Counted: 2, Seats: map[string]bool{"a": true, "b": true}}
		if diff := cmp.Diff(want, s.stored().Status); diff != "" {
			t.Errorf("what is booked and counted (-want +got):\n%s", diff)
		}
	})
}

// What ends a write of the controller.
func TestWritesOfTheControllerThatEnd(t *testing.T) {
	s := serve(t, show(10))
	d, object := s.behind()
	refused := errors.New("another plan is due")
	refuse := func(*Show) ([]byte, error) { return nil, refused }
	if _, err := d.WriteStatus(t.Context(), object, refuse); !errors.Is(err, refused) {
		t.Errorf("a write that its plan gives up: got %v, want %v", err, refused)
	}
	written, err := d.WriteStatus(t.Context(), object, func(*Show) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Errorf("nothing to write: %v", err)
	}
	if written != nil {
		t.Errorf("nothing to write: got %v as written, want none", written)
	}
	s.expect("nothing to write", 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := d.WriteStatus(t.Context(), object, func(*Show) ([]byte, error) {
		if d.Newest(object) != object {
			t.Error("a look at the newest waits for who writes")
		}
		cancel()
		return d.waits(ctx, object)
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("a write whose context ended: got %v, want %v", err, context.Canceled)
	}
	s.before = func(int) error { return conflict() }
	if _, err := d.WriteStatus(t.Context(), object, counting(1)); !apierrors.IsConflict(err) {
		t.Errorf("a write that conflicts always: got %v, want the conflict", err)
	}
	s.expect("the queue decides when to try again", statusAttempts-1, statusAttempts)
	failed := errors.New("no answer")
	d.options.Live = unreadable{s, failed}
	if _, err := d.WriteStatus(t.Context(), object, counting(1)); !errors.Is(err, failed) {
		t.Errorf("a write after a conflict where reads fail: got %v, want %v", err, failed)
	}
	d.options.Live = unreadable{s, apierrors.NewNotFound(schema.GroupResource{Resource: "shows"}, "show")}
	_, err = d.WriteStatus(t.Context(), object, counting(1))
	if !reconcile.IsStalePlan(err) {
		t.Errorf("a write of what is gone: got %v, want that the plan is stale", err)
	}
	if apierrors.IsConflict(err) {
		t.Errorf("a write of what is gone: got %v, want no conflict", err)
	}
	s.before = func(int) error { return failed }
	if _, err := d.WriteStatus(t.Context(), object, counting(1)); !errors.Is(err, failed) {
		t.Errorf("a write that fails: got %v, want %v", err, failed)
	}
}

func (d *StatusBatcher[T, P, D]) waits(ctx context.Context, object P) ([]byte, error) {
	_, err := d.WriteStatus(ctx, object, func(P) ([]byte, error) { return nil, nil })
	return nil, err
}
