package stop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// containers is a runtime that records its calls.
type containers struct {
	mu   sync.Mutex
	log  []string
	exec func(ctx context.Context) error
	err  error
	// events are read when the runtime is called: the event has to exist already.
	events *record.FakeRecorder
}

func (c *containers) untold() string {
	if c.events != nil && len(c.events.Events) == 0 {
		return ", and no event tells"
	}
	return ""
}

func (c *containers) Exec(ctx context.Context, id string, command []string, timeout time.Duration) error {
	c.mu.Lock()
	c.log = append(c.log, fmt.Sprintf("exec %s %v %s", id, command, timeout)+c.untold())
	c.mu.Unlock()
	return c.exec(ctx)
}

func (c *containers) Stop(_ context.Context, id string, grace time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf("stop %s %s", id, grace)+c.untold())
	return c.err
}

func drain(events *record.FakeRecorder) []string {
	var all []string
	for len(events.Events) > 0 {
		all = append(all, <-events.Events)
	}
	return all
}

func request(hook *corev1.LifecycleHandler, grace time.Duration) Request {
	return Request{Container: runtime.Container{ID: "containerd://abc", Name: "app", PodNamespace: "ns", PodName: "p", PodUID: "u"},
		By: "a test", Grace: grace, Hook: hook,
		Check: func(context.Context) error { return nil }}
}

// CRR-101, CRR-102 (part), CRR-103, CRR-104 (part), CRR-105 (part), ND-114: event, hook within the grace
// period, then the runtime with what is left, at least 2 s; a failing hook warns and aborts nothing, and
// messages name the container instead of its ID.
func TestGracePeriodIsShared(t *testing.T) {
	exec := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"quit"}}}
	after := func(d time.Duration, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(d):
				return err
			}
		}
	}
	stopping := "Normal Killing Stopping container app by a test"
	for name, test := range map[string]struct {
		hook   *corev1.LifecycleHandler
		exec   func(context.Context) error
		grace  time.Duration
		log    []string
		events []string
		took   time.Duration
	}{
		"no hook": {grace: 30 * time.Second, log: []string{"stop containerd://abc 30s"}, events: []string{stopping}},
		"grace 0": {hook: exec, log: []string{"stop containerd://abc 2s"}, events: []string{stopping}},
		"quick hook": {hook: exec, exec: after(3500*time.Millisecond, nil), grace: 30 * time.Second,
			log: []string{"exec containerd://abc [quit] 30s", "stop containerd://abc 27s"}, events: []string{stopping},
			took: 3500 * time.Millisecond},
		"slow hook": {hook: exec, exec: after(time.Hour, nil), grace: 10 * time.Second,
			log: []string{"exec containerd://abc [quit] 10s", "stop containerd://abc 2s"},
			events: []string{stopping,
				"Warning FailedPreStopHook preStop hook of container app failed: it took longer than the grace period of 10s"},
			took: 10 * time.Second},
		"hook that does not notice its end": {hook: exec, exec: func(context.Context) error { time.Sleep(time.Hour); return nil },
			grace: 10 * time.Second, log: []string{"exec containerd://abc [quit] 10s", "stop containerd://abc 2s"},
			events: []string{stopping,
				"Warning FailedPreStopHook preStop hook of container app failed: it took longer than the grace period of 10s"},
			took: 10 * time.Second},
		"failing hook": {hook: exec, exec: after(0, errors.New("no process abc")), grace: 10 * time.Second,
			log:    []string{"exec containerd://abc [quit] 10s", "stop containerd://abc 10s"},
			events: []string{stopping, "Warning FailedPreStopHook preStop hook of container app failed: no process app"}},
		"long failure": {hook: exec, exec: after(0, errors.New(strings.Repeat("x", 5000))), grace: 10 * time.Second,
			log: []string{"exec containerd://abc [quit] 10s", "stop containerd://abc 10s"},
			events: []string{stopping, "Warning FailedPreStopHook " +
				wording.Bound("preStop hook of container app failed: "+strings.Repeat("x", 5000))}},
		"sleep": {hook: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 4}}, grace: 10 * time.Second,
			log: []string{"stop containerd://abc 6s"}, events: []string{stopping}, took: 4 * time.Second},
		"long sleep": {hook: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 9999999999}}, grace: 10 * time.Second,
			log: []string{"stop containerd://abc 2s"},
			events: []string{stopping,
				"Warning FailedPreStopHook preStop hook of container app failed: it took longer than the grace period of 10s"},
			took: 10 * time.Second},
		"empty hook": {hook: &corev1.LifecycleHandler{}, grace: 10 * time.Second, log: []string{"stop containerd://abc 10s"},
			events: []string{stopping, "Warning FailedPreStopHook preStop hook of container app failed: the hook has no known kind"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, r := record.NewFakeRecorder(9), &containers{exec: test.exec}
				r.events = events
				s := &Stopper{Events: events, Clock: clock.RealClock{}, Stops: NewStops(), Requester: "test"}
				begin := time.Now()
				req := request(test.hook, test.grace)
				if err := s.Stop(t.Context(), r, &req); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.log, r.log); diff != "" {
					t.Errorf("what the runtime was asked (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.events, drain(events)); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if took := time.Since(begin); took != test.took {
					t.Errorf("the stop took %s, want %s", took, test.took)
				}
				time.Sleep(2 * time.Hour) // by the clock of the synctest bubble: an abandoned hook ends
				if n := testutil.ToFloat64(s.Stops.WithLabelValues("test", "succeeded")); n != 1 {
					t.Errorf("stops that are counted: got %v, want 1", n)
				}
			})
		})
	}
}

