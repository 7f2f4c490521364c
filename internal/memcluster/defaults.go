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
