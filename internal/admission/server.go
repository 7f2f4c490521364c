package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/afloat-project/afloat/internal/admission/certificate"
)

// server is the webhook server with the upkeep of its certificate. The upkeep must not wait for caches, which may need conversion.
type server struct {
	webhook.Server
	port    int
	certDir string
	keeper  *certificate.Keeper
	// timeout limits the first pass.
	timeout time.Duration
	// stopping is closed when the process is asked to end. The server goes on serving for a while, since callers learn of the end later.
	stopping <-chan struct{}
	// callers are the authorities that must have signed the certificates of callers of admission webhooks; nil if anybody may call.
	callers *x509.CertPool
	// ctx is what Start runs with.
	ctx context.Context
}

// configuration is that of TLS 1.2 or newer, and of HTTP/1.1, whose connections have one request at a time. If a caller shows a certificate, one of
// the authorities must have signed it.
func (s *server) configuration() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.callers != nil {
		c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, s.callers
	}
	return c
}

// serve answers requests until ctx ends, and then those that it has.
func (s *server) serve(ctx context.Context) error {
	files, err := certwatcher.New(filepath.Join(s.certDir, "tls.crt"), filepath.Join(s.certDir, "tls.key"))
	if err != nil {
		return fmt.Errorf("reading the certificate of the webhooks: %w", err)
	}
	watching := make(chan error, 1)
	go func() { watching <- files.Start(ctx) }()
	config := s.configuration()
	config.GetCertificate = files.GetCertificate
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}
	bounded := bounding(listener, mostConnections, mostOfSource)
	http1 := &http.Server{Handler: s.WebhookMux(), ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: mostHeader, ConnState: bounded.follow}
	over := make(chan error, 1)
	go func() {
		<-ctx.Done()
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		over <- http1.Shutdown(rest)
	}()
	if err := http1.Serve(tls.NewListener(bounded, trusting(config))); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	return errors.Join(<-over, <-watching)
}

// readCallers reads the authorities of a file with certificates in PEM; nil without a file (OPS-049).
func readCallers(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the authorities of callers of webhooks: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("reading the authorities of callers of webhooks: %s holds no certificate in PEM", file)
	}
	return pool, nil
}

// answers tells whether a request is answered. The API server shows a certificate to admission webhooks, but not to conversion webhooks,
// which reveal nothing but what they are sent. Kubelet, which calls the health check, shows none either.
func (s *server) answers(path string, r *http.Request) bool {
	return s.callers == nil || path == convertPath || path == "/healthz" || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
}

// Register adds a handler. Its requests are answered also when the process is ending: otherwise objects would be stored without defaults
// and validation, or be refused.
func (s *server) Register(path string, handler http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.answers(path, r) {
			http.Error(w, "callers of this webhook must show a certificate of the authorities in --webhook-client-ca-file",
				http.StatusUnauthorized)
			return
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		defer context.AfterFunc(r.Context(), func() {
			if s.ctx == nil || s.ctx.Err() == nil {
				cancel() // the caller went away
			}
		})()
		select {
		case <-s.stopping:
			w.Header().Set("Connection", "close") // so that the caller opens a new connection, to another replica if it can
		default:
		}
		handler.ServeHTTP(w, r.WithContext(ctx))
	}))
}

// Start serves as soon as there is a certificate, until ctx ends. Then it accepts no new connections, and answers the requests that it has.
func (s *server) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.keeper.First(ctx, s.timeout); err != nil || ctx.Err() != nil {
		return err
	}
	s.ctx = ctx
	ended := make(chan error, 1)
	go func() { ended <- s.keeper.Start(ctx) }()
	err := s.serve(ctx)
	cancel()
	return errors.Join(err, <-ended)
}
