package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

type commands func(command []string) (runtime.Output, error)

func (c commands) Run(_ context.Context, _ string, command []string, _ time.Duration) (runtime.Output, error) {
	return c(command)
}

// PPM-088, PPM-091 (part): what a command prints is the message, that which it does not end in time is a
// failure, and what the runtime cannot do is neither.
func TestCommands(t *testing.T) {
	for name, test := range map[string]struct {
		output runtime.Output
		err    error
		want   Attempt
	}{
		"success":         {runtime.Output{Stdout: []byte("yes"), Stderr: []byte("warning")}, nil, Attempt{Success, "yes"}},
		"failure":         {runtime.Output{ExitCode: 3, Stdout: []byte("x"), Stderr: []byte("no")}, nil, Attempt{Failure, "no"}},
		"time is over":    {runtime.Output{}, fmt.Errorf("x: %w", runtime.ErrTimeout), Attempt{Failure, "the command did not end within 1s"}},
		"much output":     {runtime.Output{}, fmt.Errorf("x: %w", runtime.ErrPrintsTooMuch), Attempt{Failure, "the command printed so much that its result cannot be read"}},
		"no runtime":      {runtime.Output{}, runtime.ErrUnavailable, Attempt{None, runtime.ErrUnavailable.Error()}},
		"another problem": {runtime.Output{}, errors.New("x"), Attempt{None, "x"}},
	} {
		a := newAttempter(func(string) (Commands, error) {
			return commands(func([]string) (runtime.Output, error) { return test.output, test.err }), nil
		})
		d := definition()
		if got := a.attempt(t.Context(), &d, "c"); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
		// A liveness probe that prints much worked as long as kubelet carried it out: it does not restart its
		// container now.
		d = definition(named("pg-0-app"))
		if got := a.attempt(t.Context(), &d, "c"); errors.Is(test.err, runtime.ErrPrintsTooMuch) && got.Outcome != None {
			t.Errorf("a liveness probe, %s: got %+v, want no outcome", name, got)
		}
	}
}

// web is a definition of a probe of a server in this process.
func web(t *testing.T, server *httptest.Server, options ...func(*appsv1alpha1.HTTPGetAction)) Definition {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	action := &appsv1alpha1.HTTPGetAction{Path: "/healthz?full=1", Port: intstr.FromString(port), Scheme: corev1.URISchemeHTTP}
	for _, option := range options {
		option(action)
	}
	d := definition(func(p *appsv1alpha1.ContainerProbe) {
		p.Probe.ContainerProbeHandler = appsv1alpha1.ContainerProbeHandler{HTTPGet: action}
	})
	d.IP = host
	return d
}

// PPM-089, PPM-145: probes by a request and by a connection are as kubelet's, and nothing is sent anywhere
// but to the pod.
func TestProbesByNetwork(t *testing.T) {
	t.Run("requests", requests)
	t.Run("connections", connections)
	t.Run("nothing is sent elsewhere", nothingIsSentElsewhere)
}

