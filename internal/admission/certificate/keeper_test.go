package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/internal/admission/configuration"
)

const day = 24 * time.Hour

// lasting makes certificates and authorities that both live for ten years, as OpenKruise and earlier builds
// do, so that both are due after eight.
var lasting = policy{host: "hook.sys.svc", renewBefore: 2 * 365 * day, authority: 10 * 365 * day, certificate: 10 * 365 * day}

// world is an API server with the shipped objects, and a count of writes.
type world struct {
	client.WithWatch
	clock  *testclock.FakeClock
	mutex  sync.Mutex // guards writes and before
	writes int
	// before runs before every write.
	before func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionv1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{clock: testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	count := func() {
		w.mutex.Lock()
		before := w.before
		w.before = nil
		w.writes++
		w.mutex.Unlock()
		if before != nil {
			before()
		}
	}
	path, other := "/mutate-x", "/mutate-off"
	service := func(path *string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "elsewhere", Name: "placeholder",
			Path: path}}
	}
	timeout := int32(7)
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mutating",
			Annotations: map[string]string{"template": ""}},
			Webhooks: []admissionv1.MutatingWebhook{{Name: "mx.kb.io", ClientConfig: service(&path), TimeoutSeconds: &timeout},
				{Name: "mother.kb.io", ClientConfig: service(&other)}}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "validating"},
			Webhooks: []admissionv1.ValidatingWebhook{{Name: "vx.kb.io", ClientConfig: service(&path)}}},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "xs.example.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.io",
				Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
					Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}}}}},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "plain.example.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			count()
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			count()
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			count()
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	return w
}

func (w *world) keeper(t *testing.T) *Keeper {
	t.Helper()
	return New(w, w.clock, logr.Discard(), Options{
		Secret: types.NamespacedName{Namespace: "sys", Name: "certs"}, Directory: filepath.Join(t.TempDir(), "certs"),
		RenewBefore: 180 * day,
		Options: configuration.Options{Target: configuration.Target{Namespace: "sys", Service: "hook"},
			Mutating: "mutating", Validating: "validating", Paths: map[string]bool{"/mutate-x": true, "/mutate-off": false},
			CRDs: []string{"xs.example.io", "plain.example.io", "missing.example.io"}},
	})
}

func pass(t *testing.T, k *Keeper) time.Time {
	t.Helper()
	again, err := k.Pass(context.Background())
	if err != nil {
		t.Fatalf("pass: %v", err)
	}
	return again
}

func (w *world) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(context.Background(), types.NamespacedName{Namespace: "sys", Name: "certs"}, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// bundles returns the CA bundles of all configurations and CRDs.
func (w *world) bundles(t *testing.T) [][]byte {
	t.Helper()
	m, v, crd := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{},
		&apiextensionsv1.CustomResourceDefinition{}
	for name, object := range map[string]client.Object{"mutating": m, "validating": v, "xs.example.io": crd} {
		if err := w.Get(context.Background(), types.NamespacedName{Name: name}, object); err != nil {
			t.Fatal(err)
		}
	}
	bundles := [][]byte{crd.Spec.Conversion.Webhook.ClientConfig.CABundle}
	for _, hook := range m.Webhooks {
		bundles = append(bundles, hook.ClientConfig.CABundle)
	}
	for _, hook := range v.Webhooks {
		bundles = append(bundles, hook.ClientConfig.CABundle)
	}
	return bundles
}

// assertTrusted checks that what the replica serves is trusted by everything that calls it.
func (w *world) assertTrusted(t *testing.T, k *Keeper) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(k.options.Directory, "tls.crt"), filepath.Join(k.options.Directory, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	for i, bundle := range w.bundles(t) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		for _, host := range []string{"hook.sys.svc", "localhost"} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: w.clock.Now()}); err != nil {
				t.Errorf("bundle %d does not trust the served certificate for %s: %v", i, host, err)
			}
		}
	}
}

func authorities(bundle []byte) int { return bytes.Count(bundle, []byte("BEGIN CERTIFICATE")) }

