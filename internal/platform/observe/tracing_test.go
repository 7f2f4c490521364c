package observe

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A pass is a span, with its object, plan and error; the requests that are made in it are spans of it and
// carry its trace; requests outside of passes are none (OPS-123 (part): TestSpansAreSent shows it all).
func TestPassesAreSpans(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	var parents []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parents = append(parents, r.Header.Get("Traceparent"))
	}))
	defer server.Close()
	client := &http.Client{Transport: TraceRequests(http.DefaultTransport)}
	ask := func(ctx context.Context) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPatch, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	failed := errors.New("refused")
	pass := Traced("cloneset", reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		TracePlan(ctx, "1 of 2 pods")
		ask(ctx)
		return reconcile.Result{RequeueAfter: time.Minute}, failed
	}))
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	stop := start(sdktrace.NewSimpleSpanProcessor(spans), "kruise-manager", 1_000_000)
	if _, err := pass.Reconcile(t.Context(), request); !errors.Is(err, failed) {
		t.Error(err)
	}
	ask(t.Context())
	check(t, spans.GetSpans())
	if parents[0] == "" || parents[1] != "" {
		t.Errorf("%q", parents)
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func check(t *testing.T, found tracetest.SpanStubs) {
	t.Helper()
	if len(found) != 2 {
		t.Fatalf("%d spans", len(found))
	}
	request, pass := found[0], found[1]
	attributes := map[string]string{}
	for _, a := range pass.Attributes {
		attributes[string(a.Key)] = a.Value.AsString()
	}
	if diff := cmp.Diff(map[string]string{"k8s.namespace.name": "shop", "afloat.object": "web", "afloat.again_after": "1m0s"}, attributes); diff != "" {
		t.Error(diff)
	}
	if pass.Name != "cloneset pass" || pass.Status.Description != "refused" || len(pass.Events) != 2 ||
		pass.Events[0].Attributes[0].Value.AsString() != "1 of 2 pods" {
		t.Errorf("%+v", pass)
	}
	if request.Parent.SpanID() != pass.SpanContext.SpanID() {
		t.Error("the request is no span of the pass")
	}
	if pass.Resource.String() != "service.name=kruise-manager" {
		t.Error(pass.Resource)
	}
}

// collector is one of OpenTelemetry that wants a header.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string][]*tracev1.Span // by name
}

func (c *collector) Export(ctx context.Context, request *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	headers, _ := metadata.FromIncomingContext(ctx)
	if !slices.Contains(headers["team"], "a") {
		return nil, status.Error(grpccodes.Unauthenticated, "who are you?")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans[span.Name] = append(c.spans[span.Name], span)
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// TestSpansAreSent: to a collector with TLS whose authority, and the header that it wants, are in the
// variables of OpenTelemetry: a span for each pass, with object, plan, error and when it comes back, and one
// for each request in it, which carries the trace; none of what is not sampled. One that does not answer
// holds up nothing (OPS-123).
func TestSpansAreSent(t *testing.T) {
	api := httptest.NewTLSServer(nil) // for its certificate, and as the API server
	defer api.Close()
	var traced atomic.Value
	api.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { traced.Store(r.Header.Get("Traceparent")) })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "team=a")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{spans: map[string][]*tracev1.Span{}}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&api.TLS.Certificates[0])))
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client := api.Client()
	client.Transport = TraceRequests(client.Transport)
	pass := func(name string) {
		begun := time.Now()
		_, err := Traced(name, reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			TracePlan(ctx, "1 of 2 pods \xff"+strings.Repeat("é", mostWords))
			request, err := http.NewRequestWithContext(ctx, http.MethodPatch, api.URL, nil)
			if err != nil {
				return reconcile.Result{}, err
			}
			answer, err := client.Do(request)
			if err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{RequeueAfter: time.Minute}, errors.Join(answer.Body.Close(), errors.New("refused"))
		})).Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}})
		if err == nil || err.Error() != "refused" || time.Since(begun) > 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	}
	for _, to := range []struct {
		name, url  string
		perMillion int
		received   bool
	}{{"all", "https://" + listener.Addr().String(), 1_000_000, true}, {"none", "https://" + listener.Addr().String(), 0, false},
		{"nobody", "https://127.0.0.1:1", 1_000_000, false}} {
		stop, err := StartTracing(t.Context(), "kruise-manager", to.url, to.perMillion)
		if err != nil {
			t.Fatal(err)
		}
		pass(to.name)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := stop(ctx); err != nil && to.received {
			t.Error(err)
		}
		cancel()
		c.mu.Lock()
		spans := c.spans[to.name+" pass"]
		c.mu.Unlock()
		if (len(spans) == 1) != to.received {
			t.Errorf("%s: %d spans", to.name, len(spans))
		}
	}
	text := c.spans["all pass"][0].String()
	for _, part := range []string{"shop", "web", "1 of 2 pods", "refused", "1m0s"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}
	requests := c.spans["HTTP PATCH"]
	if len(requests) != 1 || string(requests[0].ParentSpanId) != string(c.spans["all pass"][0].SpanId) {
		t.Errorf("requests: %v among %v", requests, c.spans)
	}
	if header, _ := traced.Load().(string); header == "" {
		t.Error("the API server does not get the trace")
	}
}