// requests: 200 to 399 is success, a redirect to another host is not followed and one within the pod is,
// certificates are not verified, and headers are those of the user.
func requests(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	_, otherPort, _ := net.SplitHostPort(other.Listener.Addr().String())
	near := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "another port") }))
	defer near.Close()
	_, nearPort, _ := net.SplitHostPort(near.Listener.Addr().String())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz":
			_, _ = fmt.Fprintf(w, "%s host=%s agent=%q accept=%q x=%q", r.URL.RawQuery, r.Host, r.Header.Get("User-Agent"), r.Header.Values("Accept"),
				r.Header.Values("X"))
		case "/away":
			http.Redirect(w, r, "http://localhost:"+otherPort+"/", http.StatusFound)
		case "/inside":
			http.Redirect(w, r, "/healthz?inside=1", http.StatusFound)
		case "/port":
			http.Redirect(w, r, "http://127.0.0.1:"+nearPort+"/", http.StatusFound)
		case "/300":
			w.WriteHeader(http.StatusMultipleChoices)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/400":
			http.Error(w, "broken", http.StatusBadRequest)
		case "/slow":
			<-r.Context().Done()
		case "/much":
			_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 1<<20)))
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	a := newAttempter(nil)
	path := func(p string) func(*appsv1alpha1.HTTPGetAction) {
		return func(h *appsv1alpha1.HTTPGetAction) { h.Path = p }
	}
	headers := func(list ...string) func(*appsv1alpha1.HTTPGetAction) {
		return func(h *appsv1alpha1.HTTPGetAction) {
			for i := 0; i < len(list); i += 2 {
				h.HTTPHeaders = append(h.HTTPHeaders, corev1.HTTPHeader{Name: list[i], Value: list[i+1]})
			}
		}
	}
	address := plain.Listener.Addr().String()
	for name, test := range map[string]struct {
		d       Definition
		outcome Outcome
		message string
	}{
		"as it is":                   {web(t, plain), Success, `full=1 host=` + address + ` agent="kube-probe" accept=["*/*"] x=[]`},
		"no scheme":                  {web(t, plain, func(h *appsv1alpha1.HTTPGetAction) { h.Scheme = "" }), Success, "full=1"},
		"headers":                    {web(t, plain, headers("Host", "shop.example", "x", "1", "X", "2", "user-agent", "me", "accept", "a/b")), Success, `full=1 host=shop.example agent="me" accept=["a/b"] x=["1" "2"]`},
		"accept is removed":          {web(t, plain, headers("Accept", "")), Success, `accept=[]`},
		"https":                      {web(t, secure, func(h *appsv1alpha1.HTTPGetAction) { h.Scheme = corev1.URISchemeHTTPS }), Success, "full=1"},
		"a redirect away":            {web(t, plain, path("/away")), Success, "localhost"},
		"a redirect to another port": {web(t, plain, path("/port")), Success, "another port"},
		"300":                        {web(t, plain, path("/300")), Success, ""},
		"a redirect inside":          {web(t, plain, path("/inside")), Success, "inside=1"},
		"redirects for ever":         {web(t, plain, path("/loop")), Failure, "10 redirects"},
		"400":                        {web(t, plain, path("/400")), Failure, "status code 400: broken"},
		"too slow":                   {web(t, plain, path("/slow")), Failure, "deadline exceeded"},
		"much":                       {web(t, plain, path("/much")), Success, strings.Repeat("x", 10<<10)},
		"another host":               {web(t, plain, path("http://localhost:"+otherPort+"/")), Success, ""},
	} {
		got := a.attempt(t.Context(), &test.d, "c")
		if got.Outcome != test.outcome {
			t.Errorf("%s: the attempt is a %v, want %v: %s", name, got.Outcome, test.outcome, got.Message)
		}
		if !strings.Contains(got.Message, test.message) {
			t.Errorf("%s: the attempt says %.100q, want %.100q in it", name, got.Message, test.message)
		}
		if len(got.Message) > mostOfBody+100 {
			t.Errorf("%s: read %d bytes, want %d at most", name, len(got.Message), mostOfBody+100)
		}
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("requests to another host: got %d, want 0", n)
	}
}

// connections: a TCP probe connects within its time, and says nothing.
func connections(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := definition(func(p *appsv1alpha1.ContainerProbe) {
		p.Probe.ContainerProbeHandler = appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{
			Port: intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)}}
	})
	d.IP = "127.0.0.1"
	a := newAttempter(nil)
	if got := a.attempt(t.Context(), &d, "c"); got != (Attempt{Outcome: Success}) {
		t.Errorf("connecting to a port that is open: got %+v, want success without words", got)
	}
	_ = listener.Close()
	got := a.attempt(t.Context(), &d, "c")
	if got.Outcome != Failure {
		t.Errorf("connecting to a port that is closed: got %+v, want failure", got)
	}
	if !strings.Contains(got.Message, "refused") {
		t.Errorf("connecting to a port that is closed: says %q, want that it was refused", got.Message)
	}
	d.Handler.TCPSocket.Port, d.Timeout = intstr.FromInt(busy(t)), 50*time.Millisecond
	got = a.attempt(t.Context(), &d, "c")
	if got.Outcome != Failure {
		t.Errorf("connecting to a port that does not answer: got %+v, want failure", got)
	}
	if !strings.Contains(got.Message, "timeout") {
		t.Errorf("connecting to a port that does not answer: says %q, want a timeout", got.Message)
	}
}

// busy is a port at which connections wait to be accepted for ever, and no more of them may wait.
func busy(t *testing.T) int {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := errors.Join(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(socket, 0)); err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	port := address.(*syscall.SockaddrInet4).Port
	for range 10 {
		connection, err := (&net.Dialer{Timeout: 200 * time.Millisecond}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return port
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
	t.Fatal("ten connections wait")
	return 0
}
