package podprobemarker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
)

// Snapshot is the input of the plan for one node.
type Snapshot struct {
	// Name is the name of the node.
	Name string
	// Node is the node, and List is its NodePodProbe; each is nil if it does not exist.
	Node *corev1.Node
	List *appsv1alpha1.NodePodProbe
	// Pods are the pods on the node.
	Pods []*corev1.Pod
	// Markers returns the PodProbeMarkers of a namespace, sorted by name.
	Markers func(namespace string) []Marker
	// Ports returns the number of a named port of a container.
	Ports func(pod *corev1.Pod, container, name string) (number int32, found bool)
	// Replaced reports whether a container started after that time.
	Replaced func(pod *corev1.Pod, container string, since time.Time) bool
	// Whole reports whether all annotations of the pod are known.
	Whole func(pod *corev1.Pod) bool
	// Serverless is the gate EnablePodProbeMarkerOnServerless, Liveness the gate EnhancedLivenessProbe.
	Serverless, Liveness bool
	// Now is the current time.
	Now time.Time
}

// Plan defines what to do for a node.
type Plan struct {
	// Create, Delete and Write create and delete the NodePodProbe and replace its list. List is that list.
	Create, Delete, Write bool
	List                  []appsv1alpha1.PodProbe
	// Pods are the changes of pods.
	Pods []PodPlan
	// Restarts are containers whose liveness probe failed.
	Restarts []Restart
	// Warnings are reported once each.
	Warnings []Warning
	// After is when to plan the node again even if nothing happens; 0 means never.
	After time.Duration
}

// Warning is a warning about a PodProbeMarker, or about a pod that has liveness probes; the other field is
// nil.
type Warning struct {
	Marker          *appsv1alpha1.PodProbeMarker
	Pod             *corev1.Pod
	Reason, Message string
}

// Reasons of events.
const (
	// NotProbed means that a probe is left out for a pod.
	NotProbed = "ProbeNotPossible"
	// ConditionConflict means that two PodProbeMarkers write the same condition of a pod (PPM-070).
	ConditionConflict = "ProbeConditionConflict"
	// TooManyMarkers means that the PodProbeMarker is beyond the limit of its namespace.
	TooManyMarkers = "TooManyPodProbeMarkers"
)

// Virtual reports whether the node runs no node daemon (PPM-041).
func Virtual(node *corev1.Node) bool { return node.Labels[pub.NodeType] == pub.VirtualNode }

// PlanNode decides what to do for a node.
func PlanNode(s *Snapshot) *Plan {
	p := &Plan{}
	defer p.differing()
	there := s.Node != nil && s.Node.DeletionTimestamp == nil
	if !there || Virtual(s.Node) {
		p.Delete = s.List != nil && s.List.DeletionTimestamp == nil
		if there {
			s.unwatched(p)
		}
		if there && s.Serverless {
			s.markVirtual(p)
		}
		return p
	}

	if s.List == nil {
		if ready := nodes.Ready(s.Node); ready == nil || ready.Status != corev1.ConditionTrue {
			return p
		}
	} else if s.List.DeletionTimestamp != nil {
		return p
	}

	wanted, wishes := s.entries(p)
	switch {
	case s.List == nil:
		p.Create, p.List = true, wanted
		return p
	case !alike(s.List.Spec.PodProbes, wanted):
		p.Write, p.List = true, wanted
	}

	s.mark(p, wishes)
	return p
}

// alike reports whether two lists ask for the same probes, in any order: a list written by an earlier manager
// in another order is not rewritten.
func alike(a, b []appsv1alpha1.PodProbe) bool {
	sorted := func(list []appsv1alpha1.PodProbe) []appsv1alpha1.PodProbe {
		list = slices.Clone(list)
		for i := range list {
			list[i].Probes = slices.Clone(list[i].Probes)
			slices.SortStableFunc(list[i].Probes,
				func(a, b appsv1alpha1.ContainerProbe) int { return cmp.Compare(a.Name, b.Name) })
		}
		slices.SortStableFunc(list, func(a, b appsv1alpha1.PodProbe) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
				cmp.Compare(a.UID, b.UID))
		})
		return list
	}
	return len(a) == len(b) && equality.Semantic.DeepEqual(sorted(a), sorted(b))
}

// wish is a probe that a pod should have.
type wish struct {
	pod    *corev1.Pod
	marker *Marker
	probe  *appsv1alpha1.PodContainerProbe
	entry  appsv1alpha1.ContainerProbe
	// fault is why the probe cannot run, or "" if it can.
	fault string
}

// matched calls do for each PodProbeMarker that matches the pod, in the order of their names.
func (s *Snapshot) matched(pod *corev1.Pod, do func(*Marker)) {
	if !Ready(pod) {
		return
	}
	markers := s.Markers(pod.Namespace)
	for i := range markers {
		if markers[i].Selects(pod.Labels) {
			do(&markers[i])
		}
	}
}

// wishes returns the probes of a pod, in the order of the PodProbeMarkers and of their probes, but no more
// than most. left are the PodProbeMarkers whose probes are missing from it.
func (s *Snapshot) wishes(pod *corev1.Pod, most int) (all []wish, left []*Marker) {
	s.matched(pod, func(marker *Marker) {
		for i := range marker.Spec.Probes {
			if len(all) >= most {
				left = append(left, marker)
				return
			}
			probe := &marker.Spec.Probes[i]
			w := wish{pod: pod, marker: marker, probe: probe}
			w.entry, w.fault = s.entry(pod, marker, probe)
			all = append(all, w)
		}
	})
	return all, left
}

