// Package proxy stands between a manager and the API server, and injects what can go wrong on the way.
package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// Proxy is a reverse proxy for one manager.
type Proxy struct {
	reverse *httputil.ReverseProxy
	record  *record.Writer
	server  *http.Server
	address string

	injected injected

	mutex   sync.Mutex
	manager string
	streams map[int64]context.CancelFunc
	next    int64
	renewed time.Time
}

// New starts a proxy on a free port of loopback. It shows the certificate, and believes the API server's if
// authorities signed it.
func New(upstream string, certificate tls.Certificate, authorities *x509.CertPool, to *record.Writer) (*Proxy, error) {
	target, err := url.Parse(upstream)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for a manager: %w", err)
	}

	p := &Proxy{record: to, address: listener.Addr().String(),
		streams: map[int64]context.CancelFunc{}}
	p.reverse = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// The transport asks for compressed answers by itself, and then reads them.
			r.Out.Header.Del("Accept-Encoding")
		},
		Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 32,
		},
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: p.answered,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // as if the API server had closed the connection itself
		},
	}
	p.server = &http.Server{
		Handler:           p,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	go func() {
		if err := p.server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("The proxy of a manager ended: %v", err)
		}
	}()

	return p, nil
}

// URL is what the manager calls.
func (p *Proxy) URL() string { return "https://" + p.address }

// Close ends the proxy.
func (p *Proxy) Close() error {
	if err := p.server.Close(); err != nil {
		return fmt.Errorf("ending a proxy: %w", err)
	}
	return nil
}

// SetManager names the process whose requests come from now on.
func (p *Proxy) SetManager(name string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.manager = name
}

// Renewed returns when the manager last wrote the lock of the leader.
func (p *Proxy) Renewed() time.Time {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.renewed
}

// Inject injects a fault until the returned function is called.
func (p *Proxy) Inject(f *Fault) func() {
	end := p.injected.begin(f)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if f.Kind.endsStreams() {
		for _, cancel := range p.streams {
			cancel()
		}
		f.hits.Add(int32(len(p.streams)))
	}
	return end
}

// exchange is one request and its answer. It goes with the request's context.
type exchange struct {
	record.Request
	lease bool
}

type exchangeKey struct{}

func isWatch(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "false"
}

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// ServeHTTP sends a request on, or does what the faults of the moment say.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	manager := p.manager
	p.mutex.Unlock()
	e := &exchange{lease: strings.Contains(r.URL.Path, "/leases/"), Request: record.Request{Manager: manager,
		Verb: r.Method, Path: r.URL.Path, Agent: r.UserAgent(), Begin: time.Now()}}
	if isWrite(r) && !isQuestion(r) {
		defer func() {
			e.End = time.Now()
			p.record.Write(record.Line{Request: &e.Request})
		}()
	}

	ctx := context.WithValue(r.Context(), exchangeKey{}, e)
	// A request that is on its way arrives, whatever becomes of the manager that has sent it.
	if isWrite(r) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var cancel context.CancelFunc
		// Without a deadline the reverse proxy would find out by itself that the manager has gone away.
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		defer cancel()
	}
	r = r.WithContext(ctx)
	then := untouched
	for _, f := range p.injected.all() {
		switch o := f.before(w, r, e); o {
		case answered:
			return
		case lost, late:
			then = o
		case untouched:
		}
	}

	if isWatch(r) {
		p.stream(w, r)
		return
	}
	e.Sent = true
	switch then {
	case lost:
		p.reverse.ServeHTTP(&discard{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case late:
		p.reverse.ServeHTTP(&discard{header: http.Header{}}, r)
		timedOut(w)
	default:
		p.reverse.ServeHTTP(w, r)
	}
}

// isQuestion reports whether a request with a body writes nothing.
func isQuestion(r *http.Request) bool {
	return r.URL.Query().Get("dryRun") != "" || strings.Contains(r.URL.Path, "accessreviews") ||
		strings.Contains(r.URL.Path, "tokenreviews")
}

// stream sends a watch on. It ends with the faults that end streams.
func (p *Proxy) stream(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p.mutex.Lock()
	p.next++
	number := p.next
	p.streams[number] = cancel
	p.mutex.Unlock()
	defer func() {
		p.mutex.Lock()
		delete(p.streams, number)
		p.mutex.Unlock()
	}()
	p.reverse.ServeHTTP(&gated{ResponseWriter: w, proxy: p, done: ctx.Done()}, r.WithContext(ctx))
}

// gated is the answer of a watch. While the network stalls, nothing of it arrives.
type gated struct {
	http.ResponseWriter
	proxy *Proxy
	done  <-chan struct{}
}

// Unwrap lets the reverse proxy flush.
func (g *gated) Unwrap() http.ResponseWriter { return g.ResponseWriter }

func (g *gated) Write(data []byte) (int, error) {
	for _, f := range g.proxy.injected.all() {
		if f.Kind != Stall && f.Kind != HoldWrites {
			continue
		}
		f.hits.Add(1)
		select {
		case <-f.end:
		case <-g.done:
		}
	}
	return g.ResponseWriter.Write(data)
}

// discard takes an answer that is lost.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header            { return d.header }
func (d *discard) Write(data []byte) (int, error) { return len(data), nil }
func (d *discard) WriteHeader(int)                {}
