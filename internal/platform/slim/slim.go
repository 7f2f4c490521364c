// Package slim keeps the caches small: fields that no decision reads are dropped before an object is stored.
// Writes are patches of single fields, so nothing that is dropped here is lost in the cluster
// (docs/architecture.md).
package slim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
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

// Claim keeps of a PVC what decisions read: its metadata, what it requests, and how far its growth is.
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

// Node keeps of a node what decisions read: its labels, its taints (WS-142), whether it is cordoned
// (ADS-083), its size (BJ-034), and whether it is ready. Most of a node is the list of its images.
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

// Pod keeps of a pod of ours what decisions read. Of any other pod it keeps its owner, its node, and what
// starts a pass for ContainerRecreateRequests (CRR-055, a checksum in the status' message), for its readiness
// gate (CRR-087) or its launch barrier (ND-135). Of any pod it keeps how the containers of EphemeralJobs are,
// and what PodProbeMarkers need: its address, and conditions that are not usual ones. Of a pod with marked
// sidecars it keeps what their end is decided from (JST-022, JST-023). Of a pod in a subset of a
// WorkloadSpread it also keeps what counting, ranking and rescheduling read (WS-150, WS-162, WS-171), as of
// one in a subset of a UnitedDeployment, and of one that a budget covers whether it is ready (PUB-055). Of a
// pod with a stable name it keeps whether it is ready, and its short annotations (PPS-050, PPS-051).
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
	// BJ-050
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

// volumes are those that stand for PVCs, and of a StatefulSet's pod the names of others, which a webhook may
// have put in their place (ASTS-130), but for that of every service account.
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

// ephemeral keeps the names of ephemeral containers, and which EphemeralJobs added them (EJ-018, EJ-036).
func ephemeral(all []corev1.EphemeralContainer) []corev1.EphemeralContainer {
	if len(all) == 0 {
		return nil
	}

	kept := make([]corev1.EphemeralContainer, len(all))
	for i := range all {
		kept[i].Name = all[i].Name
		for j := len(all[i].Env) - 1; j >= 0; j-- { // the last one counts
			if env := &all[i].Env[j]; env.Name == pub.EphemeralJobEnv {
				kept[i].Env = []corev1.EnvVar{{Name: env.Name, Value: env.Value}}
				break
			}
		}
	}

	return kept
}

// ephemeralStatuses keeps how the containers of EphemeralJobs are (EJ-055). The ephemeral containers of the
// pod are slim already.
func ephemeralStatuses(pod *corev1.Pod, status *corev1.PodStatus) (kept []corev1.ContainerStatus) {
	if len(status.EphemeralContainerStatuses) == 0 {
		return nil
	}

	added := map[string]bool{}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Env != nil {
			added[c.Name] = true
		}
	}

	for i := range status.EphemeralContainerStatuses {
		s := &status.EphemeralContainerStatuses[i]
		if !added[s.Name] {
			continue
		}
		k := corev1.ContainerStatus{Name: s.Name}
		switch state := &s.State; {
		case state.Terminated != nil:
			k.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: state.Terminated.ExitCode}
		case state.Running != nil:
			k.State.Running = &corev1.ContainerStateRunning{}
		case state.Waiting != nil:
			k.State.Waiting = &corev1.ContainerStateWaiting{Reason: state.Waiting.Reason}
		}
		kept = append(kept, k)
	}

	return kept
}

// terminating are the variables that mark sidecars (JST-010).
var terminating = []string{pub.TerminateSidecarEnv, pub.TerminateSidecarIgnoreExitEnv,
	pub.TerminateSidecarImageEnv}

// marked tells whether the pod has sidecars that are to be stopped when the others are done.
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

// grace is how long the containers of a pod may take to end; of one without marked sidecars only what is
// longer than usual is kept, which tells how long a restart may take (IPU-312).
func grace(pod *corev1.Pod) *int64 {
	own := pod.Spec.TerminationGracePeriodSeconds
	if !marked(pod) && (own == nil || *own <= corev1.DefaultTerminationGracePeriodSeconds) {
		return nil
	}
	return own
}