// OPS-041, OPS-042, OPS-043, OPS-047, OPS-064, OPS-071.
func TestFirstPassMakesAndPublishesEverything(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	if err := k.Ready(httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)); err == nil {
		t.Error("OPS-090: ready before the first pass")
	}
	if again := pass(t, k); !again.IsZero() {
		t.Errorf("nothing is to be done soon, but: %v", again)
	}
	data := w.secret(t).Data
	for _, key := range []string{"ca-key.pem", "ca-cert.pem", "key.pem", "cert.pem", "tls.key", "tls.crt"} {
		if len(data[key]) == 0 {
			t.Errorf("the Secret has no %s", key)
		}
	}
	pair, err := tls.X509KeyPair(data["ca-cert.pem"], data["ca-key.pem"])
	if err != nil || pair.Leaf.Subject.CommonName != "webhook-cert-ca" || pair.Leaf.NotAfter.Before(w.clock.Now().Add(4*365*day)) {
		t.Errorf("authority: got %v until %s, want webhook-cert-ca: %v", pair.Leaf.Subject, pair.Leaf.NotAfter, err)
	}
	w.assertTrusted(t, k)
	files, err := os.ReadDir(k.options.Directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode of %s: got %v, want -rw------- (%v)", file.Name(), info.Mode(), err)
		}
		if strings.Contains(file.Name(), "ca-key") || strings.HasPrefix(file.Name(), ".new") {
			t.Errorf("%s has no business there", file.Name())
		}
	}
	config := &admissionv1.MutatingWebhookConfiguration{}
	if err := w.Get(context.Background(), types.NamespacedName{Name: "mutating"}, config); err != nil {
		t.Fatal(err)
	}
	if len(config.Webhooks) != 1 || *config.Webhooks[0].TimeoutSeconds != 7 || config.Webhooks[0].ClientConfig.Service.Name != "hook" {
		t.Errorf("the entry whose feature is off must go, the other keep what is not ours: %+v", config.Webhooks)
	}
	if text := config.Annotations["template"]; !strings.Contains(text, "mother.kb.io") || strings.Contains(text, "caBundle") {
		t.Errorf("OPS-064: the annotation must keep the original list: %s", text)
	}
	plain := &apiextensionsv1.CustomResourceDefinition{}
	if err := w.Get(context.Background(), types.NamespacedName{Name: "plain.example.io"}, plain); err != nil ||
		plain.Spec.Conversion.Webhook != nil {
		t.Errorf("OPS-071: a CRD without strategy Webhook was touched: %v", err)
	}
}

// OPS-098: nothing is written when nothing changed, however often and by however many replicas.
func TestNothingIsWrittenAtRest(t *testing.T) {
	w := newWorld(t)
	k, other := w.keeper(t), w.keeper(t)
	pass(t, k)
	w.writes = 0
	for range 3 {
		pass(t, k)
		pass(t, other)
		w.clock.Step(time.Minute)
	}
	if w.writes != 0 {
		t.Errorf("%d writes", w.writes)
	}
}

// OPS-045: of two replicas that start at once one wins, and both serve the same.
func TestReplicasRaceSafely(t *testing.T) {
	w := newWorld(t)
	k, other := w.keeper(t), w.keeper(t)
	w.before = func() { pass(t, other) } // the other replica creates the Secret just before us
	pass(t, k)
	w.assertTrusted(t, k)
	w.assertTrusted(t, other)
	mine, _ := os.ReadFile(filepath.Join(k.options.Directory, "tls.crt"))
	theirs, _ := os.ReadFile(filepath.Join(other.options.Directory, "tls.crt"))
	if !bytes.Equal(mine, theirs) {
		t.Error("the replicas serve different certificates")
	}
}

// OPS-042, D11: edits by others are repaired by the next pass; only what differs is written.
func TestForeignEditsAreRepaired(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	pass(t, k)
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := w.Get(context.Background(), types.NamespacedName{Name: "validating"}, config); err != nil {
		t.Fatal(err)
	}
	config.Webhooks[0].ClientConfig.CABundle = []byte("Cg==")
	fail := admissionv1.Ignore
	config.Webhooks[0].FailurePolicy = &fail
	if err := w.Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	w.writes = 0
	pass(t, k)
	w.assertTrusted(t, k)
	if w.writes != 1 {
		t.Errorf("%d writes for one edit", w.writes)
	}
	if err := w.Get(context.Background(), types.NamespacedName{Name: "validating"}, config); err != nil ||
		*config.Webhooks[0].FailurePolicy != fail {
		t.Errorf("what is not ours was changed: %v", err)
	}
}

