package containerrecreate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-openapi/jsonpointer"
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
	"github.com/afloat-project/afloat/internal/engine/restart"
)

// Refusal is why a request is rejected.
type Refusal struct {
	// Code is the HTTP status.
	Code    int32
	Message string
}

// faults collects everything that is wrong with a request, so that its author can fix it at once.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// refusal returns one refusal for all faults, or nil if there are none.
func (f faults) refusal(code int32) *Refusal {
	if len(f) == 0 {
		return nil
	}
	return &Refusal{Code: code, Message: strings.Join(f, "; ")}
}

// Both merges two refusals, of which either may be nil; the code is that of the first.
func Both(a, b *Refusal) *Refusal {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &Refusal{Code: a.Code, Message: a.Message + "; " + b.Message}
}

const minActiveDeadline = 3 // seconds

// Check validates a new request on its own, and returns all errors (CRR-022 to CRR-026, CRR-031, CRR-032).
func Check(request *appsv1beta1.ContainerRecreateRequest) *Refusal {
	spec := &request.Spec
	var wrong faults
	if spec.PodName == "" {
		wrong.add("spec.podName can not be empty: name the pod whose containers are to be recreated")
	}
	if len(spec.Containers) == 0 {
		wrong.add("spec.containers list can not be null: name the containers that are to be recreated")
	}

	if seconds := spec.ActiveDeadlineSeconds; seconds != nil && *seconds < minActiveDeadline {
		wrong.add("spec.activeDeadlineSeconds can not be less than %ds, it is %d",
			minActiveDeadline, *seconds)
	}

	notNegative := func(field string, seconds int64) {
		if seconds < 0 {
			wrong.add("%s must be non-negative integer, it is %d", field, seconds)
		}
	}
	if seconds := spec.TTLSecondsAfterFinished; seconds != nil {
		notNegative("spec.ttlSecondsAfterFinished", int64(*seconds))
	}

	if s := spec.Strategy; s != nil {
		if seconds := s.TerminationGracePeriodSeconds; seconds != nil {
			notNegative("spec.strategy.terminationGracePeriodSeconds", *seconds)
		}
		if seconds := s.UnreadyGracePeriodSeconds; seconds != nil {
			notNegative("spec.strategy.unreadyGracePeriodSeconds", *seconds)
		}
		notNegative("spec.strategy.minStartedSeconds", int64(s.MinStartedSeconds))
		switch s.FailurePolicy {
		case "", appsv1beta1.ContainerRecreateRequestFailurePolicyFail,
			appsv1beta1.ContainerRecreateRequestFailurePolicyIgnore:
		default:
			wrong.add("spec.strategy: unknown failurePolicy %q, it is %s or %s",
				s.FailurePolicy, appsv1beta1.ContainerRecreateRequestFailurePolicyFail,
				appsv1beta1.ContainerRecreateRequestFailurePolicyIgnore)
		}
	}

	seen := map[string]bool{}
	for i, c := range spec.Containers {
		if seen[c.Name] {
			wrong.add("spec.containers[%d]: can not recreate %s multi times, name it once", i, c.Name)
		}
		if !isZero(c.PreStop) || len(c.Ports) > 0 || !isZero(c.StatusContext) {
			wrong.add(
				"spec.containers[%d]: preStop, ports and statusContext of container %s are read-only: leave them out, the system fills them in",
				i, c.Name,
			)
		}
		seen[c.Name] = true
	}

	return wrong.refusal(http.StatusBadRequest)
}

// isZero reports whether a field is unset or an empty object.
func isZero[T any](value *T) bool {
	return value == nil || equality.Semantic.DeepEqual(*value, *new(T))
}

