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
		t.Errorf("the traced pass: got error %v, want %v", err, failed)
	}
	ask(t.Context())
	check(t, spans.GetSpans())
	if parents[0] == "" {
		t.Error("the request of a pass carries no trace")
	}
	if parents[1] != "" {
		t.Errorf("the request outside of passes carries the trace %q, want none", parents[1])
	}
	if err := stop(t.Context()); err != nil {
		t.Errorf("the end of tracing: %v", err)
	}
}

func check(t *testing.T, found tracetest.SpanStubs) {
	t.Helper()
	if len(found) != 2 {
		t.Fatalf("spans: got %d, want 2", len(found))
	}
	request, pass := found[0], found[1]
	attributes := map[string]string{}
	for _, a := range pass.Attributes {
		attributes[string(a.Key)] = a.Value.AsString()
	}
	if diff := cmp.Diff(map[string]string{"k8s.namespace.name": "shop", "afloat.object": "web", "afloat.again_after": "1m0s"}, attributes); diff != "" {
		t.Errorf("attributes of the pass (-want +got):\n%s", diff)
	}
	if pass.Name != "cloneset pass" {
		t.Errorf("name of the pass: got %q, want \"cloneset pass\"", pass.Name)
	}
	if pass.Status.Description != "refused" {
		t.Errorf("error of the pass: got %q, want \"refused\"", pass.Status.Description)
	}
	if len(pass.Events) != 2 {
		t.Errorf("events of the pass: got %v, want 2", pass.Events)
	} else if plan := pass.Events[0].Attributes[0].Value.AsString(); plan != "1 of 2 pods" {
		t.Errorf("plan of the pass: got %q, want \"1 of 2 pods\"", plan)
	}
	if request.Parent.SpanID() != pass.SpanContext.SpanID() {
		t.Error("the request is no span of the pass")
	}
	if pass.Resource.String() != "service.name=kruise-manager" {
		t.Errorf("resource of the pass: got %s, want service.name=kruise-manager", pass.Resource)
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
		if err == nil {
			t.Errorf("pass %s: no error", name)
		} else if err.Error() != "refused" {
			t.Errorf("pass %s: got error %v, want \"refused\"", name, err)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("pass %s: took %s, want 5s at most", name, took)
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
			t.Errorf("the end of tracing to %s: %v", to.name, err)
		}
		cancel()
		c.mu.Lock()
		spans := c.spans[to.name+" pass"]
		c.mu.Unlock()
		if (len(spans) == 1) != to.received {
			t.Errorf("spans sent to %s: got %d, want one: %t", to.name, len(spans), to.received)
		}
	}
	text := c.spans["all pass"][0].String()
	for _, part := range []string{"shop", "web", "1 of 2 pods", "refused", "1m0s"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}
	requests := c.spans["HTTP PATCH"]
	if len(requests) != 1 {
		t.Errorf("spans of requests: got %v, want 1 among %v", requests, c.spans)
	} else if string(requests[0].ParentSpanId) != string(c.spans["all pass"][0].SpanId) {
		t.Errorf("the span of the request is none of the pass: %v among %v", requests, c.spans)
	}
	if header, _ := traced.Load().(string); header == "" {
		t.Error("the API server does not get the trace")
	}
}
