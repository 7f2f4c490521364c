//go:build integration

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OPS-094 (part): with --metrics-secure the metrics are there for those who have the right to get them, by a
// certificate of the webhooks' authority, and for nobody else. TestRender of the chart shows the Service and
// the ServiceMonitor.
func TestSecureMetricsNeedTheRightToGetThem(t *testing.T) {
	t.Parallel()
	i := install(t)
	r := i.replica("--metrics-secure")
	r.becomesReady()
	var secret corev1.Secret
	if err := i.kube.Get(t.Context(), client.ObjectKey{Namespace: "kruise-system", Name: "kruise-webhook-certs"}, &secret); err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(secret.Data["ca-cert.pem"])
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	scrape := func(token string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.metrics+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	token := func(name string) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		i.create(account)
		request := &authenticationv1.TokenRequest{}
		if err := i.kube.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	i.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scrape"},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}})
	i.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "scrape"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "scrape"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "prometheus"}}})
	for who, want := range map[string]int{
		"": http.StatusUnauthorized, "invented": http.StatusInternalServerError, // as the library says it
		token("stranger"): http.StatusForbidden,
	} {
		status, body := scrape(who)
		if status != want {
			t.Errorf("token %.8q: got %d, want %d: %s", who, status, want, body)
		}
		if strings.Contains(body, "go_goroutines") {
			t.Errorf("token %.8q: got the metrics: %s", who, body)
		}
	}
	prometheus := token("prometheus")
	i.eventually("metrics for Prometheus", func() error {
		if status, body := scrape(prometheus); status != http.StatusOK || !strings.Contains(body, "kruise_manager_is_leader") {
			return fmt.Errorf("%d: %.300s", status, body)
		}
		return nil
	})
	if _, err := r.get("http://" + r.metrics + "/metrics"); err == nil {
		t.Error("they are there without TLS, too")
	}
}
