package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// patience is how long after the start an informer may be without its objects before the liveness check
// fails: the daemon is not restarted because the API server does not answer for a while (ND-046).
const patience = 5 * time.Minute

// check is one named check.
type check struct {
	name string
	run  func(ctx context.Context) error
}

// health answers /healthz and /readyz (ND-045, ND-046).
type health struct {
	// informers are the checks of the caches; runtime is that of the container runtimes.
	informers []check
	runtime   check
	started   time.Time
	now       func() time.Time
}

func answer(w http.ResponseWriter, r *http.Request, checks []check) {
	for _, c := range checks {
		if err := c.run(r.Context()); err != nil {
			http.Error(w, fmt.Sprintf("%s: %v", c.name, err), http.StatusInternalServerError)
			return
		}
	}
	fmt.Fprint(w, "ok")
}

// live serves /healthz.
func (h *health) live(w http.ResponseWriter, r *http.Request) {
	if h.now().Sub(h.started) < patience {
		answer(w, r, nil)
		return
	}
	answer(w, r, h.informers)
}

// ready serves /readyz.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	answer(w, r, append([]check{h.runtime}, h.informers...))
}

// handler serves the checks and the metrics (ND-047).
func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", h.live)
	mux.HandleFunc("/readyz", h.ready)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry,
		promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	return mux
}

// serve serves until the context ends, or returns the error of the listener (ND-049).
func serve(ctx context.Context, address string, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for metrics and health: %w", err)
	}

	// Whoever reaches the port reaches a program with little memory.
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()

	if err := server.Serve(&limited{Listener: listener}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics and health: %w", err)
	}

	return nil
}
