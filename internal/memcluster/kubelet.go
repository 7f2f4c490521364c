package memcluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// Node simulates the scheduler and the kubelets.
type Node struct {
	// Digests maps images to digests. The digest of an image that is not listed is its name. An image with an
	// empty digest cannot be pulled.
	Digests map[string]string
	// Observes makes the kubelets report the observed generation, as newer kubelets do.
	Observes bool

	// Schedule returns the node of a pod, or an empty string if there is none yet. If it is nil, all pods run
	// on one node.
	Schedule func(*corev1.Pod) string
	// Daemon means that a node daemon reports what containers were started with, and restarts containers
	// whose environment changed or whose restart was requested.
	Daemon bool
	// Frozen holds the names of pods that the kubelets do not touch, as on a dead node.
	Frozen map[string]bool
	// Unfit holds the UIDs of pods that cannot be resized.
	Unfit map[string]bool
	// Steps counts the calls of Step.
	Steps int

	cluster    *Cluster
	containers int
	// running holds what is actually running, by pod UID and container.
	running map[string]Running
}

// Running describes what a container was started with. Env is its [Environment].
type Running struct {
	Image, Env, Restart string
}

// NewNode returns a scheduler and kubelets that can pull every image.
func (c *Cluster) NewNode() *Node {
	return &Node{
		cluster: c,
		Digests: map[string]string{},
		Frozen:  map[string]bool{},
		running: map[string]Running{},
	}
}

// Environment returns the environment that a kubelet would start a container with. It has one line for each
// variable, with its value or the value of the label or annotation that it refers to.
func Environment(pod *corev1.Pod, container *corev1.Container) string {
	var text strings.Builder
	for _, env := range container.Env {
		value := env.Value
		if env.ValueFrom != nil && env.ValueFrom.FieldRef != nil {
			for prefix, values := range map[string]map[string]string{
				"metadata.labels['":      pod.Labels,
				"metadata.annotations['": pod.Annotations,
			} {
				if key, ok := strings.CutPrefix(env.ValueFrom.FieldRef.FieldPath, prefix); ok {
					value = values[strings.TrimSuffix(key, "']")]
				}
			}
		}
		fmt.Fprintf(&text, "%s=%s\n", env.Name, value)
	}

	return text.String()
}

// Runs returns what a container of the pod is actually running with.
func (n *Node) Runs(pod *corev1.Pod, container string) Running {
	return n.running[string(pod.UID)+"/"+container]
}

// Found adds a pod that is already running, whose containers match its spec.
func (n *Node) Found(pod *corev1.Pod) {
	for _, container := range lasting(pod) {
		n.running[string(pod.UID)+"/"+container.Name] = Running{
			Image:   container.Image,
			Env:     Environment(pod, container),
			Restart: pod.Annotations[pub.RestartedAt],
		}
	}
}

// Step advances one pod by one step, and reports whether anything changed.
func (n *Node) Step(name string) bool {
	n.Steps++
	key := Key{"Pod", name}
	pod, ok := n.cluster.Get(key).(*corev1.Pod)
	if !ok || n.Frozen[name] {
		return false
	}
	if (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded) &&
		pod.DeletionTimestamp == nil {
		return false
	}
	if pod.DeletionTimestamp != nil {
		if len(pod.Finalizers) == 0 {
			n.cluster.Remove(key)
			for i := range pod.Spec.Containers {
				delete(n.running, string(pod.UID)+"/"+pod.Spec.Containers[i].Name)
			}
			return true
		}
		return false
	}

	next := pod.DeepCopy()
	if !n.advance(next) {
		return false
	}

	n.cluster.Store(key, next)
	return true
}

