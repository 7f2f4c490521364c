package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// stillness tells the owner of the SidecarSet what holds it, if nothing has moved for a while. It returns
// when a pass is due for that.
func (p *Pass) stillness(plan *sidecarset.Plan, result Result) time.Duration {
	status := &plan.Status
	progress := waiting.Progress{
		Generation: plan.SidecarSet.Generation,
		Arrived:    int(status.UpdatedReadyPods),
		Complete:   status.UpdatedReadyPods == status.MatchedPods,
		Moved:      result.Done[sidecarset.Upgrade]+result.Done[sidecarset.Reset] > 0,
		Wait:       plan.Waiting,
	}
	tell, after := p.memory.Of(plan.SidecarSet.UID).waits.Passed(progress, p.Kube.Now())
	if tell != "" {
		p.Applier.Events.Event(plan.SidecarSet, corev1.EventTypeWarning, waiting.EventReason, tell)
	}

	return after
}