// entry returns a probe as it is listed for the node.
func (s *Snapshot) entry(
	pod *corev1.Pod, marker *Marker, probe *appsv1alpha1.PodContainerProbe,
) (entry appsv1alpha1.ContainerProbe, fault string) {
	entry = appsv1alpha1.ContainerProbe{
		Name:          ProbeName(marker.Name, probe.Name),
		ContainerName: probe.ContainerName,
	}
	if slices.Contains(reserved, probe.PodConditionType) { // stored before admission rejected it
		return entry, fmt.Sprintf("condition %s is written by others", probe.PodConditionType)
	}
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil && controller.Kind == "Node" {
		return entry, "it is a static pod, whose containers have another UID"
	}
	entry.Probe, fault = s.resolved(pod, probe.ContainerName, &probe.Probe)
	return entry, fault
}

// full is the fault of a probe that does not fit.
const full = "the NodePodProbe of its node is full"

// entries returns the list of the node's NodePodProbe, and the wishes of each pod. Probes of a namespace
// beyond the limit of a list are not evaluated at all.
func (s *Snapshot) entries(p *Plan) (list []appsv1alpha1.PodProbe, of map[types.UID][]wish) {
	var wishes []wish
	pods := slices.Clone(s.Pods)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID))
	})

	asked, told, ends := map[string]int{}, map[*appsv1alpha1.PodProbeMarker]bool{}, make([]int, len(pods))
	for i, pod := range pods {
		some, left := s.wishes(pod, MostListed-asked[pod.Namespace])
		asked[pod.Namespace] += len(some)
		for _, marker := range left {
			if !told[marker.PodProbeMarker] {
				told[marker.PodProbeMarker] = true
				p.Warnings = append(p.Warnings, Warning{Marker: marker.PodProbeMarker, Reason: NotProbed,
					Message: fmt.Sprintf("probes are left out for pod %s, and maybe for others: %s", pod.Name,
						full)})
			}
		}
		wishes = append(append(wishes, s.liveness(pod)...), some...)
		ends[i] = len(wishes)
	}

	fit(wishes)

	of = make(map[types.UID][]wish, len(pods))
	begin := 0
	for i, pod := range pods {
		of[pod.UID] = wishes[begin:ends[i]]
		begin = ends[i]
	}

	for i := range wishes {
		w := &wishes[i]
		if w.fault != "" {
			p.leaves(w, of[w.pod.UID], s.Now)
			continue
		}
		if n := len(list); n == 0 || list[n-1].UID != string(w.pod.UID) {
			// The pod gets its entry before its first probe.
			list = append(list, appsv1alpha1.PodProbe{
				Namespace: w.pod.Namespace,
				Name:      w.pod.Name,
				UID:       string(w.pod.UID),
				IP:        w.pod.Status.PodIP,
			})
		}
		last := &list[len(list)-1]
		last.Probes = append(last.Probes, w.entry)
	}
	return list, of
}

// leaves warns that a probe is left out for a pod, by an event and by the probe's condition, if it has one
// that no other probe writes.
func (p *Plan) leaves(w *wish, all []wish, now time.Time) {
	if w.marker == nil {
		p.Warnings = append(p.Warnings, Warning{Pod: w.pod, Reason: NotProbed,
			Message: fmt.Sprintf("the liveness probe of container %s is not carried out: %s",
				w.entry.ContainerName, w.fault)})
		return
	}

	p.Warnings = append(p.Warnings, Warning{Marker: w.marker.PodProbeMarker, Reason: NotProbed,
		Message: fmt.Sprintf("probe %s is left out for pod %s: %s", w.probe.Name, w.pod.Name, w.fault)})

	of := w.probe.PodConditionType
	if of == "" || slices.Contains(reserved, of) ||
		slices.ContainsFunc(all,
			func(o wish) bool { return o.fault == "" && o.probe != nil && o.probe.PodConditionType == of }) {
		return
	}

	c := corev1.PodCondition{
		Type:    corev1.PodConditionType(of),
		Status:  corev1.ConditionFalse,
		Message: "not probed: " + w.fault,
	}

	if before := conditionOf(w.pod, c.Type); before == nil || before.Status != c.Status {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	p.of(w.pod).condition(c, false)
}

// of returns the plan of a pod, adding it if necessary.
func (p *Plan) of(pod *corev1.Pod) *PodPlan {
	for i := len(p.Pods) - 1; i >= 0; i-- {
		if p.Pods[i].Pod.UID == pod.UID {
			return &p.Pods[i]
		}
	}
	p.Pods = append(p.Pods, PodPlan{Pod: pod})
	return &p.Pods[len(p.Pods)-1]
}

// String summarizes the plan for the log.
func (p *Plan) String() string {
	var parts []string
	switch {
	case p.Create:
		parts = append(parts, fmt.Sprintf("create the NodePodProbe with %d pods", len(p.List)))
	case p.Delete:
		parts = append(parts, "delete the NodePodProbe")
	case p.Write:
		parts = append(parts, fmt.Sprintf("write %d pods", len(p.List)))
	}
	if len(p.Pods) > 0 {
		parts = append(parts, fmt.Sprintf("mark %d pods", len(p.Pods)))
	}
	if len(p.Restarts) > 0 {
		parts = append(parts, fmt.Sprintf("restart %d containers", len(p.Restarts)))
	}
	return strings.Join(parts, ", ")
}