// D11 (#453): an emptied or deleted Secret is filled with what is served, so that no call fails.
func TestEmptiedSecretIsRestored(t *testing.T) {
	for name, empty := range map[string]func(*world, *corev1.Secret) error{
		"emptied": func(w *world, s *corev1.Secret) error { s.Data = nil; return w.Update(context.Background(), s) },
		"deleted": func(w *world, s *corev1.Secret) error { return w.Delete(context.Background(), s) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			k := w.keeper(t)
			pass(t, k)
			before := w.secret(t)
			if err := empty(w, before.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			pass(t, k)
			if after := w.secret(t); !bytes.Equal(before.Data["cert.pem"], after.Data["cert.pem"]) ||
				!bytes.Equal(before.Data["ca-key.pem"], after.Data["ca-key.pem"]) {
				t.Error("new material was made")
			}
		})
	}
}

// OPS-044: a certificate near its end is replaced under the same authority; one nearer than a year makes the
// authority change, too, in the order of OPS-046, in which every call by old or new bundle meets a trusted
// certificate.
func TestCertificatesAreReplacedBeforeTheyEnd(t *testing.T) {
	w := newWorld(t)
	k, other := w.keeper(t), w.keeper(t)
	k.policy, other.policy = lasting, lasting
	pass(t, k)
	pass(t, other)
	first := w.secret(t)

	w.clock.Step(8*365*day + day)
	pass(t, k)
	pass(t, other) // which watches the Secret
	staged := w.secret(t)
	if !bytes.Equal(staged.Data["cert.pem"], first.Data["cert.pem"]) {
		t.Error("a certificate of the new authority is served before anybody trusts it")
	}
	for _, bundle := range w.bundles(t) {
		if authorities(bundle) != 2 {
			t.Errorf("%d authorities are published at first, want both", authorities(bundle))
		}
	}
	w.assertTrusted(t, k)
	w.assertTrusted(t, other)

	w.clock.Step(settleTime - time.Second)
	pass(t, other)
	if !bytes.Equal(w.secret(t).Data["cert.pem"], first.Data["cert.pem"]) {
		t.Error("the new authority takes over too early")
	}
	w.clock.Step(time.Second)
	again := pass(t, other)
	promoted := w.secret(t)
	if bytes.Equal(promoted.Data["cert.pem"], first.Data["cert.pem"]) ||
		bytes.Equal(promoted.Data["ca-cert.pem"], first.Data["ca-cert.pem"]) {
		t.Error("the new authority did not take over")
	}
	w.assertTrusted(t, other)
	w.assertTrusted(t, k) // still serves the old certificate
	pass(t, k)
	w.assertTrusted(t, k)
	if end := w.clock.Now().Add(overlapTime); !again.Equal(end) {
		t.Errorf("looks again at %v, want %v", again, end)
	}

	w.clock.Step(2 * time.Minute)
	pass(t, k)
	if n := authorities(w.bundles(t)[0]); n != 2 {
		t.Errorf("OPS-046: %d authorities after two minutes", n)
	}
	w.clock.Step(overlapTime)
	pass(t, k)
	for _, bundle := range w.bundles(t) {
		if authorities(bundle) != 1 {
			t.Errorf("%d authorities in the end", authorities(bundle))
		}
	}
	w.assertTrusted(t, k)
	w.assertTrusted(t, other)
	w.writes = 0
	pass(t, k)
	if w.writes != 0 || w.secret(t).Data[keyPreviousCA] != nil || w.secret(t).Data[keyNextCA] != nil {
		t.Error("rotation leaves something to be done")
	}
}

func TestRenewalUnderTheSameAuthority(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	pass(t, k)
	first := w.secret(t)
	k.policy.host = "other.sys.svc" // the Service was renamed
	pass(t, k)
	second := w.secret(t)
	if !bytes.Equal(first.Data["ca-cert.pem"], second.Data["ca-cert.pem"]) || bytes.Equal(first.Data["cert.pem"], second.Data["cert.pem"]) {
		t.Error("want a new certificate by the same authority")
	}
}

