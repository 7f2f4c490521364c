package podplan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// Pod is an active pod with what the plan needs to know of it.
type Pod struct {
	rollout.Candidate
	// Label is the revision that the pod carries; State is that of its lifecycle.
	Label string
	State pub.LifecycleStateType
	// New: the pod carries the update revision.
	New bool
	// Serving: it is ready and its lifecycle state lets it serve, whether or not it has been ready for long
	// enough to count as available.
	Serving bool
	// Preparing: it waits for its preDelete hook (pd). Specified: it is specified for deletion and not
	// preparing it yet (sd).
	Preparing, Specified bool
	// Progress of its last in-place update; Err if that cannot be read.
	Progress inplace.Status
	Err      error
	// WatchedUntil is until when a pod whose labels changed does not count as available; zero for others.
	WatchedUntil time.Time
	// AvailableIn is how long it takes to become available by time alone; 0 if time does not help.
	AvailableIn time.Duration
	// Mode is how it reaches the update revision; set for old pods only.
	Mode Mode
	// StaleImages and StaleResources name containers that have the image, or the quantities, of another
	// revision than the one that the pod carries (IPU-326).
	StaleImages    map[string]string
	StaleResources map[string]corev1.ResourceRequirements
	// Stay: it is of no use to the rollout any more, because others took its place (CS-361).
	Stay bool
}

// Observe finds out what the plan needs to know of an active pod, and makes it one of the members. specified:
// somebody asked for its deletion.
func (p *Planner) Observe(pod *corev1.Pod, specified bool) {
	if p.Members == nil { // one allocation for all
		p.Members, p.observed = make([]*Pod, 0, len(p.in.Pods)), make([]Pod, len(p.in.Pods))
	}
	info := &p.observed[len(p.Members)]
	*info = Pod{Candidate: rollout.Candidate{Pod: pod, Ready: readiness.Ready(pod)}, Label: pod.Labels[pub.ControllerRevisionHash],
		State: lifecycle.State(pod)}
	info.Serving = info.Ready && readiness.Settled(pod)
	info.Available, info.AvailableIn = readiness.Available(pod, p.Workload.MinReadySeconds, p.in.Now)
	if info.AvailableIn > 0 { // whatever holds the pod, others may wait for it to count
		p.LookAgain(p.in.Now.Add(info.AvailableIn))
	}
	info.Preparing = info.State == pub.LifecycleStatePreparingDelete
	info.Specified = !info.Preparing && specified
	if inService(info) {
		info.Progress.Complete = true
	} else {
		info.Progress, info.Err = inplace.Progress(pod, p.in.Now)
		p.watchRelabelled(info)
	}
	p.findStale(info)
	info.New = revision.SameLabel(info.Label, p.out.UpdateRevision) && len(info.StaleImages)+len(info.StaleResources) == 0 &&
		info.Err == nil
	p.Members = append(p.Members, info)
}

// watchRelabelled keeps a pod whose labels changed from counting as available for minReadySeconds: only then
// does the rollout go on to the next one. Nothing else would tell that the pod does not serve with its new
// labels.
func (p *Planner) watchRelabelled(info *Pod) {
	until := info.Progress.Relabelled.Add(time.Duration(p.Workload.MinReadySeconds) * time.Second)
	if info.Progress.Relabelled.IsZero() || !info.Progress.Complete || !p.in.Now.Before(until) {
		return
	}
	info.Progress.Complete, info.WatchedUntil = false, until
	info.Progress.Waiting = fmt.Sprintf("its labels changed; it counts as available from %s on (minReadySeconds %d)",
		until.UTC().Format(time.RFC3339), p.Workload.MinReadySeconds)
}

// inService tells whether the last update of the pod was found complete, or there was none: then its record
// need not be read, which is most of the work at rest.
func inService(info *Pod) bool {
	pod := info.Pod
	held := readiness.Condition(pod, pub.InPlaceUpdateReady)
	return info.State == pub.LifecycleStateNormal && (held == nil || held.Status == corev1.ConditionTrue) && !inplace.InGrace(pod)
}

