package workloadspread

import (
	"fmt"
	"strings"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Headline describes the plan in one line.
func (p *Plan) Headline() string {
	of := fmt.Sprintf("WorkloadSpread %s/%s", p.Spread.Namespace, p.Spread.Name)
	if p.Problem != nil {
		return fmt.Sprintf("%s: nothing is done: %s", of, p.Problem)
	}

	adopted, ranked := 0, 0
	for _, w := range p.Writes {
		if w.Adopt != "" {
			adopted++
		}
		if w.Cost != "" {
			ranked++
		}
	}
	text := fmt.Sprintf("%s: %s %s wants %d, has %d", of, p.Target.Kind, p.Target.Name, p.Target.Desired,
		len(p.members))
	if !p.Target.Exists {
		text = fmt.Sprintf("%s: %s %s does not exist", of, p.Target.Kind, p.Target.Name)
	}

	for _, part := range []struct {
		n    int
		what string
	}{{adopted, "adopted"}, {ranked, "ranked"}, {len(p.Delete), "given up"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}

	if p.snapshot.Left > 0 {
		text += fmt.Sprintf(", %d left to other WorkloadSpreads", p.snapshot.Left)
	}
	if p.Incomplete != nil {
		text += ": " + p.Incomplete.Error()
	}

	return text
}

// String returns the plan with its reasons.
func (p *Plan) String() string {
	lines := []string{p.Headline()}
	if p.Problem == nil {
		status := p.Status.Status
		lines = append(lines, linesOf("all versions", status.SubsetStatuses, p.quotas)...)
		for _, version := range versionsOf(status.VersionedSubsetStatuses) {
			lines = append(lines, linesOf("version "+version,
				status.VersionedSubsetStatuses[version], p.quotas)...)
		}
		for _, m := range p.members {
			switch {
			case m.subset != unmatched:
			case p.snapshot.NodeUnknown[m.pod.UID]:
				lines = append(lines, fmt.Sprintf("  pod %s: in no subset, its node %s is not known",
					m.pod.Name, m.pod.Spec.NodeName))
			case m.pod.Spec.NodeName == "":
				lines = append(lines, fmt.Sprintf("  pod %s: in no subset, it has no node", m.pod.Name))
			default:
				lines = append(lines, fmt.Sprintf("  pod %s: in no subset, none fits its node %s",
					m.pod.Name, m.pod.Spec.NodeName))
			}
		}
		for _, sentence := range p.sentences {
			lines = append(lines, "  "+sentence)
		}
		for _, lost := range p.Status.Lost {
			lines = append(lines, "  "+lost.String())
		}
		for _, subset := range p.Status.Recovered {
			lines = append(lines, fmt.Sprintf("  subset %s is schedulable again", subset))
		}
	}
	if !p.Again.IsZero() {
		lines = append(lines,
			fmt.Sprintf("  again at %s: %s", p.Again.UTC().Format("15:04:05.000"), p.Because))
	}

	return strings.Join(lines, "\n") + "\n"
}

// String describes what was waited for in vain.
func (l LostBooking) String() string {
	if l.Deletion {
		return fmt.Sprintf("pod %s of subset %s was not deleted within %s of the admission of its deletion",
			l.Pod, l.Subset, DeletionTimeout)
	}
	return fmt.Sprintf("pod %s of subset %s was not seen within %s of its admission", l.Pod, l.Subset,
		CreationTimeout)
}

func linesOf(of string, list []appsv1beta1.WorkloadSpreadSubsetStatus, quotas []SubsetQuota) []string {
	var lines []string
	for i := range list {
		s := &list[i]
		text := fmt.Sprintf("  %s, subset %s: %s", of, s.Name, wording.Count(s.Replicas, "pod"))
		if quota := quotas[i].Quota; quota != Unlimited {
			text += fmt.Sprintf(" of %d, %d missing", quota, s.MissingReplicas)
		}
		if n := len(s.CreatingPods); n > 0 {
			text += fmt.Sprintf(", %d coming", n)
		}
		if n := len(s.DeletingPods); n > 0 {
			text += fmt.Sprintf(", %d going", n)
		}
		if c := Schedulable(s); c != nil && c.Status != "True" {
			text += fmt.Sprintf(", passed over (%s since %s)", c.Reason,
				c.LastTransitionTime.UTC().Format("15:04:05"))
		}
		lines = append(lines, text)
	}

	return lines
}
