// Package metadata reports on pods what the node's runtime knows of their containers, in the annotation
// apps.kruise.io/runtime-containers-meta (ND-080 to ND-094), and stops containers whose environment from
// metadata changed, or whose restart was asked for, so that kubelet starts them anew (ND-100 to ND-116,
// IPU-322).
//
// The report has one entry a container, of the newest container of that name in the runtime: its ID, restart
// count, kubelet's hash and the hash of the environment that it has. An entry is made once for an ID and
// kept. Readers regard an update in place as complete when the entries agree with the pod.
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

// Snapshot is all that one plan is made from.
type Snapshot struct {
	Pod *corev1.Pod
	// Containers are the pod's in the runtime.
	Containers []runtime.Container
	// Environments are those that could be read, by container ID.
	Environments map[string]map[string]string
	// Unreadable are the IDs of containers whose environment could not be read.
	Unreadable map[string]bool
	// EnvFromMetadata is the gate InPlaceUpdateEnvFromMetadata (ND-100).
	EnvFromMetadata bool
}

// Plan says what to do about one pod.
type Plan struct {
	// Report is the annotation to write; empty if nothing changed (ND-087).
	Report string
	// Read lists the IDs of the containers whose environment is needed and not known yet (ND-106).
	Read []string
	// Restarts are the containers to stop.
	Restarts []Restart
	// Left describes the containers to be restarted that kubelet restarts by itself (ND-116).
	Left []string
}

// Restart is one container to stop.
type Restart struct {
	Container runtime.Container
	// Init: it is a restartable init container.
	Init bool
	// Why is the reason, for the log.
	Why string
}

// Eligible tells whether the daemon reports the pod: its controller is of our API group, or it has an
// injected sidecar (ND-082).
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

// skipped returns why the pod cannot be reported now; empty if it can (ND-091).
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
// regular ones, then restartable init containers (ND-083, ND-094).
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

// find returns the container of that name, if it is one that runs as long as the pod.
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

// reported reads the annotation; an unreadable one counts as missing.
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

// NewPlan makes the plan. If Plan.Read is not empty, it is called again with these environments.
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
			e = *same // ND-086
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
		encoded, _ := json.Marshal(after) // strings and numbers always encode
		plan.Report = string(encoded)
	}

	return plan
}

// actual returns the hash of the environment that the container has. It is 0 if the environment is not known;
// then the plan asks to read it. A container without environment from metadata needs no reading.
func (s *Snapshot) actual(container *corev1.Container, id string, plan *Plan) uint64 {
	environment, known := s.Environments[id]
	if !known && inplace.ReadsMetadata(container) {
		plan.Read = append(plan.Read, id)
		return 0
	}
	return number(inplace.ActualEnvHash(container, environment))
}

// restart decides whether the container is to be stopped. It decides by the record of the update, which names
// the container that ran when the update began. For managers that write no such record it decides by the
// pod's condition (ND-110, ND-111, IPU-312, IPU-322). If the environment cannot be read, only the record
// shows that it changed (ND-106).
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
				container.Name,
				why))
		return
	}

	plan.Restarts = append(plan.Restarts, Restart{Container: *current, Init: init, Why: why})
}

// updating tells whether an update in place of the pod is under way.
func updating(pod *corev1.Pod) bool {
	condition := readiness.Condition(pod, pub.InPlaceUpdateReady)
	return condition != nil && condition.Status == corev1.ConditionFalse
}

// replaced tells whether kubelet replaces the running container anyway: it was not started from the image of
// the spec (ND-116, IPU-319).
func replaced(container *corev1.Container, current *runtime.Container, state *inplace.State) bool {
	switch {
	case current.PlainHash == number(inplace.PlainHash(container.Name, container.Image)):
		return false
	case current.PlainHash == 0:
		return current.Image != "" && !inplace.SameImage(current.Image, container.Image)
	// Kubelets of 1.30 and older store another hash, of the whole container, so that one that differs says
	// nothing. All compare the image as it is written.
	case current.Image != "":
		return current.Image != container.Image
	case state.Revision != "": // runtimes of their time do not tell the image; the record of the update does
		_, changes := state.LastContainerStatuses[container.Name]
		return changes
	}

	return true
}

func number(hash string) uint64 {
	n, _ := strconv.ParseUint(hash, 10, 64) // the engine's hashes are decimals
	return n
}
