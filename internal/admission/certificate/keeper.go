package certificate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/admission/configuration"
)

// Options define which certificates and objects are maintained, and where.
type Options struct {
	// Secret holds the material, and Directory the files that the server loads. FilesOnly keeps everything in
	// Directory (OPS-048).
	Secret    types.NamespacedName
	Directory string
	FilesOnly bool
	// RenewBefore is how long before its expiry a certificate is replaced (OPS-044).
	RenewBefore time.Duration
	// Options define the objects that carry the CA. With External, another program creates the Secret, too:
	// it is only read, and only files are written (OPS-050).
	configuration.Options
	// Rescope receives a value when the conditions of scopes may have changed; they are then updated at once.
	Rescope <-chan struct{}
	// ServerPort is the port of this webhook server, for the readiness check.
	ServerPort int
}

// Keeper maintains the certificate of one replica, see the package comment. It implements manager.Runnable.
type Keeper struct {
	// Publisher updates the objects that carry the CA.
	Publisher *configuration.Publisher

	options  Options
	client   client.WithWatch
	store    store
	policy   policy
	clock    clock.WithTicker
	log      logr.Logger
	unserved *prometheus.GaugeVec
	expires  *prometheus.GaugeVec

	// passing is held during a pass, and guards seen.
	passing sync.Mutex
	seen    seen
	// state guards the fields below, which the readiness check reads.
	state     sync.Mutex
	lastError error
	last      material
	lastPass  time.Time // when a pass last wrote the files to serve
	previous  time.Time // since when the current CA is known to have replaced its predecessor
	found     configuration.Report
	since     time.Time // when an unserved entry was first found; zero if there is none
	wasReady  bool
	said      map[string]bool
}

// New returns a Keeper. The client must read from the API server, not from a cache: it is used before the
// caches run, and needs rights only for the objects named in the options.
func New(c client.WithWatch, clock clock.WithTicker, log logr.Logger, options Options) *Keeper {
	k := &Keeper{
		options:   options,
		client:    c,
		Publisher: configuration.New(c, clock, options.Options),
		policy:    newPolicy(options.Target.HostName(), options.RenewBefore),
		clock:     clock,
		log:       log,
		lastError: errors.New("the first pass has not ended"),
		said:      map[string]bool{},

		unserved: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "afloat_webhook_unserved",
			Help: "Entries of webhook configurations, and conversions, that this manager does not serve.",
		}, []string{"object", "name"}),
		expires: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "afloat_webhook_certificate_expiry_timestamp_seconds",
			Help: "When the certificate that this replica serves its webhooks with expires, in seconds since 1970.",
		}, nil),
	}
	if options.FilesOnly && !options.External {
		k.store = &directoryStore{dir: options.Directory}
	} else {
		k.store = &secretStore{client: c, name: options.Secret}
	}

	return k
}

const (
	// maxRaces is how often a pass is attempted when it loses a race with other replicas.
	maxRaces = 10
	// spacing is how long changes are collected before a pass.
	spacing = time.Second
	// staleTime is the maximum age of the last successful pass of a ready replica. A previous CA is only
	// dropped from the bundles after twice that time, so that every ready replica serves a certificate of the
	// new CA by then.
	staleTime = overlapTime / 2
	// unservedGrace is how long a replica that was ready stays ready when entries appear that it does not
	// serve: during an upgrade the configurations are newer than the old replicas. A replica that starts gets
	// no grace period: it must not replace one that does serve them.
	unservedGrace = 2 * time.Minute
)

// Metric returns the gauge afloat_webhook_unserved, for the registry (OPS-065).
func (k *Keeper) Metric() prometheus.Collector { return k.unserved }

// Expiry returns the gauge afloat_webhook_certificate_expiry_timestamp_seconds, which has no value before a
// certificate is served.
func (k *Keeper) Expiry() prometheus.Collector { return k.expires }

// Pass does everything that is due (OPS-042). It returns when the next pass is due at the latest, or zero if
// nothing is scheduled.
func (k *Keeper) Pass(ctx context.Context) (again time.Time, err error) {
	k.passing.Lock()
	defer k.passing.Unlock()
	for range maxRaces {
		if k.options.External {
			err = k.adopt(ctx)
		} else {
			again, err = k.pass(ctx)
		}
		if !errors.Is(err, configuration.ErrLostRace) {
			break
		}
	}

	k.state.Lock()
	defer k.state.Unlock()
	if err != nil && ctx.Err() == nil && (k.lastError == nil || k.lastError.Error() != err.Error()) {
		k.log.Error(err, "Keeping webhook certificates failed, trying again") // once for each obstacle
	}

	k.lastError = err
	return again, err
}

