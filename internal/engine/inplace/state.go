package inplace

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// State is the record of the last in-place update of a pod, kept in the annotation
// apps.kruise.io/inplace-update-state (IPU-060 to 067). Unknown members are tolerated (IPU-070).
type State struct {
	// Revision is the target: the revision label's value.
	Revision string `json:"revision"`
	// UpdateTimestamp is the start of the update; the grace period counts from here.
	UpdateTimestamp metav1.Time `json:"updateTimestamp"`
	// LastContainerStatuses holds, for every container whose image was replaced, what ran at that moment.
	LastContainerStatuses map[string]ContainerRecord `json:"lastContainerStatuses"`
	// UpdateEnvFromMetadata, UpdateResources and UpdateImages say what kinds of change the update contains.
	UpdateEnvFromMetadata bool `json:"updateEnvFromMetadata,omitempty"`
	UpdateResources       bool `json:"updateResources,omitempty"`
	UpdateImages          bool `json:"updateImages,omitempty"`
	// NextContainerImages, NextContainerRefMetadata and NextContainerResources are what later batches have to
	// write.
	NextContainerImages      map[string]string                      `json:"nextContainerImages,omitempty"`
	NextContainerRefMetadata map[string]RefMetadata                 `json:"nextContainerRefMetadata,omitempty"`
	NextContainerResources   map[string]corev1.ResourceRequirements `json:"nextContainerResources,omitempty"`
	// PreCheckBeforeNext is what the next batch waits for.
	PreCheckBeforeNext *PreCheck `json:"preCheckBeforeNext,omitempty"`
	// ContainerBatchesRecord lists the batches written so far.
	ContainerBatchesRecord []Batch `json:"containerBatchesRecord,omitempty"`

	// The members below are additions to those of the reference.

	// NextContainerRestarts are the restarts that later batches ask for.
	NextContainerRestarts []string `json:"nextContainerRestarts,omitempty"`
	// EnvContainers and RestartContainers map the containers whose environment changed, or that the node
	// daemon shall restart, to the container ID at that moment (IPU-312, IPU-322).
	EnvContainers     map[string]string `json:"envContainers,omitempty"`
	RestartContainers map[string]string `json:"restartContainers,omitempty"`
	// ResizedContainers holds the quantities that were changed (IPU-128).
	ResizedContainers map[string]corev1.ResourceRequirements `json:"resizedContainers,omitempty"`
	// Mended and MendedResources name the containers whose image, or quantities, were written again because
	// they were those of another revision (IPU-326).
	Mended          []string `json:"mended,omitempty"`
	MendedResources []string `json:"mendedResources,omitempty"`
	// UpdateLabels: the update changed labels and stopped nothing.
	UpdateLabels bool `json:"updateLabels,omitempty"`

	// report is what the daemon reports, once it has been read.
	report *RuntimeMeta
}

// Mended names the containers whose image was mended at this revision already, and those whose quantities
// were. If they differ again, somebody else, such as a webhook or an autoscaler, writes them.
func Mended(pod *corev1.Pod, revisionName string) (images, resources sets.Set[string]) {
	state, err := StateOf(pod)
	if err != nil || state == nil || !revision.SameLabel(state.Revision, revisionName) {
		return sets.Set[string]{}, nil
	}
	return sets.New(state.Mended...), sets.New(state.MendedResources...)
}

// remaining is what later batches have to write.
func (s *State) remaining() Parts {
	if s == nil {
		return Parts{}
	}
	return Parts{Images: s.NextContainerImages, Refs: s.NextContainerRefMetadata, Resources: s.NextContainerResources,
		Restarts: s.NextContainerRestarts}
}

// require makes the next batch wait for the containers.
func (s *State) require(names []string) {
	if len(names) > 0 {
		s.PreCheckBeforeNext = &PreCheck{ContainersRequiredReady: union(names, nil)}
	}
}

