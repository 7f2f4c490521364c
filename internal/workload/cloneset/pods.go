package cloneset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// podInfo is an active pod with what the plan needs to know of it.
type podInfo struct {
	rollout.Candidate
	// Label is the revision that the pod carries; State is that of its lifecycle.
	Label string
	State pub.LifecycleStateType
	// New: the pod carries the update revision.
	New bool
	// Serving: it is ready and its lifecycle state lets it serve, whether or not it has been ready for long enough to count as available.
	Serving bool
	// Preparing: it waits for its preDelete hook (pd). Specified: it is specified for deletion and not preparing it yet (sd).
	Preparing, Specified bool
	// Progress of its last in-place update; Err if that cannot be read.
	Progress inplace.Status
	Err      error
	// WatchedUntil is until when a pod whose labels changed does not count as available; zero for others.
	WatchedUntil time.Time
	// AvailableIn is how long it takes to become available by time alone; 0 if time does not help.
	AvailableIn time.Duration
	// Mode is how it reaches the update revision; set for old pods only.
	Mode mode
	// StaleImages and StaleResources name containers that have the image, or the quantities, of another revision than the one that
	// the pod carries (IPU-326).
	StaleImages    map[string]string
	StaleResources map[string]corev1.ResourceRequirements
	// Stay: it is of no use to the rollout any more, because others took its place (CS-361).
	Stay bool
}

// mode is how a pod can reach another revision.
type mode struct {
	recreate bool
	change   *inplace.Change
	// daemon: the change needs a node daemon.
	daemon bool
	// words say what changes.
	words string
	// refusal is why neither is allowed; empty if one is.
	refusal string
	// why says why it is recreated.
	why string
	// unstored is the revision that the pod carries and that is not in the cache, which may be why it is recreated.
	unstored string
}

func (p *planner) classify() {
	var failed []*corev1.Pod
	p.pods = make([]*podInfo, 0, len(p.Pods))
	infos := make([]podInfo, len(p.Pods))
	for i, pod := range p.Pods {
		if !Active(pod) {
			p.decide(pod, Keep, ReasonInactive, "it is %s", inactivity(pod))
			switch {
			case pod.DeletionTimestamp != nil:
			case p.needsClaims(pod):
				p.decide(pod, Delete, ReasonFailedPods, "it is %s, and its successor needs its claims", inactivity(pod))
			case pod.Status.Phase == corev1.PodFailed:
				failed = append(failed, pod)
			}
			continue
		}
		if v := p.verdicts[pod]; v != nil {
			continue
		}
		info := &infos[i]
		*info = podInfo{Candidate: rollout.Candidate{Pod: pod, Ready: readiness.Ready(pod)}, Label: pod.Labels[pub.ControllerRevisionHash], State: lifecycle.State(pod)}
		info.Serving = info.Ready && readiness.Settled(pod)
		info.Available, info.AvailableIn = readiness.Available(pod, p.Set.Spec.MinReadySeconds, p.Now)
		if info.AvailableIn > 0 { // whatever holds the pod, others may wait for it to count
			p.lookAgain(p.Now.Add(info.AvailableIn))
		}
		info.Preparing = info.State == pub.LifecycleStatePreparingDelete
		info.Specified = !info.Preparing && p.specified(pod)
		if inService(info) {
			info.Progress.Complete = true
		} else {
			info.Progress, info.Err = inplace.Progress(pod, p.Now)
			p.watchRelabelled(info)
		}
		p.findStale(info)
		info.New = revision.SameLabel(info.Label, p.UpdateRevision) &&
			len(info.StaleImages)+len(info.StaleResources) == 0 && info.Err == nil
		p.pods = append(p.pods, info)
	}
	p.forgetFailed(failed)
}

// watchRelabelled keeps a pod whose labels changed from counting as available for minReadySeconds: only then does the rollout go on to the
// next one. Nothing else would tell that the pod does not serve with its new labels.
func (p *planner) watchRelabelled(info *podInfo) {
	until := info.Progress.Relabelled.Add(time.Duration(p.Set.Spec.MinReadySeconds) * time.Second)
	if info.Progress.Relabelled.IsZero() || !info.Progress.Complete || !p.Now.Before(until) {
		return
	}
	info.Progress.Complete, info.WatchedUntil = false, until
	info.Progress.Waiting = fmt.Sprintf("its labels changed; it counts as available from %s on (minReadySeconds %d)", until.UTC().Format(time.RFC3339), p.Set.Spec.MinReadySeconds)
}

// inService tells whether the last update of the pod was found complete, or there was none: then its record need not be read, which
// is most of the work at rest.
func inService(info *podInfo) bool {
	pod := info.Pod
	held := readiness.Condition(pod, pub.InPlaceUpdateReady)
	return info.State == pub.LifecycleStateNormal && (held == nil || held.Status == corev1.ConditionTrue) && !inplace.InGrace(pod)
}

