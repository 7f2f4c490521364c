// Package metadata reports what the node's runtime knows of the containers of pods in the annotation
// apps.kruise.io/runtime-containers-meta (ND-080 to ND-094). It also stops containers whose environment from
// metadata changed or whose restart was requested, so that kubelet starts them again (ND-100 to ND-116,
// IPU-322).
//
// The report has one entry per container name, for the newest container of that name in the runtime: its ID,
// its restart count, kubelet's hash, and the hash of its actual environment. An entry is made once per ID and
// kept. Readers regard an update in place as complete when the entries match the pod.
package metadata

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// Snapshot is the input of a plan.
type Snapshot struct {
	Pod *corev1.Pod
	// Containers are the pod's containers in the runtime.
	Containers []runtime.Container
	// Environments holds the environments that could be read, by container ID.
	Environments map[string]map[string]string
	// Unreadable holds the IDs of containers whose environment could not be read.
	Unreadable map[string]bool
	// EnvFromMetadata is the gate InPlaceUpdateEnvFromMetadata (ND-100).
	EnvFromMetadata bool
}

// Plan describes what to do about one pod.
type Plan struct {
	// Report is the annotation to write. It is empty if nothing changed (ND-087).
	Report string
	// Read lists the IDs of the containers whose environment is needed and not known yet (ND-106).
	Read []string
	// Restarts lists the containers to stop.
	Restarts []Restart
	// Left describes the containers that must be restarted and that kubelet restarts by itself (ND-116).
	Left []string
}

// Restart is one container to stop.
type Restart struct {
	Container runtime.Container
	// Init means that the container is a restartable init container.
	Init bool
	// Why is the reason, for the log.
	Why string
}

// Eligible reports whether the daemon reports on the pod: its controller belongs to the API group of this
// project, or it has an injected sidecar (ND-082).
func Eligible(pod *corev1.Pod) bool {
	if _, injected := pod.Annotations[pub.SidecarSetHash]; injected {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == appsv1beta1.GroupVersion.Group
}

// skipped returns why the daemon cannot report on the pod now. It is empty if it can.
func skipped(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "the pod is being deleted"
	}
	if !slices.ContainsFunc(statuses(pod), func(s *corev1.ContainerStatus) bool {
		return s.ContainerID != ""
	}) {
		return "no container of the pod has an ID yet"
	}
	return ""
}

// statuses returns the statuses of the containers that run as long as the pod, in the order of the report:
// regular containers, then restartable init containers.
func statuses(pod *corev1.Pod) []*corev1.ContainerStatus {
	var all []*corev1.ContainerStatus
	for i := range pod.Status.ContainerStatuses {
		all = append(all, &pod.Status.ContainerStatuses[i])
	}
	for i := range pod.Status.InitContainerStatuses {
		if container, _ := find(pod, pod.Status.InitContainerStatuses[i].Name); container != nil {
			all = append(all, &pod.Status.InitContainerStatuses[i])
		}
	}
	return all
}

// find returns the container of that name if it runs as long as the pod.
func find(pod *corev1.Pod, name string) (container *corev1.Container, init bool) {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i], false
		}
	}

	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name == name && c.RestartPolicy != nil &&
			*c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return c, true
		}
	}

	return nil, false
}

// reported returns the content of the annotation. An annotation that cannot be parsed counts as missing.
func reported(pod *corev1.Pod) (meta inplace.RuntimeMeta, exists bool) {
	text, exists := pod.Annotations[pub.RuntimeContainersMeta]
	if exists && json.Unmarshal([]byte(text), &meta) != nil {
		return inplace.RuntimeMeta{}, false
	}
	return meta, exists
}

func entry(meta inplace.RuntimeMeta, name, id string) *inplace.RuntimeContainer {
	for i := range meta.Containers {
		if meta.Containers[i].Name == name && meta.Containers[i].ContainerID == id {
			return &meta.Containers[i]
		}
	}
	return nil
}