func (n *Node) advance(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		node := "node"
		if n.Schedule != nil {
			node = n.Schedule(pod)
		}
		if pod.Spec.NodeName = node; node == "" {
			return false
		}
		pod.Status.Phase = corev1.PodPending
		return true
	}

	changed := false
	if n.Observes && pod.Status.ObservedGeneration != pod.Generation {
		pod.Status.ObservedGeneration, changed = pod.Generation, true
	}

	for _, container := range lasting(pod) {
		if n.container(pod, container) {
			changed = true
			break
		}
	}

	for _, container := range lasting(pod) {
		if n.resize(pod, container) {
			changed = true
		}
	}

	if n.Daemon && n.report(pod) {
		changed = true
	}
	changed = n.conditions(pod) || changed
	if policy := pod.Spec.RestartPolicy; !changed &&
		(policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure) {
		pod.Status.Phase, changed = corev1.PodSucceeded, true // its containers have completed
		n.set(pod, corev1.PodReady, corev1.ConditionFalse, "PodCompleted")
	}

	return changed
}

// container advances one container by one step: stop the old one, start the new one, become ready.
func (n *Node) container(pod *corev1.Pod, spec *corev1.Container) bool {
	status := n.statusOf(pod, spec.Name)
	key := string(pod.UID) + "/" + spec.Name
	runs := n.running[key]
	digest, known := n.Digests[spec.Image]
	if !known {
		digest = spec.Image
	}

	switch {
	case status.State.Running != nil && n.Daemon && n.stops(pod, spec, status, runs):
		status.Ready = false
		status.State = corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
		}
		return true
	case status.State.Running != nil && runs.Image == spec.Image && status.Ready:
		return false
	case status.State.Running != nil && runs.Image == spec.Image:
		status.Ready = true
		started := true
		status.Started = &started
		return true
	case status.State.Running != nil: // the image was changed
		status.Ready = false
		status.State = corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
		}
		return true
	case digest == "":
		if status.State.Waiting != nil && status.State.Waiting.Reason == "ErrImagePull" &&
			status.Image == spec.Image {
			return false
		}
		status.Image = spec.Image
		status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
		return true
	}

	n.containers++
	if status.ContainerID != "" {
		status.RestartCount++
	}
	status.ContainerID = fmt.Sprintf("containerd://%d", n.containers)
	status.Image, status.ImageID = spec.Image, "sha256:"+digest
	status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{
		StartedAt: metav1.NewTime(n.cluster.Now()),
	}}
	n.running[key] = Running{
		Image:   spec.Image,
		Env:     Environment(pod, spec),
		Restart: pod.Annotations[pub.RestartedAt],
	}
	pod.Status.Phase = corev1.PodRunning
	return true
}

// stops reports whether the daemon stops the container: either the update changes its environment and the
// container still has the old one, or its restart was requested and the container is the one that was running
// then.
func (n *Node) stops(
	pod *corev1.Pod, spec *corev1.Container, status *corev1.ContainerStatus, runs Running,
) bool {
	state, err := inplace.StateOf(pod)
	if err != nil || state == nil || runs.Image != spec.Image {
		return false
	}
	_, env := state.EnvContainers[spec.Name]
	return env && runs.Env != Environment(pod, spec) ||
		state.RestartContainers[spec.Name] == status.ContainerID && status.ContainerID != ""
}

// report writes the report of the node daemon.
func (n *Node) report(pod *corev1.Pod) bool {
	meta := inplace.RuntimeMeta{}
	for _, container := range lasting(pod) {
		name := container.Name
		status, runs := n.statusOf(pod, name), n.Runs(pod, name)
		if status.ContainerID == "" {
			continue
		}
		plain, _ := strconv.ParseUint(inplace.PlainHash(name, runs.Image), 10, 64)
		environment := map[string]string{}
		for line := range strings.Lines(runs.Env) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			environment[name] = value
		}
		env, _ := strconv.ParseUint(inplace.ActualEnvHash(container, environment), 10, 64)
		meta.Containers = append(meta.Containers,
			inplace.RuntimeContainer{
				Name:         name,
				ContainerID:  status.ContainerID,
				RestartCount: status.RestartCount,
				Hashes:       inplace.RuntimeHashes{PlainHash: plain, ExtractedEnvFromMetadataHash: env},
			})
	}

	text, err := json.Marshal(meta)
	if err != nil || pod.Annotations[pub.RuntimeContainersMeta] == string(text) {
		return false
	}

	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[pub.RuntimeContainersMeta] = string(text)
	return true
}

