package daemonset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

func join(names []string) string { return strings.Join(names, ", ") }

// placement creates missing pods, and deletes pods that are too many, have failed, or may not stay. It
// ignores partition, selector and paused, except where partition controls creation.
func (p *planner) placement() {
	var needs []*site
	for _, l := range p.sites {
		switch {
		case l.node == nil:
			p.vanished(l)
		case !l.Tolerable:
			for _, d := range l.pods {
				if d.pod.DeletionTimestamp == nil {
					p.deletePod(d.pod, ReasonNode, "it may not stay on node "+l.name+": "+l.Why)
				}
			}
		case l.Eligible && len(l.pods) == 0:
			needs = append(needs, l)
		case p.tolerate(l) && l.Eligible && p.surges() && l.present() < 2:
			needs = append(needs, l) // beside pods that are being deleted or prepare for it
		}
	}

	if p.partitioned {
		slices.SortStableFunc(needs, func(a, b *site) int {
			return cmp.Or(p.byFailure(a, b), cmp.Compare(p.rankOf(a), p.rankOf(b)))
		})
		if most := p.partitionAllows(needs); len(needs) > most {
			p.core.Say("%s without a pod: partition %d keeps them so", wording.Count(len(needs)-most, "node"),
				p.out.Limits.Partition)
			needs = needs[:most]
		}
	}

	for _, l := range needs {
		l.create = true
	}
}

// byFailure sorts nodes for which creation failed after the others.
func (p *planner) byFailure(a, b *site) int {
	return p.in.FailedNodes[a.name].Compare(p.in.FailedNodes[b.name])
}

// vanished handles pods whose node does not exist. Scheduled pods are deleted by Kubernetes' pod garbage
// collector once it is sure that the node is gone.
func (p *planner) vanished(l *site) {
	for _, d := range l.pods {
		switch {
		case d.pod.DeletionTimestamp != nil:
		case d.pod.Spec.NodeName == "":
			p.deletePod(d.pod, ReasonNode, "node "+l.name+", for which it is meant, does not exist")
		case p.core.Verdict(d.pod) == nil:
			p.core.Decide(d.pod, podplan.Wait, ReasonNode,
				"node %s does not exist: the pod is cleaned up with it", l.name)
		}
	}
}

// tolerate decides about the pods of a node that may keep them. It reports whether no pod runs on the node
// and none has to be deleted first.
func (p *planner) tolerate(l *site) (empty bool) {
	var running []*daemon
	ended, adopted := false, false
	for _, d := range l.pods {
		switch {
		case d.pod.DeletionTimestamp != nil:
		case d.ended():
			p.failed(l, d)
			ended = true
		case p.adopts(d): // until it is, it takes nobody's place: the caches may be older than its end
			adopted = true
		case d.info.Preparing:
			p.deletePod(d.pod, podplan.ReasonLifecycleHook, "it prepared its deletion")
		default:
			running = append(running, d)
		}
	}

	switch {
	case len(running) == 0:
		return !ended && !adopted
	case !p.surges():
		p.keepOne(l, running)
	case len(running) > 1:
		p.clean(l, running)
	}

	return false
}

// clean leaves a node with a surge one new pod and one old pod, and deletes the old one as soon as the new
// one may take over.
func (p *planner) clean(l *site, running []*daemon) {
	var news, olds []*daemon
	for _, d := range running {
		if d.new {
			news = append(news, d)
		} else {
			olds = append(olds, d)
		}
	}

	now, old := p.keepOne(l, news), p.keepOne(l, olds)
	switch {
	case now == nil || old == nil:
	case !old.info.Ready:
		p.deletePod(old.pod, podplan.ReasonOutdated,
			"it is not ready, and pod "+now.pod.Name+" of the update revision takes its place")
	case now.available() && !now.info.Specified: // otherwise the node would lose both
		p.deletePod(old.pod, podplan.ReasonOutdated,
			"pod "+now.pod.Name+" of the update revision is available")
	}
}

// keepOne deletes all pods in the list but one, and returns that one: the first that is available, or else
// the first. It returns nil if the list is empty.
func (p *planner) keepOne(l *site, of []*daemon) (kept *daemon) {
	if len(of) == 0 {
		return nil
	}
	kept = of[max(slices.IndexFunc(of, (*daemon).available), 0)]
	for _, d := range of {
		if d != kept {
			p.deletePod(d.pod, ReasonExcess, "pod "+kept.pod.Name+" has its place on node "+l.name)
		}
	}
	return kept
}

// failed deletes a pod that ended on its node, unless a pod ended there a moment ago.
func (p *planner) failed(l *site, d *daemon) {
	if v := p.core.Verdict(d.pod); v != nil { // it is adopted first
		return
	}

	why := "it ended with phase " + string(d.pod.Status.Phase)
	if d.pod.Status.Reason != "" {
		why += " (" + d.pod.Status.Reason + ")"
	}
	if until := p.in.FailedUntil[l.name]; p.in.Now.Before(until) {
		p.core.Decide(d.pod, podplan.Wait, podplan.ReasonFailed,
			"%s; it stays until %s, because others failed on node %s before", why,
			until.UTC().Format(time.RFC3339), l.name).Until = until
		return
	}
	if v := p.deletePod(d.pod, podplan.ReasonFailed, why); v.Action == podplan.Delete {
		p.out.Failures = append(p.out.Failures, Failure{l.name, d.pod})
	}
}

// rankOf ranks nodes without a pod. A node that just lost its pod gets a new one before other nodes get their
// first.
func (p *planner) rankOf(l *site) int {
	if p.in.Had[l.name] || len(l.pods) > 0 {
		return 0
	}
	return 1
}