// NewPlan returns the plan for the pod. If Read is not empty, NewPlan must be called again with these
// environments.
func NewPlan(s Snapshot) Plan {
	var plan Plan
	if skipped(s.Pod) != "" || !Eligible(s.Pod) {
		return plan
	}

	before, exists := reported(s.Pod)
	var after inplace.RuntimeMeta
	for _, status := range statuses(s.Pod) {
		container, init := find(s.Pod, status.Name)
		current := runtime.Newest(s.Containers, status.Name)
		if container == nil || current == nil {
			continue
		}
		e := inplace.RuntimeContainer{
			Name:         status.Name,
			ContainerID:  current.ID,
			RestartCount: current.RestartCount,
			Hashes:       inplace.RuntimeHashes{PlainHash: current.PlainHash},
		}
		if same := entry(before, status.Name, current.ID); same != nil {
			e = *same
		}
		if s.EnvFromMetadata && e.Hashes.ExtractedEnvFromMetadataHash == 0 && current.Running {
			e.Hashes.ExtractedEnvFromMetadataHash = s.actual(container, current.ID, &plan)
		}
		after.Containers = append(after.Containers, e)
		if s.EnvFromMetadata && current.Running {
			s.restart(container, init, current, &e, &plan)
		}
	}

	if len(after.Containers) > 0 && (!exists || !reflect.DeepEqual(before, after)) {
		encoded, _ := json.Marshal(after) // strings and numbers can always be encoded
		plan.Report = string(encoded)
	}

	return plan
}

// actual returns the hash of the container's actual environment. If the environment is unknown, it adds the
// container to plan.Read and returns 0. A container without environment from metadata need not be read.
func (s *Snapshot) actual(container *corev1.Container, id string, plan *Plan) uint64 {
	environment, known := s.Environments[id]
	if !known && inplace.ReadsMetadata(container) {
		plan.Read = append(plan.Read, id)
		return 0
	}
	return number(inplace.ActualEnvHash(container, environment))
}

// restart decides whether the container must be stopped. It decides by the record of the update, which names
// the container that ran when the update began. For managers that write no such record it decides by the
// condition of the pod. If the environment cannot be read, only the record shows that it changed.
func (s *Snapshot) restart(
	container *corev1.Container, init bool, current *runtime.Container,
	e *inplace.RuntimeContainer, plan *Plan,
) {
	state, err := inplace.StateOf(s.Pod)
	if err != nil || state == nil {
		state = &inplace.State{}
	}

	var why string
	actual, expected := e.Hashes.ExtractedEnvFromMetadataHash, number(inplace.EnvHash(s.Pod, container))
	switch {
	case state.RestartContainers[container.Name] == current.ID:
		why = "its restart was asked for"
	case actual != 0 && actual != expected &&
		(updating(s.Pod) || state.EnvContainers[container.Name] == current.ID):
		why = "its environment from metadata changed"
	case actual == 0 && s.Unreadable[current.ID] && state.EnvContainers[container.Name] == current.ID &&
		lifecycle.State(s.Pod) != pub.LifecycleStateNormal:
		why = "its environment from metadata changed, and what it has cannot be read"
	default:
		return
	}

	if replaced(container, current, state) {
		plan.Left = append(plan.Left,
			fmt.Sprintf("container %s: %s, and kubelet is about to replace it for its new image",
				container.Name, why))
		return
	}

	plan.Restarts = append(plan.Restarts, Restart{Container: *current, Init: init, Why: why})
}

// updating reports whether an update in place of the pod is in progress.
func updating(pod *corev1.Pod) bool {
	condition := readiness.Condition(pod, pub.InPlaceUpdateReady)
	return condition != nil && condition.Status == corev1.ConditionFalse
}

// replaced reports whether kubelet will replace the running container anyway because it was not started from
// the image in the spec.
func replaced(container *corev1.Container, current *runtime.Container, state *inplace.State) bool {
	switch {
	case current.PlainHash == number(inplace.PlainHash(container.Name, container.Image)):
		return false
	case current.PlainHash == 0:
		return current.Image != "" && !inplace.SameImage(current.Image, container.Image)
	// Kubelet 1.30 and older store a different hash, of the whole container, so a hash that differs proves
	// nothing. All versions compare the image as it is written.
	case current.Image != "":
		return current.Image != container.Image
	// Runtimes of that time do not report the image, but the record of the update does.
	case state.Revision != "":
		_, changes := state.LastContainerStatuses[container.Name]
		return changes
	}

	return true
}

func number(hash string) uint64 {
	n, _ := strconv.ParseUint(hash, 10, 64) // the hashes of the engine are decimal numbers
	return n
}
