package admission

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// from is a connection from an address.
type from struct {
	net.Conn
	address string
	closed  bool
}

func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1} }

func (f *from) Close() error { f.closed = true; return nil }

// Nobody takes all connections: one address has a part of them, unless it is known to be an API server, and
// those that are idle make room.
func TestConnectionsAreBounded(t *testing.T) {
	l := bounding(nil, 4, 2)
	open := func(address string) *connection {
		c, victim := l.admit(&from{address: address})
		if victim != nil {
			_ = victim.Conn.Close()
		}
		return c
	}
	a, b := open("10.0.0.1"), open("10.0.0.1")
	if a == nil || b == nil {
		t.Fatal("one address has no place for two connections")
	}
	if open("10.0.0.1") != nil {
		t.Fatal("one address has no bound")
	}
	b.trust()
	if open("10.0.0.1") == nil {
		t.Error("a known caller counts")
	}
	if open("10.0.0.2") == nil {
		t.Error("another address has no place")
	}
	if open("10.0.0.3") != nil {
		t.Error("all together have no bound")
	}
	l.follow(a, http.StateIdle)
	l.follow(b, http.StateIdle)
	if open("10.0.0.3") == nil {
		t.Error("an idle connection makes no room")
	}
	if !a.Conn.(*from).closed {
		t.Error("the idle connection is still open")
	}
	if b.Conn.(*from).closed {
		t.Error("the idle connection of a known caller was closed")
	}
	if err := a.Close(); err != nil {
		t.Errorf("closing for the second time: %v", err)
	}
	if n := len(l.open); n != 4 {
		t.Errorf("open connections after closing one twice: got %d, want 4", n)
	}
	for c := range l.open {
		if err := c.Close(); err != nil {
			t.Errorf("closing a connection: %v", err)
		}
	}
	if len(l.open) > 0 {
		t.Errorf("open connections at the end: got %v, want none", l.open)
	}
	if len(l.sources) > 0 {
		t.Errorf("addresses at the end: got %v, want none", l.sources)
	}
}

// The webhooks speak HTTP/1.1 alone: by HTTP/2 one connection has hundreds of requests.
func TestConnectionsHaveOneRequestAtATime(t *testing.T) {
	r := startReplica(t, nil)
	transport := insecure()
	transport.TLSClientConfig.NextProtos, transport.ForceAttemptHTTP2 = []string{"h2", "http/1.1"}, true
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Errorf("closing the answer: %v", err)
	}
	if answer.ProtoMajor != 1 {
		t.Errorf("protocol: got %s, want HTTP/1", answer.Proto)
	}
}

// A few connections that announced large bodies, and sent nothing, took all room: updates of everybody were
// answered with 429. Room is taken by what came.
func TestAnnouncedLengthsTakeNoRoom(t *testing.T) {
	m := newMemoryLimiter()
	server := httptest.NewServer(m.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), mostBody))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 50 {
		body, send := io.Pipe()
		defer func() { _ = send.Close() }()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = mostBody
		go func() {
			if answer, err := server.Client().Do(request); err == nil {
				_ = answer.Body.Close()
			}
		}()
		if _, err := send.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := server.Client().Post(server.URL, "application/json", strings.NewReader(`"`+strings.Repeat("x", 3<<20)+`"`)) //nolint:noctx // short
	if err != nil {
		t.Fatalf("posting 3 MiB: %v", err)
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("status for 3 MiB: got %s, want 200", answer.Status)
	}
	_ = answer.Body.Close()
}

// Small requests are counted, too: thousands of them at once would be more than a manager has.
func TestSmallRequestsTakeRoom(t *testing.T) {
	m := newMemoryLimiter()
	m.time = 100 * time.Millisecond
	if err := m.small.acquire(t.Context(), owner{"10.0.0.1", "shop"}, smallRoom); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	m.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), mostBody).ServeHTTP(answer,
		httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{}`)))
	if answer.Code != http.StatusTooManyRequests {
		t.Errorf("status without room: got %d, want 429", answer.Code)
	}
}
