package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Ready is the check webhook-ready (OPS-090): the last pass succeeded, and the webhook server of this process
// answers with a certificate that callers trust. The error names the failing step (D12).
func (k *Keeper) Ready(request *http.Request) error {
	if err := k.inLine(); err != nil {
		return err
	}
	if err := k.serverAnswers(request); err != nil {
		return fmt.Errorf("webhook server: %w", err)
	}
	k.state.Lock()
	defer k.state.Unlock()
	k.wasReady = true
	return nil
}

// inLine returns the error in certificates or configurations that makes this replica not ready.
func (k *Keeper) inLine() error {
	k.state.Lock()
	defer k.state.Unlock()
	now := k.clock.Now()

	switch {
	case k.last == nil:
		return fmt.Errorf("certificates and webhook configurations: %w", k.lastError)
	case now.Sub(k.lastPass) > staleTime:
		return fmt.Errorf("certificates and webhook configurations were last in line at %s: %w",
			k.lastPass.Format(time.RFC3339), k.lastError)
	case len(k.found.Mismatched) > 0:
		return fmt.Errorf("external certificates: %s", strings.Join(k.found.Mismatched, "; "))
	// Until then rules must not be accepted, because their pods would not be sent.
	case k.found.Lacking != "" && !k.wasReady:
		return fmt.Errorf("webhook configurations: %s", k.found.Lacking)
	case len(k.found.Unserved) > 0 && (!k.wasReady || now.Sub(k.since) >= unservedGrace):
		return fmt.Errorf("webhook configurations ask for more than this manager serves: %v",
			k.found.Unserved)
	}

	return nil
}

func (k *Keeper) serverAnswers(request *http.Request) error {
	k.state.Lock()
	expected := k.last.expected(k.clock.Now(), k.previous)
	k.state.Unlock()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(expected) {
		return errors.New("there is no certificate of the authority")
	}

	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: k.policy.host, MinVersion: tls.VersionTLS12},
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(request.Context(), 2*time.Second)
	defer cancel()
	url := "https://" + net.JoinHostPort("localhost", strconv.Itoa(k.options.ServerPort)) + "/healthz"
	probe, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	answer, err := (&http.Client{Transport: transport}).Do(probe)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthz answers %s", answer.Status)
	}

	return nil
}
