package faults

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/test/robustness/cluster"
)

// Webhook is a webhook of somebody else, which is asked about each pod of the test. It allows everything,
// unless a fault is injected.
type Webhook struct {
	server *http.Server
	mutex  sync.Mutex
	fault  string
	hits   int
	end    chan struct{}
}

const webhookName = "somebody-else.robustness.afloat.dev"

// Serve starts the webhook on loopback, and has the API server call it for the pods of a namespace.
func Serve(ctx context.Context, c *cluster.Cluster, namespace, authority string) (*Webhook, error) {
	pair, err := c.Certificate()
	if err != nil {
		return nil, err
	}
	bundle, err := os.ReadFile(authority)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for admission: %w", err)
	}
	w := &Webhook{}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	go func() {
		if err := w.server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("The webhook ended: %v", err)
		}
	}()

	url := "https://" + listener.Addr().String() + "/"
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    webhookName,
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(5)),
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"pods", "pods/status"}},
			}},
			// What plays the nodes does not try everything again that fails.
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "no-nodes", Expression: `request.userInfo.username != "kwok"`},
			},
		}},
	}
	_, err = c.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, configuration,
		metav1.CreateOptions{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("installing a webhook: %w", err), w.server.Close())
	}

	return w, nil
}

// Close ends the webhook.
func (w *Webhook) Close() error {
	if err := w.server.Close(); err != nil {
		return fmt.Errorf("ending the webhook: %w", err)
	}
	return nil
}

// inject makes the webhook slow, or lets it fail, until the returned function is called, which returns how many reviews
// that hit.
func (w *Webhook) inject(fault string) func() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	end := make(chan struct{})
	w.fault, w.hits, w.end = fault, 0, end
	return func() int {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.fault = ""
		close(end)
		return w.hits
	}
}

// ServeHTTP answers a review.
func (w *Webhook) ServeHTTP(to http.ResponseWriter, from *http.Request) {
	w.mutex.Lock()
	fault, end := w.fault, w.end
	w.hits++
	w.mutex.Unlock()
	switch fault {
	case WebhookFails:
		http.Error(to, "it fails (injected)", http.StatusInternalServerError)
		return
	case WebhookSlow:
		timer := time.NewTimer(2 * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-end:
		case <-from.Context().Done():
			return
		}
	}

	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(from.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(to, "no review", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	to.Header().Set("Content-Type", "application/json")
	// If the API server has given up, it does not miss the answer.
	_ = json.NewEncoder(to).Encode(review)
}
