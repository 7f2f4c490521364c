package ephemeraljob

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Reasons of conditions (EJ-058, EJ-060, EJ-061).
const (
	ReasonInitialized      = "Initialized"
	ReasonMatchEmpty       = "MatchEmpty"
	ReasonSucceeded        = "JobSucceeded"
	ReasonFailed           = "JobFailed"
	ReasonDeadlineExceeded = "DeadlineExceeded"
	ReasonCreateFailed     = "CreateFailed"
	ReasonError            = "Error"
)

// number converts a number for the status.
func number(n int) int32 { return int32(min(n, math.MaxInt32)) }

// conclude determines the phase and the conditions.
func (t *tally) conclude() {
	p, status := t.plan, t.status
	failures := int(status.Failed) + len(t.refused)
	open := int(status.Running) + int(status.Waiting) + len(t.targets) - len(t.refused)
	done := t.unfinished == 0 && len(t.targets) == len(t.refused)

	var conditions []appsv1beta1.JobCondition
	add := func(of appsv1beta1.JobConditionType, reason, format string, args ...any) {
		conditions = append(conditions, t.condition(of, reason, fmt.Sprintf(format, args...)))
	}
	add(appsv1alpha1.EphemeralJobConditionInitialized, ReasonInitialized, "the controller has seen the job")

	end := func(phase appsv1alpha1.EphemeralJobPhase, of appsv1beta1.JobConditionType, reason,
		format string, args ...any) {
		status.Phase, status.CompletionTime, status.Failed = phase, &metav1.Time{Time: t.in.Now},
			number(failures)
		add(of, reason, format, args...)
		p.Ended, p.Inject, p.After = true, nil, 0
	}

	switch {
	case t.wrong != "":
		status.Phase = appsv1alpha1.EphemeralJobError
		add(appsv1alpha1.EphemeralJobConditionError, ReasonError, "%s", t.wrong)
	case status.Matches == 0:
		status.Phase = appsv1alpha1.EphemeralJobWaiting
		add(appsv1alpha1.EphemeralJobConditionMatchedEmpty, ReasonMatchEmpty, "%s", t.none())
	case done && failures == 0:
		end(appsv1alpha1.EphemeralJobSucceeded, appsv1alpha1.EphemeralJobConditionSucceeded, ReasonSucceeded,
			"all containers ended with 0 in %s", wording.Count(status.Succeeded, "pod"))
	case done:
		end(appsv1alpha1.EphemeralJobFailed, appsv1alpha1.EphemeralJobConditionFailed, ReasonFailed, "%s",
			t.failed(failures))
	case status.Running > 0:
		status.Phase = appsv1alpha1.EphemeralJobRunning
	default:
		status.Phase = appsv1alpha1.EphemeralJobWaiting
	}
	if deadline := t.in.Job.Spec.ActiveDeadlineSeconds; deadline != nil && !p.Ended && !t.in.Job.Spec.Paused {
		at := status.StartTime.Add(timing.Seconds(max(*deadline, 0)))
		if t.soon(at); !at.After(t.in.Now) {
			end(appsv1alpha1.EphemeralJobFailed, appsv1alpha1.EphemeralJobConditionFailed,
				ReasonDeadlineExceeded, "the job did not end within %d s: %s", *deadline,
				strings.TrimPrefix(t.progress(failures, open), "; "))
		}
	}

	if !p.Ended && failures > 0 {
		add(appsv1alpha1.EphemeralJobConditionFailed, ReasonCreateFailed, "%s", t.failed(failures))
	}

	p.Why = string(status.Phase) + ": " + t.progress(failures, open)
	if t.in.Job.Spec.Paused && !p.Ended {
		status.Phase = appsv1alpha1.EphemeralJobPaused
	}
	if p.Ended {
		p.Why = conditions[len(conditions)-1].Message
	}
	status.Conditions = conditions
}

// condition returns a condition. Its times change only if it is new or its reason changes.
func (t *tally) condition(of appsv1beta1.JobConditionType, reason, message string) appsv1beta1.JobCondition {
	next := appsv1beta1.JobCondition{Type: of, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastProbeTime: metav1.Time{Time: t.in.Now}, LastTransitionTime: metav1.Time{Time: t.in.Now}}
	for _, c := range t.in.Job.Status.Conditions {
		switch {
		case c.Type != of:
		case of == appsv1alpha1.EphemeralJobConditionInitialized:
			return c // it is set once
		case c.Status == corev1.ConditionTrue && c.Reason == reason:
			next.LastProbeTime, next.LastTransitionTime = c.LastProbeTime, c.LastTransitionTime
		}
	}
	return next
}

// none describes why there are no targets.
func (t *tally) none() string {
	if replicas := t.in.Job.Spec.Replicas; replicas != nil && *replicas <= 0 {
		return "spec.replicas is 0"
	}
	if taken := t.plan.Taken; len(taken) > 0 {
		return fmt.Sprintf(
			"%s an ephemeral container of the same name, and no other pod matches spec.selector: %s",
			wording.Count(len(taken), "pod")+wording.Form(len(taken), " has", " have"), wording.Few(taken, 3))
	}
	return "no running pod matches spec.selector"
}

// failed describes how many pods failed, and which of them cannot be treated.
func (t *tally) failed(failures int) string {
	text := wording.Count(failures, "pod") + " failed"
	if len(t.refused) > 0 {
		text += fmt.Sprintf("; the API server refuses the containers in %s: %s",
			wording.Few(t.refused, 3), t.why)
	}
	return text
}

// progress describes how far the job has come.
func (t *tally) progress(failures, open int) string {
	switch {
	case t.wrong != "":
		return t.wrong
	case t.status.Matches == 0:
		return t.none()
	}
	return fmt.Sprintf("of %s %d succeeded, %d failed and %d %s not ended",
		wording.Count(t.status.Matches, "pod"), t.status.Succeeded, failures, open,
		wording.Form(open, "has", "have"))
}
