package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// stillness records an event about what holds up the SidecarSet if nothing has moved for a while. It returns
// when a pass is due for that.
func stillness(s *session, plan *sidecarset.Plan, result Result) time.Duration {
	status := &plan.Status
	progress := waiting.Progress{
		Generation: plan.SidecarSet.Generation,
		Arrived:    int(status.UpdatedReadyPods),
		Complete:   status.UpdatedReadyPods == status.MatchedPods,
		Moved:      result.Done[sidecarset.Upgrade]+result.Done[sidecarset.Reset] > 0,
		Wait:       plan.Waiting,
	}
	tell, after := s.Kept.waits.Passed(progress, s.Now())
	if tell != "" {
		s.Event(corev1.EventTypeWarning, waiting.EventReason, tell)
	}

	return after
}
