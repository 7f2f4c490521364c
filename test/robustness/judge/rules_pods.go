package judge

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/afloat-project/afloat/api/pub"
)

// node returns the node that a pod is on, or that it is made for.
func node(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == "metadata.name" && len(field.Values) == 1 {
					return field.Values[0]
				}
			}
		}
	}
	return ""
}

// onePodPerNode holds even if two managers write (decision 0026). With a surge a pod that is being deleted is not
// waited for (ADS-095), so that it does not count.
var onePodPerNode = rule{
	name:    "one pod per node",
	promise: "a DaemonSet has one pod on a node, and with a surge one more that stays; a BroadcastJob has one that has not failed",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil {
			return false, ""
		}
		w, at := s.workload(c.after), node(c.after.pod)
		if w == nil || at == "" || w.resource != "daemonsets" && w.resource != "broadcastjobs" {
			return false, ""
		}
		most := 1
		if w.resource == "daemonsets" && share(w.spec.UpdateStrategy.RollingUpdate.MaxSurge, s.nodes(), 0, true) > 0 {
			most = 2
		}
		there := 0
		for _, pod := range s.pods[w.UID] {
			if node(pod.pod) == at && pod.pod.Status.Phase != corev1.PodFailed && (most == 1 || active(pod)) {
				there++
			}
		}
		if there > most {
			return true, fmt.Sprintf("node %s has %d pods of %s", at, there, w.key)
		}
		return true, ""
	},
}

// instances are the names of CloneSets for their pods.
var instances = rule{
	name:    "instance IDs",
	promise: "each pod of a CloneSet has an instance ID, and no two have the same",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil {
			return false, ""
		}
		if c.after.Labels[pub.CloneSetInstanceID] == "" {
			if w := s.workload(c.after); w != nil && w.resource == "clonesets" {
				return true, "it has none"
			}
			return false, ""
		}
		for _, pod := range s.pods[c.after.owner()] {
			if pod.key != c.after.key && active(pod) &&
				pod.Labels[pub.CloneSetInstanceID] == c.after.Labels[pub.CloneSetInstanceID] {
				return true, fmt.Sprintf("%s has it, too", pod.key)
			}
		}
		return true, ""
	},
}

// inPlace is what updates in place are for.
var inPlace = rule{
	name:    "in place",
	promise: "a pod keeps its UID, node and address, and a container is restarted once for each change of its image, request or crash",
	check: func(s *state, c *change) (bool, string) {
		// The node daemon is in a namespace of its own, and its processes are killed.
		if c.Resource != "pods" || c.before == nil || c.after == nil || c.Namespace == "kruise-system" {
			return false, ""
		}
		a, b := c.before.pod, c.after.pod
		switch {
		case c.before.UID != c.after.UID:
			return true, fmt.Sprintf("the UID was %s, and is %s", c.before.UID, c.after.UID)
		case a.Spec.NodeName != "" && a.Spec.NodeName != b.Spec.NodeName:
			return true, fmt.Sprintf("the node was %s, and is %s", a.Spec.NodeName, b.Spec.NodeName)
		case a.Status.PodIP != "" && a.Status.PodIP != b.Status.PodIP && (active(c.after) || b.Status.PodIP != ""):
			// A kubelet that was started again knows no address of a pod that has ended.
			return true, fmt.Sprintf("the address was %s, and is %s", a.Status.PodIP, b.Status.PodIP)
		}
		for i := range b.Status.ContainerStatuses {
			is := &b.Status.ContainerStatuses[i]
			if was := statusOf(a, is.Name); was != nil {
				wanted, _ := images(b, is.Name)
				if text := s.explained(c.key(), was, is, wanted); text != "" {
					return true, text
				}
			}
		}
		return true, ""
	},
}

// outOfService is the first of the three writes of an update in place (decision 0005).
var outOfService = rule{
	name:    "out of service first",
	promise: "the image of a container of the workload changes only while the pod is out of service",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.by == "" || c.before == nil || c.after == nil || s.workload(c.after) == nil {
			return false, ""
		}
		for i, container := range c.before.pod.Spec.Containers {
			if container.Name != "main" || len(c.after.pod.Spec.Containers) <= i ||
				c.after.pod.Spec.Containers[i].Image == container.Image {
				continue
			}
			if serving(c.before) {
				return true, fmt.Sprintf("the image of %s changes from %s to %s while the pod serves", container.Name,
					container.Image, c.after.pod.Spec.Containers[i].Image)
			}
			return true, ""
		}
		return false, ""
	},
}

