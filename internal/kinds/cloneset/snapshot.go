package cloneset

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// Snapshot is all that a plan is made from.
type Snapshot struct {
	// Set is the CloneSet.
	Set *appsv1beta1.CloneSet
	podplan.Snapshot
	// Claims are all claims controlled by the set.
	Claims []*corev1.PersistentVolumeClaim
	// PodOwnedClaims are claims of the namespace that a pod controls, since it takes them along when it goes;
	// those of other sets' pods may be among them.
	PodOwnedClaims []*corev1.PersistentVolumeClaim
	// LostNodes are nodes of inactive pods that do not exist or of which nothing is heard any more. Pods on
	// them may never go.
	LostNodes map[string]bool
	// ForeignPods are pods that the set does not control and that stand where claims of the set want a pod:
	// released ones, or detached by hand (CS-335, CS-348).
	ForeignPods []*corev1.Pod
	// Orphans are the names of pods without controller that match the selector (CS-355).
	Orphans []string
	// NodeLabels are the labels of the nodes that pods stand on, by node; only where scaling in has to look
	// at them (CS-151).
	NodeLabels map[string]map[string]string
	// Random returns a number below n; it is the only chance in a plan.
	Random func(n int) int
	// Features are the switches that the plan depends on.
	Features Features
}

// NodesWanted are the nodes of pods of which decisions need something: labels, if the set has more pods than
// it should and spreads them over domains (CS-151); and whether they are lost, if inactive pods on them have
// claims that others could take over (CS-335).
func (s *Snapshot) NodesWanted() []string {
	spread := len(topologyKeys(s.Set)) > 0 &&
		(s.Set.Spec.Replicas == nil || len(s.Pods) > int(*s.Set.Spec.Replicas))
	reuse := len(s.Claims) > 0 && s.Set.Spec.ScaleStrategy.EnablePVCReuse
	seen := map[string]bool{"": true}
	var names []string
	for _, pod := range s.Pods {
		name := pod.Spec.NodeName
		if seen[name] || !spread && (!reuse || readiness.Active(pod)) {
			continue
		}
		seen[name] = true
		names = append(names, name)
	}

	return names
}

// RecordNode takes from a node what decisions need. A node of which the cluster has heard nothing for a while
// is lost, and so is one that does not exist any more; one whose kubelet says that it is not ready may still
// let its pods go.
func (s *Snapshot) RecordNode(name string, node *corev1.Node, exists bool) {
	if s.NodeLabels == nil {
		s.NodeLabels, s.LostNodes = map[string]map[string]string{}, map[string]bool{}
	}
	s.NodeLabels[name] = node.Labels
	ready := nodes.Ready(node)
	s.LostNodes[name] = !exists || ready != nil && ready.Status == corev1.ConditionUnknown
}

// ClaimsWithoutPod are the names of the pods that claims are for and that the set does not control.
func (s *Snapshot) ClaimsWithoutPod() []string {
	known := map[string]bool{"": true}
	for _, pod := range s.Pods {
		known[instanceID(pod.Labels, pod.Name, s.Set.Name)] = true
	}
	var names []string
	for _, claim := range s.Claims {
		if id := claim.Labels[pub.CloneSetInstanceID]; !known[id] {
			known[id] = true
			names = append(names, s.Set.Name+"-"+id)
		}
	}
	return names
}

// Features are the feature gates and flags that change what is planned.
type Features struct {
	// ShortHash labels pods with the short hash of their revision (gate CloneSetShortHash, CS-050).
	ShortHash bool
	// PartitionRollback moves pods back when the partition is raised (gate CloneSetPartitionRollback,
	// CS-098).
	PartitionRollback bool
	// RecreateOnClaimChange recreates pods whose claim templates changed with the pod template (gate
	// RecreatePodWhenChangeVCTInCloneSetGate, IPU-046).
	RecreateOnClaimChange bool
	// ExcludePreparingDelete is the flag --cloneset-scaling-exclude-preparing-delete (CS-116).
	ExcludePreparingDelete bool
	// InPlace is what qualifies beside images and metadata.
	InPlace inplace.Options
	// DeferredResize is how long a node may defer a resize before the pod is recreated; 0 means for ever
	// (IPU-315).
	DeferredResize time.Duration
	// PreparingUpdateAsUpdate counts pods in PreparingUpdate as new while scaling (CS-115).
	PreparingUpdateAsUpdate bool
	// PreDownload pulls new images ahead (gates KruiseDaemon and PreDownloadImageForInPlaceUpdate, CS-200).
	PreDownload bool
}
