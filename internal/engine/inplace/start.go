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
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Update is one update in place of one pod.
type Update struct {
	// Revision is the name of the target revision.
	Revision string
	// RevisionLabels are set on the pod together with the state (IPU-082).
	RevisionLabels map[string]string
	// Change is what differs between the revision that the pod carries and the target.
	Change *Change
	// GraceSeconds is how long to wait between taking the pod out of service and changing it (IPU-106).
	GraceSeconds int32
}

// Graceful reports whether the update waits before it changes the pod. Only an update that takes the pod out
// of service does (IPU-308).
func (u *Update) Graceful() bool { return u.GraceSeconds > 0 && u.Change.Holds() }

// Hold returns the status patch that takes the pod out of service first. It is empty if the change stops no
// container that matters, if the pod has no readiness gate, or if it is already held (IPU-080, IPU-134,
// IPU-136, IPU-137, IPU-308).
func (u *Update) Hold(pod *corev1.Pod, now time.Time) (*podpatch.Patch, error) {
	patch := &podpatch.Patch{}
	if u.Change.Holds() {
		readiness.Hold(patch, pod, now)
	}
	return patch, nil
}

// Resize returns the patch of the resize subresource for the first batch. It is empty if no quantity differs,
// and while a grace period holds back the content (IPU-112, IPU-114).
func (u *Update) Resize(pod *corev1.Pod, _ time.Time) (*podpatch.Patch, error) {
	if u.Graceful() {
		return &podpatch.Patch{}, nil
	}
	previous, _ := StateOf(pod)
	now, _ := split(pod, u.parts(previous), previous.ahead(pod))
	return resize(pod, now), nil
}

// parts returns what the update changes in containers: its own change, and what an earlier update of the pod
// did not write yet. An unreadable record of an earlier update contributes nothing: comparing images finds
// what is missing.
func (u *Update) parts(previous *State) Parts { return u.Change.over(previous.remaining()) }

func resize(pod *corev1.Pod, parts Parts) *podpatch.Patch {
	patch := &podpatch.Patch{}
	for name, want := range parts.Resources {
		if container := containerOf(pod, name); container != nil {
			if change := Lacking(want, container.Resources); !none(change) {
				patch.Resources(name, change)
			}
		}
	}
	return patch
}

// Start returns the patch of the pod that starts the update. It must be computed from exactly the version of
// the pod that it is applied to, since it records what runs at that moment (IPU-105).
func (u *Update) Start(pod *corev1.Pod, now time.Time) (*podpatch.Patch, error) {
	patch := &podpatch.Patch{}
	for key, value := range u.RevisionLabels {
		patch.Label(key, value)
	}

	previous, _ := StateOf(pod) // an unreadable state is replaced
	parts := u.parts(previous)
	// A pod in service whose containers do not change stays in service, and this is the only write. A new pod
	// continues to wait for its preNormal hook. A change of labels enters the state Updating, although the
	// pod stays ready.
	if !parts.Empty() || (len(u.Change.Labels) > 0 || !readiness.Settled(pod)) &&
		lifecycle.State(pod) != pub.LifecycleStatePreparingNormal {
		lifecycle.Enter(patch, pub.LifecycleStateUpdating, now)
	}

	state := &State{
		Revision: u.Revision, UpdateTimestamp: metav1.NewTime(now),
		UpdateImages: len(parts.Images) > 0, UpdateEnvFromMetadata: len(parts.Refs) > 0,
		UpdateResources: len(parts.Resources) > 0,
		UpdateLabels:    len(u.Change.Labels) > 0 && !u.Change.Holds(),
	}

	state.carryOver(pod, previous)
	ahead := previous.ahead(pod)
	state.Mended, state.MendedResources = u.Change.Mends, u.Change.MendsResources
	if previous != nil && revision.SameLabel(previous.Revision, u.Revision) {
		state.Mended = union(previous.Mended, state.Mended)
		state.MendedResources = union(previous.MendedResources, state.MendedResources)
	}

	if u.Graceful() {
		grace := Grace{
			Revision: u.Revision, GraceSeconds: u.GraceSeconds,
			ContainerImages: parts.Images, ContainerRefMetadata: parts.Refs,
			ContainerResources: parts.Resources, ContainerRestarts: parts.Restarts,
			UpdateEnvFromMetadata: len(parts.Refs) > 0, FormerLabels: map[string]*string{},
		}
		for key := range u.RevisionLabels {
			grace.FormerLabels[key] = nil
			if value, ok := pod.Labels[key]; ok {
				grace.FormerLabels[key] = &value
			}
		}
		var err error
		if grace.MetaDataPatch, err = encodeMetadata(u.Change); err != nil {
			return nil, err
		}
		if err := annotate(patch, pub.InPlaceUpdateGrace, grace); err != nil {
			return nil, err
		}
		state.require(ahead)
	} else {
		u.Change.metadata(patch)
		dropGrace(patch, pod)
		if err := state.write(patch, pod, parts, ahead, now); err != nil {
			return nil, err
		}
	}

	return patch, state.annotate(patch, pod)
}