// CheckPod reports whether containers of the pod can be recreated at all, and why not (CRR-028, CRR-029). The
// API server has only a mirror of a static pod: its containers carry another UID, and the kubelet that runs
// them does not follow the API server.
func CheckPod(pod *corev1.Pod) *Refusal {
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	terminated := slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == pub.SidecarTerminated })
	var wrong faults

	switch {
	case pod.DeletionTimestamp != nil && !terminated:
		wrong.add("not allowed to recreate containers in an inactive Pod: %s is being deleted", pod.Name)
	case finished && !terminated:
		wrong.add("not allowed to recreate containers in an inactive Pod: %s has ended, its phase is %s",
			pod.Name, pod.Status.Phase)
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		wrong.add(
			"not allowed to recreate containers of a static Pod: %s is the mirror of a file on node %s, change that file instead",
			pod.Name, pod.Spec.NodeName,
		)
	case pod.Spec.NodeName == "":
		wrong.add("not allowed to recreate containers in a pending Pod: %s has no node yet", pod.Name)
	}

	return wrong.refusal(http.StatusBadRequest)
}

// Accept returns the request as admission changes it, and the JSON patch that does so (CRR-011, CRR-033 to
// CRR-035): it sets defaults and the pod that the request is for. The webhook answers anyone who can reach
// its port, so the answer reveals nothing about the pod but its UID; Fill fills in the rest, later or for a
// known caller. hasLabels reports whether the document, of which the request is the typed view, has labels.
func Accept(
	request *appsv1beta1.ContainerRecreateRequest, hasLabels bool, pod *corev1.Pod,
) (*appsv1beta1.ContainerRecreateRequest, []jsonpatch.Operation, *Refusal) {
	var wrong faults
	// Otherwise a user who looks at an old version of the pod would stop containers of the pod that replaced
	// it.
	for i := range request.OwnerReferences {
		if owner := &request.OwnerReferences[i]; owner.APIVersion == "v1" && owner.Kind == "Pod" &&
			owner.Name == pod.Name && owner.UID != pod.UID {
			wrong.add(
				"metadata.ownerReferences[%d]: Pod %s has another UID: the one that the request was made for is gone",
				i, pod.Name,
			)
		}
	}

	for i := range request.Spec.Containers {
		if _, _, why := find(pod, request.Spec.Containers[i].Name); why != "" {
			wrong.add("spec.containers[%d]: %s", i, why)
		}
	}

	if refusal := wrong.refusal(http.StatusBadRequest); refusal != nil {
		return nil, nil, refusal
	}

	accepted := request.DeepCopy()
	if accepted.Labels == nil {
		accepted.Labels = map[string]string{}
	}

	accepted.Labels[pub.RecreateActive], accepted.Labels[pub.RecreatePodUID] = "true", string(pod.UID)
	delete(accepted.Labels, pub.RecreateNodeName)
	var patch []jsonpatch.Operation
	if !hasLabels {
		patch = append(patch, jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{}))
	}

	patch = append(patch, label(pub.RecreateActive, "true"), label(pub.RecreatePodUID, string(pod.UID)))
	if _, forged := request.Labels[pub.RecreateNodeName]; forged {
		patch = append(patch, jsonpatch.NewOperation("remove", labelPath(pub.RecreateNodeName), nil))
	}

	const policy = appsv1beta1.ContainerRecreateRequestFailurePolicyFail
	if given := accepted.Spec.Strategy; given == nil {
		accepted.Spec.Strategy = &appsv1beta1.ContainerRecreateRequestStrategy{FailurePolicy: policy}
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/strategy",
			map[string]string{"failurePolicy": string(policy)}))
	} else if given.FailurePolicy == "" {
		given.FailurePolicy = policy
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/strategy/failurePolicy", string(policy)))
	}

	return accepted, patch, nil
}

func labelPath(key string) string { return "/metadata/labels/" + jsonpointer.Escape(key) }

func label(key, value string) jsonpatch.Operation {
	return jsonpatch.NewOperation("add", labelPath(key), value)
}

