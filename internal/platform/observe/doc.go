// Package observe makes the work of controllers visible outside of the process. If an endpoint is configured,
// passes and the requests in them are OpenTelemetry spans; without one, spans cost nothing. The trace context
// goes with each request, so that spans of API servers join the trace. The user agent of each request names its
// controller, for the audit logs of API servers (OPS-022): all controllers share one client, so that the name
// is passed in the context.
package observe
