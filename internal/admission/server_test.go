package admission

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

func testServer(t *testing.T, options Options) *server {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	options.Gates = webhooktest.Gates(t, "")
	keeping := options.keeper(registered(t, nil, nil))
	keeping.CRDs = nil
	callers, err := newCallers(options.ClientCAFile, options.ClientNames)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Server: webhook.NewServer(webhook.Options{}), port: options.Port, certDir: options.CertDir, callers: callers, timeout: time.Nanosecond,
		keeper: certificate.New(fake.NewClientBuilder().WithScheme(scheme).Build(), clock.RealClock{}, logr.Discard(), keeping)}
	s.Register("/healthz", http.HandlerFunc(alive))
	return s
}

// replica is a server that runs on a port of its own.
type replica struct {
	address string
	// asked makes it end, as a signal does; over ends its context.
	asked, over func()
	// ended is closed when it has ended.
	ended chan struct{}
}

func startReplica(t *testing.T, handlers map[string]http.Handler) *replica {
	t.Helper()
	return startReplicaFor(t, "", nil, handlers)
}

// startReplicaFor starts one that answers callers of these names whom authorities of the file have signed
// for.
func startReplicaFor(t *testing.T, authorities string, names []string, handlers map[string]http.Handler) *replica {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{address: listener.Addr().String(), ended: make(chan struct{})}
	options := Options{Environment: &framework.Environment{Namespace: "sys"}, Host: "127.0.0.1", FilesOnly: true, CertDir: t.TempDir(),
		Port: listener.Addr().(*net.TCPAddr).Port, ClientCAFile: authorities, ClientNames: names}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	stopping := make(chan struct{})
	r.asked = func() { close(stopping) }
	var ctx context.Context
	ctx, r.over = context.WithCancel(context.Background())
	s := testServer(t, options)
	s.stopping = stopping
	for path, handler := range handlers {
		s.Register(path, handler)
	}
	go func() {
		defer close(r.ended)
		if err := s.Start(ctx); err != nil {
			t.Errorf("running the server: %v", err)
		}
	}()
	t.Cleanup(func() { r.over(); <-r.ended })
	tick, timeout := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for err = r.get(t, tls.VersionTLS13); err != nil; err = r.get(t, tls.VersionTLS13) {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal(err)
		}
	}
	return r
}

// get requests /healthz on a new connection.
func (r *replica) get(t *testing.T, newest uint16) error {
	t.Helper()
	transport := insecure()
	transport.TLSClientConfig.MinVersion, transport.TLSClientConfig.MaxVersion = tls.VersionTLS10, newest
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.address+"/healthz", nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %s", answer.Status)
	}
	return answer.Body.Close()
}

// insecure trusts every certificate, since the tests of the keeper check certificates. It uses HTTP/1.1, as
// API servers do for webhooks.
func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
		NextProtos: []string{"http/1.1"}}} //nolint:gosec // see above
}

// OPS-030, OPS-040: the server makes its certificate, answers /healthz, ends with its context, and speaks no
// TLS older than 1.2.
func TestServer(t *testing.T) {
	r := startReplica(t, nil)
	if err := r.get(t, tls.VersionTLS12); err != nil {
		t.Errorf("TLS 1.2: %v", err)
	}
	if err := r.get(t, tls.VersionTLS11); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: got %v, want it refused", err)
	}
	r.over()
	<-r.ended
	if err := r.get(t, tls.VersionTLS13); err == nil {
		t.Error("it answers after its end")
	}
}

// OPS-042: without a first pass in time the server ends, and the manager with it, naming the obstacle.
func TestServerEndsWithoutACertificate(t *testing.T) {
	options := Options{Environment: &framework.Environment{Namespace: "sys"}, Host: "127.0.0.1", FilesOnly: true, CertDir: "/dev/null/certs"}
	if err := testServer(t, options).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "/dev/null/certs") {
		t.Errorf("starting without a certificate: got %v, want an error with the directory", err)
	}
}

// ND-184, CRR-087, WS-186, WS-187: without PodWebhook pods are not changed at their creation, and the entries
// that would send them are dropped; all pods are sent with KruisePodReadinessGate only, and removals only
// with WorkloadSpread.
func TestPodWebhookFollowsItsGates(t *testing.T) {
	for name, test := range map[string]struct {
		pods, all, want bool
		condition       string
	}{
		"neither":                {condition: "false"},
		"PodWebhook":             {pods: true, want: true, condition: "false"},
		"both":                   {pods: true, all: true, want: true, condition: "KruisePodReady"},
		"KruisePodReadinessGate": {all: true, condition: "KruisePodReady"},
	} {
		handlers := registered(t, podsIf(test.pods, test.all), nil)
		options := Options{GateAllPods: test.all, Environment: &framework.Environment{Gates: webhooktest.Gates(t, "")}}.keeper(handlers)
		for _, path := range []string{mutatePodPath, mutatePodAllPath} {
			active, known := options.Paths[path]
			_, handled := handlers[path]
			if handled != test.want {
				t.Errorf("%s: %s is handled: got %t, want %t", name, path, handled, test.want)
			}
			if active != test.want {
				t.Errorf("%s: the entry of %s is kept: got %t, want %t", name, path, active, test.want)
			}
			if !known {
				t.Errorf("%s: the entry of %s is unknown", name, path)
			}
		}
		for _, removals := range []*pod.Disruptions{nil, pod.NewDisruptions()} {
			handlers := registered(t, nil, removals)
			active, known := (Options{Environment: &framework.Environment{Gates: webhooktest.Gates(t, "")}}).keeper(handlers).Paths[validatePodPath]
			if !known {
				t.Error("the entry that checks removals is unknown")
			}
			if want := removals != nil; active != want {
				t.Errorf("the entry that checks removals is kept: got %t, want %t", active, want)
			}
			if handled := handlers[validatePodPath] != nil; active != handled {
				t.Errorf("the entry that checks removals is kept: %t, removals are handled: %t", active, handled)
			}
		}
		scope, known := options.Scopes[mutatePodAllName].Conditions()
		if !known {
			t.Errorf("%s: the conditions for all pods are not known", name)
		}
		if len(scope) != 1 || !strings.Contains(scope[0].Expression, test.condition) {
			t.Errorf("%s: conditions for all pods: got %v, want one with %s", name, scope, test.condition)
		}
	}
}

// ND-185: if pods are changed at all, launch priority needs no further gate.
func TestLaunchPriorityNeedsNoGate(t *testing.T) {
	handlers := registered(t, podsIf(true, false), nil)
	request := admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{Operation: admissionapi.Create,
		Object: runtime.RawExtension{
			Raw: []byte(`{"metadata":{"name":"web-0","annotations":{"apps.kruise.io/container-launch-priority":"Ordered"}},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`)}}}
	answer := handlers[mutatePodPath].Handle(t.Context(), request)
	if !answer.Allowed {
		t.Errorf("admission: %+v", answer.Result)
	}
	for _, part := range []string{"web-0-barrier", "p_-1"} {
		if patches := fmt.Sprint(answer.Patches); !strings.Contains(patches, part) {
			t.Errorf("changes of the pod: got %s, want %s in them", patches, part)
		}
	}
}

// podsIf returns the chain that changes pods, or nil if the gate is off.
func podsIf(on, gateAll bool) *pod.Chain {
	if !on {
		return nil
	}
	return newPodChain(gateAll, nil, nil, nil)
}
