package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/afloat-project/afloat/api/pub"
)

// inPlaceOnly reports whether users want updates in place, by all specs of late. Users change images and numbers
// alone, so that each update can be one.
func (s *state) inPlaceOnly(w *object) bool {
	return !slices.ContainsFunc(s.specs(w), func(sp spec) bool {
		r := sp.UpdateStrategy.RollingUpdate
		return !strings.HasPrefix(r.PodUpdatePolicy+r.Type, "InPlace")
	})
}

// kept is what updates in place are for, seen from the pods that are gone (CS-126, CS-127).
var kept = rule{
	name:    "updated in place",
	promise: "a manager deletes no pod for an update, and marks none to be deleted, if it can be updated in place",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.by == "" || !active(c.before) {
			return false, ""
		}
		w := s.workload(c.before)
		if w == nil || w.DeletionTimestamp != nil || !s.inPlaceOnly(w) || specified(w, c.before) {
			return false, ""
		}
		switch {
		case active(c.after) && c.after.Labels[pub.SpecifiedDelete] != "":
			return true, "a manager marks it to be deleted"
		case active(c.after):
			return c.before.Labels[pub.ControllerRevisionHash] != c.after.Labels[pub.ControllerRevisionHash], ""
		case w.resource == "statefulsets" && !s.isCondemned(w, c.before):
			return true, fmt.Sprintf("it is deleted, and %s wants its ordinal", w.key)
		case w.resource == "daemonsets":
			for _, other := range s.pods[w.UID] {
				if active(other) && node(other.pod) == node(c.before.pod) {
					return false, "" // one too many
				}
			}
			return true, "it is deleted, and its node has no other one"
		}
		return false, "" // of a CloneSet that gets smaller: another rule
	},
}

// sequence is the order of updates of ordered StatefulSets that take one pod at a time.
var sequence = rule{
	name:    "order of updates",
	promise: "an ordered StatefulSet takes pods out of service for an update from the highest ordinal down",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if !c.leaves() || c.by == "" {
			return false, ""
		}
		w := s.workload(c.before)
		if w == nil || w.resource != "statefulsets" || w.spec.PodManagementPolicy == "Parallel" || w.DeletionTimestamp != nil {
			return false, ""
		}
		l, n, was := s.loosest(w), ordinal(c.Name), c.before.Labels[pub.ControllerRevisionHash]
		if n < l.partition || n >= l.replicas || w.spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy == "" ||
			l.most-l.available > 1 || specified(w, c.before) || sameRevision(was, s.newest(w)) {
			return false, "" // several at a time, or not for an update
		}
		asked := false
		for _, other := range s.pods[w.UID] {
			above := ordinal(other.Name)
			if above <= n || above >= l.replicas || !active(other) {
				continue
			}
			asked = true
			if serving(other) && other.Labels[pub.ControllerRevisionHash] == was {
				return true, fmt.Sprintf("%s serves, and is of the same revision", other.key)
			}
		}
		return asked, ""
	},
}

// oneByOne is the order in which ordered StatefulSets make pods. What a manager has made itself it knows; what
// others did to a pod that served it may not know.
var oneByOne = rule{
	name:    "order of creation",
	promise: "an ordered StatefulSet makes a pod only while all pods below it are in service",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil || c.by == "" {
			return false, ""
		}
		w := s.workload(c.after)
		if w == nil || w.resource != "statefulsets" || w.spec.PodManagementPolicy == "Parallel" {
			return false, ""
		}
		for n := range max(ordinal(c.Name), 0) {
			k := key{"pods", c.Namespace, fmt.Sprintf("%s-%d", w.Name, n)}
			below, gone := s.objects[k], s.gone[k]
			switch {
			case serving(below), below == nil && !gone.IsZero() && s.late(gone):
			case below != nil && s.late(below.since) && (below.made != c.by || below.served):
			case below == nil:
				return true, fmt.Sprintf("%s is not there", k)
			default:
				return true, fmt.Sprintf("%s is not in service", k)
			}
		}
		return ordinal(c.Name) > 0, ""
	},
}