// selects reports whether a selector selects an object.
func selects(selector *metav1.LabelSelector, o *object) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && selector != nil && s.Matches(labels.Set(o.Labels))
}

// images returns the image of a container of a pod by its spec, and the one that runs.
func images(pod *corev1.Pod, name string) (string, string) {
	var wanted, runs string
	for _, c := range pod.Spec.Containers {
		if c.Name == name {
			wanted = familiar(c.Image)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == name {
			runs = familiar(c.Image)
		}
	}
	return wanted, runs
}

// sidecars is the budget of SidecarSets. A pod that does not serve is changed free of charge (SS-219), and does not
// count while it is.
var sidecars = rule{
	name:    "sidecars",
	promise: "a manager changes sidecars of a pod that serves only while at most maxUnavailable pods are being changed",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		set, name := s.upgrades(c)
		if set == nil {
			return false, ""
		}
		most, changing := 0, 0
		for _, sp := range s.specs(set) {
			most = max(most, share(sp.UpdateStrategy.MaxUnavailable, set.status.MatchedPods, 1, true))
		}
		for _, pod := range s.objects {
			if pod.pod == nil || !active(pod) || !selects(set.spec.Selector, pod) {
				continue
			}
			if wanted, runs := images(pod.pod, name); runs != "" && wanted != runs && !s.free[containerOf{pod.key, name}] {
				changing++
			}
		}
		if changing > most {
			return true, fmt.Sprintf("%d pods of %s are being changed, and %d may be", changing, set.key, most)
		}
		return true, ""
	},
}

// upgrades returns the SidecarSet whose sidecar a manager changes in a pod that serves, and the container. A pod that
// is being changed already may be changed again.
func (s *state) upgrades(c *change) (*object, string) {
	if c.Resource != "pods" || c.by == "" || !serving(c.before) || c.after == nil {
		return nil, ""
	}
	for k, set := range s.objects {
		if k.resource != "sidecarsets" || !selects(set.spec.Selector, c.after) {
			continue
		}
		for _, of := range set.spec.Containers {
			was, runs := images(c.before.pod, of.Name)
			if is, _ := images(c.after.pod, of.Name); was != is && was != "" && was == runs {
				return set, of.Name
			}
		}
	}
	return nil, ""
}

// parallelism is the limit of BroadcastJobs.
var parallelism = rule{
	name:    "parallelism",
	promise: "a BroadcastJob has at most as many active pods as its parallelism says",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil {
			return false, ""
		}
		w := s.workload(c.after)
		if w == nil || w.resource != "broadcastjobs" {
			return false, ""
		}
		if there, most := s.active(w), share(w.spec.Parallelism, s.nodes(), s.nodes(), true); there > most {
			return true, fmt.Sprintf("%s has %d active pods, and may have %d", w.key, there, most)
		}
		return true, ""
	},
}

// placement returns the WorkloadSpread and the subset of a pod.
func placement(o *object) (string, string) {
	var p struct{ Name, Subset string }
	if o == nil || json.Unmarshal([]byte(o.Annotations[pub.MatchedWorkloadSpread]), &p) != nil {
		return "", ""
	}
	return p.Name, p.Subset
}

// quota is that of WorkloadSpreads. It holds with any number of managers (decision 0018).
var quota = rule{
	name:    "quota",
	promise: "each new pod is in a subset of its WorkloadSpread, which has at most maxReplicas pods",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before != nil {
			return false, ""
		}
		name, subset := placement(c.after)
		spread := s.objects[key{"workloadspreads", c.Namespace, name}]
		if spread == nil {
			for k, o := range s.objects {
				if k.resource == "workloadspreads" && k.namespace == c.Namespace && o.spec.targets(c.after) && !s.late(o.CreationTimestamp.Time) {
					return true, fmt.Sprintf("it is in no subset of %s", k)
				}
			}
			return false, ""
		}
		for _, of := range spread.spec.Subsets {
			if of.Name != subset {
				continue
			}
			if of.MaxReplicas == nil {
				return true, ""
			}
			there := 0
			for _, pod := range s.pods[c.after.owner()] {
				if n, in := placement(pod); n == name && in == subset && active(pod) {
					there++
				}
			}
			if most := share(of.MaxReplicas, there, there, true); there > most {
				return true, fmt.Sprintf("subset %s has %d pods, and may have %d", subset, there, most)
			}
			return true, ""
		}
		return false, ""
	},
}
