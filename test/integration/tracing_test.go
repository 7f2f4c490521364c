//go:build integration

package integration

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector receives spans as collectors of OpenTelemetry do, and keeps those of passes over CloneSets and
// what belongs to them.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	url    string
	server *grpc.Server

	mu     sync.Mutex
	passes map[string]string // trace by object
	parts  map[string][]*tracev1.Span
}

func collect() (*collector, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{url: "http://" + listener.Addr().String(), server: grpc.NewServer(), passes: map[string]string{}, parts: map[string][]*tracev1.Span{}}
	collectorv1.RegisterTraceServiceServer(c.server, c)
	go func() { _ = c.server.Serve(listener) }()
	return c, nil
}

// Export implements the service of collectors.
func (c *collector) Export(_ context.Context, request *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				trace := string(span.TraceId)
				c.parts[trace] = append(c.parts[trace], span)
				if text := span.String(); span.Name == "cloneset pass" && strings.Contains(text, `"plan"`) && strings.Contains(text, "create from") {
					for _, a := range span.Attributes {
						if a.Key == "afloat.object" {
							c.passes[a.Value.GetStringValue()] = trace
						}
					}
				}
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// TestPassesAreTraced: the manager sends a span for each pass, with its plan, and for each request in it.
// Replicas of cmd/manager's tests have a collector that does not answer (OPS-123 (part)).
func TestPassesAreTraced(t *testing.T) {
	set := cloneSet("v1beta1", "traced", "")
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		spans.mu.Lock()
		defer spans.mu.Unlock()
		trace := spans.passes["traced"]
		if trace == "" {
			return fmt.Errorf("no pass over the CloneSet that created pods among %d traces", len(spans.parts))
		}
		var requests []string
		for _, span := range spans.parts[trace] {
			if span.Name != "cloneset pass" && len(span.ParentSpanId) > 0 {
				requests = append(requests, span.Name)
			}
		}
		if len(requests) < 2 { // a revision and a pod at least
			return fmt.Errorf("requests of the pass: %q", requests)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
