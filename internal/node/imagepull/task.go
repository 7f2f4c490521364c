package imagepull

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

const (
	defaultTimeout = 600 * time.Second
	defaultBackoff = 3
	longestPause   = 30 * time.Second
	exceeded       = "pulling exceeds the activeDeadlineSeconds"
)

// Images has the methods of a container runtime that pulling needs.
type Images interface {
	Images(ctx context.Context) ([]runtime.Image, error)
	Pull(ctx context.Context, image string, auth runtime.Auth, labels, annotations map[string]string) error
}

// Provider is the node's own source of credentials, in addition to the pull secrets (IMG-137).
type Provider interface {
	Credentials(ctx context.Context, image string) ([]runtime.Auth, error)
	// Forget drops cached credentials after a registry rejected them.
	Forget()
}

// task pulls one tag.
type task struct {
	key     key
	object  types.UID // UID of the NodeImage
	spec    appsv1beta1.ImageTagSpec
	sandbox appsv1beta1.SandboxConfig
	cancel  context.CancelFunc
	place   *place
	since   time.Time // when the node knew the tag

	mu      sync.Mutex
	status  appsv1beta1.ImageTagStatus
	secrets []types.NamespacedName // secrets of the image in the current spec
}

// refer updates the secrets that the spec lists, because jobs may add some while the task runs.
func (t *task) refer(secrets []types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secrets = secrets
}

func (t *task) referred() []types.NamespacedName {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.secrets
}

// jobs returns the jobs that own the tag, in the form in which copies of secrets refer to them.
func (t *task) jobs() []string {
	var jobs []string
	for _, owner := range t.spec.OwnerReferences {
		jobs = append(jobs, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}.String())
	}
	return jobs
}

// namespaces returns the namespaces of the jobs that own the tag.
func (t *task) namespaces() []string { return namespacesOf(t.jobs()) }

func (t *task) now() appsv1beta1.ImageTagStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

func (t *task) set(change func(*appsv1beta1.ImageTagStatus)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.status)
}

// puller runs tasks.
type puller struct {
	runtime  func() (Images, error)
	secrets  *secrets
	provider Provider // may be nil
	slots    *slots
	clock    clock.WithDelayedExecution
	meters   *meters
	// done is called for every task that completes without being stopped.
	done func(t *task, took time.Duration)
}

func (p *puller) instant() *metav1.Time {
	// The API stores whole seconds. Truncated times compare equal.
	now := metav1.NewTime(p.clock.Now().Truncate(time.Second))
	return &now
}

// run executes the task. It returns without a result if the context is canceled because the task was stopped.
func (p *puller) run(ctx context.Context, t *task) {
	p.meters.waiting.Inc()
	came := p.slots.wait(ctx, t.place)
	p.meters.waiting.Dec()
	if !came {
		return
	}
	defer p.slots.leave(t.place)

	p.meters.running.Inc()
	defer p.meters.running.Dec()

	t.set(func(s *appsv1beta1.ImageTagStatus) { s.Phase, s.StartTime = pulling, p.instant() })
	begin := p.clock.Now()
	id, size, err := p.attempts(ctx, t)
	if ctx.Err() != nil {
		return
	}

	took := p.clock.Since(begin)
	t.set(func(s *appsv1beta1.ImageTagStatus) {
		s.CompletionTime = p.instant()
		if s.Phase, s.Progress, s.ImageID = succeeded, 100, id; err != nil {
			s.Phase, s.Progress, s.ImageID, s.Message = failed, 0, "",
				wording.Bound(wording.WithoutSecrets(err.Error()))
		}
	})
	p.meters.ended(err, took, size)
	p.done(t, took)
}

// attempts retries until the image is pulled, the attempts are used up, or the deadline has passed.
func (p *puller) attempts(ctx context.Context, t *task) (id string, size uint64, err error) {
	policy := appsv1beta1.ImageTagPullPolicy{}
	if t.spec.PullPolicy != nil {
		policy = *t.spec.PullPolicy
	}
	if policy.ActiveDeadlineSeconds != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := p.clock.AfterFunc(timing.Seconds(*policy.ActiveDeadlineSeconds), func() {
			cancel(errors.New(exceeded))
		})
		defer timer.Stop()
	}

	left, timeout := int32(defaultBackoff), defaultTimeout
	if policy.BackoffLimit != nil {
		left = *policy.BackoffLimit
	}
	if policy.TimeoutSeconds != nil {
		timeout = time.Duration(*policy.TimeoutSeconds) * time.Second
	}

	for pause := time.Second; ; pause = min(2*pause, longestPause) {
		id, size, err = p.attempt(ctx, t, timeout)
		if ctx.Err() != nil {
			return "", 0, context.Cause(ctx)
		}
		if err == nil || left <= 0 {
			return id, size, err
		}
		left--
		klog.FromContext(ctx).Info("Pulling an image failed and is tried again", "image", t.key.reference(),
			"error", wording.WithoutSecrets(err.Error()), "after", pause, "attemptsLeft", left)
		select {
		case <-ctx.Done():
			return "", 0, context.Cause(ctx)
		case <-p.clock.After(pause):
		}
	}
}

