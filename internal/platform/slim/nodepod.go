package slim

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// What the daemon of a node keeps is bounded for each pod, because its memory is small, everybody may put
// pods onto its node, and what is kept is read again at each start: a pod that is too large must not be the
// end of the daemon (ND-057).
const (
	// mostOfHook is the size of a hook that is kept; larger ones are read when they are needed.
	mostOfHook = 8 << 10
	// mostOfPod is the size of what is kept of a pod. Of a larger one nothing is kept but what names it.
	mostOfPod = 64 << 10
	// mostContainers is how many containers a pod may have: each takes some hundred bytes, however little is
	// said about it.
	mostContainers = 200
)

// NodePod keeps of a pod what the daemon of its node reads: its identity, the metadata that its containers
// read, how they are stopped, and what runs (ND-057). Of what is too large nothing is kept, see HasHook.
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

// strip drops all that others may make as large as they like. The daemon reports no such pod.
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

// nodeMetadata keeps of labels or annotations ours, and those that containers read.
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

	for _, key := range []string{pub.ControllerRevisionHash, pub.InPlaceUpdateStateLegacy,
		pub.InPlaceUpdateGraceLegacy} {
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

// HasHook tells whether the pod has all that is to be known of how a container of it is stopped. If not, it
// is to be read from the API server.
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
		if started := all[i].Started; started != nil && !*started { // its startup probe has not succeeded yet
			kept[i].Started = started
		}
		if all[i].State.Running != nil {
			kept[i].State.Running = &corev1.ContainerStateRunning{}
		}
	}
	return kept
}

// NodeRequest keeps of a ContainerRecreateRequest what the daemon decides by. It reads the request again
// before it stops anything, with the hook that is to run.
func NodeRequest(object any) (any, error) {
	request, ok := object.(*appsv1beta1.ContainerRecreateRequest)
	if !ok {
		return object, nil
	}

	request.ManagedFields, request.Annotations, request.OwnerReferences, request.Finalizers = nil, nil, nil,
		nil
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
