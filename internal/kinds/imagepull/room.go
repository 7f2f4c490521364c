package imagepull

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/imageref"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Limits of what jobs put into a NodeImage, in all and for each namespace, with room for the results that the node
// reports. It is a single object, of which the API server accepts about 1.5 MiB, and one tenant must leave room
// for the others.
const (
	maxImages, maxImagesOfNamespace = 1024, maxListed + 1
	maxBytes, maxBytesOfNamespace   = 1 << 20, 384 << 10
	// messageBytes is the maximum size of the messages of all results, see MessageBytes.
	messageBytes = 320 << 10

	maxTTL     = 31 * 24 * 3600
	maxBackoff = 100
)

// sandboxSize returns the number of bytes in the labels and annotations of a sandbox.
func sandboxSize(config *appsv1beta1.SandboxConfig) int {
	if config == nil {
		return 0
	}
	size := 0
	for _, pairs := range []map[string]string{config.Labels, config.Annotations} {
		for key, value := range pairs {
			size += len(key) + len(value)
		}
	}
	return size
}

// keysOfRuntimes returns, sorted, the labels and annotations that only the operators of the nodes may pass to
// the container runtime.
func keysOfRuntimes(config *appsv1beta1.SandboxConfig) []string {
	if config == nil {
		return nil
	}

	var keys []string
	for _, pairs := range []map[string]string{config.Labels, config.Annotations} {
		for key := range pairs {
			if imageref.OfRuntime(key) {
				keys = append(keys, key)
			}
		}
	}

	slices.Sort(keys)
	return slices.Compact(keys)
}

// sandboxOf returns the sandboxConfig of a job for the nodes, or nil if it is too large: the job was stored
// before admission rejected that.
func sandboxOf(job *appsv1beta1.ImagePullJob) *appsv1beta1.SandboxConfig {
	if sandboxSize(job.Spec.SandboxConfig) > pub.MaxPullSandboxBytes {
		return nil
	}
	return job.Spec.SandboxConfig
}

func secretsSize(secrets []appsv1beta1.ReferenceObject) int {
	const perSecret = 48
	size := 0
	for _, secret := range secrets {
		size += perSecret + len(secret.Namespace) + len(secret.Name)
	}
	return size
}

// MessageBytes returns the maximum length of the message of a result, as JSON, in a NodeImage with that many tags.
func MessageBytes(tags int) int { return min(wording.Most, max(32, messageBytes/max(tags, 1))) }

// sizeOf returns the approximate size of an image in a NodeImage, in bytes, with the results of its tags but for their messages.
// The name is in the spec, the status, and among the managed fields of both; the ID of the image in a result has it, too.
func sizeOf(name string, image *appsv1beta1.ImageSpec) int {
	const perImage, perTag, perOwner = 128, 512, 128 // names of fields, numbers, times, and a digest
	size := perImage + len(name)*(4+len(image.Tags)) + sandboxSize(image.SandboxConfig) + secretsSize(image.PullSecrets)
	for i := range image.Tags {
		size += perTag + 2*len(image.Tags[i].Tag)
		for _, owner := range image.Tags[i].OwnerReferences {
			size += perOwner + len(owner.Namespace) + len(owner.Name)
		}
	}
	return size
}

// shareOf returns the approximate size of the part of an image that belongs to the jobs of a namespace: their
// tags, their entries among the owners, and the same proportion of the secrets, which do not record who needs
// them. What other namespaces add to an image does not count.
func shareOf(name string, image *appsv1beta1.ImageSpec, namespace string) (size int, has bool) {
	share, all := appsv1beta1.ImageSpec{SandboxConfig: image.SandboxConfig}, 0
	own := 0
	for i := range image.Tags {
		tag := appsv1beta1.ImageTagSpec{Tag: image.Tags[i].Tag}
		for _, owner := range image.Tags[i].OwnerReferences {
			if all++; owner.Namespace == namespace {
				tag.OwnerReferences = append(tag.OwnerReferences, owner)
			}
		}
		if len(tag.OwnerReferences) > 0 {
			own += len(tag.OwnerReferences)
			share.Tags = append(share.Tags, tag)
		}
	}

	if own == 0 {
		return 0, false
	}

	return sizeOf(name, &share) + secretsSize(image.PullSecrets)*own/all, true
}

