package sidecarset

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// waits returns what holds up the rollout, with the pods that it waits for. It returns nil if nothing does,
// or only what the user asked for. Pods that are not ready for reasons of their own hold it up only if they
// use up maxUnavailable. Pods that cannot be upgraded are reported elsewhere.
func (p *planner) waits() *waiting.Wait {
	if !slices.ContainsFunc(p.out.Verdicts, func(v *PodVerdict) bool { return v.Action == Wait }) {
		return nil
	}

	infos := make(map[*corev1.Pod]*podInfo, len(p.matched))
	for _, info := range p.matched {
		infos[info.Pod] = info
	}

	wait := &waiting.Wait{}
	down, other := 0, waiting.NotReady
	for _, v := range p.out.Verdicts {
		info := infos[v.Pod]
		if v.Action != Wait || info == nil {
			continue
		}
		name := v.Pod.Namespace + "/" + v.Pod.Name
		wait.Stuck = wait.Stuck || info.underway && readiness.Stuck(v.Pod)
		wait.Unpulled = wait.Unpulled || info.underway && readiness.Unpulled(v.Pod)
		switch v.Reason {
		case ReasonMaxUnavailable, ReasonBudget:
			if wait.Reason == "" {
				wait.Reason, wait.Message = string(v.Reason), v.Message
			}
		case ReasonNotReady, ReasonUpgrading:
			if info.underway {
				down++
				wait.Name(name, v.Message)
			}
		case ReasonUnreadable, ReasonMetadata, ReasonNoHash, ReasonRefused, ReasonResizeInfeasible:
			if other == waiting.NotReady {
				other = string(v.Reason)
			}
			down++
			wait.Name(name, v.Message)
		}
	}

	if wait.Reason != "" { // other pods that use up the budget
		for _, info := range p.matched {
			if info.updated && !info.underway && !info.ready {
				down++
				wait.Name(info.Pod.Namespace+"/"+info.Pod.Name, info.notReady)
			}
		}
	}

	switch {
	case down == 0:
		return nil
	case wait.Reason == "":
		wait.Reason, wait.Message =
			other, fmt.Sprintf("%d of %s waited for", down, wording.Count(len(p.matched), "pod"))
	}

	return wait
}
