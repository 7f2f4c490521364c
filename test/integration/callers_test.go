//go:build integration

package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// managerAddress is where the manager's webhooks answer; callerFiles is the folder with the certificate that
// the API server shows them.
var managerAddress, callerFiles string

// showCertificate makes the API server show a certificate to webhooks, as described in
// docs/operate/webhook-callers.md, and returns the file of the authority that signed it.
func showCertificate(env *envtest.Environment, dir string) (authority string, err error) {
	if callerFiles == "" {
		callerFiles = dir
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "callers"}, NotAfter: time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	files := map[string]string{"callers.yaml": fmt.Sprintf(`
apiVersion: v1
kind: Config
users:
- name: "*"
  user: {client-certificate: %[1]s/client.pem, client-key: %[1]s/client-key.pem}
`, dir), "admission.yaml": fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]s/callers.yaml}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]s/callers.yaml}
`, dir)}
	for name, signed := range map[string]struct {
		certificate *x509.Certificate
		key         *ecdsa.PrivateKey
	}{"ca.pem": {ca, caKey}, "client.pem": {leaf, key}} {
		der, err := x509.CreateCertificate(rand.Reader, signed.certificate, ca, signed.key.Public(), caKey)
		if err != nil {
			return "", err
		}
		files[name] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", err
	}
	files["client-key.pem"] = string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	env.ControlPlane.GetAPIServer().Configure().Append("admission-control-config-file", filepath.Join(dir, "admission.yaml"))
	return filepath.Join(dir, "ca.pem"), nil
}

// TestWebhooksAnswerNobodyElse: with --webhook-client-ca-file only the API server gets answers. Callers
// without a certificate, or with one of another authority, get none (OPS-049 (part)).
func TestWebhooksAnswerNobodyElse(t *testing.T) {
	foreign, err := tls.LoadX509KeyPair(showForeign(t))
	if err != nil {
		t.Fatal(err)
	}
	post := func(path string, certificates ...tls.Certificate) (int, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
			Certificates: certificates}} //nolint:gosec // the test is not about the server's certificate
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+managerAddress+path,
			bytes.NewReader([]byte("{}")))
		if err != nil {
			return 0, err
		}
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return 0, err
		}
		defer func() { _ = answer.Body.Close() }()
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, err
	}
	for _, path := range []string{"/mutate-pod", "/mutate-pod-all", "/mutate-apps-kruise-io-containerrecreaterequest",
		"/validate-apps-kruise-io-cloneset"} {
		if code, err := post(path); err != nil {
			t.Errorf("%s without a certificate: %v", path, err)
		} else if code != http.StatusUnauthorized {
			t.Errorf("%s without a certificate: got %d, want 401", path, code)
		}
		if code, err := post(path, foreign); err == nil {
			t.Errorf("%s with another authority's certificate: %d", path, code)
		}
	}
	if code, err := post("/convert"); err != nil {
		t.Errorf("conversion, to which API servers show none: %v", err)
	} else if code == http.StatusUnauthorized {
		t.Errorf("conversion, to which API servers show none: got %d", code)
	}
}

// TestAForgedReviewDoesNotStopPods: whoever reaches the port sent a review of a WorkloadSpread whose
// namespace was an expression. It was written into the configuration, and no pod could be created anywhere
// (OPS-068).
func TestAForgedReviewDoesNotStopPods(t *testing.T) {
	own, err := tls.LoadX509KeyPair(filepath.Join(callerFiles, "client.pem"), filepath.Join(callerFiles, "client-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",
		"namespace":"a'])) || int(request.operation) == 1 || ((request.namespace in ['a","name":"x",
		"kind":{"group":"apps.kruise.io","version":"v1beta1","kind":"WorkloadSpread"},
		"resource":{"group":"apps.kruise.io","version":"v1beta1","resource":"workloadspreads"},
		"object":{"apiVersion":"apps.kruise.io/v1beta1","kind":"WorkloadSpread","metadata":{"name":"x"},
		"spec":{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"},"subsets":[{"name":"s"}]}}}}`
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, //nolint:gosec // not about the server's certificate
		Certificates: []tls.Certificate{own}}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://"+managerAddress+"/validate-apps-kruise-io-workloadspread", bytes.NewReader([]byte(review)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Errorf("reading the answer: %v", err)
	}
	if answer.StatusCode != http.StatusOK {
		t.Errorf("status of a forged review: got %d, want 200", answer.StatusCode)
	}
	if !bytes.Contains(body, []byte(`"allowed":false`)) {
		t.Errorf("answer to a forged review: got %s, want it refused", body)
	}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: "kruise-mutating-webhook-configuration"}, configuration); err != nil {
		t.Fatal(err)
	}
	for _, entry := range configuration.Webhooks {
		for _, condition := range entry.MatchConditions {
			if strings.Contains(condition.Expression, "int(") {
				t.Errorf("%s: the forged expression is in force: %s", entry.Name, condition.Expression)
			}
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "after-a-forged-review-"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	if err := kube.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := kube.Delete(t.Context(), pod); err != nil {
		t.Errorf("deleting the pod: %v", err)
	}
}

// showForeign returns the files of a certificate that another authority signed, and of its key.
func showForeign(t *testing.T) (certificate, key string) {
	t.Helper()
	dir := t.TempDir()
	if _, err := showCertificate(&envtest.Environment{}, dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "client.pem"), filepath.Join(dir, "client-key.pem")
}