// CRR-129, CRR-166: a container is not stopped if Check fails before, or after the hook ran.
func TestAContainerIsNotStoppedIfTheCheckFails(t *testing.T) {
	for name, refused := range map[string]int{"before": 1, "while the hook ran": 2} {
		t.Run(name, func(t *testing.T) {
			checks := 0
			r := &containers{exec: func(context.Context) error { return nil }}
			s := &Stopper{Events: record.NewFakeRecorder(9), Clock: clock.RealClock{}, Stops: NewStops()}
			req := request(&corev1.LifecycleHandler{Exec: &corev1.ExecAction{}}, time.Second)
			req.Check = func(context.Context) error {
				if checks++; checks == refused {
					return fmt.Errorf("%w: completed", ErrNotStopped)
				}
				return nil
			}
			if err := s.Stop(t.Context(), r, &req); !errors.Is(err, ErrNotStopped) {
				t.Errorf("a stop whose check fails: got error %v, want %v", err, ErrNotStopped)
			}
			if strings.Contains(strings.Join(r.log, " "), "stop ") {
				t.Errorf("a stop whose check fails: the runtime was asked %v, want no stop", r.log)
			}
		})
	}
}

// CRR-104, CRR-163, ND-114: hooks without a host call the pod, ports are found by name, and headers are sent.
func TestHooksCallThePod(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer secure.Close()
	port := func(s *httptest.Server) intstr.IntOrString {
		return intstr.FromInt32(int32(s.Listener.Addr().(*net.TCPAddr).Port))
	}
	ports := []corev1.ContainerPort{{Name: "web", ContainerPort: port(server).IntVal}}
	for name, test := range map[string]struct {
		hook  corev1.LifecycleHandler
		podIP string
		fails string
	}{
		"http": {podIP: "127.0.0.1",
			hook: corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/quit?now=1", Port: intstr.FromString("web"),
				HTTPHeaders: []corev1.HTTPHeader{{Name: "host", Value: "example"}, {Name: "X-A", Value: "b"}}}}},
		"https, certificate not checked": {podIP: "127.0.0.1",
			hook: corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: "HTTPS", Port: port(secure)}}},
		"http with host": {
			hook: corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: port(server)}}},
		"http that fails": {podIP: "127.0.0.1",
			hook:  corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bad", Port: port(server)}},
			fails: "500 Internal Server Error"},
		"unknown port": {podIP: "127.0.0.1",
			hook:  corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("none")}},
			fails: "port none is not one of the container"},
		"no IP": {hook: corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: port(server)}},
			fails: "the pod has no IP to call"},
		"tcp": {podIP: "127.0.0.1",
			hook: corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}},
		"tcp refused": {podIP: "127.0.0.1",
			hook: corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}}, fails: "connecting"},
	} {
		t.Run(name, func(t *testing.T) {
			events, r := record.NewFakeRecorder(9), &containers{}
			s := &Stopper{Events: events, Clock: clock.RealClock{}, Stops: NewStops()}
			req := request(&test.hook, 10*time.Second)
			req.PodIP, req.Ports = test.podIP, ports
			if err := s.Stop(t.Context(), r, &req); err != nil {
				t.Fatalf("the stop: %v", err)
			}
			if len(r.log) != 1 {
				t.Fatalf("what the runtime was asked: got %v, want the stop alone", r.log)
			}
			told := strings.Join(drain(events)[1:], "\n")
			if fails, want := told != "", test.fails != ""; fails != want {
				t.Errorf("events of a hook that fails: got %q, want some: %t", told, want)
			}
			if !strings.Contains(told, test.fails) {
				t.Errorf("events of a hook that fails: got %q, want %q in them", told, test.fails)
			}
			if name == "http" && got.Host != "example" {
				t.Errorf("host that the hook calls: got %s, want example", got.Host)
			}
			if name == "http" && got.Header.Get("X-A") != "b" {
				t.Errorf("headers that the hook sends: got %v, want X-A: b", got.Header)
			}
			if name == "http" && got.URL.String() != "/quit?now=1" {
				t.Errorf("address that the hook calls: got %s, want /quit?now=1", got.URL)
			}
		})
	}
}

// CRR-105, CRR-106: events point to the container, kubelet's way.
func TestEventsPointToTheContainer(t *testing.T) {
	r := request(nil, 0)
	want := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "p", UID: "u", FieldPath: "spec.containers{app}"}
	if diff := cmp.Diff(want, r.reference()); diff != "" {
		t.Errorf("object of events (-want +got):\n%s", diff)
	}
	r.Init = true
	if path := r.reference().FieldPath; path != "spec.initContainers{app}" {
		t.Errorf("field of events of an init container: got %s, want spec.initContainers{app}", path)
	}
}