// attempt pulls once, with each of the credentials in turn.
func (p *puller) attempt(
	ctx context.Context, t *task, timeout time.Duration,
) (id string, size uint64, err error) {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	timer := p.clock.AfterFunc(timeout, func() {
		cancel(fmt.Errorf("pulling was cancelled after the timeout of %s", timeout))
	})
	defer timer.Stop()

	var rt Images
	err = p.answering(bounded, t, func() error {
		var present *runtime.Image
		if rt, err = p.runtime(); err == nil {
			present, err = find(bounded, rt, t.key)
		}
		switch {
		case rt == nil, errors.Is(err, runtime.ErrUnavailable):
			return err
		case present != nil && t.spec.ImagePullPolicy != appsv1beta1.PullAlways:
			id = t.key.image + "@" + present.ID
			return nil
		}
		return p.pull(bounded, rt, t) // it returns any other error of the runtime
	})
	if err != nil {
		if cause := context.Cause(bounded); cause != nil && !errors.Is(err, cause) {
			return "", 0, cause
		}
		return "", 0, err
	}
	if id != "" {
		return id, 0, nil
	}

	image, err := find(bounded, rt, t.key)
	if err != nil || image == nil {
		return "", 0, nil // it was pulled, but may be listed later or under another name
	}

	return t.key.image + "@" + image.ID, image.Size, nil
}

// answering calls a function until the runtime and the API server respond to it. While the node starts, or one of them
// restarts, no attempt is used up, because a failed tag is never tried again.
func (p *puller) answering(ctx context.Context, t *task, call func() error) error {
	for pause := time.Second; ; pause = min(2*pause, longestPause) {
		err := call()
		ended := ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) // while it waited itself
		if ended || !errors.Is(err, runtime.ErrUnavailable) && !errors.Is(err, errSecrets) {
			return err
		}
		if pause == time.Second {
			klog.FromContext(ctx).Info("Pulling an image waits for the container runtime or the API server",
				"image", t.key.reference(), "error", wording.WithoutSecrets(err.Error()))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-p.clock.After(pause):
		}
	}
}

func (p *puller) pull(ctx context.Context, rt Images, t *task) error {
	image, err := t.key.pulled()
	if err != nil {
		return err
	}

	annotations := foreign(t.sandbox.Annotations) // the maps of the spec belong to the cache
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[pub.PulledBy] = pub.PulledByDaemon

	labels := foreign(t.sandbox.Labels)
	var failures []error
	turns := newRounds(t.referred(), t.jobs(), image)
	for auth, err := range p.credentials(ctx, t, turns) {
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if auth == (runtime.Auth{}) && turns.allBroken() {
			continue
		}
		if err = rt.Pull(ctx, image, auth, labels, annotations); err == nil {
			return nil
		}
		failures = append(failures, err)
		if ctx.Err() != nil || errors.Is(err, runtime.ErrUnavailable) {
			break
		}
		if unauthorized(err, t.key) {
			p.rejected(t)
		} else {
			turns.broken[turns.turn] = true
		}
	}
	return errors.Join(failures...)
}

// credentials returns what a pull tries, as it comes to it: those of secrets, those of the node, and at last none.
func (p *puller) credentials(ctx context.Context, t *task, r *rounds) iter.Seq2[runtime.Auth, error] {
	read := func(name types.NamespacedName) (secret cachedSecret, err error) {
		err = p.answering(ctx, t, func() (err error) {
			secret, err = p.secrets.one(ctx, name, t.jobs(), t.since)
			return err
		})
		return secret, err
	}
	node := func() (auths []runtime.Auth) {
		if p.provider != nil {
			var err error
			if auths, err = p.provider.Credentials(ctx, r.image); err != nil {
				klog.FromContext(ctx).Info("A credential provider failed",
					"image", t.key.reference(), "error", wording.WithoutSecrets(err.Error()))
			}
		}
		return append(auths, runtime.Auth{})
	}
	return r.all(ctx, read, node)
}

// rejected makes the next attempt read the credentials again, because they may have been rotated.
func (p *puller) rejected(t *task) {
	p.secrets.expire(t.referred())
	if p.provider != nil {
		p.provider.Forget()
	}
}

// find looks up the tag in the runtime's store. Names are compared in full form, digests with the runtime's
// repo digests.
func find(ctx context.Context, rt Images, k key) (*runtime.Image, error) {
	want := full(k.reference())
	list, err := rt.Images(ctx)
	if err != nil {
		return nil, err
	}

	for i := range list {
		names := list[i].Tags
		if digest(k.tag) {
			names = list[i].Digests
		}
		for _, name := range names {
			if want != "" && full(name) == want {
				return &list[i], nil
			}
		}
	}

	return nil, nil
}

func full(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return ""
	}
	return named.String()
}
