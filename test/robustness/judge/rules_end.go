package judge

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// converges is asked about each object at the end.
var converges = rule{
	name:    "every rollout ends",
	promise: "after the faults all pods are as the specs say, and each status says so",
	atEnd: func(s *state, o *object) (bool, string) {
		if o.pod != nil {
			return s.podEnds(o)
		}
		if o.DeletionTimestamp != nil {
			return true, "it is still being deleted"
		}
		var text string
		switch o.resource {
		case "clonesets", "statefulsets":
			text = s.setEnds(o)
		case "daemonsets":
			text = s.daemonsEnd(o)
		case "sidecarsets":
			text = s.sidecarsEnd(o)
		case "podunavailablebudgets":
			text = s.budgetEnds(o)
		case "workloadspreads":
			text = s.spreadEnds(o)
		case "uniteddeployments":
			text = s.unitedEnds(o)
		case "resourcedistributions":
			text = s.copiesEnd(o)
		case "persistentpodstates":
			text = s.placesEnd(o)
		case "advancedcronjobs":
			return true, s.runsEnd(o)
		case "ephemeraljobs":
			return true, s.looksEnd(o)
		case "containerrecreaterequests":
			return true, requestEnds(o.request)
		case "imagepulljobs", "nodeimages":
			switch {
			case !s.pulled:
				return false, ""
			case o.images != nil:
				return true, listEnds(o.images)
			}
			return true, s.pullEnds(o)
		case "broadcastjobs":
			return true, s.jobEnds(o)
		default:
			return false, ""
		}
		if text == "" && o.status.ObservedGeneration != o.Generation {
			text = fmt.Sprintf("observedGeneration is %d, and the generation %d", o.status.ObservedGeneration, o.Generation)
		}
		return true, text
	},
}

// podEnds says what is wrong with a pod of a workload of ours at the end.
func (s *state) podEnds(o *object) (bool, string) {
	w := s.workload(o)
	if w == nil || w.resource == "broadcastjobs" {
		return false, ""
	}
	switch {
	case o.DeletionTimestamp != nil:
		return true, "it is still being deleted"
	case !serving(o):
		return true, "it is not in service"
	case o.Labels[pub.SpecifiedDelete] != "":
		return true, "it was to be deleted, and is there"
	}
	if sameRevision(o.Labels[pub.ControllerRevisionHash], s.newest(w)) {
		for _, c := range w.spec.Template.Spec.Containers {
			if has, _ := images(o.pod, c.Name); has != c.Image {
				return true, fmt.Sprintf("it is said to be of the newest revision, and container %s has the image %s, not %s", c.Name, has, c.Image)
			}
		}
	}
	for _, v := range o.pod.Spec.Volumes {
		if of := v.PersistentVolumeClaim; of != nil {
			if claim := s.objects[key{"persistentvolumeclaims", o.Namespace, of.ClaimName}]; claim == nil || claim.DeletionTimestamp != nil {
				return true, fmt.Sprintf("claim %s is not there, or is being deleted", of.ClaimName)
			}
		}
	}
	for _, c := range o.pod.Spec.Containers {
		if wanted, runs := images(o.pod, c.Name); wanted != runs {
			return true, fmt.Sprintf("container %s runs %s and should run %s", c.Name, runs, wanted)
		}
	}
	return true, ""
}

// count returns how many pods of a workload are active, in service, and of a revision.
func (s *state) count(w *object, revision string) (int, int, int) {
	all, ready, updated := 0, 0, 0
	for _, pod := range s.pods[w.UID] {
		if !active(pod) {
			continue
		}
		all++
		if serving(pod) {
			ready++
		}
		if sameRevision(pod.Labels[pub.ControllerRevisionHash], revision) {
			updated++
		}
	}
	return all, ready, updated
}

// setEnds says what is wrong with a CloneSet or a StatefulSet at the end.
func (s *state) setEnds(o *object) string {
	l, newest := limitsOf(o.resource, &o.spec, s.nodes()), s.newest(o)
	all, ready, updated := s.count(o, newest)
	least := l.replicas - min(l.partition, l.replicas)
	switch st := o.status; {
	case all != l.replicas || ready != all:
		return fmt.Sprintf("it has %d pods, %d of them in service, and wants %d", all, ready, l.replicas)
	case updated < least:
		return fmt.Sprintf("%d pods are of revision %s, and %d should be", updated, newest, least)
	case st.UpdateRevision != newest:
		return fmt.Sprintf("updateRevision is %s, and the newest revision is %s", st.UpdateRevision, newest)
	case st.Replicas != all || st.ReadyReplicas != ready || st.UpdatedReplicas != updated:
		return fmt.Sprintf("the status has %d replicas, %d ready, %d updated; there are %d, %d, %d",
			st.Replicas, st.ReadyReplicas, st.UpdatedReplicas, all, ready, updated)
	}
	if o.resource == "statefulsets" {
		for _, pod := range s.pods[o.UID] {
			if n := ordinal(pod.Name); n >= l.replicas {
				return fmt.Sprintf("%s is there, and there should be %d", pod.key, l.replicas)
			} else if n >= l.partition && !sameRevision(pod.Labels[pub.ControllerRevisionHash], newest) {
				return fmt.Sprintf("%s is not of revision %s", pod.key, newest)
			}
		}
	}
	return ""
}

