//go:build integration

package rotation

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// authority can sign certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T, life time.Duration) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{SerialNumber: serial(t), Subject: pkix.Name{CommonName: "webhook-cert-ca"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(life), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key, a.pem = sign(t, template, template, nil)
	block, _ := pem.Decode(a.pem)
	var err error
	if a.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return a
}

func serial(t *testing.T) *big.Int {
	t.Helper()
	number, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func sign(t *testing.T, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// material is what the Secret holds if the authority has signed a certificate for ten years, of which so long
// is left.
func (a *authority) material(t *testing.T, life time.Duration) map[string][]byte {
	t.Helper()
	key, certificate := sign(t, &x509.Certificate{SerialNumber: serial(t), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(life - 3650*day),
		NotAfter: time.Now().Add(life), DNSNames: []string{host, "localhost"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, a.certificate, a.key)
	return map[string][]byte{"ca-key.pem": keyPEM(t, a.key), "ca-cert.pem": a.pem, "key.pem": keyPEM(t, key), "cert.pem": certificate,
		"tls.key": keyPEM(t, key), "tls.crt": certificate}
}

// first is the first certificate of a chain, as it is on the wire.
func first(chain []byte) []byte {
	block, _ := pem.Decode(chain)
	if block == nil {
		return nil
	}
	return block.Bytes
}

const day = 24 * time.Hour

// Two managers change their certificates, whatever the reason, and every admission meanwhile succeeds, and
// every API server that connects anew trusts what it meets (OPS-042 (part), OPS-044 (part), OPS-046,
// OPS-047 (part)).
func TestNoAdmissionFailsWhileCertificatesChange(t *testing.T) {
	old := newAuthority(t, 200*day)
	w := start(t, func(w *world) { // what is there is about to expire, and its authority, too
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kruise-webhook-certs"}, Data: old.material(t, 100*day)})
	}, shipped("default"))
	key := client.ObjectKey{Namespace: namespace, Name: "kruise-webhook-certs"}
	end := w.load()
	defer end()

	switch data := w.secret().Data; {
	case !bytes.Equal(data["ca-cert.pem"], old.pem): // half a minute after the managers have started
		t.Log("the machine is slow: the first change is over before the load is there, and only the others are made under it")
	case len(data["ca-next.pem"]) == 0:
		t.Fatal("no other authority is staged, though the certificate is about to expire")
	}
	w.eventually("the new authority", func() error {
		data := w.secret().Data
		if bytes.Equal(data["ca-cert.pem"], old.pem) {
			return errors.New("the Secret has the old one")
		}
		return w.signedBy(data["ca-cert.pem"])
	})
	renewed := w.secret()

	if err := w.kube.Delete(t.Context(), w.secret()); err != nil { // with what everybody trusts
		t.Fatal(err)
	}
	w.eventually("the Secret that was deleted", func() error {
		secret := &corev1.Secret{}
		if err := w.kube.Get(t.Context(), key, secret); err != nil {
			return err
		}
		if !bytes.Equal(secret.Data["cert.pem"], renewed.Data["cert.pem"]) {
			return errors.New("it has another certificate")
		}
		return nil
	})

	w.edit(func(data map[string][]byte) { // half of it is overwritten
		data["cert.pem"], data["tls.crt"] = []byte("garbage"), nil
	})
	w.eventually("the Secret that was damaged", func() error {
		if !bytes.Equal(w.secret().Data["cert.pem"], renewed.Data["cert.pem"]) {
			return errors.New("it is still damaged")
		}
		return nil
	})

	// Somebody puts other certificates in, good ones, such as those of a backup or of another cluster.
	restored := newAuthority(t, 9*365*day)
	w.edit(func(data map[string][]byte) {
		clear(data)
		maps.Copy(data, restored.material(t, 8*365*day))
	})
	w.eventually("the authority that somebody put in", func() error {
		if !bytes.Equal(w.secret().Data["ca-cert.pem"], restored.pem) {
			return errors.New("the Secret has another one")
		}
		return w.signedBy(restored.pem)
	})
}

// edit changes the Secret by hand.
func (w *world) edit(change func(map[string][]byte)) {
	w.t.Helper()
	w.eventually("an edit of the Secret", func() error {
		secret := w.secret()
		change(secret.Data)
		err := w.kube.Update(w.t.Context(), secret)
		if err != nil && !apierrors.IsConflict(err) {
			w.t.Fatal(err)
		}
		return err
	})
}
