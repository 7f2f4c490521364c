// Package slim keeps the caches small by dropping fields that no decision reads before an object is stored.
// Writes are patches of single fields, so what is dropped here is not lost in the cluster
// (docs/architecture.md).
package slim

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
)

var _ toolscache.TransformFunc = Pod

// Any reduces an object of any kind to what the manager's caches keep.
func Any(object any) (any, error) {
	switch object.(type) {
	case *corev1.Pod:
		return Pod(object)
	case *corev1.Node:
		return Node(object)
	case *corev1.PersistentVolumeClaim:
		return Claim(object)
	case *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *batchv1.Job:
		return Workload(object)
	}
	return Metadata(object)
}

// Metadata drops managedFields, which nothing reads.
func Metadata(object any) (any, error) {
	if meta, ok := object.(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
	return object, nil
}

// Claim reduces a PVC to what decisions read: its metadata, its requests, and the progress of its expansion.
func Claim(object any) (any, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return object, nil
	}

	claim.ManagedFields, claim.Annotations = nil, nil
	spec, status := claim.Spec, claim.Status
	claim.Spec = corev1.PersistentVolumeClaimSpec{
		Resources:        corev1.VolumeResourceRequirements{Requests: spec.Resources.Requests},
		AccessModes:      spec.AccessModes,
		StorageClassName: spec.StorageClassName,
	}
	claim.Status = corev1.PersistentVolumeClaimStatus{
		Capacity:   status.Capacity,
		Conditions: status.Conditions,
	}

	return claim, nil
}

// Node reduces a node to what decisions read: its labels, its taints (WS-142), whether it is cordoned
// (ADS-083), its capacity (BJ-034), and whether it is ready. Most of a node is the list of its images.
func Node(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields, node.Annotations = nil, nil
	ready := nodes.Ready(node)
	node.Spec = corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable}
	node.Status = corev1.NodeStatus{Allocatable: node.Status.Allocatable}
	if ready != nil {
		node.Status.Conditions = []corev1.NodeCondition{*ready}
	}
	return node, nil
}

// Pod reduces a pod to what decisions read. If the pod belongs to a workload of this project or has injected
// sidecars, that is most of its spec and status. Of any other pod it keeps:
//   - its owner, its node, its address and conditions that are not usual ones, for PodProbeMarkers
//   - what triggers a pass for ContainerRecreateRequests (CRR-055; a checksum in the message of the status),
//     for its readiness gate (CRR-087) or its launch barrier (ND-135)
//   - the state of the containers of EphemeralJobs
//   - with marked sidecars, what their termination is decided from (JST-022, JST-023)
//   - in a subset of a WorkloadSpread or a UnitedDeployment, what counting, ranking and rescheduling read
//     (WS-150, WS-162, WS-171)
//   - whether it is ready, and since when if a budget covers it (PUB-055)
//   - with a stable name, whether it is ready, and its short annotations (PPS-050, PPS-051)
func Pod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}

	pod.ManagedFields = nil
	if !ours(pod) {
		ofOthers(pod)
		return pod, nil
	}

	status, named := pod.Status, []string{pub.ContainerBarrierEnv, pub.SidecarInjectedEnv}
	if marked(pod) {
		named = append(named, terminating...)
	}
	pod.Spec.EphemeralContainers = ephemeral(pod.Spec.EphemeralContainers)
	pod.Status = corev1.PodStatus{
		Phase:                      status.Phase,
		Conditions:                 status.Conditions,
		ContainerStatuses:          status.ContainerStatuses,
		InitContainerStatuses:      restartable(pod.Spec.InitContainers, status.InitContainerStatuses),
		ObservedGeneration:         status.ObservedGeneration,
		Resize:                     status.Resize,
		PodIP:                      status.PodIP,
		EphemeralContainerStatuses: ephemeralStatuses(pod, &status),
	}

	// A BroadcastJob counts the restarts of init containers.
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil &&
		controller.Kind == "BroadcastJob" {
		pod.Status.InitContainerStatuses = restarted(status.InitContainerStatuses)
	}
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation)
	pod.Spec = corev1.PodSpec{
		NodeName:                      pod.Spec.NodeName,
		ReadinessGates:                pod.Spec.ReadinessGates,
		RestartPolicy:                 pod.Spec.RestartPolicy,
		Resources:                     pod.Spec.Resources,
		Containers:                    containers(pod.Spec.Containers, named),
		InitContainers:                containers(pod.Spec.InitContainers, named),
		Volumes:                       volumes(pod),
		Affinity:                      nodes.Slim(pod),
		TerminationGracePeriodSeconds: grace(pod),
		EphemeralContainers:           pod.Spec.EphemeralContainers,
	}

	return pod, nil
}

