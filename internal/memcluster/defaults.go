package memcluster

import corev1 "k8s.io/api/core/v1"

// defaults sets the phase of a new pod, and the requests of containers that have only limits, like the API
// server.
func defaults(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodPending
	for i := range pod.Spec.Containers {
		r := &pod.Spec.Containers[i].Resources
		for name, limit := range r.Limits {
			if _, ok := r.Requests[name]; !ok {
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = limit
			}
		}
	}
}

// qualityOf returns the QoS class of a pod, given its regular containers.
func qualityOf(pod *corev1.Pod) corev1.PodQOSClass {
	some, guaranteed := false, true
	for i := range pod.Spec.Containers {
		r := &pod.Spec.Containers[i].Resources
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := r.Limits[name]
			request, requested := r.Requests[name]
			some = some || limited || requested
			guaranteed = guaranteed && limited && requested && limit.Equal(request)
		}
	}

	switch {
	case !some:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}

	return corev1.PodQOSBurstable
}
