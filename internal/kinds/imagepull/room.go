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
)

// What jobs put into a NodeImage is bounded, in all and for each namespace: it is one object, which the API
// server takes up to some 1.5 MiB with what the node tells of it, and one tenant must leave room for the
// others (IMG-023, IMG-097).
const (
	maxImages, maxImagesOfNamespace = 1024, maxListed + 1
	maxBytes, maxBytesOfNamespace   = 768 << 10, 256 << 10

	maxTTL     = 31 * 24 * 3600
	maxBackoff = 100
)

// sandboxSize is how many bytes the labels and annotations of a sandbox have.
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

// keysOfRuntimes returns, in order, the labels and annotations that only the node's runtime may be told by
// those who run it.
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

// sandboxOf is what nodes get of a job's sandboxConfig: nothing of one that admission refuses, and that was
// stored before it did.
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

// sizeOf is about how many bytes an image takes in a NodeImage.
func sizeOf(name string, image *appsv1beta1.ImageSpec) int {
	const perImage, perTag, perOwner = 64, 256, 128 // names of fields, numbers and times
	size := perImage + len(name) + sandboxSize(image.SandboxConfig) + secretsSize(image.PullSecrets)
	for i := range image.Tags {
		size += perTag + len(image.Tags[i].Tag)
		for _, owner := range image.Tags[i].OwnerReferences {
			size += perOwner + len(owner.Namespace) + len(owner.Name)
		}
	}
	return size
}

// shareOf is about how many bytes of an image are there for the jobs of a namespace: their tags and their
// places among the owners, and of the secrets, which do not tell whose they are, the same part as of the
// owners. What others do with an image is not counted against who uses it, too.
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

// sums are how much there is in a NodeImage in all, and how much of one namespace.
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

// Rooms remembers how much there is in the last version of each NodeImage: jobs on thousands of nodes ask for
// that at each pass. The zero value is empty, and nil remembers nothing.
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

// Forget drops what is remembered of a node that is gone.
func (r *Rooms) Forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, node)
}

// noRoom says why a NodeImage cannot take the image of a job with references to its secrets; empty if it can.
func noRoom(
	node *appsv1beta1.NodeImage, job *appsv1beta1.ImagePullJob, name, tag string,
	secrets []appsv1beta1.ReferenceObject,
) string {
	return sumsOf(node, job.Namespace).noRoom(node, job, name, tag, secrets)
}

func (s sums) noRoom(node *appsv1beta1.NodeImage, job *appsv1beta1.ImagePullJob, name, tag string,
	secrets []appsv1beta1.ReferenceObject) string {
	present, has := node.Spec.Images[name]
	lacking := slices.DeleteFunc(slices.Clone(secrets),
		func(ref appsv1beta1.ReferenceObject) bool { return slices.Contains(present.PullSecrets, ref) })
	added := sizeOf(name, &appsv1beta1.ImageSpec{SandboxConfig: sandboxOf(job), PullSecrets: lacking,
		Tags: []appsv1beta1.ImageTagSpec{{Tag: tag,
			OwnerReferences: []corev1.ObjectReference{{Namespace: job.Namespace, Name: job.Name}}}}})
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

// SecretsOf are the names of the secrets that a job asks for, each once.
func SecretsOf(t *appsv1beta1.ImagePullJobTemplate) []string {
	return slices.Compact(slices.Sorted(slices.Values(t.PullSecrets)))
}
