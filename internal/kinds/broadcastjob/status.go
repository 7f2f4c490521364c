package broadcastjob

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// FinalStatus returns the planned status after the given number of pods was created and the given verdicts
// were carried out (BJ-074, BJ-140), and reports whether it differs from the stored status.
func (p *Plan) FinalStatus(created int, done []*podplan.Verdict) (*appsv1beta1.BroadcastJobStatus, bool) {
	status := p.Status.DeepCopy()
	if p.Job.DeletionTimestamp == nil {
		gone := map[types.UID]bool{}
		for _, v := range done {
			if v.Action == podplan.Delete && StateOf(p.Job, v.Pod) == Active && !gone[v.Pod.UID] {
				gone[v.Pod.UID] = true
				status.Active--
			}
		}
		status.Active = max(status.Active+int32(created), 0)
	}
	return status, !equality.Semantic.DeepEqual(*status, p.Job.Status)
}

// Settled reports whether all nodes are finished or the job has ended.
func (p *Plan) Settled() bool {
	ended, _ := Ended(p.Job)
	return ended || p.Done >= int(p.Status.Desired)
}

// mostNamed is how many nodes are named in a sentence.
const mostNamed = 3

// Summary returns how far the job is, and what the nodes without a pod wait for.
func (p *Plan) Summary() []string {
	status := &p.Status
	lines := []string{fmt.Sprintf("%s: %d active, %d succeeded, %d failed of %s",
		cmp.Or(status.Phase, appsv1beta1.BroadcastJobRunning), status.Active, status.Succeeded, status.Failed,
		wording.Count(status.Desired, "node"))}
	if waiting := p.Missing[min(len(p.Create), len(p.Missing)):]; len(waiting) > 0 && p.Hold != "" &&
		len(p.Create) == 0 {
		lines = append(lines, fmt.Sprintf("%s without a pod, because %s: %s", wording.Count(len(waiting), "node"),
			p.Hold, wording.Few(waiting, mostNamed)))
	}
	return lines
}

// OnlyNumbers reports whether the two statuses differ only in numbers of pods and nodes.
func OnlyNumbers(from, to *appsv1beta1.BroadcastJobStatus) bool {
	old := from.DeepCopy()
	old.Active, old.Succeeded, old.Failed, old.Desired = to.Active, to.Succeeded, to.Failed, to.Desired
	return equality.Semantic.DeepEqual(old, to)
}
