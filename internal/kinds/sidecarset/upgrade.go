package sidecarset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// ErrStalePlan means that the decision no longer fits the pod.
var ErrStalePlan = errors.New("the pod changed meanwhile")

var (
	isTrue  = true
	isFalse = false
)

// verdict records the decision about a pod.
func (p *planner) verdict(
	info *podInfo, action Action, reason Reason, format string, args ...any,
) *PodVerdict {
	v := &PodVerdict{Pod: info.Pod, Action: action, Reason: reason, Message: fmt.Sprintf(format, args...)}
	p.out.Verdicts = append(p.out.Verdicts, v)
	return v
}

// decide gives every matched pod a verdict.
func (p *planner) decide() {
	strategy := &p.in.Set.Spec.UpdateStrategy
	halt, halted := Reason(""), ""
	switch {
	case p.hash == "" || p.hashWithoutImage == "":
		halt, halted =
			ReasonNoHash, "the SidecarSet has no hash: it has not passed the webhook; write it again"
	case strategy.Type == appsv1beta1.NotUpdateSidecarSetStrategyType:
		halt, halted = ReasonNotUpdate, "spec.updateStrategy.type is NotUpdate"
	case strategy.Paused:
		halt, halted = ReasonPaused, "spec.updateStrategy.paused"
	}

	resetting := 0
	var outdated, underway []*podInfo
	for _, pod := range p.matched {
		if halt == "" && pod.unreadable == nil && p.reset(pod) {
			// A pod that cannot be reset must not keep the others waiting every time.
			if !p.refused(pod.Pod) {
				resetting++
			}
			if !pod.updated {
				underway = append(underway, pod)
			}
			continue
		}
		switch {
		case pod.unreadable != nil:
			p.verdict(pod, Wait, ReasonUnreadable, "%v", pod.unreadable)
		case pod.updated:
			p.current(pod)
		case halt != "":
			p.verdict(pod, Wait, halt, "%s", halted)
		default:
			outdated = append(outdated, pod)
		}
	}

	if len(outdated) == 0 {
		return
	}

	limits, err := p.limits()
	if err != nil {
		p.say("nothing is upgraded: %v", err)
		for _, pod := range outdated {
			p.verdict(pod, Wait, ReasonPartition, "%v", err)
		}
		return
	}

	limits.count(underway)
	p.upgrade(outdated, limits, resetting)
}

// current gives a verdict to a pod that has the latest hash.
func (p *planner) current(pod *podInfo) {
	var v *PodVerdict
	switch {
	case pod.behind != "":
		v = p.verdict(pod, Wait, ReasonUpgrading, "%s", pod.behind)
	case !pod.ready && p.hotWaits[pod] != "":
		v = p.verdict(pod, Wait, ReasonNotReady, "%s", p.hotWaits[pod])
	case !pod.ready:
		v = p.verdict(pod, Wait, ReasonNotReady, "%s", pod.notReady)
	default:
		v = p.verdict(pod, Keep, ReasonUpdated, "it is at %s", p.out.Status.LatestRevision)
	}

	entries := UpgradableOf(pod.Pod)
	entry, listed := entries[p.in.Set.Name]
	states, err := ReadStates(pod.Pod.Annotations[pub.SidecarSetInPlaceUpdateState])
	// The manager may have died before it wrote the condition.
	upgraded := err == nil && states[p.in.Set.Name].Revision == p.hash
	if listed && !entry || !listed && upgraded {
		v.Upgradable = &isTrue
	}
	if problem := p.infeasible(pod.Pod); problem != "" && listed && entry {
		v.Upgradable, v.Reason, v.Message = &isFalse, ReasonResizeInfeasible, problem
	} else if problem != "" && listed {
		v.Upgradable, v.Reason, v.Message = nil, ReasonResizeInfeasible, problem
	}
}

// reset plans the end of hot upgrades that are complete. It reports whether it plans one for the pod.
func (p *planner) reset(pod *podInfo) bool {
	if mainFinished(pod.Pod) { // its sidecars end next
		return false
	}

	changes, waiting := p.resets(pod)
	if len(changes) > 0 {
		if waiting = p.heldBack(pod.Pod.UID); waiting == "" {
			waiting = p.heldByBudget(pod.Pod, policyv1beta1.Update)
		}
	}
	if len(changes) == 0 || waiting != "" {
		if waiting != "" {
			p.hotWaits[pod] = waiting
		}
		return false
	}

	p.resetVerdict(pod, changes, func(now *podInfo) []*hotChange {
		again, _ := p.resets(now)
		return again
	})
	return true
}