// heldBack is the partition, where pods are made: pods that it keeps back are made at the revision before (CS-112).
// The status must have told the two revisions apart for as long as a manager may not know of it.
var heldBack = rule{
	name:    "partition of new pods",
	promise: "where the partition keeps pods back, new ones are made at the current revision",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil || c.by == "" {
			return false, ""
		}
		w := s.workload(c.after)
		if w == nil || w.since.IsZero() || s.late(w.since) {
			return false, ""
		}
		is := c.after.Labels[pub.ControllerRevisionHash]
		l, moved := s.loosest(w), sameRevision(is, w.status.UpdateRevision) && sameRevision(is, s.newest(w))
		switch {
		case l.partition == 0:
		case w.resource == "statefulsets" && ordinal(c.Name) < l.partition:
			if moved {
				return true, fmt.Sprintf("the pod is made at %s, and the partition is %d", is, l.partition)
			}
			return true, ""
		case w.resource == "clonesets":
			n := s.moved(w, is)
			if moved && n > l.updated {
				return true, fmt.Sprintf("%d pods of %s are of the new revision, and %d may be", n, w.key, l.updated)
			}
			return true, ""
		}
		return false, ""
	},
}

// noteApart keeps since when the status of a workload has told its two revisions apart.
func noteApart(c *change) {
	if c.after == nil || c.Resource != "clonesets" && c.Resource != "statefulsets" ||
		c.after.status.CurrentRevision == c.after.status.UpdateRevision {
		return
	}
	c.after.since = c.Time
	if c.before != nil && c.before.status.CurrentRevision == c.after.status.CurrentRevision &&
		c.before.status.UpdateRevision == c.after.status.UpdateRevision {
		c.after.since = c.before.since
	}
}

// crowd is the surge of DaemonSets (ADS-161). A pod beside one that does not serve is not counted.
var crowd = rule{
	name:    "surge of daemons",
	promise: "a DaemonSet makes a pod beside one that serves only while at most maxSurge nodes have a second one that does not serve yet",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil || c.by == "" {
			return false, ""
		}
		w := s.workload(c.after)
		if w == nil || w.resource != "daemonsets" {
			return false, ""
		}
		most := 0
		for _, sp := range s.specs(w) {
			most = max(most, share(sp.UpdateStrategy.RollingUpdate.MaxSurge, s.nodes(), 0, true))
		}
		stands, comes := map[string]bool{}, map[string]bool{}
		for _, pod := range s.pods[w.UID] {
			switch at := node(pod.pod); {
			case serving(pod) && !s.late(pod.since):
				stands[at] = true
			case active(pod) && !serving(pod):
				comes[at] = true
			}
		}
		if !stands[node(c.after.pod)] {
			return false, ""
		}
		n := 0
		for at := range comes {
			if stands[at] {
				n++
			}
		}
		if n > most {
			return true, fmt.Sprintf("%d nodes have a second pod of %s that does not serve yet, and %d may have", n, w.key, most)
		}
		return true, ""
	},
}

// behind is the partition of SidecarSets (SS-217). Pods that went a moment ago may still count for a manager.
var behind = rule{
	name:    "partition of sidecars",
	promise: "a manager changes the sidecar of a pod that serves only while as many others as the partition says keep theirs",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		set, name := s.upgrades(c)
		if set == nil {
			return false, ""
		}
		least := -1
		for _, sp := range s.specs(set) {
			if n := share(sp.UpdateStrategy.Partition, set.status.MatchedPods, 0, true); least < 0 || n < least {
				least = n
			}
		}
		image, _ := images(c.after.pod, name)
		if newest := slices.IndexFunc(set.spec.Containers, func(of container) bool { return of.Name == name && of.Image == image }); newest < 0 || least == 0 {
			return false, ""
		}
		old := 0
		count := func(pod *object) {
			if pod.pod == nil || !active(pod) || !selects(set.spec.Selector, pod) {
				return
			}
			if has, _ := images(pod.pod, name); has != image {
				old++
			}
		}
		for _, pod := range s.objects {
			count(pod)
		}
		for _, l := range s.lost {
			if l.goes() && s.late(l.at) {
				count(l.before)
			}
		}
		if old < least {
			return true, fmt.Sprintf("%d pods of %s keep their sidecar, and the partition is %d", old, set.key, least)
		}
		return true, ""
	},
}
