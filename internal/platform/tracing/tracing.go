// Package tracing makes OpenTelemetry spans of the passes of controllers and of the requests that they make,
// if the manager is told where to send them. Without that, spans cost nothing. Trace context goes along with
// the requests, so that the spans of API servers that trace join.
package tracing

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

// scope names who makes the spans.
const scope = "github.com/afloat-project/afloat"

// Start sends a part of the passes, so many of a million, to a collector that speaks OTLP over gRPC at the
// URL: https, or http for one on the same machine. Certificates and headers come from the variables of
// OpenTelemetry, OTEL_EXPORTER_OTLP_*. stop sends what is left, and must be called before the process ends.
func Start(
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

// Of returns the reconciler with a span for each pass.
func Of(controller string, r reconcile.Reconciler) reconcile.Reconciler {
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

// mostWords bounds a text in a span.
const mostWords = 4096

// words are what a span takes of a text: a batch with a text that is no UTF-8 is not sent at all, and one may
// be cut, or come from anybody.
func words(text string) string { return strings.ToValidUTF8(text[:min(len(text), mostWords)], "") }

// Plan puts the plan of a pass, in words, into its span.
func Plan(ctx context.Context, headline string) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() && headline != "" {
		span.AddEvent("plan", trace.WithAttributes(attribute.String("afloat.plan", words(headline))))
	}
}

// Wrap is for WrapTransport of a rest.Config: requests made in a pass are spans of it. Others, such as
// watches, are none.
func Wrap(next http.RoundTripper) http.RoundTripper {
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

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
