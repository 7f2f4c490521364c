package judge

import (
	"fmt"
	"slices"
)

// Labels of the workloads and pods of a UnitedDeployment (UD-069).
const (
	subsetName     = "apps.kruise.io/subset-name"
	unitedRevision = "apps.kruise.io/controller-revision-hash"
)

// unitedEnds says what is wrong with a UnitedDeployment of CloneSets at the end. Its subsets say nothing about their
// numbers, so that pods are divided evenly (UD-064, UD-081, UD-137, UD-138).
func (s *state) unitedEnds(o *object) string {
	parts := map[string]*object{}
	for k, child := range s.objects {
		if k.resource != "clonesets" || child.owner() != o.UID {
			continue
		}
		subset := child.Labels[subsetName]
		if parts[subset] != nil {
			return fmt.Sprintf("%s and %s are both of subset %s", k, parts[subset].key, subset)
		}
		parts[subset] = child
	}
	if len(parts) != len(o.spec.Topology.Subsets) || len(o.status.SubsetStatuses) != len(parts) {
		return fmt.Sprintf("there are %d workloads for %d subsets, and the status has %d", len(parts),
			len(o.spec.Topology.Subsets), len(o.status.SubsetStatuses))
	}
	replicas, all, ready, updated := 0, 0, 0, 0
	for i, subset := range o.spec.Topology.Subsets {
		child, st := parts[subset.Name], o.status.SubsetStatuses[i]
		if child == nil {
			return fmt.Sprintf("subset %s has no workload", subset.Name)
		}
		even := o.spec.replicas() / len(parts)
		if n := child.spec.replicas(); n != even && n != even+1 {
			return fmt.Sprintf("subset %s has %d replicas of %d, and an even share is %d", subset.Name, n, o.spec.replicas(), even)
		}
		if st.Name != subset.Name || st.Replicas != child.spec.replicas() || st.ReadyReplicas != child.status.ReadyReplicas {
			return fmt.Sprintf("the status has %d replicas, %d ready for %s; %s has %d, %d", st.Replicas, st.ReadyReplicas,
				st.Name, child.key, child.spec.replicas(), child.status.ReadyReplicas)
		}
		if revision := child.Labels[unitedRevision]; revision != s.newest(o) {
			return fmt.Sprintf("%s is of revision %s, and should be of %s", child.key, revision, s.newest(o))
		}
		if is, want := child.spec.Template.Spec.Containers, o.spec.Template.CloneSetTemplate.Spec.Template.Spec.Containers; !slices.Equal(is, want) {
			return fmt.Sprintf("%s has containers %v, and should have %v", child.key, is, want)
		}
		replicas += child.spec.replicas()
		for _, pod := range s.pods[child.UID] {
			if !active(pod) {
				continue
			}
			all++
			if serving(pod) {
				ready++
			}
			if pod.Labels[unitedRevision] == s.newest(o) {
				updated++
			}
		}
	}
	if want, st := o.spec.replicas(), o.status; replicas != want || all != want || ready != want || updated != want ||
		st.Replicas != want || st.ReadyReplicas != want || st.UpdatedReplicas != want {
		return fmt.Sprintf("it wants %d pods; subsets have %d, there are %d, %d in service, %d updated; the status has %d, %d, %d",
			want, replicas, all, ready, updated, st.Replicas, st.ReadyReplicas, st.UpdatedReplicas)
	}
	return ""
}
