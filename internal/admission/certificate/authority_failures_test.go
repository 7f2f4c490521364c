package certificate

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// OPS-046: the previous authority is dropped after ten minutes; by then a replica that could not pass is not
// ready, so nobody calls one that serves a certificate of it, and readiness demands a certificate of the new
// one.
func TestReplicasThatFallBehindAreNotCalled(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	k.policy = lasting
	pass(t, k)
	w.clock.Step(8*365*day + day)
	pass(t, k)
	w.clock.Step(settleTime)
	pass(t, k)
	m := k.lastMaterial()
	if n := authorities(m.bundle()); n != 2 {
		t.Errorf("authorities right after the change: got %d, want both", n)
	}
	if n := authorities(m.expected(w.clock.Now(), k.previous)); n != 2 {
		t.Errorf("authorities that callers are to trust right after the change: got %d, want both", n)
	}
	k.store = brokenStore{}
	w.clock.Step(staleTime)
	if _, err := k.Pass(context.Background()); err == nil {
		t.Error("a pass without the store: no error")
	}
	if err := k.inLine(); err != nil {
		t.Errorf("readiness in a short trouble: %v", err)
	}
	w.clock.Step(time.Second)
	if err := k.inLine(); err == nil || !strings.Contains(err.Error(), "no rights to Secret") {
		t.Errorf("readiness when left behind: got %v, want the error of the store", err)
	}
	m = k.lastMaterial()
	if n := authorities(m.bundle()); n != 2 {
		t.Errorf("authorities of the server that is left behind: got %d, want both", n)
	}
	if n := authorities(m.expected(w.clock.Now(), k.previous)); n != 1 {
		t.Errorf("authorities that callers are to trust by then: got %d, want 1", n)
	}
	if staleTime >= overlapTime {
		t.Error("the server must have the new certificate while callers still trust both")
	}
}

// off returns a replica whose clock is wrong by the duration. The test has to step its clock together with
// that of the world.
func (w *world) off(t *testing.T, by time.Duration) (*Keeper, *testclock.FakeClock) {
	t.Helper()
	clock := testclock.NewFakeClock(w.clock.Now().Add(by))
	return New(w, clock, logr.Discard(), w.keeper(t).options), clock
}

// put writes keys into the Secret; nil removes one.
func (w *world) put(t *testing.T, data map[string][]byte) {
	t.Helper()
	secret := w.secret(t)
	for key, value := range data {
		if secret.Data[key] = value; value == nil {
			delete(secret.Data, key)
		}
	}
	if err := w.Update(context.Background(), secret); err != nil {
		t.Fatal(err)
	}
}

// OPS-042, OPS-046: a staged authority that somebody damaged can never take over. It neither stops the upkeep
// nor takes replicas out of service; another one is staged if one is needed, and is trusted before anything
// that it signed is served.
func TestADamagedStagedAuthorityIsStagedAnew(t *testing.T) {
	w := newWorld(t)
	good, goodKey, err := lasting.newAuthority(w.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := lasting.newAuthority(w.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	old, oldKey, err := lasting.newAuthority(w.clock.Now().Add(-11 * 365 * day))
	if err != nil {
		t.Fatal(err)
	}
	for name, staged := range map[string]map[string][]byte{
		"without its key":       {keyNextCA: good, keyNextCAKey: nil},
		"with another key":      {keyNextCA: good, keyNextCAKey: otherKey},
		"no certificate":        {keyNextCA: []byte("garbage"), keyNextCAKey: goodKey},
		"not valid any more":    {keyNextCA: old, keyNextCAKey: oldKey},
		"without its timestamp": {keyNextCA: good, keyNextCAKey: goodKey, keyNextSince: []byte("yesterday")},
	} {
		for _, needed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				k := w.keeper(t)
				k.policy = lasting
				pass(t, k)
				first := w.secret(t)
				if needed {
					w.clock.Step(8*365*day + day)
					pass(t, k)
				}
				w.put(t, staged)
				for range 4 {
					pass(t, k)
					w.assertTrusted(t, k)
					if err := k.inLine(); err != nil {
						t.Errorf("readiness: %v", err)
					}
					w.clock.Step(settleTime / 2)
				}
				after := w.secret(t)
				taken := !bytes.Equal(after.Data[keyCACert], first.Data[keyCACert])
				if want := needed || name == "without its timestamp"; taken != want {
					t.Errorf("another authority took over: got %t, want %t", taken, want)
				}
				if after.Data[keyNextCA] != nil {
					t.Error("an authority is still staged")
				}
			})
		}
	}
}

