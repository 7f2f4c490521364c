package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/imageref"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Copies of pull secrets (IMG-110 to IMG-123). The name of a copy is derived from its source, so that two
// jobs, or two attempts, that create the copy at the same time use the same name.

// Secrets maintains the copies.
type Secrets struct {
	// API remembers no writes: no cache holds secrets.
	*reconcile.API
	// Namespace is the one whose secrets node daemons may read.
	Namespace string
	// Copies counts the copies; it may be nil (IMG-205).
	Copies prometheus.Gauge

	learning sync.Mutex
	learnt   bool

	mu    sync.Mutex
	known known
}

// copyName returns the n-th name for the copy of a secret. It depends on the UID of the source, which is
// unknown to anyone who may not read the source: node daemons may read any copy whose name they know, and
// must not be able to guess names.
func copyName(source *corev1.Secret, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s#%s#%d", source.Namespace, source.Name, source.UID, n))
	const chars = 16
	mark := imagepull.CopyMark(source.Namespace)
	most := 253 - 1 - chars - len(mark)
	name := source.Name
	if len(name) > most {
		name = strings.TrimRight(name[:most], ".-")
	}
	return name + "-" + hex.EncodeToString(sum[:chars/2]) + mark
}

// copyNames returns the names for the copy of a source. The first is the usual one.
func copyNames(source *corev1.Secret) []string {
	var names []string
	for n := range 10 {
		names = append(names, copyName(source, n))
	}
	return names
}