// keptFailed is how many failed pods of a set are kept for inspection.
const keptFailed = 3

// forgetFailed deletes failed pods, of which evictions may leave many, but for the newest (CS-354).
func (p *planner) forgetFailed(failed []*corev1.Pod) {
	if len(failed) <= keptFailed || p.Set.DeletionTimestamp != nil {
		return
	}
	slices.SortStableFunc(failed, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for _, pod := range failed[keptFailed:] {
		p.decide(pod, Delete, ReasonFailedPods, "it has failed; the newest %d failed pods are kept", keptFailed)
	}
}

// findStale finds containers of the pod that have, instead of what the revision says that the pod carries, the image or a quantity of
// another stored one: somebody changed the label, a grace annotation was lost, or a manager died between a resize and the record of
// it. What no revision knows, and an image that comes back after it was mended, is the business of whoever wrote it, and told (IPU-326).
func (p *planner) findStale(info *podInfo) {
	carried := p.find(info.Label)
	if carried == nil || info.Progress.InGrace || info.Progress.Remaining {
		return
	}
	// Under ReCreate a webhook that gives new pods another revision's content would have them replaced for ever.
	mends := p.policy() != appsv1beta1.ReCreateCloneSetPodUpdatePolicy
	for i := range info.Pod.Spec.Containers {
		container := &info.Pod.Spec.Containers[i]
		want, ok := carried.containers[container.Name]
		if !ok {
			continue
		}
		others := func(same func(other *corev1.Container) bool) bool {
			return slices.ContainsFunc(p.revisions, func(r revisionInfo) bool {
				other, ok := r.containers[container.Name]
				return ok && same(other)
			})
		}
		imageMended, resourcesMended := inplace.Mended(info.Pod, carried.name, container.Name)
		switch {
		case want.Image == container.Image:
		case mends && !imageMended && others(func(other *corev1.Container) bool { return other.Image == container.Image }):
			if info.StaleImages == nil {
				info.StaleImages = map[string]string{}
			}
			info.StaleImages[container.Name] = want.Image
		case info.Err == nil:
			p.ForeignImages = append(p.ForeignImages, ForeignImage{info.Pod.UID, info.Pod.Name, container.Name, container.Image, want.Image})
		}
		if !mends || !p.Features.InPlace.Resize || resourcesMended {
			continue
		}
		missing := inplace.Lacking(want.Resources, container.Resources)
		if len(missing.Limits)+len(missing.Requests) > 0 && others(func(other *corev1.Container) bool {
			return inplace.Explains(other.Resources, missing, container.Resources)
		}) {
			if info.StaleResources == nil {
				info.StaleResources = map[string]corev1.ResourceRequirements{}
			}
			info.StaleResources[container.Name] = want.Resources
		}
	}
}

func inactivity(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "terminating"
	}
	return string(pod.Status.Phase)
}

// census counts the pods, for scaling or for updating: only scaling counts a pod that prepares its update as new (CS-115, CS-361).
func (p *planner) census(scaling bool) rollout.Census {
	census := rollout.Census{
		OneRevision:            p.CurrentRevision == p.UpdateRevision,
		Rollback:               p.Features.PartitionRollback,
		ExcludePreparingDelete: p.Features.ExcludePreparingDelete || p.Set.Spec.ScaleStrategy.ExcludePreparingDelete,
	}
	for _, info := range p.pods {
		group := &census.Old
		if info.New || scaling && p.countsAsNew(info) {
			group = &census.New
		} else if info.Mode.recreate {
			census.Recreate++
		} else if info.Mode.change != nil && !info.Preparing && !info.Specified && (!p.free(info, info.Mode) || info.State == pub.LifecycleStatePreparingUpdate) {
			census.InPlace++
		}
		count(&census.Stale, p.outOfServiceToMend(info))
		group.Total++
		switch {
		case info.Preparing:
			group.PreparingDelete++
		case info.Specified:
			group.Specified++
		case !info.Available:
			group.Unavailable++
		}
	}
	return census
}

// outOfServiceToMend tells whether a pod that stays at an old revision is taken out of service to get back what another one has left in it (IPU-326).
func (p *planner) outOfServiceToMend(info *podInfo) bool {
	if info.New || info.Preparing || info.Specified || len(info.StaleImages)+len(info.StaleResources) == 0 {
		return false
	}
	own := p.find(info.Label)
	if own == nil || own == p.update {
		return false
	}
	m := p.modeOf(info, own)
	return m.change != nil && !p.free(info, m)
}