// volumes keeps the volumes of PVCs. Of a StatefulSet's pod it also keeps the names of all other volumes
// except the service account token's, since a webhook may have replaced the volume of a PVC.
func volumes(pod *corev1.Pod) (kept []corev1.Volume) {
	controller := metav1.GetControllerOfNoCopy(pod)
	named := controller != nil && controller.Kind == "StatefulSet" &&
		strings.HasPrefix(controller.APIVersion, appsv1beta1.GroupVersion.Group+"/")

	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if claim := v.PersistentVolumeClaim; claim != nil ||
			named && !strings.HasPrefix(v.Name, "kube-api-access-") {
			kept = append(kept, corev1.Volume{
				Name:         v.Name,
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim},
			})
		}
	}

	return kept
}

// terminating lists the environment variables that mark sidecars.
var terminating = []string{
	pub.TerminateSidecarEnv, pub.TerminateSidecarIgnoreExitEnv, pub.TerminateSidecarImageEnv,
}

// marked reports whether the pod has sidecars that must be stopped when the other containers have completed.
func marked(pod *corev1.Pod) bool {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return false
	}
	for i := range pod.Spec.Containers {
		for j := range pod.Spec.Containers[i].Env {
			if slices.Contains(terminating, pod.Spec.Containers[i].Env[j].Name) {
				return true
			}
		}
	}
	return false
}

// grace returns the termination grace period. For a pod without marked sidecars, only a period longer than
// the default is kept, because it determines how long a restart may take.
func grace(pod *corev1.Pod) *int64 {
	own := pod.Spec.TerminationGracePeriodSeconds
	if !marked(pod) && (own == nil || *own <= corev1.DefaultTerminationGracePeriodSeconds) {
		return nil
	}
	return own
}

// ofOthers reduces a pod that neither belongs to a workload of this project nor has injected sidecars.
func ofOthers(pod *corev1.Pod) {
	spec, status, ends := pod.Spec, pod.Status, marked(pod)
	annotations := pod.Annotations
	pod.Annotations = nil
	annotation := func(key string) bool {
		value, ok := annotations[key]
		if ok {
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			pod.Annotations[key] = value
		}
		return ok
	}
	annotation(pub.PodDeletionCost) // also of pods in no subset
	placed := annotation(pub.MatchedWorkloadSpread)

	// A DaemonSet may adopt the pod, so its node affinity is kept.
	pod.Spec = corev1.PodSpec{
		NodeName:            spec.NodeName,
		Affinity:            nodes.Slim(pod),
		EphemeralContainers: ephemeral(spec.EphemeralContainers),
	}
	annotation(pub.PodProbeMarkers)
	pod.Status = corev1.PodStatus{
		Phase:                      status.Phase,
		EphemeralContainerStatuses: ephemeralStatuses(pod, &status),
		PodIP:                      status.PodIP,
		Conditions:                 probed(&status),
	}
	keep := func(conditionType corev1.PodConditionType) {
		for i := range status.Conditions {
			if status.Conditions[i].Type == conditionType {
				pod.Status.Conditions = append(pod.Status.Conditions, status.Conditions[i])
			}
		}
	}
	if gate := (corev1.PodReadinessGate{
		ConditionType: pub.KruisePodReady,
	}); slices.Contains(spec.ReadinessGates, gate) {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{gate}
		keep(pub.KruisePodReady)
	}

	barrier := false
	for i := range spec.Containers {
		c := &spec.Containers[i]
		kept := corev1.Container{
			Name:               c.Name,
			RestartPolicy:      c.RestartPolicy,
			RestartPolicyRules: c.RestartPolicyRules,
		}
		for j := range c.Env {
			if c.Env[j].Name == pub.ContainerBarrierEnv ||
				ends && slices.Contains(terminating, c.Env[j].Name) {
				kept.Env = append(kept.Env, c.Env[j])
				barrier = barrier || c.Env[j].Name == pub.ContainerBarrierEnv
			}
		}
		if ends {
			kept.Image = c.Image
		}
		if ends || len(kept.Env) > 0 {
			pod.Spec.Containers = append(pod.Spec.Containers, kept)
		}
	}

	if barrier || ends {
		pod.Spec.RestartPolicy = spec.RestartPolicy
	}
	if barrier {
		annotation(pub.LaunchCompleted)
		keep(corev1.ContainersReady)
	}
	if ends {
		pod.Spec.TerminationGracePeriodSeconds = spec.TerminationGracePeriodSeconds
		keep(pub.SidecarTerminated)
	}
	named := stable(pod)
	if named {
		for key, value := range annotations {
			if len(value) <= MostRemembered && key != corev1.LastAppliedConfigAnnotation {
				annotation(key)
			}
		}
	}

	covered := annotation(pub.RelatedBudget)
	covered = annotation(pub.RelatedBudgetLegacy) || covered
	united := inSubset(pod)
	if placed || united {
		keep(corev1.PodScheduled)
	}
	switch {
	case placed || covered || united || named:
		keep(corev1.PodReady)
	case len(pod.Status.Conditions) == 0:
		pod.Status.Conditions = bareReady(&status)
	default:
		pod.Status.Conditions = append(pod.Status.Conditions, bareReady(&status)...)
	}

	for _, s := range status.ContainerStatuses {
		switch {
		case barrier || ends:
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
				corev1.ContainerStatus{
					Name:         s.Name,
					Ready:        s.Ready,
					State:        s.State,
					RestartCount: s.RestartCount,
				})
		case placed && s.RestartCount > 0:
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
				corev1.ContainerStatus{Name: s.Name, RestartCount: s.RestartCount})
		}
	}

	pod.Status.Message = sum(status.ContainerStatuses,
		restartable(spec.InitContainers, status.InitContainerStatuses))
}

