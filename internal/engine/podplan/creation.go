package podplan

import (
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Growth is a request to grow a PVC.
type Growth struct {
	Claim *corev1.PersistentVolumeClaim
	// Template is the claim template that requests the size.
	Template string
	// Pod is the name of the pod that uses the claim; empty if it is not reported.
	Pod     string
	Storage resource.Quantity
}

// MayCreate returns how many of the missing pods may be created now, at most as many as one plan has room
// for. After a failure none may be created for a while; then one pod is created to find out whether creation
// works again (CS-047, CS-072).
func (p *Planner) MayCreate(missing int) int {
	if missing == 0 {
		return 0
	}
	return p.MayTry(missing, false, p.AtOnce())
}

// MostFailedNodes is for how many nodes failures are known, since a namespace has many workloads.
const MostFailedNodes = 500

// fewNodes is for how many nodes creation may fail before that is no matter of these nodes alone.
const fewNodes = 5

// ByFailure sorts nodes so that those for which creation failed come last, the latest failure at the end. The others
// begin with an arbitrary one if the last creation failed, or if there may be failures that are not known any more. It
// reports whether one of the others may be tried at once, because creation failed for a few nodes alone.
func (p *Planner) ByFailure(missing []string) (others bool) {
	slices.SortStableFunc(missing, func(a, b string) int { return p.in.FailedNodes[a].Compare(p.in.FailedNodes[b]) })
	untried := 0
	for untried < len(missing) && p.in.FailedNodes[missing[untried]].IsZero() {
		untried++
	}
	if (p.in.CreationError != "" || len(p.in.FailedNodes) >= MostFailedNodes) && untried > 1 {
		first := p.Turn(untried)
		copy(missing, slices.Concat(missing[first:untried], missing[:first]))
	}
	return untried > 0 && len(p.in.FailedNodes) > 0 && len(missing)-untried < fewNodes // failed ones may be gone
}

// Turn returns which one of several is tried, another one at another time: a refusal may concern only some of them.
func (p *Planner) Turn(n int) int {
	hash := fnv.New32a()
	fmt.Fprint(hash, p.in.Now.Unix()) // retries may come in steps that n divides
	return int(hash.Sum32()) % n
}

// NamespaceEnds is the CreationError of a workload whose namespace is being deleted. It is no failure that a status
// reports.
const NamespaceEnds = "the namespace is being deleted"

// MayTry is [Planner.MayCreate] for callers that have their own room for pods. With others one is tried at once
// ([Planner.ByFailure]).
func (p *Planner) MayTry(missing int, others bool, room int) int {
	switch {
	case missing == 0 || p.in.CreationError == "":
		return min(missing, room)
	case p.in.Now.Before(p.in.CreationHeldUntil) && !others:
		p.LookAgain(p.in.CreationHeldUntil)
		if p.in.CreationError != NamespaceEnds {
			p.out.ScaleError = p.in.CreationError
		}
		p.Say("%s missing; the next attempt is made later, because creation failed: %s",
			wording.Count(missing, "pod"), p.in.CreationError)
		return 0
	}
	p.out.Probing = missing > 1
	return 1
}

// roomForDocuments bounds how many bytes of templates one plan turns into documents, which take up to thirty
// times as much memory: a user may write large templates and a wrong number of replicas.
const roomForDocuments = 8 << 20

// AtOnce returns for how many new pods one plan has room, at least one.
func (p *Planner) AtOnce() int {
	most := 0
	for _, from := range []*Revision{p.Update, p.Current} {
		size := len(from.object.Data.Raw)
		for _, claim := range p.claimTemplatesOf(from) {
			size += len(claim.Raw())
		}
		most = max(most, size)
	}
	return max(roomForDocuments/max(most, 1), 1)
}