// resize applies the resources in the spec to a container, or reports that they do not fit.
func (n *Node) resize(pod *corev1.Pod, spec *corev1.Container) bool {
	status := n.statusOf(pod, spec.Name)
	if status.State.Running == nil || status.Resources != nil &&
		equality.Semantic.DeepEqual(*status.Resources, spec.Resources) {
		return false
	}
	if status.Resources != nil && n.Unfit[string(pod.UID)] {
		changed := n.set(pod, corev1.PodResizePending, corev1.ConditionTrue, corev1.PodReasonInfeasible)
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; n.Observes && c.Type == corev1.PodResizePending &&
				c.ObservedGeneration != pod.Generation {
				c.ObservedGeneration, changed = pod.Generation, true
			}
		}
		return changed
	}

	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
	status.Resources = spec.Resources.DeepCopy()
	return true
}

func (n *Node) statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	statuses := &pod.Status.ContainerStatuses
	if slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) {
		statuses = &pod.Status.InitContainerStatuses
	}

	for i := range *statuses {
		if (*statuses)[i].Name == name {
			return &(*statuses)[i]
		}
	}

	*statuses = append(*statuses, corev1.ContainerStatus{
		Name:  name,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	})

	return &(*statuses)[len(*statuses)-1]
}

func (n *Node) conditions(pod *corev1.Pod) bool {
	containers, ready := corev1.ConditionTrue, corev1.ConditionTrue
	for _, container := range lasting(pod) {
		if !n.statusOf(pod, container.Name).Ready {
			containers, ready = corev1.ConditionFalse, corev1.ConditionFalse
		}
	}

	for _, gate := range pod.Spec.ReadinessGates {
		if conditionStatus(pod, gate.ConditionType) != corev1.ConditionTrue {
			ready = corev1.ConditionFalse
		}
	}

	changed := n.set(pod, corev1.ContainersReady, containers, "")
	return n.set(pod, corev1.PodReady, ready, "") || changed
}

func conditionStatus(pod *corev1.Pod, t corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return ""
}

func (n *Node) set(
	pod *corev1.Pod, t corev1.PodConditionType, status corev1.ConditionStatus, reason string,
) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != t {
			continue
		}
		if c.Status == status {
			return false
		}
		c.Status, c.Reason, c.Message, c.LastTransitionTime = status, reason, "",
			metav1.NewTime(n.cluster.Now())
		return true
	}

	pod.Status.Conditions = append(pod.Status.Conditions,
		corev1.PodCondition{
			Type:               t,
			Status:             status,
			Reason:             reason,
			LastTransitionTime: metav1.NewTime(n.cluster.Now()),
		})

	return true
}

// lasting returns the containers that run as long as the pod, native sidecars first.
func lasting(pod *corev1.Pod) []*corev1.Container {
	var containers []*corev1.Container
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].RestartPolicy != nil {
			containers = append(containers, &pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		containers = append(containers, &pod.Spec.Containers[i])
	}
	return containers
}

// Fail makes a pod fail, like an eviction.
func (n *Node) Fail(name string) {
	n.cluster.Change(Key{"Pod", name}, func(o client.Object) {
		pod := o.(*corev1.Pod)
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted"
		n.set(pod, corev1.PodReady, corev1.ConditionFalse, "")
	})
}

// Crash makes a container of the pod terminate and restart.
func (n *Node) Crash(name string) {
	n.cluster.Change(Key{"Pod", name}, func(o client.Object) {
		pod := o.(*corev1.Pod)
		if pod.DeletionTimestamp != nil || len(pod.Status.ContainerStatuses) == 0 {
			return
		}
		status := &pod.Status.ContainerStatuses[0]
		status.Ready = false
		status.State = corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"},
		}
		n.conditions(pod)
	})
}
