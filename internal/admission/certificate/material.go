package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// Keys of the Secret (OPS-041). The first six are those of the reference, which ignores the others.
const (
	keyCAKey, keyCACert     = "ca-key.pem", "ca-cert.pem"
	keyKey, keyCert         = "key.pem", "cert.pem"
	keyTLSKey, keyTLSCert   = "tls.key", "tls.crt"
	keyNextCAKey, keyNextCA = "ca-next-key.pem", "ca-next.pem"
	keyNextSince            = "ca-next-since"
	keyPreviousCA           = "ca-previous.pem"
	keyPreviousSince        = "ca-previous-since"
	keyExternalCA           = "ca.crt" // with keyTLSKey and keyTLSCert, in a Secret of somebody else
)

const (
	// authorityLife and certificateLife are how long new ones are valid. Whoever reads a key once can use it
	// no longer than that.
	authorityLife   = 5 * 365 * 24 * time.Hour
	certificateLife = 365 * 24 * time.Hour
	// reuseAuthority is how long an authority must still be valid to sign a new certificate.
	reuseAuthority = 365 * 24 * time.Hour
	// settleTime is how long a staged authority is published before a certificate that it signed is served:
	// the API servers must have seen it.
	settleTime = 30 * time.Second
	// backdated is how long before its creation a certificate begins to be valid, because the clocks of other
	// machines may be behind.
	backdated = 24 * time.Hour
	// overlapTime is how long the previous authority stays published. A replica makes a pass at least once a
	// minute. One that did not for half this time is not ready, so that nobody calls it.
	overlapTime = 10 * time.Minute
)

// material is the content of the Secret.
type material map[string][]byte

// policy says what a certificate must be like.
type policy struct {
	// host is the name or address under which the API server calls.
	host        string
	renewBefore time.Duration
	// authority and certificate are how long new ones are valid.
	authority, certificate time.Duration
}

func newPolicy(host string, renewBefore time.Duration) policy {
	return policy{
		host:        host,
		renewBefore: renewBefore,
		authority:   authorityLife,
		certificate: certificateLife,
	}
}

// before is how long before its end a certificate that is valid for life is renewed: CERTS_RENEW_BEFORE may
// be longer than that, and a certificate must not be due as soon as it is made.
func (p policy) before(life time.Duration) time.Duration { return min(p.renewBefore, life*2/3) }

// reuses says whether an authority may sign another certificate; it must outlive the time at which that is
// renewed.
func (p policy) reuses(authority *x509.Certificate, now time.Time) bool {
	return !now.Before(authority.NotBefore) &&
		now.Add(max(reuseAuthority, p.before(p.certificate)+24*time.Hour)).Before(authority.NotAfter)
}

// seen is when this replica first saw the staged authority published, and the previous one, by its own clock.
// The clock of the replica that wrote the timestamps may be wrong: an authority would take over before API
// servers know it, or be dropped while it is in use. A replica that starts counts from its start. The
// timestamps are for people and for older releases.
type seen struct{ next, previous sighting }

type sighting struct {
	authority string
	since     time.Time
}

func (s *sighting) look(authority []byte, now time.Time) time.Time {
	if s.since.IsZero() || s.authority != string(authority) {
		*s = sighting{string(authority), now}
	}
	return s.since
}

// bundle returns the authorities to be trusted, newest first. A damaged one is left out: an API server would
// refuse the whole bundle.
func (m material) bundle() []byte {
	var bundle []byte
	for _, key := range []string{keyNextCA, keyCACert, keyPreviousCA} {
		pemBytes := m[key]
		if _, err := certutil.ParseCertsPEM(pemBytes); err == nil &&
			!bytes.Contains(bundle, bytes.TrimSpace(pemBytes)) {
			bundle = append(append(bundle, bytes.TrimSpace(pemBytes)...), '\n')
		}
	}
	return bundle
}

// expected returns the authorities that may have signed what a server serves. The previous one is left out
// once the server has had enough time to load the new certificate.
func (m material) expected(now, previousSince time.Time) []byte {
	if now.Sub(previousSince) > staleTime {
		m = maps.Clone(m)
		delete(m, keyPreviousCA)
	}
	return m.bundle()
}

// external reads m as a Secret that another program makes.
func (m material) external() material {
	return material{
		keyCACert:  m[keyExternalCA],
		keyCert:    m[keyTLSCert],
		keyKey:     m[keyTLSKey],
		keyTLSCert: m[keyTLSCert],
		keyTLSKey:  m[keyTLSKey],
	}
}

// next returns the material as it should be now; the same if nothing has to be done. published says that the
// present bundle is known to be published everywhere. again is when the next pass is due at the latest; zero
// if nothing is scheduled.
func (m material) next(
	p policy, now time.Time, seen *seen, published bool,
) (result material, again time.Time, err error) {
	result = maps.Clone(m)
	if result == nil {
		result = material{}
	}
	if len(m[keyNextCA]) > 0 {
		if staged, _, err := parseAuthority(m[keyNextCA], m[keyNextCAKey]); err != nil ||
			!p.reuses(staged, now) {
			result.unstage() // a damaged authority could never take over; another one is staged if needed
		}
	}
	// An authority without its key is how somebody asks for a new one: the key may be known to others.
	usable := m.check(p, now) == nil && len(m[keyCAKey]) > 0
	switch {
	case !usable && m.checkExpired(p, now):
		// There is no valid certificate to serve, so an overlap cannot help: replace it at once.
		if err := result.replace(p, now); err != nil {
			return nil, again, err
		}
	case len(result[keyNextCA]) > 0:
		again = now.Add(settleTime)
		if published {
			again = seen.next.look(result[keyNextCA], now).Add(settleTime)
		}
		if !now.Before(again) {
			if err := result.promote(p, now); err != nil {
				return nil, again, err
			}
			again = time.Time{}
		}
	case !usable:
		if err := result.renew(p, now); err != nil {
			return nil, again, err
		}
		if len(result[keyNextCA]) > 0 {
			again = now.Add(settleTime)
		}
	}
	if previous := result[keyPreviousCA]; previous != nil {
		if end := seen.previous.look(previous, now).Add(overlapTime); !now.Before(end) {
			delete(result, keyPreviousCA)
			delete(result, keyPreviousSince)
		} else if again.IsZero() || end.Before(again) {
			again = end
		}
	}
	if len(result[keyCert]) > 0 {
		result[keyTLSCert], result[keyTLSKey] = result[keyCert], result[keyKey]
	}
	return result, again, nil
}