// resetVerdict gives the empty image to halves that stand by. again returns the changes for a later version
// of the pod.
func (p *planner) resetVerdict(pod *podInfo, changes []*hotChange, again func(*podInfo) []*hotChange) {
	names := make([]string, len(changes))
	for i, c := range changes {
		names[i] = c.container
	}

	v := p.verdict(pod, Reset, ReasonStandby, "%s works: %s gets the empty image",
		strings.Join(workingOf(p.in.Set, pod.working), ", "), strings.Join(names, ", "))
	v.By = policyv1beta1.Update
	v.Change = func(now *corev1.Pod, at time.Time) ([]*podpatch.Patch, error) {
		fresh := p.examine(now)
		if !readiness.Active(now) || !fresh.matched || mainFinished(now) {
			return nil, ErrStalePlan
		}
		changes := again(fresh)
		if len(changes) == 0 {
			return nil, ErrStalePlan
		}
		patch := &podpatch.Patch{}
		return []*podpatch.Patch{patch}, p.images(patch, now, nil, changes,
			pub.SidecarSetState{Revision: fresh.record.Hash, Resizing: fresh.resizing}, at)
	}
}

func workingOf(set *appsv1beta1.SidecarSet, working WorkingContainers) []string {
	var names []string
	for i := range set.Spec.Containers {
		if c := &set.Spec.Containers[i]; IsHot(c) {
			names = append(names, working[c.Name])
		}
	}
	return names
}

// upgrade chooses among the pods that are not updated.
func (p *planner) upgrade(outdated []*podInfo, l limits, resetting int) {
	var candidates, underway []*podInfo
	blocked := map[string]int{}
	for _, pod := range outdated {
		waits := func(reason Reason, message string) { p.verdict(pod, Wait, reason, "%s", message) }
		overtaken := p.overtaken(pod.Pod, pod.working)
		switch {
		case !p.update.Matches(labels.Set(pod.Pod.Labels)):
			waits(ReasonNotSelected, "spec.updateStrategy.selector does not match its labels")
		case mainFinished(pod.Pod):
			waits(ReasonFinished, "its application has finished: its sidecars end next")
		case !p.upgradable(pod, blocked):
			// upgradable has given the verdict
		case pod.busy != "":
			waits(ReasonUpgrading, "an earlier upgrade is under way: "+pod.busy)
			underway = append(underway, pod)
		case p.heldBack(pod.Pod.UID) != "":
			waits(ReasonRefused, p.heldBack(pod.Pod.UID))
			underway = append(underway, pod)
		case len(overtaken) > 0:
			if refusal := p.heldByBudget(pod.Pod, policyv1beta1.Update); refusal != "" {
				waits(ReasonBudget, refusal)
			} else {
				p.resetVerdict(pod, overtaken,
					func(now *podInfo) []*hotChange { return p.overtaken(now.Pod, now.working) })
			}
			underway = append(underway, pod)
		default:
			if len(p.in.Set.Spec.PatchPodMetadata) > 0 {
				if _, err := PatchMetadata(pod.Pod.Annotations, p.in.Set.Spec.PatchPodMetadata); err != nil {
					waits(ReasonMetadata, err.Error())
					continue
				}
			}
			candidates = append(candidates, pod)
		}
	}

	p.out.Differences = differences(blocked)
	if resetting > 0 {
		for _, pod := range candidates {
			p.verdict(pod, Wait, ReasonResetFirst, "%s first",
				wording.Count(resetting, "hot upgrade")+wording.Form(resetting, " ends", " end"))
		}
		return
	}

	l.count(underway)
	p.walk(candidates, l, len(outdated))
}