// ContinueResize returns the patch of the resize subresource that must be sent before that of [Continue]; it
// may be empty. Both must be computed, like those of [Update], from the version of the pod that they are
// applied to (IPU-105).
func ContinueResize(pod *corev1.Pod, _ time.Time) (*podpatch.Patch, error) {
	state, grace, parts, err := due(pod)
	if err != nil || grace != nil && !carries(pod, grace.Revision) {
		return &podpatch.Patch{}, err
	}
	now, _ := split(pod, parts, state.ahead(pod))
	return resize(pod, now), nil
}

// due returns what an update of the pod still has to write.
func due(pod *corev1.Pod) (*State, *Grace, Parts, error) {
	state, err := StateOf(pod)
	if err != nil {
		return nil, nil, Parts{}, err
	}
	grace, err := GraceOf(pod)
	if err != nil || grace == nil {
		return state, nil, state.remaining(), err
	}
	return state, grace, Parts{
		Images: grace.ContainerImages, Refs: grace.ContainerRefMetadata,
		Resources: grace.ContainerResources, Restarts: grace.ContainerRestarts,
	}, nil
}

// Continue returns the next patch of an update whose grace period is over, or whose next batch may be
// written. The content of a grace period is dropped if the pod has another revision by now (IPU-103,
// IPU-107).
func Continue(pod *corev1.Pod, now time.Time) (*podpatch.Patch, error) {
	state, grace, parts, err := due(pod)
	if err != nil || grace == nil && parts.Empty() {
		return &podpatch.Patch{}, err
	}

	patch := &podpatch.Patch{}
	dropGrace(patch, pod)
	if grace != nil && !carries(pod, grace.Revision) {
		return patch, nil
	}

	if state == nil {
		state = &State{Revision: grace.Revision, UpdateTimestamp: metav1.NewTime(now)}
	}
	if grace != nil {
		change, err := decodeMetadata(grace.MetaDataPatch)
		if err != nil {
			return nil, fmt.Errorf("annotation %s of pod %s: %w", pub.InPlaceUpdateGrace, pod.Name, err)
		}
		change.metadata(patch)
		state.UpdateImages = state.UpdateImages || len(parts.Images) > 0
		state.UpdateResources = state.UpdateResources || len(parts.Resources) > 0
		state.UpdateEnvFromMetadata = state.UpdateEnvFromMetadata || len(parts.Refs) > 0
	}

	if err := state.write(patch, pod, parts, state.ahead(pod), now); err != nil {
		return nil, err
	}

	return patch, state.annotate(patch, pod)
}

