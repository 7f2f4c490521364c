package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// moved counts the pods of image nginx:2.
func (s *simulated) moved() (n int) {
	for _, pod := range s.AllPods() {
		if pod.Spec.Containers[0].Image == "nginx:2" {
			n++
		}
	}
	return n
}

// TestCondemnedPodsArePaced shows ASTS-128: nothing happens but that time passes, and condemned pods go when
// they have been ready for minReadySeconds, in order.
func TestCondemnedPodsArePaced(t *testing.T) {
	seconds := int32(30)
	s := simulate(1, makeSet(3, func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = &seconds
	}), statefulset.Features{})
	s.ActFor(5 * time.Minute)
	for _, name := range []string{"web-1", "web-2"} {
		s.Node.Crash(name)
		for s.Node.Step(name) {
		}
	}
	ready := s.Now()
	s.Edit(scaled(1))
	var gone []string
	s.BeforeWrite = func(w simulation.Write, _, _ client.Object) {
		if w.Verb == "delete" && w.Key.Kind == "Pod" {
			gone = append(gone, w.Key.Name)
			waited := s.Now().Sub(ready)
			if waited < 30*time.Second {
				t.Errorf("time since it was ready: got %v, want at least %v; %s goes after %s", waited, 30*time.Second,
					w.Key.Name, waited)
			}
			if waited > 32*time.Second {
				t.Errorf("time since it was ready: got %v, want at most %v; %s goes after %s", waited, 32*time.Second,
					w.Key.Name, waited)
			}
		}
	}
	s.Round()
	due := s.Queue.Due()
	if due.IsZero() {
		t.Errorf("nothing is due: got true, want false; the set is due at %s", due)
	}
	if due.After(ready.Add(31 * time.Second)) {
		t.Errorf("it is due too late: got true, want false; the set is due at %s", due)
	}
	s.ActFor(5 * time.Minute)
	if !slices.Equal(gone, []string{"web-2", "web-1"}) {
		t.Errorf("gone: got %q, want %q\n%s", gone, []string{"web-2", "web-1"}, s.describe())
	}
}

// slowly is a client whose requests that create or delete take a second, and which counts how many of a kind
// are under way at most.
type slowly struct {
	client.Client
	mu            sync.Mutex
	running, most map[string]int
	begun         int
	fails         func(client.Object) error
}

func (c *slowly) do(verb string, object client.Object, then func() error) error {
	kind := verb + " " + object.GetObjectKind().GroupVersionKind().Kind
	c.mu.Lock()
	c.begun++
	c.running[kind]++
	c.most[kind] = max(c.most[kind], c.running[kind])
	c.mu.Unlock()
	time.Sleep(time.Second) // in a bubble, whose time passes by itself
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[kind]--
	if c.fails != nil {
		if err := c.fails(object); err != nil {
			return err
		}
	}
	return then()
}

func (c *slowly) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.do("create", object, func() error { return c.Client.Create(ctx, object, options...) })
}

func (c *slowly) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.do("delete", object, func() error { return c.Client.Delete(ctx, object, options...) })
}

// silent hears events and says nothing.
type silent struct{}

func (silent) Event(client.Object, string, string, string) {}

// TestManyPodsAtATime shows ASTS-135: under Parallel all pods that are missing are created in one pass, each
// after its PVC, and all condemned ones deleted, as many at a time as the bound of all controllers leaves.
// After a creation failed no further one begins; a deletion that fails stops no other.
func TestManyPodsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := simulate(1, makeSet(0, inParallel, func(set *appsv1beta1.StatefulSet) { setClaims(set, []string{"data"}, "1Gi") }),
			statefulset.Features{})
		s.ActFor(time.Minute)
		slow := &slowly{Client: s.kube.Client}
		s.kube.Client, s.kube.Limit, s.controller.Events = slow, reconcile.NewWriteLimiter(0), silent{}
		pass := func() time.Duration {
			slow.running, slow.most, slow.begun = map[string]int{}, map[string]int{}, 0
			s.Events(10_000)
			began := time.Now()
			_, _ = s.Reconcile()
			return time.Since(began)
		}
		s.Edit(scaled(30))
		if took := pass(); took > 3*time.Second {
			t.Errorf("creating 30 pods took %s, want 3s at most", took)
		}
		if n := len(s.AllPods()); n != 30 {
			t.Errorf("pods: got %d, want 30", n)
		}
		for _, what := range []string{"create PersistentVolumeClaim", "create Pod"} {
			if n := slow.most[what]; n != 30 {
				t.Errorf("%s: got %d at a time, want 30", what, n)
			}
		}
		s.Edit(scaled(0)) // none of them is ready yet
		slow.fails = func(object client.Object) error {
			if object.GetName() == "web-3" {
				return context.DeadlineExceeded
			}
			return nil
		}
		took := pass()
		left := slices.DeleteFunc(s.AllPods(), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
		if len(left) != 1 {
			t.Errorf("number left: got %d, want 1; %d pods are left after %s", len(left), len(left), took)
		} else if left[0].Name != "web-3" {
			t.Errorf("name of the first left: got %q, want %q; %d pods are left after %s", left[0].Name, "web-3",
				len(left), took)
		} else if took > 2*time.Second {
			t.Errorf("took: got %v, want at most %v; %d pods are left after %s", took, 2*time.Second, len(left), took)
		}
		s.ActFor(time.Minute)
		s.Edit(scaled(200))
		slow.fails = func(object client.Object) error {
			if strings.HasPrefix(object.GetName(), "web-") {
				return context.DeadlineExceeded
			}
			return nil
		}
		if pass(); slow.begun < 30 || slow.begun > 100 {
			t.Errorf("creations that are begun of 200, all of which fail: got %d, want 30 to 100", slow.begun)
		}
	})
}

// TestClaimsDoNotKeepPodsWaiting shows that a pass over many claims on a slow API server is as short as one
// over many pods: the next plan goes on with the rest, and with the pods that are complete by then.
func TestClaimsDoNotKeepPodsWaiting(t *testing.T) {
	follow := func(set *appsv1beta1.StatefulSet) {
		follows(set)
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = number(30)
	}
	lose := func(s *simulated) {
		for _, pod := range s.AllPods() {
			s.Change(podKey(pod.Name), func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodPending })
			s.Remove(claimKey("data-" + pod.Name))
		}
	}
	for name, many := range map[string]func(*simulated){
		"growth":         func(s *simulated) { s.Edit(sizedClaims("2Gi")) },
		"owners":         func(s *simulated) { s.Edit(retain(remove, keep)) },
		"missing claims": lose,
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(30, inPlace, parallel, sizedClaims("1Gi"), follow), everything)
			s.Answer = func(r *simulation.Request) error {
				if r.Key.Kind == "PersistentVolumeClaim" {
					s.Pass(100 * time.Millisecond)
				}
				return nil
			}
			many(s)
			written, passes := func() (n int) {
				for _, w := range s.Writes {
					if w.Key.Kind == "PersistentVolumeClaim" {
						n++
					}
				}
				return n
			}, 0
			before := written()
			for ; written() < before+30 && passes < 1000; passes++ {
				s.Events(1 << 20)
				begun := s.Now()
				s.Manage()
				if took := s.Now().Sub(begun); took > time.Second {
					t.Errorf("a pass takes %s", took)
				}
				s.Pass(time.Millisecond)
			}
			if passes < 5 {
				t.Errorf("passes: got %d, want at least 5; %d passes, %d written", passes, passes, written()-before)
			}
			if passes == 1000 {
				t.Errorf("passes: got %d, want another value; %d passes, %d written", passes, passes, written()-before)
			}
		})
	}
}
