package runtime

import (
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels and annotations that kubelet sets on the containers that it creates (CRR-116, ND-084, ND-114).
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

// Container is what a runtime reports about one of kubelet's containers in a list.
type Container struct {
	// ID is the full ID, <runtime>://<id>, as in the status of a pod.
	ID string
	// Name is the name of the container in the pod. PodNamespace, PodName and PodUID identify the pod.
	Name, PodNamespace, PodName, PodUID string
	Running                             bool
	// Exited means that it ran and ended. A container that was created and not started is neither running nor
	// exited.
	Exited    bool
	CreatedAt time.Time
	// Image is the reference that kubelet used. It is empty if the runtime does not report it.
	Image string
	// RestartCount and PlainHash are set by kubelet. They are 0 if they are missing or invalid (CRR-116,
	// ND-084).
	RestartCount int32
	PlainHash    uint64
	Annotations  map[string]string
}

// Newest returns the newest container of that name, or nil if there is none. Older ones remain from restarts.
// Kubelet starts a container only after the previous one has ended, and counts the restarts. The creation
// time decides only if these do not differ, because the clock of the node may have been set back.
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

// Image is one image in the runtime's store.
type Image struct {
	// ID is assigned by the runtime.
	ID string
	// Tags and Digests are the names of the image: name:tag and name@digest.
	Tags, Digests []string
	// Size is the size in bytes.
	Size uint64
}

// Auth holds the credentials of one pull. The zero value pulls anonymously. It must not be logged (ND-073).
type Auth struct {
	Username, Password, IdentityToken, RegistryToken string
}

// SplitID splits an ID of the form <runtime>://<id>. ok is false if the ID does not have this form.
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
