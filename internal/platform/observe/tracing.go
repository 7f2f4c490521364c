package observe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/afloat-project/afloat"

// StartTracing exports spans to a collector that speaks OTLP over gRPC at the URL, which is https, or http for a
// collector on the same machine. perMillion is the sampling rate. Certificates and headers come from the
// OpenTelemetry variables OTEL_EXPORTER_OTLP_*. stop exports the remaining spans and must be called before
// the process exits.
func StartTracing(
	ctx context.Context, service, url string, perMillion int,
) (stop func(context.Context) error, err error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(url))
	if err != nil {
		return nil, fmt.Errorf("tracing to %s: %w", url, err)
	}
	return start(sdktrace.NewBatchSpanProcessor(exporter), service, perMillion), nil
}

func start(
	processor sdktrace.SpanProcessor, service string, perMillion int,
) (stop func(context.Context) error) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(perMillion)/1e6))),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", service))))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return provider.Shutdown
}

// Traced returns the reconciler wrapped in a span for each pass.
func Traced(controller string, r reconcile.Reconciler) reconcile.Reconciler {
	tracer := otel.Tracer(scope)
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		ctx, span := tracer.Start(ctx, controller+" pass")
		defer span.End()
		if !span.IsRecording() {
			return r.Reconcile(ctx, request)
		}
		span.SetAttributes(attribute.String("k8s.namespace.name", request.Namespace),
			attribute.String("afloat.object", request.Name))
		result, err := r.Reconcile(ctx, request)
		if err != nil {
			err := words(err.Error())
			span.RecordError(errors.New(err))
			span.SetStatus(codes.Error, err)
		}
		span.SetAttributes(attribute.String("afloat.again_after", result.RequeueAfter.String()))
		return result, err
	})
}

// mostWords is the maximum length of a text in a span.
const mostWords = 4096

// words makes a text valid for a span by truncating it and dropping invalid UTF-8. A batch that contains
// invalid UTF-8 is not exported at all, and texts may be truncated or come from users.
func words(text string) string { return strings.ToValidUTF8(text[:min(len(text), mostWords)], "") }

// TracePlan adds the headline of the plan to the span of the pass.
func TracePlan(ctx context.Context, headline string) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() && headline != "" {
		span.AddEvent("plan", trace.WithAttributes(attribute.String("afloat.plan", words(headline))))
	}
}

// TraceRequests is a function for WrapTransport of a rest.Config. Requests in a pass become child spans of the pass.
// Other requests, such as watches, are not traced.
func TraceRequests(next http.RoundTripper) http.RoundTripper {
	return &transport{next: next, traced: otelhttp.NewTransport(next)}
}

type transport struct{ next, traced http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if trace.SpanFromContext(request.Context()).IsRecording() {
		return t.traced.RoundTrip(request)
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
