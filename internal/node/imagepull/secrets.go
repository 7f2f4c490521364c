package imagepull

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secrets keeps what was read of pull secrets for 5 to 10 minutes (IMG-122).
type secrets struct {
	live  client.Reader
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[types.NamespacedName]cachedSecret
}

type cachedSecret struct {
	credentials []credential
	problem     string
	until       time.Time
}

func newSecrets(live client.Reader, c clock.PassiveClock) *secrets {
	return &secrets{live: live, clock: c, known: map[types.NamespacedName]cachedSecret{}}
}

// credentials returns those of the secrets, in their order. One that is missing or unusable is left out; that is logged when it is found
// out and not at every use. That the API server is away is an error only for one that was never read.
func (s *secrets) credentials(ctx context.Context, names []types.NamespacedName) ([]credential, error) {
	var all []credential
	for _, name := range names {
		cached, err := s.one(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, cached.credentials...)
	}
	return all, nil
}

func (s *secrets) one(ctx context.Context, name types.NamespacedName) (cachedSecret, error) {
	s.mu.Lock()
	before, known := s.known[name]
	s.mu.Unlock()
	if known && s.clock.Now().Before(before.until) {
		return before, nil
	}
	secret, now := &corev1.Secret{}, cachedSecret{until: s.clock.Now().Add(5*time.Minute + rand.N(5*time.Minute))}
	switch err := s.live.Get(ctx, name, secret); {
	case apierrors.IsNotFound(err):
		now.problem = "it does not exist"
	case apierrors.IsForbidden(err):
		now.problem = err.Error()
	case err != nil && known && before.problem == "": // most likely it still holds
		return before, nil
	case err != nil:
		return cachedSecret{}, fmt.Errorf("reading secret %s: %w", name, err)
	default:
		if now.credentials, err = fromSecret(secret); err != nil {
			now.problem = err.Error()
		}
	}
	if now.problem != "" && now.problem != before.problem {
		klog.FromContext(ctx).Info("A pull secret is left out", "secret", name, "why", now.problem)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = now
	return now, nil
}

// expire has the secrets read anew at their next use: the registry has rejected them, and they may have been rotated (IMG-122). What was
// told of them is not told again.
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

// keep forgets the secrets that nothing refers to any more.
func (s *secrets) keep(used map[types.NamespacedName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.known {
		if !used[name] {
			delete(s.known, name)
		}
	}
}
