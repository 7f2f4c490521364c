package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// OPS-046, OPS-047: callers that trust the published bundle reach the server all through a change of the authority, over real TLS and
// with the manager's own server, which is never restarted.
func TestNoCallFailsWhileTheAuthorityChanges(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	k.policy.renewBefore = 2 * 365 * day
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
	call := func() (served *x509.Certificate, err error) {
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
	w.clock.Step(8*365*day + day)
	pass(t, k) // stages
	w.clock.Step(settleTime)
	pass(t, k) // promotes
	eventually(t, "the new certificate", serves(w.secret(t).Data["cert.pem"]))
	w.clock.Step(overlapTime)
	pass(t, k) // drops the old authority
	if !serves(w.secret(t).Data["cert.pem"])() || authorities(w.bundles(t)[0]) != 1 {
		t.Error("the change did not complete")
	}
	stop()
	calls.Wait()
	if made == 0 {
		t.Error("no call was made meanwhile")
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
			t.Error(err)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}