// findStale finds containers of the pod that have, instead of what the revision says that the pod carries,
// the image or a quantity of another stored one: somebody changed the label, a grace annotation was lost, or
// a manager died between a resize and the record of it. What no revision knows, and an image that comes back
// after it was mended, is the business of whoever wrote it, and told (IPU-326).
func (p *Planner) findStale(info *Pod) {
	carried := p.Find(info.Label)
	if carried == nil || info.Progress.InGrace || info.Progress.Remaining {
		return
	}
	// Under ReCreate a webhook that gives new pods another revision's content would have them replaced for
	// ever.
	mends := p.Workload.Policy != ReCreate
	var images, resources sets.Set[string]
	mended := func(container string) (image, quantities bool) {
		if images == nil { // once for all containers: users can make the record long, and the containers many
			images, resources = inplace.Mended(info.Pod, carried.Name)
		}
		return images.Has(container), resources.Has(container)
	}
	for i := range info.Pod.Spec.Containers {
		container := &info.Pod.Spec.Containers[i]
		want, ok := p.read(carried.object).containers[container.Name]
		if !ok {
			continue
		}
		others := func(same func(other *corev1.Container) bool) bool {
			return slices.ContainsFunc(p.revisions, func(r Revision) bool {
				other, ok := p.read(r.object).containers[container.Name]
				return ok && same(other)
			})
		}
		missing := inplace.Lacking(want.Resources, container.Resources)
		lacks := len(missing.Limits)+len(missing.Requests) > 0
		if want.Image == container.Image && !lacks {
			continue
		}
		imageMended, resourcesMended := mended(container.Name)
		switch {
		case want.Image == container.Image:
		case mends && !imageMended && others(func(other *corev1.Container) bool { return other.Image == container.Image }):
			if info.StaleImages == nil {
				info.StaleImages = map[string]string{}
			}
			info.StaleImages[container.Name] = want.Image
		case info.Err == nil:
			p.out.ForeignImages = append(p.out.ForeignImages,
				ForeignImage{info.Pod.UID, info.Pod.Name, container.Name, container.Image, want.Image})
		}
		if !mends || !p.Workload.InPlace.Resize || resourcesMended {
			continue
		}
		if lacks && others(func(other *corev1.Container) bool {
			return inplace.Explains(other.Resources, missing, container.Resources)
		}) {
			if info.StaleResources == nil {
				info.StaleResources = map[string]corev1.ResourceRequirements{}
			}
			info.StaleResources[container.Name] = want.Resources
		}
	}
}

// ForeignImage is an image in a pod that is not the one of the revision that the pod carries, and that this
// manager leaves alone: a user or a webhook wrote it (IPU-326).
type ForeignImage struct {
	// UID and Pod say which pod it is, Container and Image where it stands, Want is the image of the
	// revision.
	UID                         types.UID
	Pod, Container, Image, Want string
}

// Mends is the revision that a pod carries and stays at, if another one has left something in it; nil if not,
// or if it is not known (IPU-326).
func (p *Planner) Mends(info *Pod) *Revision {
	if len(info.StaleImages)+len(info.StaleResources) == 0 {
		return nil
	}
	return p.Find(info.Label)
}

// MendsInPlace is Mends, but nil if the pod would have to be made anew for it: the new one might be of the
// update revision.
func (p *Planner) MendsInPlace(info *Pod) *Revision {
	if own := p.Mends(info); own != nil && !p.modeOf(info, own).Recreate {
		return own
	}
	return nil
}

// MendInPlace gives a pod back what [Planner.MendsInPlace] found, as far as the budget goes. It is not made
// anew either where that is refused.
func (p *Planner) MendInPlace(info *Pod, own *Revision, b *Budget) *Verdict {
	p.MoveTo(info, own, false, b)
	v := p.Verdict(info.Pod)
	v.MayRecreate = false
	return v
}

// OutOfServiceToMend tells whether a pod that stays at an old revision is taken out of service to get back
// what another one has left in it (IPU-326).
func (p *Planner) OutOfServiceToMend(info *Pod) bool {
	own := p.Mends(info)
	if info.New || info.Preparing || info.Specified || own == nil || own == p.Update {
		return false
	}
	m := p.modeOf(info, own)
	return m.Change != nil && !p.Free(info, m)
}
