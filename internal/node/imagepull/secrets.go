package imagepull

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/wording"
	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
)

// Tenants choose how many pull secrets there are and what is in them, and the daemon has little memory.
const (
	// mostKept is how many bytes of secrets are remembered. The largest are read again at each use if there are more.
	mostKept = 8 << 20
	// mostTried is how many bytes the credentials of one namespace for one pull have. They are in memory as long as it lasts.
	mostTried = 256 << 10
	// overhead is about what one secret, or one credential, takes in addition to its content.
	overhead = 500
)

// secrets caches pull secrets for 5 to 10 minutes, as they are stored: parsed, one may take many times its size.
type secrets struct {
	live  client.Reader
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[types.NamespacedName]cachedSecret
}

type cachedSecret struct {
	// secret has only the type and the data. It is nil if there is a problem.
	secret      *corev1.Secret
	problem     string
	read, until time.Time
	copied      bool
	// users are the jobs for which the secret was copied, separated by commas.
	users string
	// namespace is the namespace of the jobs that may use a secret without users: its own, or that of its
	// source.
	namespace string
}

// serves reports whether a tag of these jobs may be pulled with the secret. A secret that is not a copy also
// serves tags without a job, because an administrator wrote both.
func (c *cachedSecret) serves(jobs []string) bool {
	if len(jobs) == 0 {
		return !c.copied
	}
	return slices.ContainsFunc(jobs, func(job string) bool {
		namespace, _, _ := strings.Cut(job, "/")
		return strings.Contains(","+c.users+",", ","+job+",") || c.users == "" && namespace == c.namespace
	})
}

// describe determines which jobs may use a secret. A copy is for the jobs in its references, or for the jobs
// in the namespace of its source if an older release wrote no references. Any other secret is for the jobs of
// its own namespace.
func (c *cachedSecret) describe(secret *corev1.Secret) {
	source := secret.Annotations[pub.SecretSource]
	if c.copied, c.namespace = source != "", secret.Namespace; c.copied {
		c.namespace, _, _ = strings.Cut(source, "/")
		c.users = secret.Annotations[pub.SecretReferences]
	}
}

// size returns about how many bytes of memory it takes.
func (c *cachedSecret) size() int {
	size := overhead + len(c.users)
	if c.secret != nil {
		size += pulljobs.SecretBytes(c.secret)
	}
	return size
}

// errSecrets means that the API server did not say what is in a secret. It may later.
var errSecrets = errors.New("secrets cannot be read")

func newSecrets(live client.Reader, c clock.PassiveClock) *secrets {
	return &secrets{live: live, clock: c, known: map[types.NamespacedName]cachedSecret{}}
}

// one returns a secret for a tag of these jobs, which the node has known since then. The manager enters a job into the
// references of a copy before it gives the tag to nodes, so what was read before that may tell neither that the jobs may
// use a copy, nor that it is there again. Once is enough for that. A missing or unusable secret has no content, which is
// logged once and not at every use. If the API server does not respond, that is an error only for a secret that is not
// remembered.
func (s *secrets) one(ctx context.Context, name types.NamespacedName, jobs []string, since time.Time) (cachedSecret, error) {
	s.mu.Lock()
	before, known := s.known[name]
	s.mu.Unlock()
	at := s.clock.Now()
	useful := before.problem == "" && (!before.copied || before.serves(jobs))
	known = known && (useful || !before.read.Before(since))
	if known && at.Before(before.until) {
		return before, nil
	}

	secret, now := &corev1.Secret{}, cachedSecret{
		read:  at,
		until: at.Add(5*time.Minute + rand.N(5*time.Minute)),
	}
	switch err := s.live.Get(ctx, name, secret); {
	case apierrors.IsNotFound(err):
		now.problem = "it does not exist"
	case apierrors.IsForbidden(err):
		now.problem = err.Error()
	case err != nil && known && before.problem == "": // most likely it is still valid
		return before, nil
	case err != nil:
		return cachedSecret{}, fmt.Errorf("%w: secret %s: %w", errSecrets, name, err)
	default:
		now.describe(secret)
		if err = pulljobs.CheckSecret(secret); err == nil {
			_, err = fromSecret(secret, "")
		}
		if err != nil {
			now.problem = wording.Bound(err.Error())
		} else {
			key := corev1.DockerConfigJsonKey
			if secret.Type == corev1.SecretTypeDockercfg {
				key = corev1.DockerConfigKey
			}
			now.secret = &corev1.Secret{Type: secret.Type, Data: map[string][]byte{key: secret.Data[key]}}
		}
	}

	if now.problem != "" && now.problem != before.problem {
		klog.FromContext(ctx).Info("A pull secret is left out", "secret", name, "why", now.problem)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.known[name] = now
	s.shrink()
	return now, nil
}

// shrink forgets the largest secrets if there are too many, so that those of usual size stay.
func (s *secrets) shrink() {
	total := 0
	for _, cached := range s.known {
		total += cached.size()
	}
	for total > mostKept {
		var largest types.NamespacedName
		most := 0
		for name, cached := range s.known {
			if size := cached.size(); size > most {
				largest, most = name, size
			}
		}
		delete(s.known, largest)
		total -= most
	}
}

// expire makes the next use read the secrets again, because the registry rejected them and they may have been
// rotated. Problems that were logged about them are not logged again.
func (s *secrets) expire(names []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if cached, ok := s.known[name]; ok {
			cached.until = time.Time{}
			s.known[name] = cached
		}
	}
}

// keep drops all secrets that are not in used.
func (s *secrets) keep(used map[types.NamespacedName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.known {
		if !used[name] {
			delete(s.known, name)
		}
	}
}
