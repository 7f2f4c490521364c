package podprobemarker

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// mostTravelling limits what is added to a pod: all annotations of a pod may have 256 KiB together, and a pod
// that exceeds them would be rejected.
const mostTravelling = 64 << 10

// Travelling returns the probes of PodProbeMarkers of its namespace that a new pod carries in its
// annotations, and the names of those PodProbeMarkers; both are empty if there are none (PPM-110 to PPM-112).
func Travelling(pod *corev1.Pod, all []*appsv1alpha1.PodProbeMarker) (probes, names string) {
	var took []appsv1alpha1.PodContainerProbe
	var from []string
	conditions, pairs, bytes := map[string]bool{}, map[[2]string]bool{}, 0
	markers, _ := Markers(all, nil)

	for i := range markers {
		if !markers[i].Selects(pod.Labels) {
			continue
		}

		used := false
		for j := range markers[i].Spec.Probes {
			probe := markers[i].Spec.Probes[j]
			pair := [2]string{probe.ContainerName, probe.Name}
			if probe.PodConditionType == "" || conditions[probe.PodConditionType] || pairs[pair] ||
				!runs(pod, probe.ContainerName) || Fault(&probe.Probe) != "" ||
				slices.Contains(reserved, probe.PodConditionType) {
				continue
			}
			probe.MarkerPolicy = nil
			text, err := json.Marshal(&probe)
			if err != nil || bytes+len(text) > mostTravelling {
				continue
			}
			bytes += len(text)
			conditions[probe.PodConditionType], pairs[pair], used = true, true, true
			took = append(took, probe)
		}

		if used {
			from = append(from, markers[i].Name)
		}
	}

	if len(took) == 0 {
		return "", ""
	}

	text, err := json.Marshal(took)
	if err != nil {
		return "", ""
	}

	return string(text), strings.Join(from, ",") // sorted, as Markers are
}

// runs reports whether the pod has a container of that name that runs as long as the pod does.
func runs(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Containers,
		func(c corev1.Container) bool { return c.Name == name }) ||
		slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
			return c.Name == name && c.RestartPolicy != nil &&
				*c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		})
}