// ahead returns the containers of the last batch that the next one still waits for: they do not run yet what
// was written, or are not ready.
func (s *State) ahead(pod *corev1.Pod) []string {
	if s == nil || s.PreCheckBeforeNext == nil || finished(pod) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.PreCheckBeforeNext.ContainersRequiredReady), func(name string) bool {
		return containerOf(pod, name) == nil || s.up(pod, name) && ready(pod, name)
	})
}

// up reports whether the container runs what was written into it.
func (s *State) up(pod *corev1.Pod, name string) bool {
	words, _ := s.lacks(pod, name)
	return words == ""
}

// ContainerRecord is what was seen of a container when its image was replaced. The reference writes imageID
// alone. The other members are additions: with them a new tag of the same digest differs from no change
// (IPU-300).
type ContainerRecord struct {
	ImageID      string `json:"imageID,omitempty"`
	ContainerID  string `json:"containerID,omitempty"`
	RestartCount int32  `json:"restartCount,omitempty"`
	// Image is the image in the pod's spec that was replaced.
	Image string `json:"image,omitempty"`
	// RunningImage is the image that the recorded container was started with; it differs from Image if a
	// further update came before kubelet acted on the former one.
	RunningImage string `json:"runningImage,omitempty"`
	// Overtaken are other images that the pod's spec had since the recorded container was started. Kubelet
	// may still start them for a moment.
	Overtaken []string `json:"overtaken,omitempty"`
}

// PreCheck names containers that must be ready before the next batch (IPU-066).
type PreCheck struct {
	ContainersRequiredReady []string `json:"containersRequiredReady,omitempty"`
}

// Batch records one batch (IPU-067).
type Batch struct {
	Timestamp  metav1.Time `json:"timestamp"`
	Containers []string    `json:"containers"`
}

// Grace is the content of an update whose grace period runs (IPU-068).
type Grace struct {
	Revision        string            `json:"revision"`
	ContainerImages map[string]string `json:"containerImages,omitempty"`
	// MetaDataPatch is a strategic merge patch document; JSON carries it in base64.
	MetaDataPatch []byte `json:"metaDataPatch,omitempty"`
	GraceSeconds  int32  `json:"graceSeconds"`

	ContainerRefMetadata  map[string]RefMetadata                 `json:"containerRefMetadata,omitempty"`
	ContainerResources    map[string]corev1.ResourceRequirements `json:"containerResources,omitempty"`
	UpdateEnvFromMetadata bool                                   `json:"updateEnvFromMetadata,omitempty"`
	// ContainerRestarts is an addition to the members of the reference (IPU-322).
	ContainerRestarts []string `json:"containerRestarts,omitempty"`
}

// StateOf returns the update state of the pod, nil if it never was updated in place (IPU-069, IPU-070).
func StateOf(pod *corev1.Pod) (*State, error) {
	return read[State](pod, pub.InPlaceUpdateState, pub.InPlaceUpdateStateLegacy)
}

// GraceOf returns what a grace period of the pod holds back, nil if none runs.
func GraceOf(pod *corev1.Pod) (*Grace, error) {
	return read[Grace](pod, pub.InPlaceUpdateGrace, pub.InPlaceUpdateGraceLegacy)
}

// InGrace reports whether a grace period holds content of the pod back, readable or not.
func InGrace(pod *corev1.Pod) bool {
	_, now := pod.Annotations[pub.InPlaceUpdateGrace]
	_, legacy := pod.Annotations[pub.InPlaceUpdateGraceLegacy]
	return now || legacy
}

func read[T any](pod *corev1.Pod, keys ...string) (*T, error) {
	for _, key := range keys {
		if text, ok := pod.Annotations[key]; ok {
			value := new(T)
			if err := json.Unmarshal([]byte(text), value); err != nil {
				return nil, fmt.Errorf("annotation %s of pod %s is unreadable: %w", key, pod.Name, err)
			}
			return value, nil
		}
	}
	return nil, nil
}
