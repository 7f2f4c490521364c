package daemonset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

func join(names []string) string { return strings.Join(names, ", ") }

// placement creates pods where they are missing, and deletes those that are too many, have failed, or may not
// stay (ADS-090 to 098). It does not look at partition, selector or paused, apart from creation that
// partition controls.
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
			needs = append(needs, l) // beside what is being deleted, or prepares for it
		}
	}

	if p.partitioned {
		slices.SortStableFunc(needs, func(a, b *site) int { return cmp.Compare(p.rankOf(a), p.rankOf(b)) })
		if most := p.partitionAllows(needs); len(needs) > most {
			p.core.Say("%s without a pod: partition %d keeps them so", plural.Of(len(needs)-most, "node"),
				p.out.Limits.Partition)
			needs = needs[:most]
		}
	}

	for _, l := range needs {
		l.create = true
	}
}

// vanished deals with pods whose node does not exist. Those that were scheduled are deleted by the garbage
// collector of pods, when it is sure that the node is gone.
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

// tolerate looks after the pods of a node that may keep them (ADS-091 to 095). It tells whether no pod runs
// there, or is to go first.
func (p *planner) tolerate(l *site) (empty bool) {
	var running []*daemon
	ended := false
	for _, d := range l.pods {
		switch {
		case d.pod.DeletionTimestamp != nil:
		case d.ended():
			p.failed(l, d)
			ended = true
		case d.info.Preparing:
			p.deletePod(d.pod, podplan.ReasonLifecycleHook, "it prepared its deletion")
		default:
			running = append(running, d)
		}
	}

	switch {
	case len(running) == 0:
		return !ended
	case !p.surges():
		p.keepOne(l, running)
	case len(running) > 1:
		p.clean(l, running)
	}

	return false
}

// clean leaves a node with a surge the oldest new pod and the oldest old one, and of these the new one as
// soon as it may take over.
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
	case now.available() && !now.info.Specified: // else the node would lose both
		p.deletePod(old.pod, podplan.ReasonOutdated,
			"pod "+now.pod.Name+" of the update revision is available")
	}
}

// keepOne deletes all pods of a node but one, and returns that: the first that is available, or else the
// first; nil if there is none.
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

// failed deletes a pod that ended on its node, unless that happened there a moment ago.
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

// rankOf orders nodes without a pod: one that just lost its own gets it back before others get their first.
func (p *planner) rankOf(l *site) int {
	if p.in.Had[l.name] || len(l.pods) > 0 {
		return 0
	}
	return 1
}

// partitionAllows is on how many of the nodes that need pods they may be created now. A node whose pod goes
// keeps its place.
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

// keptEmpty tells whether partition keeps a node without a pod, which does not count as unavailable then.
func (p *planner) keptEmpty(l *site) bool { return p.partitioned && len(l.pods) == 0 && !l.create }

// deletePod deletes a pod, or, if its preDelete hook holds it, lets that come first; no more than
// burstReplicas at a time.
func (p *planner) deletePod(pod *corev1.Pod, reason podplan.Reason, why string) *podplan.Verdict {
	if v := p.core.Verdict(pod); v != nil && (v.Action == podplan.Adopt || v.Action == podplan.Delete) {
		return v
	}
	if held := p.core.Prepare(pod, why); held != nil {
		return held
	}

	n := &p.deletions
	if !p.in.Refused[pod.UID].IsZero() { // it takes the place of none that may go
		n = &p.retried
	}
	if *n >= p.burst {
		p.out.More = true
		return p.core.Decide(pod, podplan.Wait, ReasonBurst, "%s; burstReplicas lets %d go at a time",
			why, p.burst)
	}

	*n++
	return p.core.Decide(pod, podplan.Delete, reason, "%s", why)
}

// goes tells whether a pod is being deleted, or was decided to go, or to prepare for it.
func (p *planner) goes(d *daemon) bool {
	if d.pod.DeletionTimestamp != nil || d.info != nil && d.info.Preparing {
		return true
	}
	v := p.core.Verdict(d.pod)
	return v != nil && (v.Action == podplan.Delete || v.Action == podplan.Patch && v.Prepares != "")
}

// count counts the new and the old pods of a node; those that are being deleted, or will be now, are neither.
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

// present counts the pods of a node that are not being deleted.
func (l *site) present() (n int) {
	for _, d := range l.pods {
		if d.pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// crowded tells whether a node has more than one pod, or is about to, also one that prepares its deletion.
func (l *site) crowded() bool {
	n := l.present()
	return n > 1 || l.create && n > 0
}

// adopts tells whether the pod becomes the set's first.
func (p *planner) adopts(d *daemon) bool {
	v := p.core.Verdict(d.pod)
	return v != nil && v.Action == podplan.Adopt
}

// deletes tells whether it was decided to delete the pod now.
func (p *planner) deletes(d *daemon) bool {
	v := p.core.Verdict(d.pod)
	return v != nil && v.Action == podplan.Delete
}

// specified deletes pods that somebody wants to go: one that is available as long as fewer nodes lack an
// available pod than maxUnavailable says.
func (p *planner) specified() {
	down, most := 0, max(p.out.Limits.MaxUnavailable, 1)
	for _, l := range p.sites {
		if l.Eligible && p.serving(l) == nil && !p.keptEmpty(l) {
			down++
		}
	}

	for _, l := range p.lastRefused(p.sites) {
		for _, d := range l.pods {
			switch {
			// it is adopted first
			case d.info == nil || !d.info.Specified || p.goes(d) || p.core.Verdict(d.pod) != nil:
			case !d.available():
				p.deletePod(d.pod, podplan.ReasonSpecifiedDelete, "it is specified for deletion")
			case l.Eligible && down >= most:
				p.core.Decide(d.pod, podplan.Wait, podplan.ReasonMaxUnavailable,
					"it is specified for deletion; %d of %s without an available pod, %d may be (maxUnavailable)",
					down,
					plural.Of(p.out.Limits.Replicas, "node"), most)
			default:
				if v := p.deletePod(d.pod, podplan.ReasonSpecifiedDelete,
					"it is specified for deletion"); v.Action != podplan.Wait && l.Eligible {
					down++
				}
			}
		}
	}
}

// serving is an available pod that stays on the node; nil if there is none.
func (p *planner) serving(l *site) *daemon {
	for _, d := range l.pods {
		if d.available() && !p.goes(d) {
			return d
		}
	}
	return nil
}