func users(secret client.Object) []string {
	text := secret.GetAnnotations()[pub.SecretReferences]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func referenceTo(secret *corev1.Secret) appsv1beta1.ReferenceObject {
	return appsv1beta1.ReferenceObject{
		Namespace: secret.Namespace,
		Name:      secret.Name,
		Mode:      secret.Annotations[pub.SecretMode],
	}
}

// copies returns the existing copies of a source: first those that list the job, then by name.
func copies(all []metav1.PartialObjectMetadata, source, job string) []*metav1.PartialObjectMetadata {
	var found []*metav1.PartialObjectMetadata
	for i := range all {
		if all[i].Annotations[pub.SecretSource] == source && all[i].DeletionTimestamp == nil {
			found = append(found, &all[i])
		}
	}

	slices.SortFunc(found, func(a, b *metav1.PartialObjectMetadata) int {
		x, y := slices.Contains(users(a), job), slices.Contains(users(b), job)
		if x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return found
}

// Sync creates and updates the copies that the job needs, releases the others, and returns the references for
// NodeImages. problems describe pull secrets that the job has to do without (IMG-116, IMG-123).
func (s *Secrets) Sync(
	ctx context.Context, job *appsv1beta1.ImagePullJob,
) (refs []appsv1beta1.ReferenceObject, problems []string, err error) {
	key := client.ObjectKeyFromObject(job).String()
	wanted := imagepull.SecretsOf(&job.Spec.ImagePullJobTemplate)
	if len(wanted) == 0 {
		return nil, nil, nil
	}

	if n := len(wanted); n > pub.MaxPullSecrets { // the job was stored before admission rejected this
		wanted = wanted[:pub.MaxPullSecrets]
		problems = append(problems,
			fmt.Sprintf("the job names %d pull secrets, of which the first %d are used",
				n, pub.MaxPullSecrets))
	}

	direct := job.Namespace == s.Namespace
	var all []metav1.PartialObjectMetadata
	if !direct {
		if all, err = s.of(ctx, job.Namespace); err != nil {
			return nil, nil, err
		}
		s.uses(key)
	}

	keep := map[string]bool{}
	for _, name := range wanted {
		if err := imageref.CheckSecretName(name); err != nil { // the job was stored before admission rejected this
			problems = append(problems, fmt.Sprintf("pull secret %q does not exist: %s", name, err))
			continue
		}
		name := types.NamespacedName{Namespace: job.Namespace, Name: name}
		source := &corev1.Secret{}
		switch err := s.Live.Get(ctx, name, source); {
		case apierrors.IsNotFound(err):
			problems = append(problems,
				fmt.Sprintf("pull secret %s does not exist in namespace %s", name.Name, name.Namespace))
			source = nil
		case err != nil:
			return nil, nil, fmt.Errorf("reading pull secret %s: %w", name, err)
		case source.Type != corev1.SecretTypeDockerConfigJson && source.Type != corev1.SecretTypeDockercfg:
			// Node daemons cannot use other types, and have no business with them.
			problems = append(problems, fmt.Sprintf("pull secret %s is of type %s, neither %s nor %s",
				name.Name, source.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg))
			continue
		}
		if source != nil {
			if err := imagepull.CheckSecret(source); err != nil {
				problems = append(problems, fmt.Sprintf("pull secret %s is too large: %s", name.Name, err))
				continue
			}
		}

		if direct {
			if source != nil {
				refs = append(refs, appsv1beta1.ReferenceObject{Namespace: name.Namespace, Name: name.Name})
			}
			continue
		}

		made, err := s.provide(ctx, all, name, source, key)
		if err != nil {
			return nil, nil, err
		}

		if made != nil {
			keep[made.Name] = true
			refs = append(refs, referenceTo(made))
		}
	}

	if direct {
		return refs, problems, nil
	}

	return refs, problems, s.release(ctx, job.Namespace, all, is(key), keep)
}

// Release removes the job from all copies, and deletes those that no other job uses (IMG-120). A missing
// namespace has no copies, and a terminating one loses them anyway (IMG-121). Tenants create and delete as many
// jobs as they like: the copies of all tenants are not listed for those that use none.
func (s *Secrets) Release(ctx context.Context, job types.NamespacedName) error {
	_, err := s.learn(ctx)
	if err == nil && s.unused(job.String()) {
		return nil
	}

	var all []metav1.PartialObjectMetadata
	if err == nil {
		all, err = s.of(ctx, job.Namespace)
	}
	if err != nil {
		// The right to list is deleted with the namespace, and often before it.
		if apierrors.IsForbidden(err) {
			namespace := &corev1.Namespace{}
			if e := s.Live.Get(ctx, types.NamespacedName{Name: s.Namespace},
				namespace); apierrors.IsNotFound(e) || e == nil && namespace.DeletionTimestamp != nil {
				return nil
			}
		}
		return err
	}

	if err := s.release(ctx, job.Namespace, all, is(job.String()), nil); err != nil {
		return err
	}

	s.released(job.String())
	return nil
}

// is returns whether a user is that job.
func is(job string) func(user string) bool { return func(user string) bool { return user == job } }

// release removes jobs from the copies of a namespace, and deletes those that no other job uses.
func (s *Secrets) release(
	ctx context.Context, namespace string, all []metav1.PartialObjectMetadata, leaves func(user string) bool,
	keep map[string]bool,
) error {
	present := maps.Clone(keep) // some were just created
	if present == nil {
		present = map[string]bool{}
	}

	defer func() { s.count(namespace, len(present)) }()
	for i := range all {
		secret := &all[i]
		using := users(secret)
		if secret.Annotations[pub.SecretSource] != "" {
			present[secret.Name] = true
		}

		if secret.Annotations[pub.SecretSource] == "" || keep[secret.Name] ||
			len(using) > 0 && !slices.ContainsFunc(using, leaves) {
			continue // not a copy, needed, or used by others
		}

		left := slices.DeleteFunc(slices.Clone(using), leaves)
		if len(left) == 0 && secret.Annotations[pub.SecretMode] == pub.SecretModeBatch ||
			len(left) == 0 && len(using) > 0 {
			if err := s.For("").Delete(ctx, secret); err != nil {
				return fmt.Errorf("deleting copy %s of pull secret %s: %w",
					secret.Name, secret.Annotations[pub.SecretSource], err)
			}
			delete(present, secret.Name)
			continue
		}

		if len(left) == len(using) {
			continue
		}

		change := map[string]any{"annotations": map[string]any{pub.SecretReferences: strings.Join(left, ",")}}
		if _, err := reconcile.Merge(ctx, s.For(""), secret, change, nil,
			""); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing copy %s of pull secret %s: %w",
				secret.Name, secret.Annotations[pub.SecretSource], err)
		}
	}

	return nil
}

// outlives is how long a copy stays in use after its source is gone: a user who replaces a secret may delete
// it first, but a user who deletes one revokes what it allows.
const outlives = 10 * time.Minute

// provide returns the copy of the source, created or updated, with the job among its users. source is nil if
// it is gone; then an existing copy is used for a while. The job must become one of the users of a copy that
// it pulls with, or the copy would belong to no job.
func (s *Secrets) provide(
	ctx context.Context, all []metav1.PartialObjectMetadata, key types.NamespacedName, source *corev1.Secret,
	job string,
) (*corev1.Secret, error) {
	var secret *corev1.Secret
	jobs := []string{job}
	for _, present := range copies(all, key.String(), job) {
		found := &corev1.Secret{}
		if err := s.Live.Get(ctx, client.ObjectKeyFromObject(present), found); err != nil {
			if apierrors.IsNotFound(err) { // deleted between the two reads: the next attempt creates another
				err = apierrors.NewConflict(corev1.Resource("secrets"), present.Name, err)
			}
			return nil, fmt.Errorf("reading copy %s of pull secret %s: %w", present.Name, key, err)
		}
		if source == nil || found.Type == source.Type &&
			(found.Immutable == nil || !*found.Immutable || sameData(found, source)) {
			secret = found
			break
		}
		// It cannot become like the source, and most likely it is of an earlier one of that name. Other jobs use it until
		// they notice. Only a copy whose name the new one needs is replaced, which they use then.
		if slices.Contains(copyNames(source), found.Name) {
			jobs = append(jobs, users(found)...)
			if err := s.For("").Delete(ctx, found); err != nil {
				return nil, fmt.Errorf("replacing copy %s of pull secret %s: %w", found.Name, key, err)
			}
		}
	}
	switch {
	case secret == nil && source == nil:
		return nil, nil
	case secret == nil:
		return s.create(ctx, source, jobs)
	}

	annotations := map[string]any{}
	missing, marked := secret.Annotations[pub.SecretSourceMissing]
	switch since, err := time.Parse(time.RFC3339, missing); {
	case source != nil && marked:
		annotations[pub.SecretSourceMissing] = nil
	case source == nil && !marked:
		annotations[pub.SecretSourceMissing] = s.Now().UTC().Format(time.RFC3339)
	case source == nil && (err != nil || s.Now().Sub(since) >= outlives):
		if err := s.For("").Delete(ctx, secret); err != nil {
			return nil, fmt.Errorf("deleting copy %s of pull secret %s, which is gone: %w",
				secret.Name, key, err)
		}
		return nil, nil
	}

	metadata, rest := map[string]any{}, map[string]any{}
	if using := users(secret); !slices.Contains(using, job) {
		using = append(using, job)
		slices.Sort(using)
		annotations[pub.SecretReferences] = strings.Join(using, ",")
	}

	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}

	if source != nil && !sameData(secret, source) {
		data := map[string]any{}
		for name := range secret.Data {
			data[name] = nil
		}
		for name, value := range source.Data {
			data[name] = value
		}
		rest["data"] = data
	}

	if len(metadata)+len(rest) == 0 {
		return secret, nil
	}

	updated, err := reconcile.Merge(ctx, s.For(""), secret, metadata, rest, "")
	if err != nil {
		return nil, fmt.Errorf("updating copy %s of pull secret %s: %w", secret.Name, key, err)
	}

	return updated, nil
}

