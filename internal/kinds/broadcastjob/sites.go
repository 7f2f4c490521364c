package broadcastjob

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// site is a node and the pods that are meant for it.
type site struct {
	node *corev1.Node
	name string
	nodes.Verdict
	// pods are all pods of the job that are meant for the node. The pod that has the place comes first.
	pods []*member
	// gone reports that the node no longer counts as desired, because it does not fit its pod.
	gone bool
}

// sortSites assigns the pods to their nodes.
func (p *planner) sortSites() {
	p.homeless = make(map[string][]*member, len(p.members))
	for i := range p.members {
		target := nodes.Target(p.members[i].pod)
		p.homeless[target] = append(p.homeless[target], &p.members[i])
	}

	p.sites = make([]site, len(p.in.Nodes))
	unfit := map[string][]string{}
	for i, node := range p.in.Nodes {
		s := &p.sites[i]
		*s = site{node: node, name: node.Name, Verdict: p.rules.Judge(node), pods: p.homeless[node.Name]}
		if len(s.pods) > 0 {
			delete(p.homeless, node.Name)
			slices.SortStableFunc(s.pods, before)
			s.gone = s.leaves(p)
		}
		if !s.Eligible {
			unfit[s.Why] = append(unfit[s.Why], s.name)
		}
	}

	p.sayUnfit(unfit)
}

// mostUnfit is for how many reasons the nodes that are not eligible are printed.
const mostUnfit = 5

// sayUnfit records which nodes are not eligible, and why.
func (p *planner) sayUnfit(unfit map[string][]string) {
	for i, why := range slices.Sorted(maps.Keys(unfit)) {
		if i == mostUnfit {
			p.core.Say("%s more", wording.Count(len(unfit)-i, "reason"))
			return
		}
		names := unfit[why]
		slices.Sort(names)
		p.core.Say("%s not eligible: %s: %s", wording.Count(len(names), "node"), why,
			wording.Few(names, mostNamed))
	}
}

// before orders the pods of a node: finished pods first, then others, then those that are being deleted;
// within each group by age.
func before(a, b *member) int {
	rank := func(m *member) int {
		switch m.state {
		case Succeeded, Failed:
			return 0
		case Leaving:
			return 2
		case Active, Restarting:
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)),
		a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.Name, b.pod.Name))
}

// goneAfter is how long a pod that is being deleted still counts after it should be gone, if its node has a
// temporary problem. A dead node never removes the pod, which would keep the job running forever.
const goneAfter = time.Minute

// leaves reports whether the pod that has the place must go, or is going, because the node does not fit it.
func (s *site) leaves(p *planner) bool {
	m := s.pods[0]
	switch {
	case m.state == Succeeded || m.state == Failed || s.Eligible:
		return false
	case m.state == Leaving && Suffers(s.node): // the node may have no kubelet to remove the pod
		until := m.pod.DeletionTimestamp.Add(goneAfter)
		if p.in.Now.Before(until) {
			p.core.LookAgain(until)
		}
		return !p.in.Now.Before(until)
	case m.pod.Spec.NodeName == "":
		return true
	case s.Tolerable:
		return false
	}
	if p.madeOtherwise(m) {
		return false // what the template requires of nodes now applies to later pods only
	}
	if !Suffers(s.node) {
		return true
	}

	well := s.node.DeepCopy()
	well.Spec.Taints = slices.DeleteFunc(well.Spec.Taints, suffers)
	return !p.rules.Judge(well).Tolerable
}

// madeOtherwise reports whether the template required something else of nodes when the pod was created.
func (p *planner) madeOtherwise(m *member) bool {
	made := m.pod.Annotations[pub.BroadcastJobPlacement]
	return made != "" && made != p.placement
}

// Suffers reports whether a node is lost or not ready for now. The cluster itself evicts the pods when the time
// that they tolerate is over, so that a pod survives a short outage of its node.
func Suffers(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, suffers) }

func suffers(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoExecute && nodes.Loses(&taint)
}