// Unfilled reports whether the facts about the pod still have to be filled in.
func Unfilled(request *appsv1beta1.ContainerRecreateRequest) bool {
	_, filled := request.Labels[pub.RecreateNodeName]
	return !filled && restart.PodUID(request) != "" && !restart.Completed(request) &&
		request.DeletionTimestamp == nil
}

// Fill returns the request with the facts about its pod filled in, and the JSON patch that does so (CRR-011,
// CRR-035 to CRR-040). It refuses a request for a container that has restarted since (CRR-037).
func Fill(
	request *appsv1beta1.ContainerRecreateRequest, pod *corev1.Pod, nodeLabels map[string]string,
) (*appsv1beta1.ContainerRecreateRequest, []jsonpatch.Operation, *Refusal) {
	filled := request.DeepCopy()
	var patch []jsonpatch.Operation
	add := func(path string, value any) { patch = append(patch, jsonpatch.NewOperation("add", path, value)) }
	labels := map[string]string{pub.RecreateNodeName: pod.Spec.NodeName}
	if nodeLabels[pub.NodeType] == pub.VirtualNode {
		labels[pub.NodeType] = pub.VirtualNode
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		filled.Labels[key] = labels[key]
		patch = append(patch, label(key, labels[key]))
	}
	if filled.Spec.Strategy == nil {
		filled.Spec.Strategy = &appsv1beta1.ContainerRecreateRequestStrategy{}
		add("/spec/strategy", map[string]string{})
	}
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil &&
		filled.Spec.Strategy.TerminationGracePeriodSeconds == nil {
		filled.Spec.Strategy.TerminationGracePeriodSeconds = own
		add("/spec/strategy/terminationGracePeriodSeconds", *own)
	}
	var wrong faults
	room := mostOfHooks
	for i := range filled.Spec.Containers {
		c := &filled.Spec.Containers[i]
		container, status, why := find(pod, c.Name)
		if why != "" {
			wrong.add("spec.containers[%d]: %s", i, why)
			continue
		}
		// A request with this annotation can only be refused for it, so it does not matter who wrote it.
		if after, ok := filled.Annotations[pub.RecreateAfterRestarts]; ok &&
			after != strconv.Itoa(int(status.RestartCount)) {
			wrong.add(
				"spec.containers[%d]: container %s is not the one that annotation %s asks for: it has restarted %d times",
				i, c.Name, pub.RecreateAfterRestarts, status.RestartCount,
			)
			continue
		}
		at := fmt.Sprintf("/spec/containers/%d", i)
		c.StatusContext = &appsv1beta1.ContainerRecreateRequestContainerContext{
			ContainerID:  status.ContainerID,
			RestartCount: status.RestartCount,
		}
		add(at+"/statusContext", c.StatusContext)
		hook := preStop(container)
		if hook == nil {
			continue
		}
		takes := size(hook, container.Ports)
		if takes > room {
			continue // the daemon reads it from the pod, like anything else that a request cannot carry
		}
		room -= takes
		c.PreStop = hook
		add(at+"/preStop", hook)
		if (hook.HTTPGet != nil || hook.TCPSocket != nil) && len(container.Ports) > 0 {
			c.Ports = container.Ports
			add(at+"/ports", container.Ports)
		}
	}
	if refusal := wrong.refusal(http.StatusBadRequest); refusal != nil {
		return nil, nil, refusal
	}
	return filled, patch, nil
}

// mostOfHooks is the maximum size of the hooks and ports in a request, in bytes: manager and daemon cache
// requests, and there may be ten requests for a pod whose hook has a megabyte.
const mostOfHooks = 64 << 10

// size returns the approximate size of a hook and ports in bytes.
func size(hook *appsv1beta1.ProbeHandler, ports []corev1.ContainerPort) int {
	text, err := json.Marshal([]any{hook, ports})
	if err != nil {
		return mostOfHooks + 1 // this does not happen
	}
	return len(text)
}