// OPS-042: API servers refuse a CRD with a bundle that they cannot read. What is damaged is left out of it.
func TestADamagedPreviousAuthorityIsNotPublished(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	pass(t, k)
	w.put(t, map[string][]byte{keyPreviousCA: []byte("-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\n"),
		keyPreviousSince: timestamp(w.clock.Now())})
	pass(t, k)
	for _, bundle := range w.bundles(t) {
		if authorities(bundle) != 1 {
			t.Errorf("published: %s", bundle)
		}
	}
	w.assertTrusted(t, k)
}

// OPS-098: a replica whose clock is behind that of the one which made the certificate does not make another
// one on every pass.
func TestAReplicaWhoseClockIsBehindDoesNotRewriteTheSecret(t *testing.T) {
	for name, test := range map[string]struct {
		behind time.Duration
		writes int
	}{"two hours": {2 * time.Hour, 0}, "three days": {3 * day, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ahead := w.keeper(t)
			pass(t, ahead)
			behind, clock := w.off(t, -test.behind)
			secrets := 0
			last := w.secret(t).ResourceVersion
			for range 10 {
				pass(t, behind)
				pass(t, ahead)
				if version := w.secret(t).ResourceVersion; version != last {
					secrets, last = secrets+1, version
				}
				w.assertTrusted(t, ahead)
				w.clock.Step(time.Second)
				clock.Step(time.Second)
			}
			if secrets != test.writes {
				t.Errorf("the Secret was written %d times, want %d", secrets, test.writes)
			}
		})
	}
}

// OPS-046: the times of a change of the authority are those of the replica that looks at it. One whose clock
// is behind stages, and another promotes; neither happens too early, nor is the previous authority dropped
// while it is in use.
func TestAWrongClockDoesNotShortenAChangeOfTheAuthority(t *testing.T) {
	for _, by := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		w := newWorld(t)
		k := w.keeper(t)
		wrong, clock := w.off(t, by)
		k.policy, wrong.policy = lasting, lasting
		pass(t, k)
		first := w.secret(t).Data[keyCACert]
		step := func(d time.Duration) { w.clock.Step(d); clock.Step(d) }
		step(8*365*day + day)
		pass(t, wrong) // stages
		pass(t, k)
		step(settleTime - time.Second)
		pass(t, k)
		if !bytes.Equal(w.secret(t).Data[keyCACert], first) {
			t.Errorf("off by %s: promoted too early", by)
		}
		step(time.Second)
		pass(t, wrong) // promotes
		if bytes.Equal(w.secret(t).Data[keyCACert], first) {
			t.Errorf("off by %s: not promoted", by)
		}
		pass(t, k)
		step(overlapTime - time.Second)
		pass(t, k)
		pass(t, wrong)
		if !bytes.Equal(w.secret(t).Data[keyPreviousCA], first) {
			t.Errorf("off by %s: the previous authority was dropped too early", by)
		}
		step(time.Second)
		pass(t, k)
		if w.secret(t).Data[keyPreviousCA] != nil {
			t.Errorf("off by %s: the previous authority is kept", by)
		}
	}
}

// stubborn makes patches of one kind fail until allow is called.
func (w *world) stubborn(kind string) (allow func()) {
	refused := true
	w.WithWatch = interceptor.NewClient(w.WithWatch,
		interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			options ...client.PatchOption) error {
			if refused && o.GetObjectKind().GroupVersionKind().Kind == kind {
				return errors.New("a policy forbids it")
			}
			return c.Patch(ctx, o, p, options...)
		}})
	return func() { refused = false }
}

