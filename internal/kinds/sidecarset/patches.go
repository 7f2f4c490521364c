package sidecarset

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// change makes the patches of an upgrade for a version of the pod for which the decision still holds: it
// costs no more than what was decided about.
func (p *planner) change(decided *podInfo) func(*corev1.Pod, time.Time) ([]*podpatch.Patch, error) {
	return func(pod *corev1.Pod, now time.Time) ([]*podpatch.Patch, error) {
		if pod != decided.Pod {
			fresh := p.examine(pod)
			if pod.UID != decided.Pod.UID || !readiness.Active(pod) || !fresh.matched || fresh.updated ||
				fresh.unreadable != nil ||
				fresh.busy != "" ||
				fresh.ready && (!decided.ready || decided.underway && !fresh.underway) ||
				fresh.record.Hash != decided.record.Hash ||
				fresh.upgradable != decided.upgradable ||
				mainFinished(pod) || len(p.overtaken(pod, fresh.working)) > 0 ||
				!p.update.Matches(labels.Set(pod.Labels)) {
				return nil, ErrStalePlan
			}
		}
		return p.patchesFor(pod, now)
	}
}

// patchesFor returns what upgrades the pod: resources if they change, then images and annotations in one
// (SS-225, SS-226, SS-W02). That the resources change is noted first: the pod's record tells of former ones
// until the last write.
func (p *planner) patchesFor(pod *corev1.Pod, now time.Time) ([]*podpatch.Patch, error) {
	var patches []*podpatch.Patch
	resize := p.resize(pod)
	if !resize.Empty() {
		patches = append(patches, p.noteResize(pod, now), resize)
	}
	images, hot := p.wanted(pod)
	patch := &podpatch.Patch{}
	if err := p.images(patch, pod, images, hot, pub.SidecarSetState{Revision: p.hash}, now); err != nil {
		return nil, err
	}

	metadata, err := PatchMetadata(pod.Annotations, p.in.Set.Spec.PatchPodMetadata)
	if err != nil {
		return nil, err
	}

	for key, value := range metadata {
		patch.Annotation(key, value)
	}

	for _, key := range []string{pub.SidecarSetHash, pub.SidecarSetHashWithoutImage} {
		records, err := ReadRecords(pod.Annotations[key])
		if err != nil {
			return nil, err
		}
		record := pub.SidecarSetRecord{UpdateTimestamp: metav1.NewTime(now.UTC().Truncate(time.Second)),
			Hash: p.hash, SidecarSetName: p.in.Set.Name,
			SidecarList: Names(&p.in.Set.Spec), ControllerRevision: p.out.Status.LatestRevision}
		if key == pub.SidecarSetHashWithoutImage {
			if records[p.in.Set.Name].Hash == p.hashWithoutImage {
				continue
			}
			record.Hash, record.ControllerRevision = p.hashWithoutImage, ""
		}
		records[p.in.Set.Name] = record
		patch.Annotation(key, records.String())
	}

	if list := pod.Annotations[pub.SidecarSetInjectedList]; !slices.Contains(ReadInjectedList(list),
		p.in.Set.Name) {
		patch.Annotation(pub.SidecarSetInjectedList, InjectedList(list, p.in.Set.Name))
	}

	return append(patches, patch), nil
}

// maxResizing bounds how many upgrades that were overtaken half way are remembered: annotations are small.
const maxResizing = 8

// noteResize writes down that the pod is given the resources of the latest hash.
func (p *planner) noteResize(pod *corev1.Pod, now time.Time) *podpatch.Patch {
	patch := &podpatch.Patch{}
	states, err := ReadStates(pod.Annotations[pub.SidecarSetInPlaceUpdateState])
	if err != nil {
		states = States{} // nobody can read what stands there
	}
	state, begun := states[p.in.Set.Name]
	if slices.Contains(state.Resizing, p.hash) {
		return patch
	}
	if !begun {
		state.UpdateTimestamp = metav1.NewTime(now.UTC().Truncate(time.Second))
	}
	if state.Resizing = append(slices.Clone(state.Resizing), p.hash); len(state.Resizing) > maxResizing {
		// of some nothing is known any more
		state.Resizing = append([]string{""}, state.Resizing[len(state.Resizing)-maxResizing+1:]...)
	}
	states[p.in.Set.Name] = state
	patch.Annotation(pub.SidecarSetInPlaceUpdateState, states.String())
	return patch
}

