package runtime

import (
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels and annotations that kubelet puts on the containers that it creates (CRR-116, ND-084, ND-114).
const (
	LabelContainerName = "io.kubernetes.container.name"
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"

	AnnotationHash                   = "io.kubernetes.container.hash"
	AnnotationRestartCount           = "io.kubernetes.container.restartCount"
	AnnotationPreStop                = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                  = "io.kubernetes.container.ports"
	AnnotationDeletionGracePeriod    = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
)

// Container is what a runtime reports about one container of kubelet when it lists them.
type Container struct {
	// ID is the full ID, <runtime>://<id>, as a pod's status shows it.
	ID string
	// Name is the container's name in the pod; PodNamespace, PodName and PodUID are those of the pod.
	Name, PodNamespace, PodName, PodUID string
	Running                             bool
	// Exited: it ran and ended. One that was created and has not been started is neither running nor exited.
	Exited    bool
	CreatedAt time.Time
	// Image is the reference that kubelet used; empty if the runtime does not report it.
	Image string
	// RestartCount and PlainHash are kubelet's; 0 if they are missing or unreadable (CRR-116, ND-084).
	RestartCount int32
	PlainHash    uint64
	Annotations  map[string]string
}

// Newest returns the container of that name that was created last, nil if there is none. Earlier ones remain
// from restarts. Kubelet starts none before the one before has ended, and counts them; the time of creation
// decides only where that tells nothing, because the node's clock may have been set back between two.
func Newest(containers []Container, name string) *Container {
	var newest *Container
	for i := range containers {
		c := &containers[i]
		if c.Name != name {
			continue
		}
		if newest == nil || c.newerThan(newest) {
			newest = c
		}
	}
	return newest
}

func (c *Container) newerThan(other *Container) bool {
	switch {
	case c.Running != other.Running:
		return c.Running
	case c.RestartCount != other.RestartCount:
		return c.RestartCount > other.RestartCount
	}
	return c.CreatedAt.After(other.CreatedAt)
}

// Status is what a runtime reports about one container when it is inspected.
type Status struct {
	Container
	StartedAt time.Time
	ExitCode  int32
}

// Image is one image of the runtime's store.
type Image struct {
	// ID is the runtime's.
	ID string
	// Tags and Digests are the names under which the image is known: name:tag and name@digest.
	Tags, Digests []string
	// Size is in bytes.
	Size uint64
}

// Auth are the credentials of one pull; the zero value pulls anonymously. It must not be logged (ND-073).
type Auth struct {
	Username, Password, IdentityToken, RegistryToken string
}

// SplitID splits <runtime>://<id>; ok is false if the ID has no such form.
func SplitID(full string) (scheme, id string, ok bool) {
	scheme, id, ok = strings.Cut(full, "://")
	return scheme, id, ok && scheme != "" && id != ""
}

func containerOf(
	scheme, id string, state cri.ContainerState, created int64, image *cri.ImageSpec,
	labels, annotations map[string]string,
) Container {
	c := Container{
		ID:           scheme + "://" + id,
		Name:         labels[LabelContainerName],
		PodNamespace: labels[LabelPodNamespace],
		PodName:      labels[LabelPodName],
		PodUID:       labels[LabelPodUID],
		Running:      state == cri.ContainerState_CONTAINER_RUNNING,
		Exited:       state == cri.ContainerState_CONTAINER_EXITED,
		CreatedAt:    time.Unix(0, created),
		Image:        image.GetUserSpecifiedImage(),
		Annotations:  annotations,
	}
	if n, err := strconv.ParseInt(annotations[AnnotationRestartCount], 10, 32); err == nil {
		c.RestartCount = int32(n)
	}
	if hash, err := strconv.ParseUint(annotations[AnnotationHash], 16, 64); err == nil {
		c.PlainHash = hash
	}

	return c
}
