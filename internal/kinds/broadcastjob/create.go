package broadcastjob

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// mostAtOnce is for how many pods one plan makes documents, and roomForDocuments for how many bytes of
// templates. A pass has no time for more.
const mostAtOnce, roomForDocuments = 1000, 8 << 20

// create plans pods for nodes that have none, in the order of the nodes' names, as far as parallelism allows.
// Nodes for which creation failed a moment ago come last.
func (p *planner) create() {
	active := p.by[Active]
	switch spare := p.limit - active; {
	case spare < 0:
		p.out.Hold = fmt.Sprintf("%s active, and parallelism is %d", wording.Count(active, "pod"), p.limit)
		p.tell(ToldTooMany, corev1.EventTypeWarning,
			"more pods are active than parallelism lets be, %d: none is created until fewer are", p.limit)
		return
	case len(p.out.Missing) == 0:
		return
	case spare == 0:
		p.out.Hold = fmt.Sprintf("%s active, as many as parallelism lets be", wording.Count(active, "pod"))
		p.core.Say("%s without a pod: %s", wording.Count(len(p.out.Missing), "node"), p.out.Hold)
		return
	default:
		p.createSome(spare)
	}
}

func (p *planner) createSome(spare int) {
	order := slices.Clone(p.out.Missing)
	most := p.core.MayTry(min(spare, len(order)), p.core.ByFailure(order),
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
			wording.Count(p.by[Active]+most, "pod"))
	}
}

// newPod plans a pod for a node. The pod is made from the document of the template, so that fields that our
// types do not know reach it.
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

// nameFor returns the name of the pod of a node. If a pod of somebody else has the name, the next name is
// used.
func (p *planner) nameFor(node string) string {
	for n := 0; ; n++ {
		if name := nodes.PodName(p.job.Name, string(p.job.UID), node, n); p.in.Taken == nil ||
			!p.in.Taken(name) {
			return name
		}
	}
}

// schedulerWords returns what the scheduler reports about a pod.
func schedulerWords(pod *corev1.Pod) string {
	if c := readiness.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse &&
		c.Message != "" {
		return ": " + c.Message
	}
	return ""
}

// resumedAt parses the time at which a user unset spec.paused. It returns now if the time is invalid or in
// the future.
func resumedAt(text string, now time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.Before(now) {
		return at
	}
	return now
}
