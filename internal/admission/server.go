package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/framework"
)

// server is the webhook server, which also maintains its certificate. The maintenance must not wait for
// caches, which may need conversion.
type server struct {
	webhook.Server
	port    int
	certDir string
	keeper  *certificate.Keeper
	// timeout limits the first pass.
	timeout time.Duration
	// stopping is closed when the process is asked to stop. The server continues to serve for a while,
	// because callers learn about the stop later.
	stopping <-chan struct{}
	// callers may call admission webhooks; if it is nil, anyone may.
	callers *callers
	// ctx is the context of Start.
	ctx context.Context
}

// serve answers requests until ctx ends, and then finishes the pending ones.
func (s *server) serve(ctx context.Context) error {
	files, err := certwatcher.New(filepath.Join(s.certDir, "tls.crt"), filepath.Join(s.certDir, "tls.key"))
	if err != nil {
		return fmt.Errorf("reading the certificate of the webhooks: %w", err)
	}

	watching := make(chan error, 1)
	go func() { watching <- files.Start(ctx) }()
	go s.callers.follow(ctx)
	// HTTP/1.1 allows one request at a time on a connection.
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: files.GetCertificate,
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}

	bounded := bounding(listener, mostConnections, mostOfSource)
	http1 := &http.Server{
		Handler:           s.WebhookMux(),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       requestTime,
		WriteTimeout:      answerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    mostHeader,
		ConnState:         bounded.follow,
	}
	over := make(chan error, 1)
	go func() {
		<-ctx.Done()
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		over <- http1.Shutdown(rest)
	}()
	if err := http1.Serve(tls.NewListener(bounded, trusting(config, s.callers))); !errors.Is(
		err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks: %w", err)
	}

	return errors.Join(<-over, <-watching)
}

// answers reports whether a request is answered. The API server shows a certificate to admission webhooks,
// but not to conversion webhooks, which reveal only what they are sent. Kubelet, which calls the health
// check, shows none either.
func (s *server) answers(path string, known bool) bool {
	return s.callers == nil || path == convertPath || path == "/healthz" || known
}

// Register adds a handler. Its requests are also answered while the process is stopping: otherwise objects
// would be stored without defaults and validation, or be rejected.
func (s *server) Register(path string, handler http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		marked := s.callers.marked(r)
		if !s.answers(path, framework.FromAPIServer(marked)) {
			http.Error(w,
				"callers of this webhook must show a certificate of the authorities in --webhook-client-ca-file, with a name of "+
					"--webhook-client-names if there are any", http.StatusUnauthorized)
			return
		}

		ctx, cancel := context.WithCancel(context.WithoutCancel(marked))
		defer cancel()
		defer context.AfterFunc(r.Context(), func() {
			if s.ctx == nil || s.ctx.Err() == nil {
				cancel() // the caller went away
			}
		})()

		select {
		case <-s.stopping:
			// The caller should open a new connection, to another replica if it can.
			w.Header().Set("Connection", "close")
		default:
		}

		handler.ServeHTTP(w, r.WithContext(ctx))
	}))
}

// Start serves once there is a certificate, until ctx ends. Then it accepts no new connections, and finishes
// the pending requests.
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