func sameData(a, b *corev1.Secret) bool { return maps.EqualFunc(a.Data, b.Data, bytes.Equal) }

// create creates the copy for these jobs. It has none of the labels and annotations of the source, and is never immutable.
func (s *Secrets) create(ctx context.Context, source *corev1.Secret, jobs []string) (*corev1.Secret, error) {
	key := client.ObjectKeyFromObject(source)
	slices.Sort(jobs)
	for _, name := range copyNames(source) {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace,
				Name:      name,
				Labels:    map[string]string{pub.SecretCopy: "true", pub.SecretCopyOf: source.Namespace},
				Annotations: map[string]string{
					pub.SecretSource:     key.String(),
					pub.SecretReferences: strings.Join(slices.Compact(jobs), ","),
					pub.SecretMode:       pub.SecretModeBatch,
				},
			},
			Type: source.Type, Data: source.Data,
		}
		err := s.For("").CreateTyped(ctx, secret)
		if err == nil {
			return secret, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("copying pull secret %s to namespace %s: %w", key, s.Namespace, err)
		}

		present := &corev1.Secret{}
		if err := s.Live.Get(ctx, client.ObjectKeyFromObject(secret), present); err != nil ||
			present.Annotations[pub.SecretSource] == key.String() {
			// Another job has just created it and the cache is stale, or it cannot be read, or it lacks the label by
			// which copies are found: the next attempt finds it.
			if err == nil && present.Labels[pub.SecretCopyOf] != source.Namespace {
				s.learnAgain()
			}
			return nil, apierrors.NewConflict(corev1.Resource("secrets"), secret.Name,
				fmt.Errorf("it was made just now"))
		}
	}

	return nil, fmt.Errorf("copying pull secret %s: all names for the copy are taken", key)
}
