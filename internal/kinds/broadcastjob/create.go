package broadcastjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// mostAtOnce is how many pods one plan makes documents of, and roomForDocuments how many bytes of templates:
// the pass has no time for more.
const mostAtOnce, roomForDocuments = 1000, 8 << 20

// create plans pods for nodes that have none, in the order of their names, as far as parallelism goes (BJ-070
// to 075). Nodes for which that failed a moment ago come last.
func (p *planner) create() {
	active := p.by[Active]
	switch spare := p.limit - active; {
	case spare < 0:
		p.out.Hold = fmt.Sprintf("%s active, and parallelism is %d", plural.Of(active, "pod"), p.limit)
		p.tell(ToldTooMany, corev1.EventTypeWarning,
			"more pods are active than parallelism lets be, %d: none is created until fewer are", p.limit)
		return
	case len(p.out.Missing) == 0:
		return
	case spare == 0:
		p.out.Hold = fmt.Sprintf("%s active, as many as parallelism lets be", plural.Of(active, "pod"))
		p.core.Say("%s without a pod: %s", plural.Of(len(p.out.Missing), "node"), p.out.Hold)
		return
	default:
		p.createSome(spare)
	}
}

func (p *planner) createSome(spare int) {
	order := slices.Clone(p.out.Missing)
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(rank(p.in.Failed[a]), rank(p.in.Failed[b]))
	})
	most := p.core.MayTry(min(spare, len(order)),
		max(min(mostAtOnce, roomForDocuments/max(len(p.raw), 1)), 1))
	for _, node := range order[:most] {
		if err := p.newPod(node); err != nil {
			p.out.ScaleError, p.out.Hold = err.Error(), err.Error()
			return
		}
	}

	switch {
	case most == len(order):
	case p.out.ScaleError != "":
		p.out.Hold = "creation failed: " + p.out.ScaleError
	case most < min(spare, len(order)):
		p.out.More = true
	default:
		p.out.Hold = fmt.Sprintf("%s active, as many as parallelism lets be",
			plural.Of(p.by[Active]+most, "pod"))
	}
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// newPod plans a pod for a node. It is made from the document, so that fields that our types do not know
// reach the pod.
func (p *planner) newPod(node string) (err error) {
	if p.document == nil {
		if p.document, err = revision.Parse(p.raw); err != nil {
			return fmt.Errorf("spec.template: %w", err)
		}
	}
	name := p.nameFor(node)
	pod := p.core.Body(name, p.document)
	pod.Labels[pub.BroadcastJobName], pod.Labels[pub.BroadcastJobUID] = p.job.Name, string(p.job.UID)
	pod.Annotations[pub.BroadcastJobPlacement] = p.placement
	if p.in.Binds {
		pod.Spec["nodeName"] = node
	} else {
		nodes.Pin(pod.Spec, node)
	}
	p.out.Create = append(p.out.Create, podplan.Creation{Name: name, Node: node, Pod: pod.Document})
	return nil
}

// nameFor is the name of the pod of a node. A name that a pod of somebody else has is not taken; then comes
// the next.
func (p *planner) nameFor(node string) string {
	for n := 0; ; n++ {
		if name := nodes.PodName(p.job.Name, string(p.job.UID), node, n); p.in.Taken == nil ||
			!p.in.Taken(name) {
			return name
		}
	}
}

// schedulerWords is what the scheduler says of a pod.
func schedulerWords(pod *corev1.Pod) string {
	if c := readiness.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse &&
		c.Message != "" {
		return ": " + c.Message
	}
	return ""
}

// resumedAt reads when a user unset spec.paused. What cannot be read is now.
func resumedAt(text string, now time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.Before(now) {
		return at
	}
	return now
}
