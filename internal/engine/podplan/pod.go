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

// Pod is an active pod with what the plan needs to know about it.
type Pod struct {
	rollout.Candidate
	// Label is the revision that the pod carries; State is its lifecycle state.
	Label string
	State pub.LifecycleStateType
	// New is true if the pod carries the update revision.
	New bool
	// Serving is true if the pod is ready and its lifecycle state lets it serve. It need not have been ready
	// for long enough to count as available.
	Serving bool
	// Preparing is true if the pod waits for its preDelete hook. Specified is true if it is specified for
	// deletion and does not prepare it yet.
	Preparing, Specified bool
	// Progress is that of its last update in place; Err is set if that cannot be read.
	Progress inplace.Status
	Err      error
	// WatchedUntil is the time until which a pod whose labels changed does not count as available; zero for
	// others.
	WatchedUntil time.Time
	// AvailableIn is how long the pod takes to become available by time alone; 0 if time does not help.
	AvailableIn time.Duration
	// Mode is how the pod reaches the update revision; set for old pods only.
	Mode Mode
	// StaleImages and StaleResources are by container, for those whose image or quantities are of another
	// revision than the one that the pod carries (IPU-326).
	StaleImages    map[string]string
	StaleResources map[string]corev1.ResourceRequirements
	// Stay is true if updating the pod would be of no use to the rollout any more, because others took its
	// place (CS-361).
	Stay bool
}

// Observe finds out what the plan needs to know about an active pod, and makes it one of the members.
// specified is true if somebody requested its deletion.
func (p *Planner) Observe(pod *corev1.Pod, specified bool) {
	if p.Members == nil { // one allocation for all pods
		p.Members, p.observed = make([]*Pod, 0, len(p.in.Pods)), make([]Pod, len(p.in.Pods))
	}

	info := &p.observed[len(p.Members)]
	*info = Pod{
		Candidate: rollout.Candidate{Pod: pod, Ready: readiness.Ready(pod)},
		Label:     pod.Labels[pub.ControllerRevisionHash],
		State:     lifecycle.State(pod),
	}

	info.Serving = info.Ready && readiness.Settled(pod)
	info.Available, info.AvailableIn = readiness.Available(pod, p.Workload.MinReadySeconds, p.in.Now)
	// Plan again at that time even if something else holds the pod, since others may wait for it to become
	// available.
	if info.AvailableIn > 0 {
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
	info.New = revision.SameLabel(info.Label, p.out.UpdateRevision) &&
		len(info.StaleImages)+len(info.StaleResources) == 0 && info.Err == nil
	p.Members = append(p.Members, info)
}

// watchRelabelled keeps a pod whose labels changed from counting as available for minReadySeconds, so that
// the rollout does not go on to the next pod before that. Nothing else would show that the pod does not work
// with its new labels.
func (p *Planner) watchRelabelled(info *Pod) {
	until := info.Progress.Relabelled.Add(time.Duration(p.Workload.MinReadySeconds) * time.Second)
	if info.Progress.Relabelled.IsZero() || !info.Progress.Complete || !p.in.Now.Before(until) {
		return
	}
	info.Progress.Complete, info.WatchedUntil = false, until
	info.Progress.Waiting = fmt.Sprintf("its labels changed; it counts as available from %s on (minReadySeconds %d)",
		until.UTC().Format(time.RFC3339), p.Workload.MinReadySeconds)
}

// inService reports whether the last update of the pod is known to be complete, or there was none. Its record
// need not be read then, which is most of the work at rest.
func inService(info *Pod) bool {
	pod := info.Pod
	held := readiness.Condition(pod, pub.InPlaceUpdateReady)
	return info.State == pub.LifecycleStateNormal && (held == nil || held.Status == corev1.ConditionTrue) &&
		!inplace.InGrace(pod)
}

// findStale finds containers of the pod that have the image or a quantity of another stored revision than the
// one that the pod carries: somebody changed the label, a grace annotation was lost, or a manager died
// between a resize and its record. Content that no revision contains, and an image that comes back after it
// was repaired, is left to whoever wrote it, and reported.
func (p *Planner) findStale(info *Pod) {
	carried := p.Find(info.Label)
	if carried == nil || info.Progress.InGrace || info.Progress.Remaining {
		return
	}

	// Under ReCreate, a webhook that gives new pods the content of another revision would cause them to be
	// replaced forever.
	mends := p.Workload.Policy != ReCreate

	var images, resources sets.Set[string]
	mended := func(container string) (image, quantities bool) {
		// Read the record once for all containers: users can make it long, and there may be many containers.
		if images == nil {
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
		case mends && !imageMended &&
			others(func(other *corev1.Container) bool { return other.Image == container.Image }):
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

// ForeignImage is an image in a pod that is not the one of the pod's revision and that this manager leaves
// alone, because a user or a webhook wrote it (IPU-326).
type ForeignImage struct {
	// UID and Pod identify the pod. Container has the image Image; Want is the image of the revision.
	UID                         types.UID
	Pod, Container, Image, Want string
}

// Mends returns the revision of a pod if content of another one is left in the pod, so that it is to be moved
// to its own revision again; nil if there is nothing to repair, or if the revision is not known (IPU-326).
func (p *Planner) Mends(info *Pod) *Revision {
	if len(info.StaleImages)+len(info.StaleResources) == 0 {
		return nil
	}
	return p.Find(info.Label)
}

// MendsInPlace is [Planner.Mends], but returns nil if the pod would have to be recreated for it: the new pod
// might be of the update revision.
func (p *Planner) MendsInPlace(info *Pod) *Revision {
	if own := p.Mends(info); own != nil && !p.modeOf(info, own).Recreate {
		return own
	}
	return nil
}

// MendInPlace restores what [Planner.MendsInPlace] found, as far as the budget allows. The pod is not
// recreated either if the API server refuses the update.
func (p *Planner) MendInPlace(info *Pod, own *Revision, b *Budget) *Verdict {
	p.MoveTo(info, own, false, b)
	v := p.Verdict(info.Pod)
	v.MayRecreate = false
	return v
}

// OutOfServiceToMend reports whether a pod that stays at an old revision has to be taken out of service to
// restore the content that another revision has left in it (IPU-326).
func (p *Planner) OutOfServiceToMend(info *Pod) bool {
	own := p.Mends(info)
	if info.New || info.Preparing || info.Specified || own == nil || own == p.Update {
		return false
	}
	m := p.modeOf(info, own)
	return m.Change != nil && !p.Free(info, m)
}