// partitionAllows returns on how many of the nodes in needs a pod may be created now. A node whose pod is
// going away keeps its place.
func (p *planner) partitionAllows(needs []*site) int {
	taken := 0
	for _, l := range p.sites {
		now, old := l.count(p)
		going := l.Eligible && now+old == 0 && len(l.pods) > 0 && !slices.Contains(needs, l)
		if l.node != nil && now == 1 && old <= 1 || going {
			taken++
		}
	}
	desired := p.out.Limits.Replicas
	return max(desired-taken-min(p.out.Limits.Partition, desired), 0)
}

// keptEmpty reports whether partition keeps a node without a pod. Such a node does not count as unavailable.
func (p *planner) keptEmpty(l *site) bool { return p.partitioned && len(l.pods) == 0 && !l.create }

// deletePod deletes a pod, but not more than burstReplicas at a time. If the preDelete hook holds the pod, it
// waits for the hook instead.
func (p *planner) deletePod(pod *corev1.Pod, reason podplan.Reason, why string) *podplan.Verdict {
	if v := p.core.Verdict(pod); v != nil && (v.Action == podplan.Adopt || v.Action == podplan.Delete) {
		return v
	}
	if p.core.Prepare(pod, why) != nil {
		p.core.HeldByBudget(pod)
		return p.core.Verdict(pod)
	}

	n := &p.deletions
	if !p.in.Refused[pod.UID].IsZero() { // a retry must not take the place of a pod that may go
		n = &p.retried
	}
	if *n >= p.burst {
		p.out.More = true
		return p.core.Decide(pod, podplan.Wait, ReasonBurst, "%s; burstReplicas lets %d go at a time",
			why, p.burst)
	}

	v := p.core.Decide(pod, podplan.Delete, reason, "%s", why)
	if p.core.HeldByBudget(pod) {
		return p.core.Verdict(pod)
	}
	*n++
	return v
}

// goes reports whether a pod is being deleted, or the plan deletes it or prepares its deletion.
func (p *planner) goes(d *daemon) bool {
	if d.pod.DeletionTimestamp != nil || d.info != nil && d.info.Preparing {
		return true
	}
	v := p.core.Verdict(d.pod)
	return v != nil && (v.Action == podplan.Delete || v.Action == podplan.Patch && v.Prepares != "")
}

// count returns the numbers of new and old pods of a node, without those that are being deleted or that the
// plan deletes.
func (l *site) count(p *planner) (now, old int) {
	for _, d := range l.pods {
		switch {
		case d.pod.DeletionTimestamp != nil || p.deletes(d):
		case d.new:
			now++
		default:
			old++
		}
	}
	return now, old
}

// present returns the number of pods of a node that are not being deleted.
func (l *site) present() (n int) {
	for _, d := range l.pods {
		if d.pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// crowded reports whether a node has, or is about to have, more than one pod. Pods that prepare their
// deletion count.
func (l *site) crowded() bool {
	n := l.present()
	return n > 1 || l.create && n > 0
}

// adopts reports whether the pod is to be adopted first.
func (p *planner) adopts(d *daemon) bool {
	v := p.core.Verdict(d.pod)
	return v != nil && v.Action == podplan.Adopt
}

// deletes reports whether the plan deletes the pod.
func (p *planner) deletes(d *daemon) bool {
	v := p.core.Verdict(d.pod)
	return v != nil && v.Action == podplan.Delete
}

// specified deletes pods that are specified for deletion. An available pod is deleted only while fewer nodes
// lack an available pod than maxUnavailable allows. Pods whose deletion was refused come again, after the rollout, and
// take only what that leaves, since a policy may protect them for long.
func (p *planner) specified(again bool) {
	down, most := p.lost(true), max(p.out.Limits.MaxUnavailable, 1)
	all := p.out.Limits.Replicas + down
	for _, l := range p.sites {
		if l.Eligible && p.staying(l) == nil && !p.keptEmpty(l) {
			down++
		}
	}

	for _, l := range p.lastRefused(p.sites) {
		for _, d := range l.pods {
			switch v := p.core.Verdict(d.pod); {
			case d.info == nil || !d.info.Specified || p.goes(d) || p.refused(d) != again:
			case v != nil && (!again || v.Action != podplan.Wait && v.Action != podplan.Keep || v.Reason == podplan.ReasonBudget):
				// It is adopted first, or updated.
			case !d.available():
				p.deletePod(d.pod, podplan.ReasonSpecifiedDelete, "it is specified for deletion")
			case (l.Eligible || l.Lost) && down >= most:
				p.core.Decide(d.pod, podplan.Wait, podplan.ReasonMaxUnavailable,
					"it is specified for deletion; %d of %s without an available pod, %d may be (maxUnavailable)",
					down, wording.Count(all, "node"), most)
			default:
				if v := p.deletePod(d.pod, podplan.ReasonSpecifiedDelete,
					"it is specified for deletion"); v.Action != podplan.Wait && (l.Eligible || l.Lost) {
					down++
				}
			}
		}
	}
}

// refused reports whether a request about the pod failed a while ago.
func (p *planner) refused(d *daemon) bool { return !p.in.Refused[d.pod.UID].IsZero() }

// staying is serving without pods that the plan takes out of service to update them.
func (p *planner) staying(l *site) *daemon {
	d := p.serving(l)
	if d == nil {
		return nil
	}
	if v := p.core.Verdict(d.pod); v != nil && v.Action == podplan.UpdateInPlace {
		return nil
	}
	return d
}

// serving returns an available pod of the set that stays on the node, or nil if there is none.
func (p *planner) serving(l *site) *daemon {
	for _, d := range l.pods {
		if d.available() && !p.goes(d) && !p.adopts(d) {
			return d
		}
	}
	return nil
}