// Withdraw returns the patch that takes back an update whose content a grace period holds back. It is empty if the
// pod has another revision by now, or if it is not known which one it had before.
func Withdraw(pod *corev1.Pod) *podpatch.Patch {
	patch := &podpatch.Patch{}
	grace, err := GraceOf(pod)
	if err != nil || grace == nil || len(grace.FormerLabels) == 0 || !carries(pod, grace.Revision) {
		return patch
	}
	for key, value := range grace.FormerLabels {
		if value == nil {
			patch.RemoveLabel(key)
		} else {
			patch.Label(key, *value)
		}
	}
	dropGrace(patch, pod)
	return patch
}

func dropGrace(patch *podpatch.Patch, pod *corev1.Pod) {
	for _, key := range []string{pub.InPlaceUpdateGrace, pub.InPlaceUpdateGraceLegacy} {
		if _, ok := pod.Annotations[key]; ok {
			patch.RemoveAnnotation(key)
		}
	}
}

func (s *State) annotate(patch *podpatch.Patch, pod *corev1.Pod) error {
	if _, ok := pod.Annotations[pub.InPlaceUpdateStateLegacy]; ok {
		patch.RemoveAnnotation(pub.InPlaceUpdateStateLegacy)
	}
	return annotate(patch, pub.InPlaceUpdateState, s)
}

// carryOver copies from an earlier update the records of containers that do not run yet what that update
// wrote, because the new update must continue to wait for them.
func (s *State) carryOver(pod *corev1.Pod, earlier *State) {
	if earlier == nil || finished(pod) {
		return
	}

	s.LastContainerStatuses = filter(earlier.LastContainerStatuses, func(name string) bool {
		return replaced(pod, name, earlier.LastContainerStatuses[name], earlier) != ""
	})

	s.EnvContainers = filter(earlier.EnvContainers,
		func(name string) bool { return environment(pod, name, earlier) != "" })
	s.RestartContainers = filter(earlier.RestartContainers,
		func(name string) bool { return restarted(pod, name, earlier) != "" })
	s.ResizedContainers = filter(earlier.ResizedContainers,
		func(name string) bool { return resized(pod, name, earlier) != "" })
	s.UpdateLabels = s.UpdateLabels || earlier.UpdateLabels
	s.UpdateImages = s.UpdateImages || len(s.LastContainerStatuses) > 0
	s.UpdateEnvFromMetadata = s.UpdateEnvFromMetadata || len(s.EnvContainers) > 0
	s.UpdateResources = s.UpdateResources || len(s.ResizedContainers) > 0
}

// write adds the next batch of the parts to the patch, records what its containers run now, and leaves the
// rest for later batches. The containers in ahead are those of earlier batches that are not up yet. Resources
// were written before, through their subresource.
func (s *State) write(
	patch *podpatch.Patch, pod *corev1.Pod, parts Parts, ahead []string, now time.Time,
) error {
	batch, later := split(pod, parts, ahead)

	written, stopped := map[string]bool{}, map[string]bool{}
	for name, image := range batch.Images {
		container := containerOf(pod, name)
		if container == nil || container.Image == image {
			continue // it already has the image
		}
		patch.Image(name, image)
		written[name] = true
		if status := statusOf(pod, name); status != nil && runsOn(pod, name) {
			stopped[name] = true
			s.record(name, container, status)
		}
	}

	for name, refs := range batch.Refs {
		patchMetadata(patch, refs.Labels, refs.Annotations)
		written[name] = true
		if status := statusOf(pod, name); status != nil && status.ContainerID != "" {
			s.EnvContainers = merge(s.EnvContainers, map[string]string{name: status.ContainerID})
			stopped[name] = true
		}
	}

	for _, name := range batch.Restarts {
		if status := statusOf(pod, name); status != nil && status.ContainerID != "" {
			s.RestartContainers = merge(s.RestartContainers, map[string]string{name: status.ContainerID})
			written[name], stopped[name] = true, true
		}
	}

	for name, resources := range batch.Resources {
		s.ResizedContainers = merge(s.ResizedContainers,
			map[string]corev1.ResourceRequirements{name: resources})
		written[name] = true
	}

	s.NextContainerImages, s.NextContainerRefMetadata, s.NextContainerResources, s.NextContainerRestarts =
		later.Images, later.Refs, later.Resources, later.Restarts

	names := slices.Sorted(maps.Keys(written))
	s.PreCheckBeforeNext = nil
	if !later.Empty() {
		s.require(slices.DeleteFunc(slices.Concat(names, ahead),
			func(name string) bool { return !runsOn(pod, name) }))
	}
	if len(names) > 0 {
		s.ContainerBatchesRecord = append(s.ContainerBatchesRecord,
			Batch{Timestamp: metav1.NewTime(now), Containers: names})
	}

	return countRestarts(patch, pod, stopped)
}