func (k *Keeper) pass(ctx context.Context) (time.Time, error) {
	stored, version, err := k.store.load(ctx)
	if err != nil {
		return time.Time{}, err
	}

	now := k.clock.Now()
	if kept := k.keep(stored, now); kept != nil {
		if stored, err = k.save(ctx, stored, kept, version); err != nil {
			return time.Time{}, err
		}
		if _, version, err = k.store.load(ctx); err != nil {
			return time.Time{}, err
		}
	}

	wanted, again, err := stored.next(k.policy, now, &k.seen, false)
	if err != nil {
		return time.Time{}, err
	}
	if wanted, err = k.save(ctx, stored, wanted, version); err != nil {
		return time.Time{}, err
	}

	published := k.publish(ctx, wanted)
	if errors.Is(published, configuration.ErrLostRace) {
		return time.Time{}, published
	}

	if published == nil && len(wanted[keyNextCA]) > 0 {
		if wanted, again, err = k.takeOver(ctx); err != nil {
			return time.Time{}, err
		}
	}

	// The replica continues to serve if an object cannot be updated: the other objects trust what it serves.
	return again, errors.Join(k.serve(wanted), published)
}

// keep returns what the Secret should hold if somebody else changed it, or nil if its content is good. What
// replicas serve and API servers trust stays in use while it is valid and this replica is up to date.
func (k *Keeper) keep(stored material, now time.Time) material {
	k.state.Lock()
	last, fresh := k.last, now.Sub(k.lastPass) < staleTime
	k.state.Unlock()

	switch {
	case last == nil || last.checkExpired(k.policy, now):
		return nil
	case stored.checkExpired(k.policy, now): // emptied, or damaged
		return last
	case !fresh || bytes.Contains(stored.bundle(), bytes.TrimSpace(last[keyCACert])):
		return nil
	}

	// Other valid material, for example from a backup: nobody trusts its CA yet, so it takes over like any
	// new one.
	kept := maps.Clone(last)
	kept.unstage()
	if authority, _, err := parseAuthority(stored[keyCACert], stored[keyCAKey]); err != nil ||
		!k.policy.reuses(authority, now) {
		k.log.Info("Somebody replaced the webhook certificates by those of an authority that cannot sign any: they were put back. "+
			"For certificates of somebody else there is the feature gate EnableExternalCerts",
			"host", k.policy.host)
		return kept
	}

	k.log.Info(
		"Somebody replaced the webhook certificates: their authority takes over once it is trusted everywhere",
		"host", k.policy.host,
	)
	kept[keyNextCA], kept[keyNextCAKey], kept[keyNextSince] =
		stored[keyCACert], stored[keyCAKey], timestamp(now)

	return kept
}

// adopt serves the certificate of a Secret that another program creates.
func (k *Keeper) adopt(ctx context.Context) error {
	stored, _, err := k.store.load(ctx)
	if err != nil {
		return err
	}

	m := stored.external()
	if _, err := tls.X509KeyPair(m[keyCert], m[keyKey]); err != nil || len(m[keyCACert]) == 0 {
		return fmt.Errorf("external certificates: Secret %s must hold ca.crt, tls.crt and tls.key (%w)",
			k.options.Secret, cmp.Or(err, errors.New("there is no ca.crt")))
	}

	var mismatched []string
	if err := m.check(policy{host: k.policy.host}, k.clock.Now()); err != nil {
		mismatched = []string{fmt.Sprintf("Secret %s: %v", k.options.Secret, err)}
	}

	return errors.Join(k.publish(ctx, m, mismatched...), k.serve(m))
}

// serve writes the files that the server reloads.
func (k *Keeper) serve(m material) error {
	if err := writeFiles(k.options.Directory, servedFiles(m)); err != nil {
		return err
	}
	if pair, err := tls.X509KeyPair(m[keyCert], m[keyKey]); err == nil {
		k.expires.WithLabelValues().Set(float64(pair.Leaf.NotAfter.Unix()))
	}
	k.state.Lock()
	defer k.state.Unlock()
	k.last, k.lastPass, k.previous = m, k.clock.Now(), k.seen.previous.since
	return nil
}

