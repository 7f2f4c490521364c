package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/afloat-project/afloat/internal/admission/certificate"
)

// server is the webhook server with the upkeep of its certificate. The upkeep must not wait for caches, which may need conversion.
type server struct {
	webhook.Server
	keeper *certificate.Keeper
	// timeout is for the first pass.
	timeout time.Duration
}

// newServer returns a server for callers that speak TLS 1.2 or newer.
func newServer(o Options) webhook.Server {
	return webhook.NewServer(webhook.Options{Port: o.Port, CertDir: o.CertDir, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS12
	}}})
}

// Start serves as soon as there is a certificate, until ctx ends.
func (s *server) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.keeper.First(ctx, s.timeout); err != nil || ctx.Err() != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.keeper.Start(ctx) }()
	err := s.Server.Start(ctx)
	cancel()
	return errors.Join(err, <-ended)
}
