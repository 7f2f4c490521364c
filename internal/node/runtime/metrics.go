package runtime

import (
	"context"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Meters are the metrics of the calls to runtimes (ND-048).
type Meters struct {
	calls *prometheus.HistogramVec
}

// NewMeters returns metrics that are not registered yet.
func NewMeters() *Meters {
	return &Meters{calls: prometheus.NewHistogramVec(
		prometheus.HistogramOpts{
			Name:    "afloat_daemon_runtime_call_duration_seconds",
			Help:    "Calls to the container runtime, by method and gRPC code.",
			Buckets: prometheus.ExponentialBuckets(0.002, 4, 10),
		},
		[]string{"method", "code"})}
}

// Collectors returns the metrics to register.
func (m *Meters) Collectors() []prometheus.Collector { return []prometheus.Collector{m.calls} }

func (m *Meters) intercept(
	ctx context.Context, method string, request, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	begin := time.Now()
	err := invoke(ctx, method, request, reply, cc, opts...)
	m.calls.WithLabelValues(path.Base(method), status.Code(err).String()).Observe(time.Since(begin).Seconds())
	return err
}
