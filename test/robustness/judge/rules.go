package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// rules are all promises about changes and about the end.
func rules() []rule {
	return []rule{availability, budget, surge, partition, reason, ordinals, condemned, onePodPerNode, instances,
		claims, inPlace, outOfService, sidecars, parallelism, quota, converges, runs, concurrency, looks, foreign, copies,
		places, order, lease, kept, sequence, oneByOne, heldBack, crowd, behind, restarted, grace, inTime, pulls}
}

// availability is the budget of each workload (CS-124, SS-, DS-).
var availability = rule{
	name:    "availability",
	promise: "a manager takes no pod out of service if fewer than replicas - maxUnavailable would be left",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if !c.leaves() || c.by == "" {
			return false, ""
		}
		w := s.workload(c.before)
		if w == nil || w.resource == "broadcastjobs" || w.DeletionTimestamp != nil {
			return false, ""
		}
		if w.resource == "statefulsets" && s.isCondemned(w, c.before) {
			return false, ""
		}
		left, least := s.serving(w), s.loosest(w).available-s.lostOf(w.UID, serving, false)
		if left >= least {
			return true, ""
		}
		return true, fmt.Sprintf("%d pods of %s are left in service, and %d must be", left, w.key, least)
	},
}

// serving counts the pods of a workload that are in service; of a DaemonSet, the nodes that have one, or one that costs nothing.
func (s *state) serving(w *object) int {
	n, nodes := 0, map[string]bool{}
	for _, pod := range s.pods[w.UID] {
		if serving(pod) {
			n++
			nodes[pod.pod.Spec.NodeName] = true
		}
		if w.resource == "daemonsets" && s.costsNothing(w, pod) {
			nodes[cmp.Or(pod.pod.Spec.NodeName, pod.key.name)] = true // some were never bound
		}
	}
	if w.resource == "daemonsets" {
		return len(nodes)
	}
	return n
}

// costsNothing reports whether a DaemonSet may update a pod, or has just begun to, beside as many as its budget allows: its containers
// are down, and it is of an old revision (ADS-131), or the loss of its node alone made it not ready (ADS-121).
func (s *state) costsNothing(w, pod *object) bool {
	if node := s.objects[key{resource: "nodes", name: pod.pod.Spec.NodeName}]; node != nil && node.lost && nodeTook(pod.pod) {
		return true
	}
	return containersDown(pod.pod) && (!sameRevision(pod.Labels[pub.ControllerRevisionHash], s.newest(w)) || s.now.Sub(s.movedDown[pod.key]) < onePlan)
}

// containersDown reports whether the containers of a pod are down, or it was never bound to a node.
func containersDown(pod *corev1.Pod) bool {
	containers := condition(pod, corev1.ContainersReady)
	return containers == corev1.ConditionFalse || containers == "" && pod.Status.Phase == corev1.PodPending
}

// nodeTook reports whether a pod was in service when its node was lost: since its last update it was ready, and what made it
// not ready is not that its containers are down.
func nodeTook(pod *corev1.Pod) bool {
	var ready, gate corev1.PodCondition
	for _, c := range pod.Status.Conditions {
		switch c.Type {
		case corev1.PodReady:
			ready = c
		case pub.InPlaceUpdateReady:
			gate = c
		}
	}
	return condition(pod, corev1.ContainersReady) == corev1.ConditionTrue && ready.Status == corev1.ConditionFalse &&
		gate.Status != corev1.ConditionFalse && ready.LastTransitionTime.After(gate.LastTransitionTime.Time)
}

// onePlan is how long the writes of a plan may take.
const onePlan = 5 * time.Second

// budget is the PodUnavailableBudget (PUB-001). It holds even if two managers write (decision 0025).
var budget = rule{
	name:    "PodUnavailableBudget",
	promise: "neither a manager nor an eviction takes a pod out of service if fewer would be left than the budget says",
	check: func(s *state, c *change) (bool, string) {
		if !c.leaves() || c.by == "" && active(c.after) { // a node says that the pod is not ready
			return false, ""
		}
		for k, b := range s.objects {
			if k.resource != "podunavailablebudgets" || k.namespace != c.Namespace || !selects(b.spec.Selector, c.before) {
				continue
			}
			w := s.workload(c.before)
			if w == nil {
				return false, ""
			}
			replicas := s.loosest(w).replicas
			least := share(b.spec.MinAvailable, replicas, replicas-share(b.spec.MaxUnavailable, replicas, 0, false), true)
			left := 0
			for _, pod := range s.pods[w.UID] {
				if serving(pod) {
					left++
				}
			}
			if left+s.lostOf(w.UID, serving, true) < least { // unlike evictions, what nodes say is not booked
				return true, fmt.Sprintf("%d pods are left in service, and %s wants %d", left, b.key, least)
			}
			return true, ""
		}
		return false, ""
	},
}

// surge is about how many pods there may be (CS-102).
var surge = rule{
	name:    "surge",
	promise: "there are at most replicas + maxSurge pods",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil || c.by == "" {
			return false, ""
		}
		w := s.workload(c.after)
		if w == nil || w.resource != "clonesets" {
			return false, ""
		}
		there, most := s.active(w), s.loosest(w).most
		if there <= most {
			return true, ""
		}
		return true, fmt.Sprintf("%s has %d pods, and may have %d", w.key, there, most)
	},
}

