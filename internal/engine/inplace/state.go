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

// State is the record of the last update in place of a pod, stored in the annotation
// apps.kruise.io/inplace-update-state (IPU-060 to 067). Unknown fields are ignored (IPU-070).
type State struct {
	// Revision is the target revision, as the value of the revision label.
	Revision string `json:"revision"`
	// UpdateTimestamp is the start of the update, from which the grace period is counted.
	UpdateTimestamp metav1.Time `json:"updateTimestamp"`
	// LastContainerStatuses holds, for every container whose image was replaced, what ran at that moment.
	LastContainerStatuses map[string]ContainerRecord `json:"lastContainerStatuses"`
	// UpdateEnvFromMetadata, UpdateResources and UpdateImages are true if the update contains such changes.
	UpdateEnvFromMetadata bool `json:"updateEnvFromMetadata,omitempty"`
	UpdateResources       bool `json:"updateResources,omitempty"`
	UpdateImages          bool `json:"updateImages,omitempty"`
	// NextContainerImages, NextContainerRefMetadata and NextContainerResources are left to later batches.
	NextContainerImages      map[string]string                      `json:"nextContainerImages,omitempty"`
	NextContainerRefMetadata map[string]RefMetadata                 `json:"nextContainerRefMetadata,omitempty"`
	NextContainerResources   map[string]corev1.ResourceRequirements `json:"nextContainerResources,omitempty"`
	// PreCheckBeforeNext defines what the next batch waits for.
	PreCheckBeforeNext *PreCheck `json:"preCheckBeforeNext,omitempty"`
	// ContainerBatchesRecord lists the batches written so far.
	ContainerBatchesRecord []Batch `json:"containerBatchesRecord,omitempty"`

	// The fields below do not exist in OpenKruise.

	// NextContainerRestarts are the restarts that are left to later batches.
	NextContainerRestarts []string `json:"nextContainerRestarts,omitempty"`
	// EnvContainers and RestartContainers contain the containers whose environment changed, or that the node
	// daemon has to restart, with their container ID at that moment (IPU-312, IPU-322).
	EnvContainers     map[string]string `json:"envContainers,omitempty"`
	RestartContainers map[string]string `json:"restartContainers,omitempty"`
	// ResizedContainers holds the quantities that were changed (IPU-128).
	ResizedContainers map[string]corev1.ResourceRequirements `json:"resizedContainers,omitempty"`
	// Mended and MendedResources are the names of the containers whose image, or quantities, were restored
	// because they were those of another revision (IPU-326).
	Mended          []string `json:"mended,omitempty"`
	MendedResources []string `json:"mendedResources,omitempty"`
	// UpdateLabels is true if the update changed labels and stopped no container.
	UpdateLabels bool `json:"updateLabels,omitempty"`

	// report is the node daemon's report, once it has been read.
	report *RuntimeMeta
}

// Mended returns the names of the containers whose image was already restored at this revision, and of those
// whose quantities were. If they differ again, somebody else writes them, such as a webhook or an autoscaler.
func Mended(pod *corev1.Pod, revisionName string) (images, resources sets.Set[string]) {
	state, err := StateOf(pod)
	if err != nil || state == nil || !revision.SameLabel(state.Revision, revisionName) {
		return sets.Set[string]{}, nil
	}
	return sets.New(state.Mended...), sets.New(state.MendedResources...)
}

// remaining returns what later batches have to write.
func (s *State) remaining() Parts {
	if s == nil {
		return Parts{}
	}
	return Parts{
		Images: s.NextContainerImages, Refs: s.NextContainerRefMetadata,
		Resources: s.NextContainerResources, Restarts: s.NextContainerRestarts,
	}
}

// require makes the next batch wait for the containers.
func (s *State) require(names []string) {
	if len(names) > 0 {
		s.PreCheckBeforeNext = &PreCheck{ContainersRequiredReady: union(names, nil)}
	}
}

// ahead returns the containers of the last batch that the next one still waits for: they do not run what was
// written yet, or are not ready.
func (s *State) ahead(pod *corev1.Pod) []string {
	if s == nil || s.PreCheckBeforeNext == nil || finished(pod) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.PreCheckBeforeNext.ContainersRequiredReady),
		func(name string) bool {
			return containerOf(pod, name) == nil || s.up(pod, name) && ready(pod, name)
		})
}

// up reports whether the container runs what was written into it.
func (s *State) up(pod *corev1.Pod, name string) bool {
	words, _ := s.lacks(pod, name)
	return words == ""
}

// ContainerRecord describes a container at the moment when its image was replaced. OpenKruise writes only
// imageID. The other fields are additions that distinguish a new tag of the same digest from no change
// (IPU-300).
type ContainerRecord struct {
	ImageID      string `json:"imageID,omitempty"`
	ContainerID  string `json:"containerID,omitempty"`
	RestartCount int32  `json:"restartCount,omitempty"`
	// Image is the image in the pod's spec that was replaced.
	Image string `json:"image,omitempty"`
	// RunningImage is the image that the recorded container was started with. It differs from Image if
	// another update came before kubelet acted on the one before.
	RunningImage string `json:"runningImage,omitempty"`
	// Overtaken are other images that the pod's spec had since the recorded container was started. Kubelet
	// may still start them for a moment.
	Overtaken []string `json:"overtaken,omitempty"`
}

// PreCheck defines which containers must be ready before the next batch (IPU-066).
type PreCheck struct {
	ContainersRequiredReady []string `json:"containersRequiredReady,omitempty"`
}

// Batch records one batch (IPU-067).
type Batch struct {
	Timestamp  metav1.Time `json:"timestamp"`
	Containers []string    `json:"containers"`
}

// Grace is the content of an update that waits for the end of its grace period (IPU-068).
type Grace struct {
	Revision        string            `json:"revision"`
	ContainerImages map[string]string `json:"containerImages,omitempty"`
	// MetaDataPatch is a strategic merge patch; JSON encodes it in base64.
	MetaDataPatch []byte `json:"metaDataPatch,omitempty"`
	GraceSeconds  int32  `json:"graceSeconds"`

	ContainerRefMetadata  map[string]RefMetadata                 `json:"containerRefMetadata,omitempty"`
	ContainerResources    map[string]corev1.ResourceRequirements `json:"containerResources,omitempty"`
	UpdateEnvFromMetadata bool                                   `json:"updateEnvFromMetadata,omitempty"`
	// ContainerRestarts does not exist in OpenKruise (IPU-322).
	ContainerRestarts []string `json:"containerRestarts,omitempty"`
	// FormerLabels are the labels of the revision before, nil for those that the pod did not have. OpenKruise
	// does not write them.
	FormerLabels map[string]*string `json:"formerLabels,omitempty"`
}

// StateOf returns the update state of the pod, nil if it was never updated in place (IPU-069, IPU-070).
func StateOf(pod *corev1.Pod) (*State, error) {
	return read[State](pod, pub.InPlaceUpdateState, pub.InPlaceUpdateStateLegacy)
}

// GraceOf returns what the grace period of the pod holds back, nil if none is running.
func GraceOf(pod *corev1.Pod) (*Grace, error) {
	return read[Grace](pod, pub.InPlaceUpdateGrace, pub.InPlaceUpdateGraceLegacy)
}

// InGrace reports whether a grace period holds back content of the pod, even if it is unreadable.
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
