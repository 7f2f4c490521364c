package inplace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// Update is one in-place update of one pod.
type Update struct {
	// Revision is the target revision, as the state annotation names it.
	Revision string
	// RevisionLabels are set on the pod together with the state (IPU-082).
	RevisionLabels map[string]string
	// Change is what differs between the revision that the pod carries and the target.
	Change *Change
	// GraceSeconds to wait between taking the pod out of service and changing it (IPU-106).
	GraceSeconds int32
}

// Graceful tells whether the update waits before it changes the pod: only one that restarts something does (IPU-308).
func (u *Update) Graceful() bool { return u.GraceSeconds > 0 && u.Change.Restarts() }

// Hold returns the patch of the status that takes the pod out of service first; it is empty if nothing restarts, if the pod has
// no gate, or if it is held already (IPU-080, IPU-134, IPU-137, IPU-308).
func (u *Update) Hold(pod *corev1.Pod, now time.Time) *podpatch.Patch {
	patch := &podpatch.Patch{}
	if u.Change.Restarts() {
		readiness.Hold(patch, pod, now)
	}
	return patch
}

// Start returns the patch of the pod that begins the update. It must be computed from the very version of the pod that it is
// applied to, since it records what runs at that moment (IPU-105).
func (u *Update) Start(pod *corev1.Pod, now time.Time) (*podpatch.Patch, error) {
	patch := &podpatch.Patch{}
	for key, value := range u.RevisionLabels {
		patch.Label(key, value)
	}
	if u.Change.Restarts() || !readiness.Settled(pod) {
		lifecycle.Enter(patch, pub.LifecycleStateUpdating, now)
	} // else the pod stays in service, and this is the only write (IPU-308)
	state := &State{Revision: u.Revision, UpdateTimestamp: metav1.NewTime(now), UpdateImages: len(u.Change.Images) > 0}
	previous, err := StateOf(pod)
	if err != nil {
		return nil, err
	}
	state.LastContainerStatuses = unfinished(pod, previous)
	if u.Graceful() {
		grace := Grace{Revision: u.Revision, ContainerImages: u.Change.Images, GraceSeconds: u.GraceSeconds}
		if grace.MetaDataPatch, err = encodeMetadata(u.Change); err != nil {
			return nil, err
		}
		if err := annotate(patch, pub.InPlaceUpdateGrace, grace); err != nil {
			return nil, err
		}
	} else {
		u.Change.metadata(patch)
		writeImages(patch, state, pod, u.Change.Images, now)
	}
	if _, ok := pod.Annotations[pub.InPlaceUpdateStateLegacy]; ok {
		patch.RemoveAnnotation(pub.InPlaceUpdateStateLegacy)
	}
	return patch, annotate(patch, pub.InPlaceUpdateState, state)
}

// Continue returns the patch that ends the grace period of a pod: the content is written, or dropped if the pod carries another
// revision meanwhile (IPU-107). Like Start it must be computed from the version of the pod that it is applied to.
func Continue(pod *corev1.Pod, now time.Time) (*podpatch.Patch, error) {
	grace, err := GraceOf(pod)
	if err != nil || grace == nil {
		return nil, err
	}
	patch := &podpatch.Patch{}
	for _, key := range []string{pub.InPlaceUpdateGrace, pub.InPlaceUpdateGraceLegacy} {
		if _, ok := pod.Annotations[key]; ok {
			patch.RemoveAnnotation(key)
		}
	}
	if !carries(pod, grace.Revision) {
		return patch, nil
	}
	state, err := StateOf(pod)
	if err != nil {
		return nil, err
	}
	if state == nil {
		state = &State{Revision: grace.Revision, UpdateTimestamp: metav1.NewTime(now)}
	}
	change, err := decodeMetadata(grace.MetaDataPatch)
	if err != nil {
		return nil, fmt.Errorf("annotation %s of pod %s: %w", pub.InPlaceUpdateGrace, pod.Name, err)
	}
	change.metadata(patch)
	state.UpdateImages = len(grace.ContainerImages) > 0
	writeImages(patch, state, pod, grace.ContainerImages, now)
	return patch, annotate(patch, pub.InPlaceUpdateState, state)
}

// unfinished returns the records of containers that an earlier update has changed and that do not run what it wrote yet: a further
// update must go on waiting for them.
func unfinished(pod *corev1.Pod, state *State) map[string]ContainerRecord {
	if state == nil {
		return nil
	}
	var records map[string]ContainerRecord
	for name, record := range state.LastContainerStatuses {
		if replaced(pod, name, record, state) == "" {
			continue
		}
		if records == nil {
			records = map[string]ContainerRecord{}
		}
		records[name] = record
	}
	return records
}

// writeImages adds the images to the patch and records what runs now (IPU-063, IPU-067, IPU-087). A container that has the image
// already is left alone.
func writeImages(patch *podpatch.Patch, state *State, pod *corev1.Pod, images map[string]string, now time.Time) {
	var written []string
	for _, name := range slices.Sorted(maps.Keys(images)) {
		container := containerOf(pod, name)
		if container == nil || container.Image == images[name] {
			continue
		}
		patch.Image(name, images[name])
		written = append(written, name)
		if status := statusOf(pod, name); status != nil {
			record := ContainerRecord{ImageID: status.ImageID, ContainerID: status.ContainerID, RestartCount: status.RestartCount,
				Image: container.Image, RunningImage: container.Image}
			if overtaken, ok := state.LastContainerStatuses[name]; ok && overtaken.ContainerID == status.ContainerID {
				record.RunningImage = overtaken.RunningImage
			}
			if state.LastContainerStatuses == nil {
				state.LastContainerStatuses = map[string]ContainerRecord{}
			}
			state.LastContainerStatuses[name] = record
		}
	}
	if len(written) > 0 {
		state.ContainerBatchesRecord = append(state.ContainerBatchesRecord, Batch{Timestamp: metav1.NewTime(now), Containers: written})
	}
}

func annotate(patch *podpatch.Patch, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding annotation %s: %w", key, err)
	}
	patch.Annotation(key, string(text))
	return nil
}

// metadataDocument is the strategic merge patch document of IPU-068.
type metadataDocument struct {
	Metadata struct {
		Labels           map[string]*string `json:"labels,omitempty"`
		Annotations      map[string]*string `json:"annotations,omitempty"`
		AddFinalizers    []string           `json:"finalizers,omitempty"`
		RemoveFinalizers []string           `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
	} `json:"metadata"`
}

func encodeMetadata(change *Change) ([]byte, error) {
	if len(change.Labels)+len(change.Annotations)+len(change.AddFinalizers)+len(change.RemoveFinalizers) == 0 {
		return nil, nil
	}
	var doc metadataDocument
	doc.Metadata.Labels, doc.Metadata.Annotations = change.Labels, change.Annotations
	doc.Metadata.AddFinalizers, doc.Metadata.RemoveFinalizers = change.AddFinalizers, change.RemoveFinalizers
	encoded, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding metadata patch: %w", err)
	}
	return encoded, nil
}

func decodeMetadata(encoded []byte) (*Change, error) {
	if len(encoded) == 0 {
		return &Change{}, nil
	}
	var doc metadataDocument
	if err := json.Unmarshal(encoded, &doc); err != nil {
		return nil, fmt.Errorf("reading metadata patch: %w", err)
	}
	return &Change{Labels: doc.Metadata.Labels, Annotations: doc.Metadata.Annotations,
		AddFinalizers: doc.Metadata.AddFinalizers, RemoveFinalizers: doc.Metadata.RemoveFinalizers}, nil
}

func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}