// walk upgrades candidates in order, as far as partition and maxUnavailable allow.
func (p *planner) walk(candidates []*podInfo, l limits, outdated int) {
	candidates = p.inOrder(candidates)
	// Pods that an upgrade has left down cost nothing, and partition must not keep them down.
	slices.SortStableFunc(candidates, func(a, b *podInfo) int {
		switch down := a.down(); {
		case down == b.down():
			return 0
		case down:
			return -1
		}
		return 1
	})

	serving := slices.IndexFunc(candidates, func(pod *podInfo) bool { return !pod.down() })
	if serving < 0 {
		serving = len(candidates)
	}
	kept := min(l.partition, len(candidates)-serving)
	// Refused pods must not keep the others waiting.
	slices.SortStableFunc(candidates[:len(candidates)-kept], func(a, b *podInfo) int {
		switch later := a.ready && p.refused(a.Pod); {
		case later == (b.ready && p.refused(b.Pod)):
			return 0
		case later:
			return 1
		}
		return -1
	})

	l.count(candidates)
	used := l.used
	p.say("%d outdated, %d of them can be upgraded now; partition %d, maxUnavailable %d, %d of them used",
		outdated, len(candidates), l.partition, l.maxUnavailable, l.used)

	chosen, ended := 0, false
	for i, pod := range candidates {
		held := func() bool { // budgets of some pods must not hold back others
			refusal := p.heldByBudget(pod.Pod, p.operation(pod))
			if refusal != "" {
				p.verdict(pod, Wait, ReasonBudget, "%s", refusal)
			}
			return refusal != ""
		}
		switch {
		case i >= len(candidates)-kept:
			p.verdict(pod, Wait, ReasonPartition, "partition keeps %d of %d candidates as they are", kept,
				len(candidates))
		case pod.down(): // it counts already, and nothing else brings it back
			if held() {
				continue
			}
			chosen++
			p.upgradeVerdict(pod, "a former upgrade has left it unavailable")
		// The same holds here, but the pod is in service until its containers restart.
		case pod.underway && l.down < l.maxUnavailable:
			if held() {
				continue
			}
			l.down++
			chosen++
			p.upgradeVerdict(pod, fmt.Sprintf(
				"it waits for the resources of a former upgrade; with it %s out of service, maxUnavailable is %d",
				wording.Count(l.down, "pod"), l.maxUnavailable))
		case ended || pod.ready && l.used >= l.maxUnavailable:
			ended = true
			p.verdict(pod, Wait, ReasonMaxUnavailable, "%s", &l)
		default:
			if held() {
				continue
			}
			how := "it is not ready anyway"
			if pod.ready {
				l.used++
				l.down++
				how = fmt.Sprintf("with it %s unavailable, maxUnavailable is %d", wording.Count(l.used, "pod"),
					l.maxUnavailable)
			}
			chosen++
			p.upgradeVerdict(pod, how)
		}
	}

	switch {
	case chosen > 0 || len(candidates) == 0 || used > 0:
	case kept == len(candidates):
		p.out.HeldBackReason = ReasonPartition
		p.out.HeldBack = fmt.Sprintf(
			"partition %d alone holds back %s that could be upgraded; pods that wait or cannot be upgraded do not count for it (%d outdated in all)",
			l.partition, wording.Count(len(candidates), "pod"), outdated)
	case l.maxUnavailable == 0:
		p.out.HeldBackReason = ReasonMaxUnavailable
		p.out.HeldBack = fmt.Sprintf("maxUnavailable 0 alone holds back %s that could be upgraded",
			wording.Count(len(candidates)-kept, "ready pod"))
	}
}

func (p *planner) upgradeVerdict(pod *podInfo, how string) {
	v := p.verdict(pod, Upgrade, ReasonOutdated, "to %s: %s; %s", p.out.Status.LatestRevision,
		p.changeWords(pod.Pod), how)
	v.Upgradable, v.Change, v.By = &isTrue, p.change(pod), p.operation(pod)
}

// changeWords describes what an upgrade changes.
func (p *planner) changeWords(pod *corev1.Pod) string {
	images, hot := p.wanted(pod)
	for _, change := range hot {
		images[change.container] = change.image
	}

	words := ""
	for _, name := range slices.Sorted(maps.Keys(images)) {
		words += fmt.Sprintf("%s from %s to %s, ", name, ImageOf(pod, name), images[name])
	}

	if resize := p.resize(pod); !resize.Empty() {
		words += resize.String() + ", "
	}
	if words == "" {
		return "no image differs"
	}

	return words[:len(words)-2]
}

func podReady(pod *corev1.Pod) bool {
	ready := readiness.Condition(pod, corev1.PodReady)
	return pod.Status.Phase == corev1.PodRunning && ready != nil && ready.Status == corev1.ConditionTrue
}