// daemonsEnd says what is wrong with a DaemonSet at the end.
func (s *state) daemonsEnd(o *object) string {
	all, ready, updated := s.count(o, s.newest(o))
	nodes, st := s.nodes(), o.status
	switch {
	case all != nodes || ready != all || updated != all:
		return fmt.Sprintf("it has %d pods, %d in service, %d updated; there are %d nodes", all, ready, updated, nodes)
	case st.DesiredNumberScheduled != nodes || st.UpdatedNumberScheduled != updated || st.NumberAvailable != ready:
		return fmt.Sprintf("the status has %d desired, %d updated, %d available; there are %d, %d, %d",
			st.DesiredNumberScheduled, st.UpdatedNumberScheduled, st.NumberAvailable, nodes, updated, ready)
	}
	return ""
}

// jobEnds says what is wrong with a BroadcastJob at the end.
func (s *state) jobEnds(o *object) string {
	on, succeeded := map[string]bool{}, 0
	for _, pod := range s.pods[o.UID] {
		if pod.pod.Status.Phase == corev1.PodSucceeded {
			succeeded++
			on[pod.pod.Spec.NodeName] = true
		}
	}
	switch st, nodes := o.status, s.nodes(); {
	case st.Phase != "completed":
		return fmt.Sprintf("its phase is %q", st.Phase)
	case len(on) != nodes || st.Desired != nodes || st.Succeeded != succeeded:
		return fmt.Sprintf("%d pods succeeded on %d of %d nodes; the status has %d desired, %d succeeded", succeeded, len(on), nodes,
			st.Desired, st.Succeeded)
	}
	return ""
}

// budgetEnds says what is wrong with a PodUnavailableBudget at the end.
func (s *state) budgetEnds(o *object) string {
	available := 0
	for _, pod := range s.objects {
		if pod.pod != nil && pod.Namespace == o.Namespace && serving(pod) && selects(o.spec.Selector, pod) {
			available++
		}
	}
	if st := o.status; st.CurrentAvailable != available || st.UnavailableAllowed != max(available-st.DesiredAvailable, 0) {
		return fmt.Sprintf("%d pods are in service; the status has %d, of which %d must be and %d need not be", available,
			st.CurrentAvailable, st.DesiredAvailable, st.UnavailableAllowed)
	}
	return ""
}

// spreadEnds says what is wrong with a WorkloadSpread at the end.
func (s *state) spreadEnds(o *object) string {
	for _, st := range o.status.SubsetStatuses {
		there := 0
		for _, pod := range s.objects {
			if name, subset := placement(pod); pod.pod != nil && pod.Namespace == o.Namespace && active(pod) && name == o.Name && subset == st.Name {
				there++
			}
		}
		if st.Replicas != there {
			return fmt.Sprintf("subset %s has %d pods, and the status has %d", st.Name, there, st.Replicas)
		}
	}
	if n := len(o.status.SubsetStatuses); n != len(o.spec.Subsets) {
		return fmt.Sprintf("the status has %d subsets of %d", n, len(o.spec.Subsets))
	}
	return ""
}

// sidecarsEnd says what is wrong with a SidecarSet at the end.
func (s *state) sidecarsEnd(o *object) string {
	matched, updated := 0, 0
	for _, pod := range s.objects {
		if pod.pod == nil || !active(pod) || !selects(o.spec.Selector, pod) {
			continue
		}
		matched++
		same := true
		for _, c := range o.spec.Containers {
			wanted, _ := images(pod.pod, c.Name)
			if wanted == "" {
				return fmt.Sprintf("%s has no container %s", pod.key, c.Name)
			}
			same = same && wanted == c.Image
		}
		if same {
			updated++
		}
	}
	least := matched - share(o.spec.UpdateStrategy.Partition, matched, 0, true)
	if updated < least {
		return fmt.Sprintf("%d of %d pods have the new sidecar, and %d should have", updated, matched, least)
	}
	if st := o.status; st.MatchedPods != matched || st.UpdatedPods < least {
		return fmt.Sprintf("the status has %d matched and %d updated pods; there are %d and %d", st.MatchedPods,
			st.UpdatedPods, matched, updated)
	}
	return ""
}
