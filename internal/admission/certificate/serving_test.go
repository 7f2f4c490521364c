package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// OPS-046, OPS-047: callers that trust the published bundle reach the server at every moment of a change of
// the authority, over real TLS and with the manager's own server, which is never restarted.
func TestNoCallFailsWhileTheAuthorityChanges(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	k.policy = lasting
	pass(t, k)

	port := freePort(t)
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: k.options.Directory})
	server.Register("/healthz", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusOK) }))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Start(ctx); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	// The clock stands still during a call: none takes as long as an authority is published before it is
	// used.
	var calling sync.RWMutex
	step := func(by time.Duration) {
		calling.Lock()
		defer calling.Unlock()
		w.clock.Step(by)
	}
	call := func() (served *x509.Certificate, err error) {
		calling.RLock()
		defer calling.RUnlock()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(w.bundles(t)[0])
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "hook.sys.svc", Time: w.clock.Now}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/healthz", port), nil)
		if err != nil {
			return nil, err
		}
		answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
		if err != nil {
			return nil, err
		}
		return answer.TLS.PeerCertificates[0], answer.Body.Close()
	}
	eventually(t, "the server's start", func() bool { _, err := call(); return err == nil })

	// From here on every call must succeed.
	callsCtx, stop := context.WithCancel(ctx)
	var calls sync.WaitGroup
	made := 0
	calls.Go(func() {
		for callsCtx.Err() == nil {
			if _, err := call(); err != nil {
				t.Errorf("call %d: %v", made, err)
				return
			}
			made++
		}
	})
	serves := func(certificate []byte) func() bool {
		return func() bool {
			served, err := call()
			if err != nil {
				t.Fatalf("call: %v", err)
			}
			pair, err := tls.X509KeyPair(certificate, w.secret(t).Data["key.pem"])
			return err == nil && pair.Leaf.Equal(served)
		}
	}
	step(8*365*day + day)
	pass(t, k) // stages
	step(settleTime)
	pass(t, k) // promotes
	eventually(t, "the new certificate", serves(w.secret(t).Data["cert.pem"]))
	step(overlapTime)
	pass(t, k) // drops the old authority
	if !serves(w.secret(t).Data["cert.pem"])() {
		t.Error("another certificate than that of the Secret is served")
	}
	if n := authorities(w.bundles(t)[0]); n != 1 {
		t.Errorf("authorities after the change: got %d, want 1", n)
	}
	stop()
	calls.Wait()
	if made == 0 {
		t.Error("no call was made meanwhile")
	}
}

// OPS-090, D12: readiness asks our own server, and says which step fails.
func TestReadinessNamesTheStepThatFails(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	w.clock.SetTime(time.Now())
	pass(t, k)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	k.options.ServerPort = listener.Addr().(*net.TCPAddr).Port
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)

	status := http.StatusOK
	pair, err := tls.LoadX509KeyPair(filepath.Join(k.options.Directory, "tls.crt"), filepath.Join(k.options.Directory, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) }))
	server.Listener = listener
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	if err := k.Ready(request); err != nil {
		t.Errorf("not ready: %v", err)
	}
	status = http.StatusInternalServerError
	if err := k.Ready(request); err == nil || !strings.Contains(err.Error(), "webhook server: /healthz answers 500") {
		t.Errorf("readiness of a failing server: got %v, want the status 500 in it", err)
	}
	server.Close()
	if err := k.Ready(request); err == nil || !strings.Contains(err.Error(), "webhook server: ") {
		t.Errorf("readiness of a closed server: got %v, want an error about the server", err)
	}
}

// OPS-021, OPS-044.
func TestParseRenewBefore(t *testing.T) {
	cases := map[string]time.Duration{"": 180 * day, "30d": 30 * day, "2m": 60 * day, "1y": 365 * day, "9y": 9 * 365 * day,
		"10y": 0, "-1d": 0, "d": 0, "5": 0, "5h": 0, "99999999999999d": 0}
	for text, want := range cases {
		got, err := ParseRenewBefore(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := listener.Close(); err != nil {
			t.Errorf("closing the listener: %v", err)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// OPS-126: each replica tells when the certificate that it serves expires.
func TestTheExpiryIsAMetric(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	if n := testutil.CollectAndCount(k.Expiry()); n != 0 {
		t.Errorf("%d values before a certificate is served", n)
	}
	expires := func() float64 {
		t.Helper()
		pair, err := tls.X509KeyPair(w.secret(t).Data["cert.pem"], w.secret(t).Data["key.pem"])
		if err != nil {
			t.Fatal(err)
		}
		return float64(pair.Leaf.NotAfter.Unix())
	}
	pass(t, k)
	first := testutil.ToFloat64(k.Expiry())
	if want := expires(); first != want {
		t.Errorf("%f, want %f", first, want)
	}
	w.clock.Step(9*365*day + 200*day)
	pass(t, k)
	w.clock.Step(settleTime)
	pass(t, k) // serves another one
	got := testutil.ToFloat64(k.Expiry())
	if got != expires() {
		t.Errorf("expiry after renewal: got %f, want %f", got, expires())
	}
	if got <= first {
		t.Errorf("expiry after renewal: got %f, want it after %f", got, first)
	}
}
