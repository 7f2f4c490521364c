package admission

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/framework"
)

// signer is an authority of callers.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "callers"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, key}
	s.certificate.Raw = s.sign(t, s.certificate, key)
	return s
}

func (s *signer) sign(t *testing.T, certificate *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, certificate, s.certificate, key.Public(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// caller makes a certificate of a name, for a use.
func (s *signer) caller(t *testing.T, name string, use x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{PrivateKey: key, Certificate: [][]byte{s.sign(t, &x509.Certificate{SerialNumber: big.NewInt(2),
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{use}}, key)}}
}

// publish makes the authority the one of a file, in one step, as kubelet does with a changed ConfigMap.
func (s *signer) publish(t *testing.T, file string) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw})
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// client makes calls from one caller; certificates are what it has to show.
func (r *replica) client(t *testing.T, certificates ...tls.Certificate) func(path string) string {
	t.Helper()
	transport := insecure()
	transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(certificates) == 0 {
			return &tls.Certificate{}, nil
		}
		return &certificates[0], nil // also to those who ask for other authorities
	}
	transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	t.Cleanup(transport.CloseIdleConnections)
	return func(path string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+r.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return "no connection"
		}
		if err := answer.Body.Close(); err != nil {
			t.Errorf("closing the answer: %v", err)
		}
		return strconv.Itoa(answer.StatusCode)
	}
}

// eventually waits until calls are answered.
func eventually(t *testing.T, call func(string) string) {
	t.Helper()
	tick, timeout := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for got := call("/mutate-x"); got != "200"; got = call("/mutate-x") {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("the answer is %s", got)
		}
	}
}

// OPS-049 (TestFlagsThatWouldStopControllers has the errors at start): admission webhooks answer callers with
// a certificate of the authorities, and of the names; others get nothing of them. Conversion and the health
// check answer everybody, and so does everything without a file. Another authority takes over without a
// restart, also on connections that are open.
func TestOnlyKnownCallersAreAnswered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "callers.pem")
	first, second, foreign := newSigner(t), newSigner(t), newSigner(t)
	first.publish(t, file)
	asked := 0
	webhook := func(w http.ResponseWriter, r *http.Request) {
		asked++
		if !framework.FromAPIServer(r.Context()) {
			t.Error("a handler takes the caller for somebody unknown")
		}
		w.WriteHeader(http.StatusOK)
	}
	r := startReplicaFor(t, file, []string{"kube-apiserver", "other"}, map[string]http.Handler{"/mutate-x": http.HandlerFunc(webhook),
		convertPath: http.HandlerFunc(alive)})
	own := r.client(t, first.caller(t, "kube-apiserver", x509.ExtKeyUsageClientAuth))
	for name, test := range map[string]struct {
		call func(string) string
		want string
	}{
		"the API server":                       {own, "200"},
		"no certificate":                       {r.client(t), "401"},
		"a certificate of another authority":   {r.client(t, foreign.caller(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)), "no connection"},
		"one of the authority to come":         {r.client(t, second.caller(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)), "no connection"},
		"a certificate of another name":        {r.client(t, first.caller(t, "kubelet", x509.ExtKeyUsageClientAuth)), "401"},
		"a certificate without a name":         {r.client(t, first.caller(t, "", x509.ExtKeyUsageClientAuth)), "401"},
		"a certificate that is for servers":    {r.client(t, first.caller(t, "kube-apiserver", x509.ExtKeyUsageServerAuth)), "no connection"},
		"another name that is allowed as well": {r.client(t, first.caller(t, "other", x509.ExtKeyUsageClientAuth)), "200"},
	} {
		before := asked
		got := test.call("/mutate-x")
		if got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
		if (asked > before) != (got == "200") {
			t.Errorf("%s: answered by %s, the handler was asked %d times", name, got, asked-before)
		}
	}
	for _, path := range []string{convertPath, "/healthz"} {
		if got := r.client(t)(path); got != "200" {
			t.Errorf("%s without a certificate: %s", path, got)
		}
	}
	open := startReplica(t, map[string]http.Handler{"/mutate-x": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if framework.FromAPIServer(r.Context()) {
			t.Error("a certificate that nobody asked for counts")
		}
	})})
	if got := open.client(t, first.caller(t, "kube-apiserver", x509.ExtKeyUsageClientAuth))("/mutate-x"); got != "200" {
		t.Errorf("without a file: %s", got)
	}
	second.publish(t, file)
	next := r.client(t, second.caller(t, "kube-apiserver", x509.ExtKeyUsageClientAuth))
	eventually(t, next)
	if got := own("/mutate-x"); got != "401" {
		t.Errorf("the authority before, on a connection that is open: %s", got)
	}
	// A file that says nothing, or is not there for a moment, changes nothing.
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := next("/mutate-x"); got != "200" {
		t.Errorf("without the file: %s", got)
	}
	first.publish(t, file)
	eventually(t, r.client(t, first.caller(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)))
}

// Files that let nobody in are told at the start.
func TestAFileWithoutAuthoritiesIsTold(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, empty + ".missing", "callers_test.go"} {
		if _, err := newCallers(file, nil); err == nil {
			t.Errorf("%s was read", file)
		}
	}
}
