package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// behind is an API server that counts writes, with a proxy before it.
type behind struct {
	proxy  *Proxy
	client *http.Client
	writes atomic.Int32
	path   string
	record *record.Writer
}

func start(t *testing.T) *behind {
	t.Helper()
	b := &behind{path: filepath.Join(t.TempDir(), "record")}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			b.writes.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","resourceVersion":"17"}}`))
	}))
	t.Cleanup(server.Close)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	var err error
	if b.record, err = record.Create(b.path); err != nil {
		t.Fatal(err)
	}
	if b.proxy, err = New(server.URL, server.TLS.Certificates[0], authorities, b.record); err != nil {
		t.Fatal(err)
	}
	b.proxy.SetManager("a.1")
	b.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}}
	t.Cleanup(func() { _ = b.proxy.Close() })
	return b
}

// send returns the status of the answer, or 0 if there is none.
func (b *behind) send(t *testing.T, ctx context.Context, method, path string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, b.proxy.URL()+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.client.Do(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

const podPath = "/api/v1/namespaces/x/pods/p"

func TestEachFaultDoesWhatItsNameSays(t *testing.T) {
	for kind, want := range map[Kind]struct {
		method, path string
		status       int
		writes       int32
	}{
		"":          {http.MethodPatch, podPath, 200, 1},
		LoseAnswers: {http.MethodPatch, podPath, 0, 1},
		Cut:         {http.MethodPatch, podPath, 0, 0},
		TooMany:     {http.MethodPatch, podPath, 429, 0},
		Broken:      {http.MethodPatch, podPath, 500, 0},
		Gone:        {http.MethodGet, "/api/v1/pods?watch=true&resourceVersion=5", 410, 0},
	} {
		t.Run(string(kind), func(t *testing.T) {
			b := start(t)
			f := &Fault{Kind: kind}
			if kind != "" {
				defer b.proxy.Inject(f)()
			}
			if status := b.send(t, t.Context(), want.method, want.path); status != want.status {
				t.Errorf("the answer is %d, want %d", status, want.status)
			}
			if n := b.writes.Load(); n != want.writes {
				t.Errorf("%d writes arrived, want %d", n, want.writes)
			}
			if hit := f.Hits() > 0; hit != (kind != "") {
				t.Errorf("the fault has hit %d requests", f.Hits())
			}
		})
	}
}

// A write that was held back arrives, although the manager has given it up, and is recorded with its revision.
func TestAWriteThatWasHeldBackArrives(t *testing.T) {
	b := start(t)
	release := b.proxy.Inject(&Fault{Kind: HoldWrites})
	impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if status := b.send(t, impatient, http.MethodPatch, podPath); status != 0 {
		t.Errorf("the answer is %d", status)
	}
	if n := b.writes.Load(); n != 0 {
		t.Errorf("%d writes arrived too early", n)
	}
	release()
	for deadline := time.Now().Add(10 * time.Second); b.writes.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the write did not arrive")
		}
	}
}

func TestAWriteIsRecordedWithItsRevision(t *testing.T) {
	b := start(t)
	b.send(t, t.Context(), http.MethodPatch, podPath)
	if err := b.proxy.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.record.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := record.Read(b.path)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Requests) != 1 || r.Requests[0].Revision != 17 || r.Requests[0].Manager != "a.1" || r.Requests[0].Status != 200 {
		t.Errorf("the record has %+v", r.Requests)
	}
}

// A node's connection is closed by a cut, which lets no other one through while it lasts; a stall keeps what is sent until it ends.
func TestWire(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("hello"))
	}))
	defer server.Close()
	wire, err := NewWire("127.0.0.1:0", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	client := server.Client()
	client.Timeout = 30 * time.Second
	ask := func() error {
		answer, err := client.Get("https://" + wire.Address())
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body) // the connection is kept
		return errors.Join(err, answer.Body.Close())
	}
	if err := ask(); err != nil {
		t.Fatal("an undisturbed wire:", err)
	}

	cut := &Fault{Kind: Cut}
	end := wire.Inject(cut)
	if err := ask(); err == nil {
		t.Error("a request passed a wire that is cut")
	}
	if cut.Hits() < 2 { // the connection from before, and the new one
		t.Errorf("a cut hit %d times", cut.Hits())
	}
	end()
	if err := ask(); err != nil {
		t.Error("after a cut:", err)
	}

	stall := &Fault{Kind: Stall}
	end = wire.Inject(stall)
	answered := make(chan error, 1)
	go func() { answered <- ask() }()
	for stall.Hits() == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-answered:
		t.Error("a request passed a wire that stalls:", err)
	default:
	}
	end()
	if err := <-answered; err != nil {
		t.Error("after a stall:", err)
	}
}