// takeOver promotes a staged CA that has been published for settleTime.
func (k *Keeper) takeOver(ctx context.Context) (material, time.Time, error) {
	stored, version, err := k.store.load(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	wanted, again, err := stored.next(k.policy, k.clock.Now(), &k.seen, true)
	if err != nil {
		return nil, time.Time{}, err
	}
	wanted, err = k.save(ctx, stored, wanted, version)
	return wanted, again, err
}

func (k *Keeper) save(
	ctx context.Context, stored, wanted material, version *corev1.Secret,
) (material, error) {
	if wanted.equal(stored) {
		return wanted, nil
	}
	if err := k.store.save(ctx, wanted, version); err != nil {
		return nil, err
	}
	k.log.Info("Webhook certificates were renewed", "host", k.policy.host)
	return wanted, nil
}

// publish publishes the bundle, records what was found, and logs each finding once while it persists.
func (k *Keeper) publish(ctx context.Context, m material, mismatched ...string) error {
	found, err := k.Publisher.Publish(ctx, m.bundle())
	if err != nil {
		return err
	}

	found.Mismatched = append(mismatched, found.Mismatched...)
	notes := append(found.Notes, found.Mismatched...)
	k.unserved.Reset()

	for _, what := range found.Unserved {
		notes = append(notes, what.String())
		k.unserved.WithLabelValues(what.Object, what.Name).Set(1)
	}

	said := map[string]bool{}
	for _, note := range notes {
		if said[note] = true; !k.said[note] {
			k.log.Info("Webhook configuration", "note", note)
		}
	}

	k.said = said
	k.state.Lock()
	defer k.state.Unlock()
	k.found = found
	if len(found.Unserved) == 0 {
		k.since = time.Time{}
	} else if k.since.IsZero() {
		k.since = k.clock.Now()
	}

	return nil
}

func (k *Keeper) lastMaterial() material {
	k.state.Lock()
	defer k.state.Unlock()
	return k.last
}

// First runs passes until one succeeds or timeout is over; the error names the obstacle (OPS-042). For
// external certificates it waits without limit: the process keeps running and logs what it waits for
// (OPS-050).
func (k *Keeper) First(ctx context.Context, timeout time.Duration) error {
	deadline := k.clock.Now().Add(timeout)
	for {
		_, err := k.Pass(ctx)
		if ctx.Err() != nil {
			err = nil // the process is stopping
		}
		if err == nil {
			return nil
		}
		if !k.options.External && !k.clock.Now().Before(deadline) {
			return fmt.Errorf("preparing webhook certificates for %s: %w", timeout, err)
		}
		select {
		case <-ctx.Done():
		case <-k.clock.After(time.Second):
		}
	}
}

// Start runs a pass whenever one of the objects changes, at scheduled times, and once a minute (OPS-042). It
// runs on every replica.
func (k *Keeper) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	var watches sync.WaitGroup
	defer watches.Wait()

	for _, object := range k.watched() {
		watches.Go(func() { k.watch(ctx, object, changed) })
	}

	elected := k.options.Elected
	for {
		again, err := k.Pass(ctx)
		wait := time.Minute
		if err != nil {
			wait = 5 * time.Second
		} else if until := again.Sub(k.clock.Now()); !again.IsZero() && until < wait {
			wait = max(until, time.Second)
		}

		timer := k.clock.NewTimer(wait)
		for waiting := true; waiting; {
			waiting = false
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-elected:
				elected = nil // once is enough
			case <-k.options.Rescope:
				waiting = k.rescope(ctx) // if it fails, a whole pass follows and reports why
			case <-changed:
				// Changes, including those of this process, come in bursts, and managers that disagree must
				// not write continuously.
				waiting = !k.settle(ctx)
			case <-timer.C():
			}
		}

		timer.Stop()
	}
}

// settle waits until a burst of changes is over. It updates scopes meanwhile, because pods that are created
// do not wait.
func (k *Keeper) settle(ctx context.Context) bool {
	over := k.clock.After(spacing)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.options.Rescope:
			if !k.rescope(ctx) {
				return true
			}
		case <-over:
			return true
		}
	}
}

// rescope updates the scopes of entries, and nothing else that could take time. It returns false if that
// failed.
func (k *Keeper) rescope(ctx context.Context) bool {
	k.passing.Lock()
	defer k.passing.Unlock()
	m := k.lastMaterial()
	if m == nil {
		return false
	}

	for range maxRaces {
		if err := k.Publisher.Rescope(ctx, m.bundle()); !errors.Is(err, configuration.ErrLostRace) {
			return err == nil
		}
	}

	return false
}

type watchedObject struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
}

func (k *Keeper) watched() []watchedObject {
	var objects []watchedObject
	if _, ok := k.store.(*secretStore); ok {
		objects = append(objects,
			watchedObject{corev1.SchemeGroupVersion.WithKind("Secret"), k.options.Secret})
	}
	k.Publisher.Each(func(kind schema.GroupVersionKind, name string) {
		objects = append(objects, watchedObject{kind, types.NamespacedName{Name: name}})
	})
	return objects
}

// watch sends a value for every change of one object. It watches by name, so that no rights to other objects
// are needed.
func (k *Keeper) watch(ctx context.Context, object watchedObject, changed chan<- struct{}) {
	said := ""
	for ctx.Err() == nil {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(object.kind.GroupVersion().WithKind(object.kind.Kind + "List"))
		stream, err := k.client.Watch(ctx, list, client.MatchingFields{"metadata.name": object.key.Name},
			client.InNamespace(object.key.Namespace))
		if err != nil {
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error() // once for each obstacle
				k.log.Error(err, "Watching failed, trying again", "kind", object.kind.Kind, "name",
					object.key.String())
			}
		} else {
			said = ""
			forward(ctx, stream, changed)
		}

		select {
		case <-ctx.Done():
		case <-k.clock.After(5 * time.Second):
		}
	}
}

// forward sends a value for every event until the stream or ctx ends.
func forward(ctx context.Context, stream watch.Interface, changed chan<- struct{}) {
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-stream.ResultChan():
			if !open {
				return
			}
			select {
			case changed <- struct{}{}:
			default: // a value is already pending
			}
		}
	}
}