func certificateOf(t *testing.T, secret *corev1.Secret, cert, key string) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(secret.Data[cert], secret.Data[key])
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// OPS-043, OPS-044 (part): what is made is good for a year, and its authority for five; a time to renew that
// is longer than that does not make it due at once. Over the years some certificates are made, under few
// authorities, and what is served is good at any time.
func TestCertificatesLiveForAYear(t *testing.T) {
	for _, before := range []time.Duration{day, 180 * day, 9 * 365 * day} {
		w := newWorld(t)
		k := w.keeper(t)
		k.policy = newPolicy(k.policy.host, before)
		pass(t, k)
		secret := w.secret(t)
		leaf, authority := certificateOf(t, secret, "cert.pem", "key.pem"), certificateOf(t, secret, "ca-cert.pem", "ca-key.pem")
		now := w.clock.Now()
		if got := leaf.NotAfter.Sub(now); got != 365*day {
			t.Errorf("a certificate for %v", got)
		}
		if got := authority.NotAfter.Sub(now); got != 5*365*day {
			t.Errorf("an authority for %v", got)
		}
		if leaf.PublicKeyAlgorithm != x509.ECDSA || authority.PublicKeyAlgorithm != x509.ECDSA {
			t.Errorf("keys: got %v and %v, want ECDSA", leaf.PublicKeyAlgorithm, authority.PublicKeyAlgorithm)
		}
		certificates, authorities := map[string]bool{}, map[string]bool{}
		for w.clock.Now().Before(now.Add(12 * 365 * day)) {
			w.clock.Step(20 * day)
			again := pass(t, k)
			w.assertTrusted(t, k)
			if !again.IsZero() { // an authority changes
				w.clock.SetTime(again)
				pass(t, k)
				w.assertTrusted(t, k)
			}
			secret := w.secret(t)
			certificates[string(secret.Data["cert.pem"])], authorities[string(secret.Data["ca-cert.pem"])] = true, true
		}
		if len(certificates) < 12 || len(certificates) > 12*3+1 || len(authorities) > 4 {
			t.Errorf("renewed %v before: %d certificates of %d authorities in 12 years", before, len(certificates), len(authorities))
		}
	}
}

// OPS-043, OPS-110 (part): certificates that live for ten years, by RSA or not, are served until they are
// due; what follows them lives for a year, under the authority that is there.
func TestCertificatesThatLiveLongerAreServedToTheirEnd(t *testing.T) {
	w := newWorld(t)
	old := w.keeper(t)
	old.policy = lasting
	pass(t, old)
	first := w.secret(t)
	k := w.keeper(t)
	pass(t, k)
	w.clock.Step(8 * 365 * day)
	pass(t, k)
	if !bytes.Equal(w.secret(t).Data["cert.pem"], first.Data["cert.pem"]) {
		t.Error("a certificate that is good for two more years was replaced")
	}
	w.clock.Step(365*day + 364*day/2) // the authority is not good for a year any more
	pass(t, k)
	w.clock.Step(settleTime)
	pass(t, k)
	w.assertTrusted(t, k)
	if leaf := certificateOf(t, w.secret(t), "cert.pem", "key.pem"); leaf.NotAfter.Sub(w.clock.Now()) > 365*day+time.Hour {
		t.Errorf("the next one is good until %v", leaf.NotAfter)
	}
}

// OPS-053: who takes the key of the authority out of the Secret gets another authority and another
// certificate, without a call that fails.
func TestARemovedKeyOfTheAuthorityMakesEverythingNew(t *testing.T) {
	w := newWorld(t)
	k, other := w.keeper(t), w.keeper(t)
	pass(t, k)
	pass(t, other)
	first := w.secret(t)
	changed := first.DeepCopy()
	delete(changed.Data, keyCAKey)
	if err := w.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		pass(t, k)
		w.assertTrusted(t, k)
		pass(t, other)
		w.assertTrusted(t, other)
		w.clock.Step(settleTime)
	}
	after := w.secret(t)
	for _, key := range []string{"ca-cert.pem", "ca-key.pem", "cert.pem", "key.pem"} {
		if bytes.Equal(after.Data[key], first.Data[key]) || len(after.Data[key]) == 0 {
			t.Errorf("%s is what it was, or nothing", key)
		}
	}
	w.clock.Step(overlapTime)
	pass(t, k)
	for _, bundle := range w.bundles(t) {
		if bytes.Contains(bundle, bytes.TrimSpace(first.Data["ca-cert.pem"])) {
			t.Error("the authority whose key is known to others is still trusted")
		}
	}
	w.writes = 0
	w.clock.Step(time.Minute)
	pass(t, k)
	pass(t, other)
	if w.writes != 0 {
		t.Errorf("%d writes at rest", w.writes)
	}
}