// wanted are the images of cold sidecars that differ in the pod, by container, and the changes of hot ones.
func (p *planner) wanted(pod *corev1.Pod) (images map[string]string, hot []*hotChange) {
	images = map[string]string{}
	working, err := ReadWorkingContainers(pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer])
	if err != nil {
		working = WorkingContainers{}
	}

	for i := range p.in.Set.Spec.Containers {
		c := &p.in.Set.Spec.Containers[i]
		if IsHot(c) {
			if change, _ := p.hotUpgrade(pod, c, working); change != nil {
				hot = append(hot, change)
			}
		} else if ImageOf(pod, c.Name) != c.Image {
			images[c.Name] = c.Image
		}
	}

	for i := range p.in.Set.Spec.InitContainers {
		if c := &p.in.Set.Spec.InitContainers[i]; IsNative(&c.Container) && ImageOf(pod, c.Name) != c.Image {
			images[c.Name] = c.Image
		}
	}

	return images, hot
}

// images writes images into the patch, and into the state what the changed containers ran before.
func (p *planner) images(
	patch *podpatch.Patch, pod *corev1.Pod, images map[string]string, hot []*hotChange,
	state pub.SidecarSetState, now time.Time,
) error {
	working := WorkingContainers{}
	if len(hot) > 0 {
		var err error
		if working, err = ReadWorkingContainers(
			pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer]); err != nil {
			return err
		}
	}
	changed := maps.Clone(images)
	if changed == nil {
		changed = map[string]string{}
	}
	before := working.String()
	for _, change := range hot {
		if ImageOf(pod, change.container) != change.image {
			changed[change.container] = change.image
		}
		for key, value := range change.annotations {
			if pod.Annotations[key] != value {
				patch.Annotation(key, value)
			}
		}
		if change.working != "" {
			for i := range p.in.Set.Spec.Containers {
				if first, second := HotNames(p.in.Set.Spec.Containers[i].Name); change.working == first ||
					change.working == second {
					working[p.in.Set.Spec.Containers[i].Name] = change.working
				}
			}
		}
	}

	if after := working.String(); after != before {
		patch.Annotation(pub.SidecarSetWorkingHotUpgradeContainer, after)
	}
	states, err := ReadStates(pod.Annotations[pub.SidecarSetInPlaceUpdateState])
	if err != nil {
		states = States{} // nobody can read what stands there
	}
	state.UpdateTimestamp = metav1.NewTime(now.UTC().Truncate(time.Second))
	state.LastContainerStatuses = maps.Clone(states[p.in.Set.Name].LastContainerStatuses)
	if state.LastContainerStatuses == nil {
		state.LastContainerStatuses = map[string]pub.SidecarSetContainerState{}
	}

	for name, image := range changed {
		container, status := containerOf(pod, name)
		if container == nil {
			continue
		}
		if status == nil {
			status = &corev1.ContainerStatus{}
		}
		r := inplace.Record(container, status, recordOf(state.LastContainerStatuses[name]))
		state.LastContainerStatuses[name] = pub.SidecarSetContainerState{ImageID: r.ImageID,
			ContainerID: r.ContainerID, Image: r.Image, RunningImage: r.RunningImage, Overtaken: r.Overtaken}
		patch.Image(name, image)
	}

	states[p.in.Set.Name] = state
	patch.Annotation(pub.SidecarSetInPlaceUpdateState, states.String())
	return nil
}