// unstage removes the staged authority.
func (m material) unstage() {
	delete(m, keyNextCA)
	delete(m, keyNextCAKey)
	delete(m, keyNextSince)
}

// check says why the serving certificate should be replaced; nil if it need not.
func (m material) check(p policy, now time.Time) error {
	return m.checkFor(p, now, p.before)
}

// checkExpired says whether there is no certificate that clients would accept now.
func (m material) checkExpired(p policy, now time.Time) bool {
	return m.checkFor(p, now, func(time.Duration) time.Duration { return 0 }) != nil
}

// checkFor says why the certificate is not good now, or not at the end of what ahead returns for its life.
func (m material) checkFor(p policy, now time.Time, ahead func(life time.Duration) time.Duration) error {
	pair, err := tls.X509KeyPair(m[keyCert], m[keyKey])
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(m[keyCACert]) {
		return errors.New("there is no certificate of the authority")
	}
	for _, at := range []time.Time{now, now.Add(ahead(pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)))} {
		options := x509.VerifyOptions{DNSName: p.host, Roots: roots, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if _, err := pair.Leaf.Verify(options); err != nil {
			return fmt.Errorf("verifying the certificate for %s at %s: %w", p.host, at.Format(time.RFC3339),
				err)
		}
	}
	return nil
}

// renew makes a new certificate by the present authority if that is good for a year, else it stages a new
// authority.
func (m material) renew(p policy, now time.Time) error {
	cert, key, err := parseAuthority(m[keyCACert], m[keyCAKey])
	if err == nil && p.reuses(cert, now) {
		m[keyCert], m[keyKey], err = p.issue(cert, key, now)
		return err
	}
	m[keyNextCA], m[keyNextCAKey], err = p.newAuthority(now)
	m[keyNextSince] = timestamp(now)
	return err
}

// promote makes the staged authority the present one and issues its first certificate.
func (m material) promote(p policy, now time.Time) error {
	m[keyPreviousCA], m[keyPreviousSince] = m[keyCACert], timestamp(now)
	m[keyCACert], m[keyCAKey] = m[keyNextCA], m[keyNextCAKey]
	m.unstage()
	cert, key, err := parseAuthority(m[keyCACert], m[keyCAKey])
	if err != nil {
		return fmt.Errorf("promoting the staged authority: %w", err)
	}
	m[keyCert], m[keyKey], err = p.issue(cert, key, now)
	return err
}

// replace makes everything new, or a certificate by the present authority if that is still good.
func (m material) replace(p policy, now time.Time) error {
	cert, key, err := parseAuthority(m[keyCACert], m[keyCAKey])
	if err != nil || !p.reuses(cert, now) {
		if err == nil {
			m[keyPreviousCA], m[keyPreviousSince] = m[keyCACert], timestamp(now)
		}
		m.unstage()
		if m[keyCACert], m[keyCAKey], err = p.newAuthority(now); err != nil {
			return err
		}
		if cert, key, err = parseAuthority(m[keyCACert], m[keyCAKey]); err != nil {
			return err
		}
	}
	m[keyCert], m[keyKey], err = p.issue(cert, key, now)
	return err
}

func (p policy) newAuthority(now time.Time) (certPEM, keyPEM []byte, err error) {
	template, err := certificateTemplate("webhook-cert-ca", now, p.authority)
	if err != nil {
		return nil, nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	return sign(template, template, nil)
}

func (p policy) issue(
	authority *x509.Certificate, authorityKey crypto.Signer, now time.Time,
) (certPEM, keyPEM []byte, err error) {
	template, err := certificateTemplate(p.host, now, p.certificate)
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost"}
	if ip := net.ParseIP(p.host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{p.host, "localhost"}
	}
	if template.NotAfter.After(authority.NotAfter) {
		template.NotAfter = authority.NotAfter
	}
	return sign(template, authority, authorityKey)
}

// certificateTemplate returns what all certificates have in common.
func certificateTemplate(name string, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	if len(name) > 64 {
		name = name[:64]
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-backdated).UTC(),
		NotAfter:     now.Add(life).UTC(),
	}, nil
}

// sign makes a key and a certificate for it, which is self-signed if there is no parentKey.
func sign(template, parent *x509.Certificate, parentKey crypto.Signer) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	if parentKey == nil {
		parentKey = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

func parseAuthority(certPEM, keyPEM []byte) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the authority: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, nil, errors.New("reading the authority: it cannot sign")
	}
	return pair.Leaf, signer, nil
}

func timestamp(t time.Time) []byte { return []byte(t.UTC().Format(time.RFC3339)) }

func (m material) equal(other material) bool { return maps.EqualFunc(m, other, bytes.Equal) }
