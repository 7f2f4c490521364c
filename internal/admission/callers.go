package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/afloat-project/afloat/internal/framework"
)

// callers defines who may call the admission webhooks. If it is nil, anyone may.
type callers struct {
	// authorities are the CA certificates of a file, reloaded when it changes.
	authorities *dynamiccertificates.DynamicFileCAContent
	// names are the common names that certificates may have; if it is empty, any name is allowed.
	names []string
}

// newCallers reads the CA certificates of a PEM file; it returns nil without a file.
func newCallers(file string, names []string) (*callers, error) {
	if file == "" {
		return nil, nil
	}
	authorities, err := dynamiccertificates.NewDynamicCAContentFromFile("callers of webhooks", file)
	if err != nil {
		return nil, fmt.Errorf("reading the authorities of callers of webhooks: %w", err)
	}
	return &callers{authorities, names}, nil
}

// follow watches the file until ctx ends. While the file is missing or unreadable, the certificates that were
// read last stay in effect.
func (c *callers) follow(ctx context.Context) {
	if c != nil {
		c.authorities.Run(ctx, 1)
	}
}

// demand makes a configuration reject certificates that no CA has signed. It disables session resumption, so
// that every connection is checked.
func (c *callers) demand(config *tls.Config) {
	if c == nil {
		return
	}
	options, _ := c.authorities.VerifyOptions()
	config.ClientAuth, config.ClientCAs, config.SessionTicketsDisabled =
		tls.VerifyClientCertIfGiven, options.Roots, true
}

// know reports whether the current CAs have signed a certificate of the caller, with an allowed name. It is
// checked for each request, because connections may outlive CAs and certificates.
func (c *callers) know(state *tls.ConnectionState) bool {
	if c == nil || state == nil || len(state.PeerCertificates) == 0 {
		return false
	}

	shown := state.PeerCertificates[0]
	options, ok := c.authorities.VerifyOptions()
	if !ok || len(c.names) > 0 && !slices.Contains(c.names, shown.Subject.CommonName) {
		return false
	}

	options.Intermediates = x509.NewCertPool()
	for _, between := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(between)
	}

	_, err := shown.Verify(options)
	return err == nil
}

// marked returns the context of a request, which records whether its caller is known.
func (c *callers) marked(r *http.Request) context.Context {
	return framework.WithCaller(r.Context(), c.know(r.TLS))
}