// Fills reports whether an update of an unfilled request writes exactly the facts about the pod, which was
// read from the API server, and changes nothing else that users may not change. Then it does not matter who
// makes the update.
func Fills(
	updated, old *appsv1beta1.ContainerRecreateRequest, pod *corev1.Pod, nodeLabels map[string]string,
) bool {
	if pod == nil || !Unfilled(old) || pod.UID != restart.PodUID(old) ||
		restart.PodUID(updated) != restart.PodUID(old) {
		return false
	}
	filled, _, refusal := Fill(old, pod, nodeLabels)
	return refusal == nil && equality.Semantic.DeepEqual(updated.Spec, filled.Spec) &&
		updated.Labels[pub.RecreateNodeName] == filled.Labels[pub.RecreateNodeName]
}

// find returns a container with its status, or why it cannot be recreated.
func find(
	pod *corev1.Pod, name string,
) (container *corev1.Container, status *corev1.ContainerStatus, why string) {
	named := func(c corev1.Container) bool { return c.Name == name }
	ofName := func(s corev1.ContainerStatus) bool { return s.Name == name }
	list, statuses := pod.Spec.Containers, pod.Status.ContainerStatuses
	i := slices.IndexFunc(list, named)
	if i < 0 {
		list, statuses = pod.Spec.InitContainers, pod.Status.InitContainerStatuses
		if i = slices.IndexFunc(list, named); i < 0 {
			return nil, nil, fmt.Sprintf("container %s not found in Pod %s", name, pod.Name)
		}
		if policy := list[i].RestartPolicy; policy == nil || *policy != corev1.ContainerRestartPolicyAlways {
			return nil, nil, fmt.Sprintf(
				"container %s is an init container that does not run on (restartPolicy is not Always), so it can not be recreated",
				name,
			)
		}
	}

	container = &list[i]
	s := slices.IndexFunc(statuses, ofName)
	switch {
	case s < 0:
		return nil, nil, fmt.Sprintf(
			"not found %s containerStatus in Pod Status: kubelet has not reported of it yet, try again later",
			name,
		)
	case statuses[s].ContainerID == "":
		return nil, nil, fmt.Sprintf(
			"no containerID in %s containerStatus, maybe the container has not been initialized: try again when it runs",
			name,
		)
	}

	return container, &statuses[s], ""
}

// preStop returns the hook in the form of a request, or nil if there is none that a request can carry.
func preStop(container *corev1.Container) *appsv1beta1.ProbeHandler {
	if container.Lifecycle == nil || container.Lifecycle.PreStop == nil {
		return nil
	}
	hook := container.Lifecycle.PreStop
	if hook.Exec == nil && hook.HTTPGet == nil && hook.TCPSocket == nil {
		return nil
	}
	return &appsv1beta1.ProbeHandler{Exec: hook.Exec, HTTPGet: hook.HTTPGet, TCPSocket: hook.TCPSocket}
}

// CheckUpdate validates a changed request (CRR-045 to CRR-048). acquired is the value of the v1alpha1
// annotation, acquiredBefore its old value; both are empty in v1beta1.
func CheckUpdate(
	updated, old *appsv1beta1.ContainerRecreateRequest, acquired, acquiredBefore string,
) *Refusal {
	var wrong faults
	if !equality.Semantic.DeepEqual(updated.Spec, old.Spec) && !jsonfields.Same(updated.Spec, old.Spec) {
		wrong.add("spec of ContainerRecreateRequest is immutable: create another request")
	}

	for _, key := range []string{pub.RecreatePodUID, pub.RecreateNodeName} {
		value, ok := updated.Labels[key]
		if before, had := old.Labels[key]; value != before || ok != had {
			wrong.add("not allowed to update immutable label %s: it must stay %q", key, before)
		}
	}

	if acquiredBefore != "" && acquired != acquiredBefore {
		wrong.add("not allowed to update immutable annotation %s: it must stay %q",
			pub.RecreateUnreadyAcquired, acquiredBefore)
	}

	return wrong.refusal(http.StatusForbidden)
}