// ofOthers slims a pod that is not ours.
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
	annotation(pub.PodDeletionCost) // also of pods in no subset (WS-164)
	placed := annotation(pub.MatchedWorkloadSpread)
	// a DaemonSet may adopt it (ADS-046)
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
	if gate := (corev1.PodReadinessGate{ConditionType: pub.KruisePodReady}); slices.Contains(
		spec.ReadinessGates, gate) {
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
	if placed || covered || united || named {
		keep(corev1.PodReady)
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

// usual are conditions that most pods have, or that are kept for other reasons.
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

// probed keeps the conditions that PodProbeMarkers may have written (PPM-069), and of a pod that does not run
// yet whether it is initialized (PPM-040).
func probed(status *corev1.PodStatus) (kept []corev1.PodCondition) {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; !usual[c.Type] || c.Type == corev1.PodInitialized &&
			c.Status == corev1.ConditionTrue && status.Phase == corev1.PodPending {
			kept = append(kept, *c)
		}
	}
	return kept
}

// Whole tells whether the caches keep all annotations of a pod.
func Whole(pod *corev1.Pod) bool { return ours(pod) }

// MostRemembered is how long a value of an annotation is at most that is kept of a pod with a stable name
// (PPS-051).
const MostRemembered = 1 << 10

// stable tells whether a pod has a controller and a name that ends with a number: where it is ready, and
// which annotations it has, may be remembered by a PersistentPodState (PPS-013, PPS-050). A few pods with
// random names look so too.
func stable(pod *corev1.Pod) bool {
	number := pod.Name[strings.LastIndexByte(pod.Name, '-')+1:]
	return metav1.GetControllerOfNoCopy(pod) != nil && number != "" && len(number) < len(pod.Name) &&
		strings.Trim(number, "0123456789") == ""
}

// sum returns a checksum of container statuses. It changes when they change, and is all that is kept of them
// for most pods.
func sum(lists ...[]corev1.ContainerStatus) string {
	h := fnv.New64a()
	for _, list := range lists {
		for i := range list {
			fmt.Fprintln(h, list[i].Name, list[i].Ready, list[i].RestartCount, list[i].ContainerID)
		}
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// containers keeps what updates in place change and compare, and the environment variables that read
// metadata, that order the start, or that mark an injected container (SS-106), or one to be stopped when the
// others are done (JST-010).
func containers(all []corev1.Container, named []string) []corev1.Container {
	if len(all) == 0 {
		return nil
	}

	kept := make([]corev1.Container, len(all))
	for i := range all {
		c := &all[i]
		kept[i] = corev1.Container{
			Name:               c.Name,
			Image:              c.Image,
			RestartPolicy:      c.RestartPolicy,
			RestartPolicyRules: c.RestartPolicyRules,
			Resources: corev1.ResourceRequirements{
				Limits:   c.Resources.Limits,
				Requests: c.Resources.Requests,
			},
		}
		kept[i].Env = environment(c.Env, named...)
	}

	return kept
}

// environment keeps the variables that read metadata, later ones of the same name, which override them, and
// the named ones.
func environment(all []corev1.EnvVar, named ...string) []corev1.EnvVar {
	var kept []corev1.EnvVar
	var names map[string]bool
	for i := range all {
		if _, _, reads := inplace.EnvReference(&all[i]); !reads && !names[all[i].Name] &&
			!slices.Contains(named, all[i].Name) {
			continue
		}
		if names == nil {
			names = map[string]bool{}
		}
		kept, names[all[i].Name] = append(kept, all[i]), true
	}

	return kept
}

// restartable keeps the statuses of init containers that run as long as the pod.
func restartable(specs []corev1.Container, statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range statuses {
		if slices.ContainsFunc(specs, func(c corev1.Container) bool {
			return c.Name == statuses[i].Name && c.RestartPolicy != nil
		}) {
			kept = append(kept, statuses[i])
		}
	}
	return kept
}

// restarted keeps how often init containers restarted, and when they ended.
func restarted(statuses []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
	for _, s := range statuses {
		kept = append(kept, corev1.ContainerStatus{
			Name:         s.Name,
			Image:        s.Image,
			ImageID:      s.ImageID,
			ContainerID:  s.ContainerID,
			Ready:        s.Ready,
			Started:      s.Started,
			RestartCount: s.RestartCount,
			State:        s.State,
		})
	}
	return kept
}

// ours tells whether the pod's controller is a workload of ours, or it has injected sidecars.
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