func (s *state) active(w *object) int {
	n := 0
	for _, pod := range s.pods[w.UID] {
		if active(pod) {
			n++
		}
	}
	return n
}

// partition is about how many pods may be of the new revision (CS-120), and which (SS-).
var partition = rule{
	name:    "partition",
	promise: "pods that the partition keeps back are not moved to the new revision",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before == nil || c.after == nil || c.by == "" ||
			c.before.Labels[pub.ControllerRevisionHash] == c.after.Labels[pub.ControllerRevisionHash] {
			return false, ""
		}
		w := s.workload(c.after)
		if w == nil || !sameRevision(c.after.Labels[pub.ControllerRevisionHash], s.newest(w)) {
			return false, ""
		}
		l := s.loosest(w)
		switch w.resource {
		case "clonesets":
			if moved := s.moved(w, c.after.Labels[pub.ControllerRevisionHash]); moved > l.updated {
				return true, fmt.Sprintf("%d pods of %s are of the new revision, and %d may be", moved, w.key, l.updated)
			}
			return true, ""
		case "statefulsets":
			if n := ordinal(c.Name); n < l.partition {
				return true, fmt.Sprintf("the pod is moved, and the partition is %d", l.partition)
			}
			return true, ""
		}
		return false, ""
	},
}

// moved counts the pods of a revision that are to stay.
func (s *state) moved(w *object, revision string) int {
	n := 0
	for _, pod := range s.pods[w.UID] {
		if active(pod) && !specified(w, pod) && pod.Labels[pub.ControllerRevisionHash] == revision {
			n++
		}
	}
	return n
}

// specified reports whether users asked for the pod to be deleted.
func specified(w, pod *object) bool {
	_, labelled := pod.Labels[pub.SpecifiedDelete]
	return labelled || slices.Contains(w.spec.ScaleStrategy.PodsToDelete, pod.Name)
}

// reason is about pods of CloneSets that are deleted.
var reason = rule{
	name:    "reason to delete",
	promise: "a pod of a CloneSet is deleted only if there are too many, or if it was specified",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if !c.goes() || c.by == "" {
			return false, ""
		}
		w := s.workload(c.before)
		if w == nil || w.resource != "clonesets" || w.DeletionTimestamp != nil {
			return false, ""
		}
		if l := s.loosest(w); s.active(w)+s.lostOf(w.UID, active, false) < l.replicas && !specified(w, c.before) {
			return true, fmt.Sprintf("%s has %d pods left, and wants %d", w.key, s.active(w), l.replicas)
		}
		return true, ""
	},
}

// isCondemned reports whether the ordinal of a pod is none of its StatefulSet's, by any spec of late.
func (s *state) isCondemned(w, pod *object) bool { return ordinal(pod.Name) >= s.loosest(w).replicas }

// ordinals is about which pods a StatefulSet has.
var ordinals = rule{
	name:    "ordinals",
	promise: "a StatefulSet gets pods for its own ordinals only",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil || c.by == "" {
			return false, ""
		}
		w := s.workload(c.after)
		if w == nil || w.resource != "statefulsets" {
			return false, ""
		}
		if most := s.loosest(w).most; ordinal(c.Name) >= most || ordinal(c.Name) < 0 {
			return true, fmt.Sprintf("%s has %d replicas", w.key, most)
		}
		return true, ""
	},
}

// condemned is the order in which a StatefulSet gets smaller.
var condemned = rule{
	name:    "scale-in order",
	promise: "pods in service of an ordered StatefulSet that are too many go from the highest ordinal down",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if !c.goes() || c.by == "" {
			return false, ""
		}
		w := s.workload(c.before)
		if w == nil || w.resource != "statefulsets" || w.spec.PodManagementPolicy == "Parallel" ||
			w.DeletionTimestamp != nil || !s.isCondemned(w, c.before) {
			return false, ""
		}
		for _, pod := range s.pods[w.UID] {
			// Of pods that are out of service the lowest may go first. A deletion that was held back may arrive when
			// the set has grown again.
			if down := !serving(c.before) && (!serving(pod) || s.late(pod.since)); active(pod) &&
				ordinal(pod.Name) > ordinal(c.Name) && !down && !s.late(pod.CreationTimestamp.Time) {
				return true, fmt.Sprintf("%s is still there", pod.key)
			}
		}
		return true, ""
	},
}

// claims are never taken from pods.
var claims = rule{
	name:    "claims",
	promise: "no PersistentVolumeClaim is deleted while a pod lives that uses it",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "persistentvolumeclaims" || c.before == nil || // whoever deletes it, since no user does
			c.before.DeletionTimestamp != nil || c.after != nil && c.after.DeletionTimestamp == nil {
			return false, ""
		}
		for k, pod := range s.objects {
			if k.resource == "pods" && k.namespace == c.Namespace && active(pod) && uses(pod.pod, c.Name) {
				return true, fmt.Sprintf("%s uses it", k)
			}
		}
		return true, ""
	},
}

func uses(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// Rule is a promise that is judged, as a reader sees it.
type Rule struct{ Name, Promise string }

// Rules returns all promises that are judged.
func Rules() []Rule {
	var all []Rule
	for _, r := range append(rules(), atRest, flat, whole) {
		all = append(all, Rule{r.name, r.promise})
	}
	return all
}