// maxOvertaken bounds how many overtaken images a record keeps, because annotations must stay small. If an
// image changes more often than this before the first one is pulled, the only loss is that names of the same
// digest cannot be distinguished.
const maxOvertaken = 8

// Record returns a record of what a container runs at the moment when its image is replaced. former is its
// last record, if any.
func Record(
	container *corev1.Container, status *corev1.ContainerStatus, former ContainerRecord,
) ContainerRecord {
	record := ContainerRecord{
		ImageID: status.ImageID, ContainerID: status.ContainerID, RestartCount: status.RestartCount,
		Image: container.Image, RunningImage: container.Image,
	}

	if former.ContainerID == "" ||
		former.ContainerID != status.ContainerID && SameImage(status.Image, container.Image) {
		return record
	}

	asked := append(slices.Clone(former.Overtaken), former.Image)
	if record.RunningImage = former.RunningImage; former.ContainerID != status.ContainerID {
		record.RunningImage = ""
		for _, image := range asked { // one of them started before the next was written
			if SameImage(status.Image, image) {
				record.RunningImage = image
			}
		}
	}

	asked = slices.DeleteFunc(asked, func(image string) bool {
		return image == "" || image == record.RunningImage || image == container.Image
	})

	record.Overtaken = asked[max(len(asked)-maxOvertaken, 0):]
	return record
}

// record stores what the container runs at the moment when its image is replaced.
func (s *State) record(name string, container *corev1.Container, status *corev1.ContainerStatus) {
	record := Record(container, status, s.LastContainerStatuses[name])
	if s.LastContainerStatuses == nil {
		s.LastContainerStatuses = map[string]ContainerRecord{}
	}
	s.LastContainerStatuses[name] = record
}

// countRestarts adds one to each container's number of restarts that updates in place caused.
func countRestarts(patch *podpatch.Patch, pod *corev1.Pod, stopped map[string]bool) error {
	if len(stopped) == 0 {
		return nil
	}
	counts := map[string]int{}
	// An unreadable count starts again at 0.
	_ = json.Unmarshal([]byte(pod.Annotations[pub.InPlaceUpdateRestarts]), &counts)
	for name := range stopped {
		counts[name]++
	}
	return annotate(patch, pub.InPlaceUpdateRestarts, counts)
}

func annotate(patch *podpatch.Patch, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding annotation %s: %w", key, err)
	}
	patch.Annotation(key, string(text))
	return nil
}

// metadataDocument is the strategic merge patch of metadata that a grace period stores.
type metadataDocument struct {
	Metadata struct {
		Labels           map[string]*string `json:"labels,omitempty"`
		Annotations      map[string]*string `json:"annotations,omitempty"`
		AddFinalizers    []string           `json:"finalizers,omitempty"`
		RemoveFinalizers []string           `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
	} `json:"metadata"`
}

func encodeMetadata(change *Change) ([]byte, error) {
	if len(change.Labels)+len(change.Annotations)+len(change.AddFinalizers)+
		len(change.RemoveFinalizers) == 0 {
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
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses,
	} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}

// runsOn reports whether the container runs as long as the pod does: any container except an ordinary init
// container.
func runsOn(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if container := &pod.Spec.InitContainers[i]; container.Name == name {
			return container.RestartPolicy != nil &&
				*container.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	return true
}
