//go:build e2e

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// anybody returns the managers, and the client by which anybody in the cluster can reach their ports.
func anybody(t *testing.T) ([]corev1.Pod, *everyReplica) {
	t.Helper()
	e, ok := kube.(*everyReplica)
	if !ok {
		t.Fatal("the client is another one")
	}
	managers, err := e.managers(t.Context())
	if err != nil || len(managers) == 0 {
		t.Fatal(len(managers), err)
	}
	return managers, e
}

// TestAForgedReviewStopsNoPods: whoever can reach the port of a manager sends a review whose namespace is an
// expression. It does not get into the webhook configuration of the cluster, and pods can be created.
func TestAForgedReviewStopsNoPods(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const injected = "a'])) || int(request.operation) == 1 || ((request.namespace in ['a"
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Namespace: injected, Name: "x",
			Kind:     metav1.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "WorkloadSpread"},
			Resource: metav1.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1", Resource: "workloadspreads"},
			Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"apps.kruise.io/v1beta1","kind":"WorkloadSpread","metadata":{"name":"x"},
				"spec":{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"},"subsets":[{"name":"s"}]}}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	managers, e := anybody(t)
	for _, manager := range managers {
		if err := e.post(t.Context(), "https://"+net.JoinHostPort(manager.Status.PodIP, "9876")+"/validate-apps-kruise-io-workloadspread", body); err != nil {
			t.Log("answer:", err)
		}
	}
	for i := range 20 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("pod-", i)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nginx:1.26"}}}}
		if err := kube.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Error(err)
		}
	}
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := kube.Get(t.Context(), client.ObjectKey{Name: installation.Mutating}, &configuration); err != nil {
		t.Fatal(err)
	}
	if raw, err := json.Marshal(configuration); err != nil || strings.Contains(string(raw), "int(request.operation)") {
		t.Error("the review got into the configuration", err)
	}
}

// TestConnectionsThatSendNothingRefuseNobody: whoever can reach the ports of the managers opens connections,
// announces large bodies and sends nothing. Large objects of others are admitted nevertheless.
func TestConnectionsThatSendNothingRefuseNobody(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	managers, _ := anybody(t)
	for _, manager := range managers {
		for range 60 {
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // whoever it is
			connection, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(manager.Status.PodIP, "9876"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = connection.Close() })
			if _, err := io.WriteString(connection, "POST /mutate-apps-kruise-io-cloneset HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
				"Content-Length: 7340032\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	set := &appsv1beta1.CloneSet{}
	document(t, set, "large", ns, "{replicas: 0}")
	env := make([]corev1.EnvVar, 1000)
	for i := range env {
		env[i] = corev1.EnvVar{Name: fmt.Sprint("NAME_", i), Value: strings.Repeat("x", 100)}
	}
	set.Spec.Template.Spec.Containers[0].Env = env
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		if err := kube.Create(t.Context(), set.DeepCopy(), client.DryRunAll); err != nil {
			t.Fatal(err)
		}
	}
}