// countsAsNew tells whether scaling takes the pod for one of the update revision: one that prepares its update is about to be (CS-115).
func (p *planner) countsAsNew(info *podInfo) bool {
	return info.New || p.Features.PreparingUpdateAsUpdate && info.State == pub.LifecycleStatePreparingUpdate
}

// specified tells whether somebody asked for the deletion of the pod (CS-130).
func (p *planner) specified(pod *corev1.Pod) bool {
	_, labelled := pod.Labels[pub.SpecifiedDelete]
	return labelled || p.toDelete[pod.Name]
}

// spare is how many available pods may be taken away: those above replicas - maxUnavailable.
func (p *planner) spare() int {
	available := 0
	for _, info := range p.pods {
		if info.Available {
			available++
		}
	}
	return available - (p.Limits.Replicas - p.Limits.MaxUnavailable)
}

// decideModes finds out for every old pod whether it can reach the update revision in place, before anything is counted (CS-102,
// CS-127).
func (p *planner) decideModes() {
	for _, info := range p.pods {
		if !info.New {
			info.Mode = p.modeOf(info, p.update)
		}
	}
}

type modeKey struct{ label, target string }

// modeOf is how the pod can reach the target. Between two revisions the answer is always the same, and is found once (IPU-031); what a
// pod adds to it is that it needs a node daemon and has none (IPU-312), and what its present content lacks (IPU-305, IPU-326).
func (p *planner) modeOf(info *podInfo, target *revisionInfo) mode {
	key := modeKey{info.Label, target.name}
	m, ok := p.modes[key]
	if !ok {
		m = p.modeFrom(key.label, target)
		p.modes[key] = m
	}
	if info.Err != nil && m.recreate && revision.SameLabel(key.label, target.name) {
		m = mode{change: &inplace.Change{}, words: "its record"} // nothing but the record of its update is to be mended
	}
	if m.change == nil {
		return m
	}
	if m.daemon {
		if names := m.change.Unrestartable(info.Pod, p.Now); len(names) > 0 {
			return p.impossible(fmt.Sprintf("its node has no node daemon, which would have to restart %s", strings.Join(names, ", ")))
		}
	}
	if len(info.StaleImages)+len(info.StaleResources) == 0 {
		return m
	}
	images, resources := map[string]string{}, map[string]corev1.ResourceRequirements{}
	for name := range info.StaleImages {
		if container, ok := target.containers[name]; ok {
			images[name] = container.Image
		}
	}
	for name := range info.StaleResources {
		if container, ok := target.containers[name]; ok {
			resources[name] = container.Resources
		}
	}
	if len(images)+len(resources) > 0 {
		m.change = m.change.With(images, resources)
		m.words = m.change.String()
	}
	return m
}

func (p *planner) modeFrom(label string, target *revisionInfo) mode {
	policy := p.policy()
	if policy == appsv1beta1.ReCreateCloneSetPodUpdatePolicy {
		return mode{recreate: true, why: "the policy is ReCreate"}
	}
	change, refusal := p.compare(label, target, policy)
	if refusal != "" {
		m := p.impossible(refusal)
		if p.find(label) == nil && !slices.ContainsFunc(p.Revisions, func(r *appsv1.ControllerRevision) bool { return revision.SameLabel(r.Name, label) }) {
			m.unstored = label
		}
		return m
	}
	return mode{change: change, daemon: len(change.NeedsDaemon()) > 0, words: change.String()}
}

// impossible is the mode of a pod that cannot be updated in place.
func (p *planner) impossible(why string) mode {
	if p.policy() == appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy {
		return mode{refusal: why}
	}
	return mode{recreate: true, why: why}
}

// compare returns the change from the revision named by the label to the target, or why it cannot be applied in place.
func (p *planner) compare(label string, target *revisionInfo, policy appsv1beta1.CloneSetPodUpdatePolicy) (*inplace.Change, string) {
	from := p.find(label)
	if from == nil {
		return nil, fmt.Sprintf("its ControllerRevision %q has been deleted, so nobody knows what would change", label) // IPU-030
	}
	if p.Features.RecreateOnClaimChange && policy != appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy &&
		from.hasFingerprint && target.hasFingerprint && from.fingerprint != target.fingerprint { // IPU-046, IPU-048
		return nil, "spec.volumeClaimTemplates changed since its revision"
	}
	if !revision.SameBeside(from.object.Data.Raw, target.object.Data.Raw) {
		return nil, fmt.Sprintf("ControllerRevisions %s and %s differ in more than spec.template", from.name, target.name) // IPU-041
	}
	change, blockers, err := inplace.Compare(from.template, target.template, p.Features.InPlace)
	if err != nil {
		return nil, err.Error()
	}
	if len(blockers) > 0 {
		return nil, blockers[0].String()
	}
	return change, ""
}