// After a long shutdown everything is expired: no overlap can help, new material is served at once.
func TestExpiredMaterialIsReplacedAtOnce(t *testing.T) {
	w := newWorld(t)
	pass(t, w.keeper(t))
	w.clock.Step(11 * 365 * day)
	k := w.keeper(t)
	pass(t, k)
	w.assertTrusted(t, k)
}

// OPS-110: a Secret written by the reference is served as it is.
func TestMaterialOfTheReferenceIsKept(t *testing.T) {
	w := newWorld(t)
	made, _, err := material(nil).next(newPolicy("hook.sys.svc", 180*day), w.clock.Now(), &seen{}, false)
	if err != nil {
		t.Fatal(err)
	}
	delete(made, keyTLSCert)
	delete(made, keyTLSKey)
	if err := w.Create(context.Background(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "certs", Labels: map[string]string{"helm": "yes"}},
			Data: made}); err != nil {
		t.Fatal(err)
	}
	k := w.keeper(t)
	pass(t, k)
	after := w.secret(t)
	if !bytes.Equal(after.Data["cert.pem"], made["cert.pem"]) || !bytes.Equal(after.Data["tls.crt"], made["cert.pem"]) ||
		after.Labels["helm"] != "yes" {
		t.Error("the Secret was not kept")
	}
}

// OPS-048: without a Secret, the directory holds everything, and configurations call the host.
func TestWithoutASecretTheDirectoryHoldsEverything(t *testing.T) {
	w := newWorld(t)
	options := w.keeper(t).options
	options.FilesOnly, options.Target = true, configuration.Target{Host: "127.0.0.1", Port: 9876}
	k := New(w, w.clock, logr.Discard(), options)
	pass(t, k)
	first, err := os.ReadFile(filepath.Join(options.Directory, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pass(t, New(w, w.clock, logr.Discard(), options))
	second, _ := os.ReadFile(filepath.Join(options.Directory, "cert.pem"))
	if !bytes.Equal(first, second) {
		t.Error("a restart makes new certificates")
	}
	if err := w.Get(context.Background(), types.NamespacedName{Namespace: "sys", Name: "certs"}, &corev1.Secret{}); err == nil {
		t.Error("there is a Secret")
	}
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := w.Get(context.Background(), types.NamespacedName{Name: "validating"}, config); err != nil {
		t.Fatal(err)
	}
	if c := config.Webhooks[0].ClientConfig; c.URL == nil || *c.URL != "https://127.0.0.1:9876/mutate-x" || c.Service != nil {
		t.Errorf("client configuration: got %+v, want the URL of this host and no Service", c)
	}
}

// OPS-042: the first pass gives up after its time and names the obstacle.
func TestFirstPassNamesTheObstacle(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	k.store = brokenStore{}
	done := make(chan error, 1)
	go func() { done <- k.First(context.Background(), time.Minute) }()
	for {
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "no rights to Secret") {
				t.Errorf("the first pass: got %v, want that there are no rights", err)
			}
			return
		default:
			if w.clock.HasWaiters() {
				w.clock.Step(time.Second)
			}
		}
	}
}

type brokenStore struct{}

func (brokenStore) load(context.Context) (material, *corev1.Secret, error) {
	return nil, nil, errors.New("no rights to Secret")
}
func (brokenStore) save(context.Context, material, *corev1.Secret) error { return nil }

// OPS-042: a change of a watched object starts a pass without waiting for the minute.
func TestChangeStartsAPass(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.Start(ctx); err != nil {
			t.Errorf("start: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	eventually(t, "the first pass", func() bool { return k.lastMaterial() != nil })
	eventually(t, "repair", func() bool {
		w.clock.Step(spacing / 50) // far from the minute
		config := &admissionv1.ValidatingWebhookConfiguration{}
		if err := w.Get(ctx, types.NamespacedName{Name: "validating"}, config); err != nil {
			return false
		}
		if bytes.Equal(config.Webhooks[0].ClientConfig.CABundle, k.lastMaterial().bundle()) && config.Labels["edited"] != "" {
			return true
		}
		if config.Labels["edited"] == "" {
			config.Labels, config.Webhooks[0].ClientConfig.CABundle = map[string]string{"edited": "yes"}, []byte("x")
			_ = w.Update(ctx, config) // a conflict is tried again
		} else {
			// The fake watch does not send earlier changes, and the first edit may have come before it: edit
			// again.
			config.Labels["edited"] += "s"
			_ = w.Update(ctx, config)
		}
		return false
	})
}

// eventually polls.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s did not happen", what)
		}
	}
}
