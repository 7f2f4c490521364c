//go:build integration

package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// With the manifests for cert-manager, and its own controllers, the managers come up by themselves; no
// admission fails while it renews the certificate; and when it has changed the authority, too, they come back
// without a restart (OPS-050 (part), OPS-051 (part), OPS-047 (part)).
func TestCertificatesOfCertManager(t *testing.T) {
	binary := build(t, "../../certmanager", ".")
	logs := &bytes.Buffer{}
	w := start(t, func(w *world) {
		w.definitionsOfCertManager()
		w.begin(exec.CommandContext(context.Background(), binary, w.kubeconfig), logs) //nolint:gosec // built here
	}, shipped("external-certs", "Issuer", "Certificate"), "--feature-gates=EnableExternalCerts=true")
	certificate := func() []byte { return w.secret().Data["tls.crt"] }
	authority := func() []byte { return w.secret().Data["ca.crt"] }

	end := w.load()
	before, trusted := certificate(), authority()
	w.renew("kruise-webhook-certs")
	w.eventually("the renewed certificate", func() error {
		if bytes.Equal(certificate(), before) {
			return errors.New("the Secret has the old one")
		}
		return w.serves(certificate())
	})
	end()
	if !bytes.Equal(authority(), trusted) {
		t.Fatal("the authority has changed, too, so that nothing is shown")
	}

	previous := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: "kruise-webhook-ca"}
	if err := w.kube.Get(t.Context(), key, previous); err != nil {
		t.Fatal(err)
	}
	w.renew("kruise-webhook-ca")
	w.eventually("the new authority", func() error {
		secret := &corev1.Secret{}
		if err := w.kube.Get(t.Context(), key, secret); err != nil {
			return err
		}
		if bytes.Equal(secret.Data["tls.crt"], previous.Data["tls.crt"]) {
			return errors.New("its Secret has the old one")
		}
		return nil
	})
	w.renew("kruise-webhook-certs")
	w.eventually("a certificate of the new authority", func() error {
		if bytes.Equal(authority(), trusted) {
			return errors.New("the Secret has the old one")
		}
		return w.serves(certificate())
	})
	for _, m := range w.managers {
		w.eventually("readiness again", func() error { return answers(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/readyz", m.health)) })
	}
	w.eventually("admissions again", func() error { return errors.Join(w.admitCloneSet(), w.admitPod()) })
}

// renew has cert-manager renew a certificate now, as its command line does.
func (w *world) renew(name string) {
	w.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("cert-manager.io/v1")
	object.SetKind("Certificate")
	w.eventually("the request to renew "+name, func() error {
		if err := w.kube.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		conditions = append(conditions, map[string]any{"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test",
			"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": object.GetGeneration()})
		if err := unstructured.SetNestedSlice(object.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		return w.kube.Status().Update(w.t.Context(), object)
	})
}

// serves tells whether both managers serve the certificate, to callers that trust what the configurations
// say.
func (w *world) serves(certificate []byte) error {
	for _, m := range w.managers {
		served, err := w.dial(m)
		if err != nil {
			return err
		}
		if !bytes.Equal(served.Raw, first(certificate)) {
			return fmt.Errorf("port %d serves another certificate", m.port)
		}
	}
	return nil
}

// definitionsOfCertManager are in its module.
func (w *world) definitionsOfCertManager() {
	w.t.Helper()
	dir, err := exec.CommandContext(w.t.Context(), "go", "-C", "../../certmanager", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "deploy/crds/cert-manager.io_*.yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(files) < 4 {
		w.t.Fatalf("definitions of cert-manager: got %v, want 4 at least", files)
	}
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // of a module
		if err != nil {
			w.t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &object.Object); err != nil {
			w.t.Fatal(err)
		}
		w.create(object)
	}
	w.eventually("the kinds of cert-manager", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("cert-manager.io/v1")
		list.SetKind("CertificateList")
		return w.kube.List(w.t.Context(), list)
	})
}
