package podprobemarker

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
)

// MostMarkers is how many PodProbeMarkers of a namespace are carried out, in the order of their names. The
// others are ignored, with a warning. Each pass over a node matches all of them against each pod of the
// namespace.
const MostMarkers = 500

// Marker is a PodProbeMarker that is carried out.
type Marker struct {
	*appsv1alpha1.PodProbeMarker
	selector labels.Selector
}

// Parse parses the selector of a PodProbeMarker. nil parses it anew each time.
type Parse func(marker *appsv1alpha1.PodProbeMarker) (labels.Selector, error)

// Markers returns the PodProbeMarkers of a list that are carried out, sorted by name, without those that are
// being deleted or select nothing. left are those beyond the limit.
func Markers(
	all []*appsv1alpha1.PodProbeMarker, parse Parse,
) (markers []Marker, left []*appsv1alpha1.PodProbeMarker) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *appsv1alpha1.PodProbeMarker) int { return cmp.Compare(a.Name, b.Name) })
	for _, marker := range all {
		switch {
		case marker.DeletionTimestamp != nil:
		case len(markers) == MostMarkers: // no selector beyond the limit is parsed
			left = append(left, marker)
		default:
			if selector := selectorOf(marker, parse); selector != nil {
				markers = append(markers, Marker{marker, selector})
			}
		}
	}

	return markers, left
}

// selectorOf returns nil if nothing is selected: an empty selector does not select all pods.
func selectorOf(marker *appsv1alpha1.PodProbeMarker, parse Parse) labels.Selector {
	spec := marker.Spec.Selector
	if spec == nil || len(spec.MatchLabels)+len(spec.MatchExpressions) == 0 ||
		fieldcheck.SelectorTerms(spec) > fieldcheck.MostSelectorTerms {
		return nil
	}
	if parse == nil {
		parse = func(*appsv1alpha1.PodProbeMarker) (labels.Selector, error) {
			return metav1.LabelSelectorAsSelector(spec)
		}
	}
	selector, err := parse(marker)
	if err != nil {
		return nil
	}
	return selector
}

// Selects reports whether the PodProbeMarker selects a pod with these labels.
func (m *Marker) Selects(of map[string]string) bool { return m.selector.Matches(labels.Set(of)) }

// Matches counts the pods that a PodProbeMarker matches (PPM-040, PPM-059).
func Matches(
	marker *appsv1alpha1.PodProbeMarker, pods []*corev1.Pod, nodeExists func(string) bool,
) (n int64) {
	selector := selectorOf(marker, nil)
	if selector == nil {
		return 0
	}
	for _, pod := range pods {
		if pod.Namespace == marker.Namespace && Ready(pod) && selector.Matches(labels.Set(pod.Labels)) &&
			nodeExists(pod.Spec.NodeName) {
			n++
		}
	}
	return n
}

// NodesOf returns the nodes of the pods that a PodProbeMarker matches, without duplicates.
func NodesOf(marker *appsv1alpha1.PodProbeMarker, pods []*corev1.Pod) (nodes []string) {
	selector := selectorOf(marker, nil)
	if selector == nil {
		return nil
	}
	for _, pod := range pods {
		if pod.Namespace == marker.Namespace && Ready(pod) && selector.Matches(labels.Set(pod.Labels)) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Ready reports whether a pod can be probed: it is active, assigned to a node, and initialized (PPM-040).
func Ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && initialized(pod)
}

// initialized reports whether the init containers of a pod are done. They are if the pod runs; the caches do
// not keep the condition of such a pod.
func initialized(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodRunning {
		return true
	}
	c := conditionOf(pod, corev1.PodInitialized)
	return c != nil && c.Status == corev1.ConditionTrue
}

func conditionOf(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

// listed returns the PodProbeMarkers whose probes a pod carries in its annotations.
func listed(pod *corev1.Pod) []string {
	if pod.Annotations[pub.PodProbeMarkers] == "" {
		return nil
	}
	return strings.Split(pod.Annotations[pub.PodProbeMarkers], ",")
}

// separator separates the name of a PodProbeMarker from that of its probe. Neither name contains it.
const separator = "#"

// ProbeName returns the name of a probe in a NodePodProbe.
func ProbeName(marker, probe string) string { return marker + separator + probe }

// MarkerOf returns the name of the PodProbeMarker in the name of a probe, or "" if there is none (PPM-057).
func MarkerOf(name string) string {
	marker, _, found := strings.Cut(name, separator)
	if !found {
		return ""
	}
	return marker
}

// Listed returns the PodProbeMarkers with probes in a list, as namespace/name.
func Listed(pods []appsv1alpha1.PodProbe) map[string]bool {
	found := map[string]bool{}
	for i := range pods {
		for j := range pods[i].Probes {
			if marker := MarkerOf(pods[i].Probes[j].Name); marker != "" {
				found[pods[i].Namespace+"/"+marker] = true
			}
		}
	}
	return found
}
