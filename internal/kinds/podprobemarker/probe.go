package podprobemarker

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// Effective returns a probe with its defaults applied: 0 means 1 (PPM-012).
func Effective(probe appsv1alpha1.ContainerProbeSpec) appsv1alpha1.ContainerProbeSpec {
	for _, number := range []*int32{
		&probe.InitialDelaySeconds, &probe.TimeoutSeconds, &probe.PeriodSeconds, &probe.SuccessThreshold,
		&probe.FailureThreshold,
	} {
		if *number <= 0 {
			*number = 1
		}
	}
	return probe
}

// Fault returns why a probe cannot run, or "" if it can. It does not matter who wrote the probe: one that
// admission rejects may have been stored before, or written to a NodePodProbe by hand (PPM-011, PPM-027,
// PPM-028).
func Fault(probe *appsv1alpha1.ContainerProbeSpec) string {
	handlers, host := 0, ""
	if probe.Exec != nil {
		handlers++
		if len(probe.Exec.Command) == 0 {
			return "it has no command"
		}
	}
	if probe.HTTPGet != nil {
		handlers++
		host = probe.HTTPGet.Host
	}
	if probe.TCPSocket != nil {
		handlers++
		host += probe.TCPSocket.Host
	}

	switch {
	case handlers != 1:
		return "it must have exactly one of exec, httpGet and tcpSocket"
	case host != "":
		return "host field in probes is not allowed"
	}
	return ""
}

// resolved returns a probe with its ports as numbers.
func (s *Snapshot) resolved(
	pod *corev1.Pod, container string, probe *appsv1alpha1.ContainerProbeSpec,
) (_ appsv1alpha1.ContainerProbeSpec, fault string) {
	if fault = Fault(probe); fault != "" {
		return *probe, fault
	}
	resolved := *probe.DeepCopy()
	resolved.GRPC = nil // ignored beside another handler

	var port *intstr.IntOrString
	switch {
	case resolved.HTTPGet != nil:
		port = &resolved.HTTPGet.Port
	case resolved.TCPSocket != nil:
		port = &resolved.TCPSocket.Port
	default:
		return resolved, ""
	}

	number, named := numberOf(*port)
	if named {
		found, ok := s.Ports(pod, container, port.StrVal)
		if !ok {
			return resolved, fmt.Sprintf("container %s has no port %s", container, port.StrVal)
		}
		number = int(found)
	}

	if number < 1 || number > 65535 {
		return resolved, fmt.Sprintf("%d is no port", number)
	}
	*port = intstr.FromInt32(int32(number))
	return resolved, ""
}

// Port returns the number of a named port of a container of the pod, or of an init container that runs as
// long as the pod.
func Port(pod *corev1.Pod, container, name string) (number int32, found bool) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for j := range containers[i].Ports {
				if port := &containers[i].Ports[j]; containers[i].Name == container && port.Name == name {
					return port.ContainerPort, true
				}
			}
		}
	}
	return 0, false
}
