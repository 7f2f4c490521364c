// Package nodes tells on which nodes a pod of a template may run, for workloads that choose the nodes
// themselves: those with one pod per node (ADS-080 to 083, BJ-030 to 036). It decides by the template and the
// node alone, as the scheduler would by its rules about nodes; how full a node is, and what else runs there,
// does not count.
package nodes

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Rules are what a pod asks of its node. They are read once for a template and then serve all nodes.
type Rules struct {
	nodeName    string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	// requests have to fit the node's size; nil means that size does not count.
	requests corev1.ResourceList
}

// ForDaemon returns the rules for pods that belong to a node, such as those of a DaemonSet: they tolerate
// what a node suffers from passingly, and the size of a node does not count (ADS-080, ADS-082).
func ForDaemon(spec *corev1.PodSpec) *Rules {
	return rules(spec, DaemonTolerations(spec), nil)
}

// ForJob returns the rules for pods that do work on a node and end: they tolerate only what their template
// tolerates, and have to fit into an empty node (BJ-030 to BJ-036).
func ForJob(spec *corev1.PodSpec) *Rules {
	return rules(spec, spec.Tolerations, requestsOf(spec))
}

// requestsOf is what a pod of the template asks for. A limit without a request is the request: the API server
// says so when the pod is created, and not before.
func requestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	asking := corev1.PodSpec{InitContainers: completed(spec.InitContainers), Containers: completed(spec.Containers), Overhead: spec.Overhead,
		Resources: spec.Resources}
	requests := resource.PodRequests(&corev1.Pod{Spec: asking}, resource.PodResourcesOptions{})
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	if spec.Resources != nil {
		for name, limit := range spec.Resources.Limits { // of the pod as a whole, where no container asks for it either
			if _, asked := requests[name]; !asked {
				requests[name] = limit
			}
		}
	}
	return requests
}

// completed returns the containers with nothing but their requests, those that follow from limits included.
func completed(containers []corev1.Container) []corev1.Container {
	list := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		requests := corev1.ResourceList{}
		maps.Copy(requests, c.Resources.Limits)
		maps.Copy(requests, c.Resources.Requests)
		list[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: requests}}
	}
	return list
}

func rules(spec *corev1.PodSpec, tolerations []corev1.Toleration, requests corev1.ResourceList) *Rules {
	return &Rules{nodeName: spec.NodeName, affinity: nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		tolerations: tolerations, requests: requests}
}

// Verdict is what a node is to a pod. Eligible: a new one should run there. Tolerable: one that is there may
// stay. Every eligible node is tolerable. Why says what keeps the node from being eligible; it is empty if it
// is.
type Verdict struct {
	Eligible, Tolerable bool
	Why                 string
}

// Judge judges a node.
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
	if taint, ok := r.untolerated(node.Spec.Taints, corev1.TaintEffectNoExecute); ok {
		return Verdict{Why: "taint " + taint.ToString() + " is not tolerated"}
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable { // its taint follows a moment later
		taints = append(slices.Clip(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if taint, ok := r.untolerated(taints, corev1.TaintEffectNoSchedule); ok {
		return Verdict{Tolerable: true, Why: "taint " + taint.ToString() + " is not tolerated"}
	}
	if why := r.tooSmall(node); why != "" {
		return Verdict{Tolerable: true, Why: why}
	}
	return Verdict{Eligible: true, Tolerable: true}
}

func (r *Rules) untolerated(taints []corev1.Taint, effect corev1.TaintEffect) (corev1.Taint, bool) {
	const comparisons = true // an API server that does not know such operators lets nobody write them
	return corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, r.tolerations,
		func(taint *corev1.Taint) bool { return taint.Effect == effect }, comparisons)
}

// tooSmall says what the node has too little of, even if it were empty.
func (r *Rules) tooSmall(node *corev1.Node) string {
	if r.requests == nil {
		return ""
	}
	if pods := node.Status.Allocatable[corev1.ResourcePods]; pods.Value() < 1 {
		return "it takes no pods"
	}
	for name, asked := range r.requests {
		if has := node.Status.Allocatable[name]; asked.Cmp(has) > 0 {
			return fmt.Sprintf("a pod asks for %s %s, and the node has %s", asked.String(), name, has.String())
		}
	}
	return ""
}

// DaemonTolerations returns the tolerations of a template's pods that belong to a node: its own, and those
// for what a node suffers from passingly, as the DaemonSet of Kubernetes adds them (ADS-081).
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
		added = append(added, corev1.Toleration{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule})
	}
	tolerations := slices.Clone(spec.Tolerations)
	for _, toleration := range added {
		toleration.Operator = corev1.TolerationOpExists
		if i := slices.IndexFunc(tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&toleration) }); i >= 0 {
			tolerations[i] = toleration // without a limit of time
		} else {
			tolerations = append(tolerations, toleration)
		}
	}
	return tolerations
}
