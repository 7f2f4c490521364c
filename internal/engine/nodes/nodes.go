// Package nodes determines on which nodes a pod of a template may run, for workloads that choose the nodes
// themselves because they have one pod per node (ADS-080 to 083, BJ-030 to 036). It decides by the template
// and the node alone, by the scheduler's rules about nodes. How full a node is, and what else runs there,
// does not count.
package nodes

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Rules define what a pod requires of its node. They are computed once for a template and then apply to all
// nodes.
type Rules struct {
	nodeName    string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	// requests must fit the size of the node; nil means that the size does not count.
	requests corev1.ResourceList
}

// ForDaemon returns the rules for pods that belong to a node, such as those of a DaemonSet. They tolerate
// temporary problems of a node, and the size of a node does not count (ADS-080, ADS-082).
func ForDaemon(spec *corev1.PodSpec) *Rules {
	return rules(spec, DaemonTolerations(spec), nil)
}

// ForJob returns the rules for pods that do work on a node and end. They tolerate only what their template
// tolerates, and must fit on an empty node (BJ-030 to BJ-036).
func ForJob(spec *corev1.PodSpec) *Rules {
	return rules(spec, spec.Tolerations, requestsOf(spec))
}

// requestsOf returns the resources that a pod of the template requests. A limit without a request counts as
// the request, because the API server sets that when the pod is created, and not before.
func requestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	asking := corev1.PodSpec{
		InitContainers: completed(spec.InitContainers), Containers: completed(spec.Containers),
		Overhead: spec.Overhead, Resources: spec.Resources,
	}

	requests := resource.PodRequests(&corev1.Pod{Spec: asking}, resource.PodResourcesOptions{})
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	if spec.Resources != nil {
		// Limits of the pod as a whole count if no container requests the resource either.
		for name, limit := range spec.Resources.Limits {
			if _, asked := requests[name]; !asked {
				requests[name] = limit
			}
		}
	}

	return requests
}

// completed returns the containers with only their requests, including those that follow from limits.
func completed(containers []corev1.Container) []corev1.Container {
	list := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		requests := corev1.ResourceList{}
		maps.Copy(requests, c.Resources.Limits)
		maps.Copy(requests, c.Resources.Requests)
		list[i] = corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy,
			Resources: corev1.ResourceRequirements{Requests: requests},
		}
	}
	return list
}

func rules(spec *corev1.PodSpec, tolerations []corev1.Toleration, requests corev1.ResourceList) *Rules {
	return &Rules{
		nodeName:    spec.NodeName,
		affinity:    nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		tolerations: tolerations, requests: requests,
	}
}

// Verdict is the decision about one node. Eligible is true if a new pod should run there, and Tolerable if an
// existing pod may stay. Every eligible node is tolerable. Lost is true if the node would be eligible if only it were
// heard of and ready. Why is the reason why the node is not eligible, empty if it is.
type Verdict struct {
	Eligible, Tolerable, Lost bool
	Why                       string
}

// taintNodeShutdown is what cloud providers give a node whose machine was shut down, beside the taint that it
// is unreachable.
const taintNodeShutdown = "node.cloudprovider.kubernetes.io/shutdown"

// Loses reports whether a taint says that nothing is heard of its node, or that it is not ready. The cluster
// sets and removes these taints itself.
func Loses(taint *corev1.Taint) bool {
	switch taint.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, taintNodeShutdown:
		return true
	}
	return false
}

// Judge returns the verdict about a node.
func (r *Rules) Judge(node *corev1.Node) Verdict {
	if r.nodeName != "" && r.nodeName != node.Name {
		return Verdict{Why: "spec.nodeName is " + r.nodeName}
	}

	switch matches, err := r.affinity.Match(node); {
	case err != nil:
		return Verdict{Why: fmt.Sprintf("the required node affinity cannot be read: %v", err)}
	case !matches:
		return Verdict{Why: "nodeSelector or required node affinity does not match"}
	}

	if taint, ok := r.untolerated(node.Spec.Taints, corev1.TaintEffectNoExecute, nil); ok {
		return Verdict{Why: "taint " + taint.ToString() + " is not tolerated"}
	}

	taints := node.Spec.Taints
	if node.Spec.Unschedulable { // its taint follows a moment later
		taints = append(slices.Clip(taints),
			corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if taint, ok := r.untolerated(taints, corev1.TaintEffectNoSchedule, Loses); ok {
		return Verdict{Tolerable: true, Why: "taint " + taint.ToString() + " is not tolerated"}
	}

	if why := r.tooSmall(node); why != "" {
		return Verdict{Tolerable: true, Why: why}
	}

	if taint, ok := r.untolerated(taints, corev1.TaintEffectNoSchedule, nil); ok {
		return Verdict{Tolerable: true, Lost: true, Why: "taint " + taint.ToString() + " is not tolerated"}
	}

	return Verdict{Eligible: true, Tolerable: true}
}

// untolerated returns the first taint of the effect that the pod does not tolerate, and that leaveOut, if it
// is given, does not leave out.
func (r *Rules) untolerated(taints []corev1.Taint, effect corev1.TaintEffect, leaveOut func(*corev1.Taint) bool) (
	corev1.Taint, bool) {
	const comparisons = true // an API server that does not know these operators does not accept them
	return corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), taints, r.tolerations,
		func(taint *corev1.Taint) bool {
			return taint.Effect == effect && (leaveOut == nil || !leaveOut(taint))
		}, comparisons)
}

// tooSmall returns what the node has too little of, even if it were empty; the empty string if nothing.
func (r *Rules) tooSmall(node *corev1.Node) string {
	if r.requests == nil {
		return ""
	}
	if pods := node.Status.Allocatable[corev1.ResourcePods]; pods.Value() < 1 {
		return "it takes no pods"
	}

	for name, asked := range r.requests {
		if has := node.Status.Allocatable[name]; asked.Cmp(has) > 0 {
			return fmt.Sprintf("a pod asks for %s %s, and the node has %s",
				asked.String(), name, has.String())
		}
	}

	return ""
}

// DaemonTolerations returns the tolerations of pods that belong to a node: those of the template, and those
// for temporary problems of a node that the DaemonSet controller of Kubernetes adds (ADS-081).
func DaemonTolerations(spec *corev1.PodSpec) []corev1.Toleration {
	added := []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodePIDPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
	}

	if spec.HostNetwork {
		added = append(added, corev1.Toleration{
			Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule,
		})
	}

	tolerations := slices.Clone(spec.Tolerations)
	for _, toleration := range added {
		toleration.Operator = corev1.TolerationOpExists
		if i := slices.IndexFunc(tolerations, func(t corev1.Toleration) bool {
			return t.MatchToleration(&toleration)
		}); i >= 0 {
			tolerations[i] = toleration // without a time limit
		} else {
			tolerations = append(tolerations, toleration)
		}
	}

	return tolerations
}