// ready are the conditions of pods of which only their readiness is kept. The pods share them, because there are many such pods, and
// what a cache shows is never changed.
var ready = map[corev1.ConditionStatus][]corev1.PodCondition{
	corev1.ConditionTrue:  {{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	corev1.ConditionFalse: {{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
}

// bareReady returns whether the pod is ready, and nothing more. A budget may cover the pod without an annotation that says so.
func bareReady(status *corev1.PodStatus) []corev1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == corev1.PodReady {
			return ready[status.Conditions[i].Status]
		}
	}
	return nil
}

// usual lists conditions that most pods have, and conditions that are kept for other reasons.
var usual = map[corev1.PodConditionType]bool{
	corev1.PodScheduled:              true,
	corev1.PodInitialized:            true,
	corev1.PodReady:                  true,
	corev1.ContainersReady:           true,
	corev1.PodReadyToStartContainers: true,
	corev1.DisruptionTarget:          true,
	corev1.PodResizePending:          true,
	corev1.PodResizeInProgress:       true,
	pub.KruisePodReady:               true,
	pub.InPlaceUpdateReady:           true,
	pub.SidecarTerminated:            true,
}

// probed keeps the conditions that PodProbeMarkers may have written. Of a pending pod it also keeps whether
// it is initialized.
func probed(status *corev1.PodStatus) (kept []corev1.PodCondition) {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; !usual[c.Type] || c.Type == corev1.PodInitialized &&
			c.Status == corev1.ConditionTrue && status.Phase == corev1.PodPending {
			kept = append(kept, *c)
		}
	}
	return kept
}

// Whole reports whether the caches keep all annotations of the pod.
func Whole(pod *corev1.Pod) bool { return ours(pod) }

// MostRemembered is the maximum size of an annotation's value that is kept of a pod with a stable name
// (PPS-051).
const MostRemembered = 1 << 10

// stable reports whether the pod has a controller and a name that ends with a number. A PersistentPodState
// may remember where such a pod is ready and which annotations it has. A few pods with random names match
// too.
func stable(pod *corev1.Pod) bool {
	number := pod.Name[strings.LastIndexByte(pod.Name, '-')+1:]
	return metav1.GetControllerOfNoCopy(pod) != nil && number != "" && len(number) < len(pod.Name) &&
		strings.Trim(number, "0123456789") == ""
}

// ours reports whether the controller of the pod is a workload of this project or the pod has injected
// sidecars.
func ours(pod *corev1.Pod) bool {
	if pod.Annotations[pub.SidecarSetInjectedList] != "" {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == appsv1beta1.GroupVersion.Group
}
