package slim

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// Limits of what the node daemon keeps of a pod. The memory of the daemon is small, everybody may create pods
// on its node, and the pods are read again at each start, so a pod that is too large would crash the daemon
// each time.
const (
	// mostOfHook is the maximum size of a hook that is kept. Larger hooks are read when they are needed.
	mostOfHook = 8 << 10
	// mostOfPod is the maximum size of a slim pod. Of a larger pod only what identifies it is kept.
	mostOfPod = 64 << 10
	// mostContainers is the maximum number of containers of a pod, since each container takes some hundred
	// bytes even if little is specified.
	mostContainers = 200
)

// NodePod reduces a pod to what the daemon of its node reads: its identity, the metadata that its containers
// read, how they are stopped, and what is running (ND-057). Parts that are too large are dropped; see
// HasHook.
func NodePod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}

	pod.ManagedFields, pod.Finalizers = nil, nil
	spec, status := pod.Spec, pod.Status
	pod.Spec = corev1.PodSpec{NodeName: spec.NodeName, RestartPolicy: spec.RestartPolicy}
	pod.Status = corev1.PodStatus{Phase: status.Phase, PodIP: status.PodIP}
	if len(spec.Containers)+len(spec.InitContainers) > mostContainers {
		strip(pod)
		return pod, nil
	}

	pod.Labels, pod.Annotations = nodeMetadata(pod.Labels, &spec), nodeMetadata(pod.Annotations, &spec)
	pod.Spec.ReadinessGates = spec.ReadinessGates
	pod.Spec.Containers, pod.Spec.InitContainers = nodeContainers(spec.Containers),
		nodeContainers(spec.InitContainers)
	pod.Status.ContainerStatuses = nodeStatuses(status.ContainerStatuses)
	pod.Status.InitContainerStatuses = nodeStatuses(status.InitContainerStatuses)

	for _, condition := range status.Conditions {
		if condition.Type == pub.InPlaceUpdateReady {
			pod.Status.Conditions = append(pod.Status.Conditions, condition)
		}
	}

	if pod.Size() > mostOfPod {
		strip(pod)
	}

	return pod, nil
}

// strip drops everything whose size is up to users. The daemon does not report on such a pod.
func strip(pod *corev1.Pod) {
	pod.ObjectMeta = metav1.ObjectMeta{
		Namespace:         pod.Namespace,
		Name:              pod.Name,
		UID:               pod.UID,
		ResourceVersion:   pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp,
		DeletionTimestamp: pod.DeletionTimestamp,
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, RestartPolicy: pod.Spec.RestartPolicy}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP}
}

// nodeMetadata keeps the labels or annotations that belong to this project and those that containers read.
func nodeMetadata(all map[string]string, spec *corev1.PodSpec) map[string]string {
	var kept map[string]string
	keep := func(key string) {
		if value, ok := all[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}

	for key := range all {
		if prefix, _, _ := strings.Cut(key, "/"); strings.HasSuffix(prefix, "kruise.io") {
			keep(key)
		}
	}

	for _, key := range []string{
		pub.ControllerRevisionHash, pub.InPlaceUpdateStateLegacy, pub.InPlaceUpdateGraceLegacy,
	} {
		keep(key)
	}

	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			for j := range list[i].Env {
				if key, _, reads := inplace.EnvReference(&list[i].Env[j]); reads {
					keep(key)
				}
			}
		}
	}

	return kept
}

// HasHook reports whether the slim pod is sufficient to stop the container. If not, the pod must be read from
// the API server.
func HasHook(pod *corev1.Pod, container string) bool {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				hook := list[i].Lifecycle
				return hook == nil || hook.PreStop == nil || *hook.PreStop != corev1.LifecycleHandler{}
			}
		}
	}
	return false
}

func nodeContainers(all []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(all))
	for i := range all {
		c := &all[i]
		kept[i] = corev1.Container{
			Name:               c.Name,
			Image:              c.Image,
			RestartPolicy:      c.RestartPolicy,
			RestartPolicyRules: c.RestartPolicyRules,
		}
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
			kept[i].Lifecycle, kept[i].Ports = &corev1.Lifecycle{PreStop: c.Lifecycle.PreStop}, c.Ports
			if kept[i].Size() > mostOfHook {
				kept[i].Lifecycle, kept[i].Ports = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}, nil
			}
		}
		kept[i].Env = environment(c.Env)
	}

	return kept
}

func nodeStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, len(all))
	for i := range all {
		kept[i] = corev1.ContainerStatus{
			Name:         all[i].Name,
			ContainerID:  all[i].ContainerID,
			RestartCount: all[i].RestartCount,
		}
		if started := all[i].Started; started != nil && !*started { // its startup probe has not succeeded
			kept[i].Started = started
		}
		if all[i].State.Running != nil {
			kept[i].State.Running = &corev1.ContainerStateRunning{}
		}
	}

	return kept
}

// NodeRequest reduces a ContainerRecreateRequest to what the daemon makes decisions from. The daemon reads
// the request again, with the hook to run, before it stops a container.
func NodeRequest(object any) (any, error) {
	request, ok := object.(*appsv1beta1.ContainerRecreateRequest)
	if !ok {
		return object, nil
	}

	request.ManagedFields, request.Annotations, request.OwnerReferences, request.Finalizers =
		nil, nil, nil, nil

	labels := map[string]string{}
	for _, key := range []string{pub.RecreateActive, pub.RecreateNodeName, pub.RecreatePodUID} {
		if value, ok := request.Labels[key]; ok {
			labels[key] = value
		}
	}

	request.Labels = labels
	for i := range request.Spec.Containers {
		request.Spec.Containers[i].PreStop, request.Spec.Containers[i].Ports = nil, nil
	}

	return request, nil
}
