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
	if a == nil || b == nil || open("10.0.0.1") != nil {
		t.Fatal("one address has no bound, or no place")
	}
	b.trust()
	if open("10.0.0.1") == nil {
		t.Error("a known caller counts")
	}
	if open("10.0.0.2") == nil || open("10.0.0.3") != nil {
		t.Error("there is no bound")
	}
	l.follow(a, http.StateIdle)
	l.follow(b, http.StateIdle)
	if open("10.0.0.3") == nil || !a.Conn.(*from).closed || b.Conn.(*from).closed {
		t.Error("an idle connection makes no room, or that of a known caller does")
	}
	if err := a.Close(); err != nil || len(l.open) != 4 {
		t.Errorf("closed twice: %v, %d", err, len(l.open))
	}
	for c := range l.open {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(l.open)+len(l.sources) > 0 {
		t.Errorf("%v %v", l.open, l.sources)
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
	if err := answer.Body.Close(); err != nil || answer.ProtoMajor != 1 {
		t.Errorf("%s %v", answer.Proto, err)
	}
}

// A few connections that announced large bodies, and sent nothing, took all room: updates of everybody were
// answered with 429. Room is taken by what came.
func TestAnnouncedLengthsTakeNoRoom(t *testing.T) {
	m := newMemoryLimiter()
	server := httptest.NewServer(m.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), mostBody))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
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
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%+v %v", answer, err)
	}
	_ = answer.Body.Close()
}

// Small requests are counted, too: thousands of them at once would be more than a manager has.
func TestSmallRequestsTakeRoom(t *testing.T) {
	m := newMemoryLimiter()
	m.time = 100 * time.Millisecond
	if !m.small.TryAcquire(smallRoom) {
		t.Fatal("no room")
	}
	answer := httptest.NewRecorder()
	m.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), mostBody).ServeHTTP(answer,
		httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{}`)))
	if answer.Code != http.StatusTooManyRequests {
		t.Errorf("%d", answer.Code)
	}
}
