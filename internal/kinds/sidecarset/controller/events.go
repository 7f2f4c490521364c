package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// announce records events about what holds back a rollout. They are repeated when they change, not at every
// pass.
func announce(s *session, plan *sidecarset.Plan) {
	notUpgradable := ""
	if plan.NotUpgradable > 0 {
		notUpgradable = fmt.Sprintf(
			"%s cannot be upgraded in place and %s %s containers until made anew: only images can change in a running pod.",
			wording.Count(plan.NotUpgradable, "pod"), wording.Form(plan.NotUpgradable, "keeps", "keep"),
			wording.Form(plan.NotUpgradable, "its", "their"))
		if plan.Differences != "" {
			notUpgradable += " What differs, by number of pods: " + plan.Differences
		}
	}
	say(s, corev1.EventTypeNormal, "NotUpgradablePods", notUpgradable)

	partition, unavailable := "", ""
	switch plan.HeldBackReason {
	case sidecarset.ReasonPartition:
		partition = plan.HeldBack
	case sidecarset.ReasonMaxUnavailable:
		unavailable = plan.HeldBack
	}
	say(s, corev1.EventTypeNormal, "HeldBackByPartition", partition)
	say(s, corev1.EventTypeNormal, "HeldBackByMaxUnavailable", unavailable)

	noHash := ""
	for _, v := range plan.Verdicts {
		if v.Reason == sidecarset.ReasonNoHash {
			noHash = v.Message
			break
		}
	}
	say(s, corev1.EventTypeWarning, "NoHash", noHash)

	unreadable := ""
	for _, v := range plan.Verdicts {
		if v.Reason == sidecarset.ReasonUnreadable || v.Reason == sidecarset.ReasonMetadata {
			unreadable = fmt.Sprintf("pod %s/%s: %s", v.Pod.Namespace, v.Pod.Name, v.Message)
			break
		}
	}
	say(s, corev1.EventTypeWarning, "PodNotUpgraded", unreadable)

	// The numbers shrink one by one, and do not make the message new.
	tell(s, corev1.EventTypeWarning, "PodsNotMatched", plan.UnmatchedWhys,
		"Pods that have its containers are not upgraded any more, because they are not matched. Why, by number of pods: "+plan.Unmatched)
}

// say records an event unless it is the last one recorded for that reason in that generation. An empty
// message makes it forget the last one.
func say(s *session, eventType, reason, message string) {
	tell(s, eventType, reason, message, message)
}

// tell is like say, but the message counts as new only if about changes.
func tell(s *session, eventType, reason, about, message string) {
	if about != "" {
		about = fmt.Sprintf("%d %s", s.Object.Generation, about)
	}
	if s.News(reason, about) {
		s.Event(eventType, reason, message)
	}
}