// sums are the sizes of a NodeImage in all, and of the part of one namespace.
type sums struct{ bytes, ownBytes, ownImages int }

func sumsOf(node *appsv1beta1.NodeImage, namespace string) (s sums) {
	for image, spec := range node.Spec.Images {
		s.bytes += sizeOf(image, &spec)
		if size, has := shareOf(image, &spec, namespace); has {
			s.ownBytes += size
			s.ownImages++
		}
	}
	return s
}

// Rooms caches the sizes of the last version of each NodeImage, because jobs on thousands of nodes ask for
// them in each pass. The zero value is empty, and nil caches nothing.
type Rooms struct {
	mu sync.Mutex
	of map[string]*roomOf
}

type roomOf struct {
	uid         types.UID
	version     string
	ofNamespace map[string]sums
}

func (r *Rooms) sums(node *appsv1beta1.NodeImage, namespace string) sums {
	if r == nil {
		return sumsOf(node, namespace)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	room := r.of[node.Name]
	if room == nil || room.uid != node.UID || room.version != node.ResourceVersion {
		if r.of == nil {
			r.of = map[string]*roomOf{}
		}
		room = &roomOf{node.UID, node.ResourceVersion, map[string]sums{}}
		r.of[node.Name] = room
	}

	s, known := room.ofNamespace[namespace]
	if !known {
		s = sumsOf(node, namespace)
		room.ofNamespace[namespace] = s
	}

	return s
}

// Forget drops what is cached for a node that is gone.
func (r *Rooms) Forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, node)
}

// noRoom returns why a NodeImage cannot take the image of a job and the references to its secrets, or "" if
// it can.
func noRoom(
	node *appsv1beta1.NodeImage, job *appsv1beta1.ImagePullJob, name, tag string,
	secrets []appsv1beta1.ReferenceObject,
) string {
	return sumsOf(node, job.Namespace).noRoom(node, job, name, tag, secrets)
}

func (s sums) noRoom(
	node *appsv1beta1.NodeImage, job *appsv1beta1.ImagePullJob, name, tag string,
	secrets []appsv1beta1.ReferenceObject,
) string {
	present, has := node.Spec.Images[name]
	lacking := slices.DeleteFunc(slices.Clone(secrets),
		func(ref appsv1beta1.ReferenceObject) bool { return slices.Contains(present.PullSecrets, ref) })
	added := sizeOf(name, &appsv1beta1.ImageSpec{
		SandboxConfig: sandboxOf(job),
		PullSecrets:   lacking,
		Tags: []appsv1beta1.ImageTagSpec{{
			Tag:             tag,
			OwnerReferences: []corev1.ObjectReference{{Namespace: job.Namespace, Name: job.Name}},
		}},
	})
	switch {
	case !has && len(node.Spec.Images) >= maxImages:
		return fmt.Sprintf("at most %d", maxImages)
	case !has && s.ownImages >= maxImagesOfNamespace:
		return fmt.Sprintf("at most %d of one namespace", maxImagesOfNamespace)
	case s.bytes+added > maxBytes:
		return fmt.Sprintf("at most %d KiB", maxBytes>>10)
	case s.ownBytes+added > maxBytesOfNamespace:
		return fmt.Sprintf("at most %d KiB of one namespace", maxBytesOfNamespace>>10)
	}
	return ""
}

// SecretsOf returns the names of the secrets that a job asks for, without duplicates.
func SecretsOf(t *appsv1beta1.ImagePullJobTemplate) []string {
	return slices.Compact(slices.Sorted(slices.Values(t.PullSecrets)))
}

// SecretBytes returns how many bytes of data a secret has.
func SecretBytes(secret *corev1.Secret) int {
	size := 0
	for key, value := range secret.Data {
		size += len(key) + len(value)
	}
	return size
}

// CheckSecret returns an error if a pull secret is too large for the nodes, each of which reads it (IMG-123).
func CheckSecret(secret *corev1.Secret) error {
	if size := SecretBytes(secret); size > pub.MaxPullSecretBytes {
		return fmt.Errorf("it has %d bytes of data, at most %d are allowed: keep only what the image needs",
			size, pub.MaxPullSecretBytes)
	}
	return nil
}
