package certificate

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// issued is a Secret as cert-manager makes it.
func (w *world) issued(t *testing.T, host string) *corev1.Secret {
	t.Helper()
	made, _, err := material(nil).next(newPolicy(host, day), w.clock.Now(), &seen{}, false)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "certs"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"ca.crt": made[keyCACert], "tls.crt": made[keyCert], "tls.key": made[keyKey]}}
}

// inject writes the authority where an injector would.
func (w *world) inject(t *testing.T, authority []byte, into ...string) {
	t.Helper()
	for _, name := range into {
		var err error
		key := types.NamespacedName{Name: name}
		switch name {
		case "mutating":
			config := &admissionv1.MutatingWebhookConfiguration{}
			if err = w.Get(context.Background(), key, config); err == nil {
				config.Webhooks[0].ClientConfig.CABundle = authority
				err = w.Update(context.Background(), config)
			}
		case "validating":
			config := w.validating(t)
			config.Webhooks[0].ClientConfig.CABundle = authority
			err = w.Update(context.Background(), config)
		default:
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err = w.Get(context.Background(), key, crd); err == nil {
				crd.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{CABundle: authority}
				err = w.Update(context.Background(), crd)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// OPS-050: external certificates are served, nothing is written, and readiness names the objects that do not
// have their authority.
func TestExternalCertificatesAreServedAndNothingIsWritten(t *testing.T) {
	w := newWorld(t)
	secret := w.issued(t, "hook.sys.svc")
	if err := w.Create(context.Background(), secret); err != nil {
		t.Fatal(err)
	}
	other := w.issued(t, "hook.sys.svc").Data["ca.crt"]
	k := w.with(t, func(o *Options) { o.External, o.FilesOnly = true, true })
	cases := []struct {
		name   string
		inject func()
		want   string // in the message; empty is ready
	}{
		{"nothing injected yet", func() {}, "mx.kb.io of mutating does not carry the authority"},
		{"all but the CRD", func() { w.inject(t, secret.Data["ca.crt"], "mutating", "validating") },
			"conversion of xs.example.io does not"},
		{"all", func() { w.inject(t, secret.Data["ca.crt"], "xs.example.io") }, ""},
		{"old and new, as cert-manager's injector leaves it", func() { w.inject(t, append(bytes.Clone(other), secret.Data["ca.crt"]...), "validating") }, ""},
		{"another one", func() { w.inject(t, other, "validating") }, "vx.kb.io of validating does not"},
		{"with white space", func() { w.inject(t, append([]byte("\n"), secret.Data["ca.crt"]...), "validating") }, ""},
	}
	for _, test := range cases {
		test.inject()
		w.writes = 0
		pass(t, k)
		if err := k.inLine(); (err == nil) != (test.want == "") {
			t.Errorf("%s: readiness: got %v, want the error %q", test.name, err, test.want)
		} else if err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: readiness: got %v, want an error with %q", test.name, err, test.want)
		}
		if w.writes != 0 {
			t.Errorf("%s: %d writes", test.name, w.writes)
		}
	}
	for file, want := range map[string][]byte{"tls.crt": secret.Data["tls.crt"], "tls.key": secret.Data["tls.key"],
		"ca-cert.pem": secret.Data["ca.crt"]} {
		if got, err := os.ReadFile(filepath.Join(k.options.Directory, file)); err != nil {
			t.Errorf("reading %s: %v", file, err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("file %s: got %s, want what the Secret has", file, got)
		}
	}
	renewed := w.issued(t, "wrong.sys.svc")
	renewed.ResourceVersion = ""
	if err := w.Update(context.Background(), renewed); err != nil {
		t.Fatal(err)
	}
	pass(t, k)
	if err := k.inLine(); err == nil || !strings.Contains(err.Error(), "Secret sys/certs: verifying the certificate for hook.sys.svc") {
		t.Errorf("a certificate for another name: got %v, want an error about its verification", err)
	}
}

// OPS-050: without the Secret the process runs, says what it waits for, and goes on when the Secret is
// created, even after the time for the first pass.
func TestExternalCertificatesAreWaitedFor(t *testing.T) {
	w := newWorld(t)
	k := w.with(t, func(o *Options) { o.External = true })
	var said atomic.Int32
	k.log = funcr.New(func(_, _ string) { said.Add(1) }, funcr.Options{})
	done := make(chan error, 1)
	go func() { done <- k.First(t.Context(), time.Minute) }()
	start := w.clock.Now()
	eventually(t, "waiting beyond the time", func() bool {
		if w.clock.HasWaiters() {
			w.clock.Step(10 * time.Second)
		}
		return w.clock.Since(start) > 5*time.Minute
	})
	if err := k.inLine(); err == nil || !strings.Contains(err.Error(), "Secret sys/certs must hold ca.crt, tls.crt and tls.key") {
		t.Errorf("readiness: got %v, want an error about what the Secret must hold", err)
	}
	if n := said.Load(); n != 1 {
		t.Errorf("OPS-096: the same obstacle was told of %d times", n)
	}
	if err := w.Create(context.Background(), w.issued(t, "hook.sys.svc")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of waiting", func() bool {
		if w.clock.HasWaiters() {
			w.clock.Step(time.Second)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("waiting ends with %v", err)
			}
			return true
		default:
			return false
		}
	})
}