// OPS-042: if one object cannot be updated, the others are updated nevertheless and the replica stays ready,
// since all others trust what it serves. The failure is reported until the update succeeds.
func TestAnObjectThatCannotBeBroughtInLineTakesNobodyOutOfService(t *testing.T) {
	w := newWorld(t)
	pass(t, w.keeper(t))
	allow := w.stubborn("MutatingWebhookConfiguration")
	k := w.keeper(t)
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, w.validating(t)
	if err := w.Get(context.Background(), client.ObjectKey{Name: "mutating"}, mutating); err != nil {
		t.Fatal(err)
	}
	mutating.Webhooks[0].ClientConfig.CABundle, validating.Webhooks[0].ClientConfig.CABundle = nil, nil
	if err := errors.Join(w.Update(context.Background(), mutating), w.Update(context.Background(), validating)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := k.Pass(context.Background()); err == nil ||
			!strings.Contains(err.Error(), "MutatingWebhookConfiguration mutating in line: a policy forbids it") {
			t.Errorf("the pass: got %v, want an error about the configuration", err)
		}
		if err := k.inLine(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		w.clock.Step(staleTime)
	}
	if !bytes.Equal(w.validating(t).Webhooks[0].ClientConfig.CABundle, k.lastMaterial().bundle()) {
		t.Error("the other configuration is not in line")
	}
	allow()
	pass(t, k)
	w.assertTrusted(t, k)
}

// OPS-046: if an authority could not be published for a long time, its settling time counts from the moment
// when it was published.
func TestAnAuthorityThatIsPublishedLateDoesNotTakeOverAtOnce(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	k.policy = lasting
	pass(t, k)
	first := w.secret(t).Data[keyCACert]
	allow := w.stubborn("ValidatingWebhookConfiguration")
	k = New(w, w.clock, logr.Discard(), k.options)
	k.policy = lasting
	w.clock.Step(8*365*day + day)
	for range 3 {
		if _, err := k.Pass(context.Background()); err == nil {
			t.Error("published")
		}
		w.clock.Step(time.Minute)
	}
	allow()
	pass(t, k)
	if !bytes.Equal(w.secret(t).Data[keyCACert], first) {
		t.Error("it took over before API servers could have seen it")
	}
	w.clock.Step(settleTime)
	pass(t, k)
	if bytes.Equal(w.secret(t).Data[keyCACert], first) {
		t.Error("it does not take over")
	}
	w.assertTrusted(t, k)
}

// OPS-064: somebody applies a configuration without entries. The empty list is not remembered as the original
// one, also if an older release did so; the right list is remembered as soon as it is applied.
func TestAnEmptyListOfEntriesIsNotRemembered(t *testing.T) {
	for _, remembered := range []string{"", "null", "[]"} {
		w := newWorld(t)
		config := w.validating(t)
		full := config.Webhooks
		config.Webhooks = nil
		if remembered != "" {
			config.Annotations = map[string]string{"template": remembered}
		}
		write := func() {
			t.Helper()
			if err := w.Update(context.Background(), config); err != nil {
				t.Fatal(err)
			}
			pass(t, w.keeper(t))
			config = w.validating(t)
		}
		write()
		if text := config.Annotations["template"]; text != remembered {
			t.Errorf("without entries, annotation %q", text)
		}
		config.Webhooks = full
		write()
		config.Webhooks = nil
		write()
		if got := w.entries(t); got != "vx.kb.io" {
			t.Errorf("remembered as %q before: entries %q come back, annotation %s", remembered, got,
				config.Annotations["template"])
		}
	}
}

// OPS-046: other good certificates that somebody puts into the Secret, as from a backup, are not served
// before everybody trusts them: calls to replicas that have not seen the change, and from API servers that
// have not, would fail.
func TestCertificatesThatSomebodyPutsInTakeOverLikeNewOnes(t *testing.T) {
	w := newWorld(t)
	k, other := w.keeper(t), w.keeper(t)
	pass(t, k)
	pass(t, other)
	first := w.secret(t)
	replace := func(change func(m material)) {
		t.Helper()
		foreign, _, err := material(nil).next(k.policy, w.clock.Now(), &seen{}, false)
		if err != nil {
			t.Fatal(err)
		}
		change(foreign)
		secret := w.secret(t)
		secret.Data = foreign
		if err := w.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	var authority []byte
	replace(func(m material) { authority = m[keyCACert] })
	pass(t, k)
	for _, replica := range []*Keeper{k, other} { // the other has not made its pass yet
		w.assertTrusted(t, replica)
		if !bytes.Equal(replica.last[keyCert], first.Data[keyCert]) {
			t.Error("a certificate is served that nobody trusts yet")
		}
	}
	pass(t, other)
	w.clock.Step(settleTime)
	pass(t, k)
	w.assertTrusted(t, k)
	w.assertTrusted(t, other)
	if !bytes.Equal(w.secret(t).Data[keyCACert], authority) {
		t.Error("the authority that was put in did not take over")
	}
	pass(t, other)

	present := w.secret(t)
	replace(func(m material) { delete(m, keyCAKey) })
	pass(t, k)
	w.assertTrusted(t, k)
	w.assertTrusted(t, other)
	if !bytes.Equal(w.secret(t).Data[keyCert], present.Data[keyCert]) {
		t.Error("certificates of an authority that cannot sign are kept")
	}
}

// A replica that was not running for long, as on a machine that was put to sleep, does not put its old
// certificates in place of those that others have changed to.
func TestAReplicaThatSleptTakesWhatThereIs(t *testing.T) {
	w := newWorld(t)
	k, slept := w.keeper(t), w.keeper(t)
	k.policy, slept.policy = lasting, lasting
	pass(t, k)
	w.clock.Step(8*365*day + day)
	pass(t, slept)
	pass(t, k)
	w.clock.Step(settleTime)
	pass(t, k)
	w.clock.Step(overlapTime)
	pass(t, k) // drops the old authority
	changed := w.secret(t)
	pass(t, slept)
	if !bytes.Equal(w.secret(t).Data[keyCACert], changed.Data[keyCACert]) {
		t.Error("the old authority is back")
	}
	if w.secret(t).Data[keyNextCA] != nil {
		t.Error("an authority is staged")
	}
	w.assertTrusted(t, slept)
}
