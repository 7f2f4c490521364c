package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// callers tells who may call the admission webhooks. Nil lets anybody call.
type callers struct {
	// authorities are those of a file; they follow it when it changes.
	authorities *dynamiccertificates.DynamicFileCAContent
	// names are the common names that certificates may have; empty allows any.
	names []string
}

// newCallers reads the authorities of a file with certificates in PEM; nil without a file.
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

// follow follows the file until ctx ends. While there is none, or none that can be read, those hold that were
// read last.
func (c *callers) follow(ctx context.Context) {
	if c != nil {
		c.authorities.Run(ctx, 1)
	}
}

// demand makes a configuration refuse certificates that no authority has signed. Connections are not resumed,
// so that each is checked.
func (c *callers) demand(config *tls.Config) {
	if c == nil {
		return
	}
	options, _ := c.authorities.VerifyOptions()
	config.ClientAuth, config.ClientCAs, config.SessionTicketsDisabled = tls.VerifyClientCertIfGiven, options.Roots, true
}

// know tells whether the authorities of now have signed for a caller of such a name. It is asked for each
// request, because connections last longer than authorities and certificates may.
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

// verifiedKey is that of the mark that a context carries if the caller is known.
type verifiedKey struct{}

// marked returns the context of a request, which tells whether its caller is known.
func (c *callers) marked(r *http.Request) context.Context {
	return context.WithValue(r.Context(), verifiedKey{}, c.know(r.TLS))
}

// verified tells whether the caller of a webhook has shown a certificate that is asked for: it is the API
// server, and what its review says is true.
func verified(ctx context.Context) bool {
	known, _ := ctx.Value(verifiedKey{}).(bool)
	return known
}
