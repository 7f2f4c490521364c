package simulation

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

// Node is the behaviour of scheduler and kubelets.
type Node struct {
	Cluster *Cluster
	// Digests maps images to digests; an image that is missing is its own digest, one that maps to "" cannot
	// be pulled.
	Digests map[string]string
	// Observes lets kubelet report the generation that it has taken up, as newer ones do.
	Observes bool

	// Schedule finds a node for a pod, empty for none as yet; nil means that all run on one.
	Schedule func(*corev1.Pod) string
	// Daemon: a node daemon reports what containers run with, and restarts those whose environment changed or
	// that it is asked to.
	Daemon bool
	// Frozen holds the names of pods that nothing happens to, as on a node that is dead.
	Frozen map[string]bool
	// Unfit holds pods, by UID, that no resize fits.
	Unfit map[string]bool
	// Steps is how often a kubelet was asked to go on with a pod.
	Steps int

	containers int
	// running is what really runs, by pod UID and container.
	running map[string]Running
}

// Running is what a container was started with; Env is its [Environment].
type Running struct {
	Image, Env, Restart string
}

// Environment is what a kubelet would start a container with: a line for each variable, with its value or
// that of the label or annotation that it names.
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

// Runs returns what a container of the pod really runs with.
func (n *Node) Runs(pod *corev1.Pod, container string) Running {
	return n.running[string(pod.UID)+"/"+container]
}

// Found takes a pod that runs already as it is: its containers run with what its spec says.
func (n *Node) Found(pod *corev1.Pod) {
	if n.running == nil {
		n.running = map[string]Running{}
	}
	for _, container := range lasting(pod) {
		n.running[string(pod.UID)+"/"+container.Name] = Running{
			Image:   container.Image,
			Env:     Environment(pod, container),
			Restart: pod.Annotations[pub.RestartedAt],
		}
	}
}

// Step brings one pod one step further and tells whether anything happened.
func (n *Node) Step(name string) bool {
	n.Steps++
	key := Key{"Pod", name}
	pod, ok := n.Cluster.Get(key).(*corev1.Pod)
	if !ok || n.Frozen[name] {
		return false
	}

	if n.running == nil {
		n.running = map[string]Running{}
	}
	if (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded) &&
		pod.DeletionTimestamp == nil {
		return false
	}
	if pod.DeletionTimestamp != nil {
		if len(pod.Finalizers) == 0 {
			n.Cluster.Remove(key)
			return true
		}
		return false
	}

	next := pod.DeepCopy()
	if !n.advance(next) {
		return false
	}

	n.Cluster.Store(key, next)
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
		pod.Status.Phase, changed = corev1.PodSucceeded, true // its work is done
		n.set(pod, corev1.PodReady, corev1.ConditionFalse, "PodCompleted")
	}

	return changed
}

// container brings one container one step further: stop the old, start the new, become ready.
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
		status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		return true
	case status.State.Running != nil && runs.Image == spec.Image && status.Ready:
		return false
	case status.State.Running != nil && runs.Image == spec.Image:
		status.Ready = true
		started := true
		status.Started = &started
		return true
	case status.State.Running != nil: // the image was changed: stop
		status.Ready = false
		status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
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
	status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(
		n.Cluster.Now())}}
	n.running[key] = Running{
		Image:   spec.Image,
		Env:     Environment(pod, spec),
		Restart: pod.Annotations[pub.RestartedAt],
	}
	pod.Status.Phase = corev1.PodRunning
	return true
}

// stops tells whether the daemon stops the container: the update says that its environment changed, and it
// has the old one, or that it shall be restarted, and it is the one that ran then.
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

// report writes what the daemon sees.
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

// resize gives a container the resources of its spec, or says that they do not fit.
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
			metav1.NewTime(n.Cluster.Now())
		return true
	}

	pod.Status.Conditions = append(pod.Status.Conditions,
		corev1.PodCondition{
			Type:               t,
			Status:             status,
			Reason:             reason,
			LastTransitionTime: metav1.NewTime(n.Cluster.Now()),
		})
	return true
}

// lasting are the containers that run as long as the pod: native sidecars first.
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

// Fail ends a pod as an eviction does.
func (n *Node) Fail(name string) {
	n.Cluster.Change(Key{"Pod", name}, func(o client.Object) {
		pod := o.(*corev1.Pod)
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted"
		n.set(pod, corev1.PodReady, corev1.ConditionFalse, "")
	})
}

// Crash makes a container of the pod end and start anew.
func (n *Node) Crash(name string) {
	n.Cluster.Change(Key{"Pod", name}, func(o client.Object) {
		pod := o.(*corev1.Pod)
		if pod.DeletionTimestamp != nil || len(pod.Status.ContainerStatuses) == 0 {
			return
		}
		status := &pod.Status.ContainerStatuses[0]
		status.Ready = false
		status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		n.conditions(pod)
	})
}
