package broadcastjob

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// fails reports whether the job fails, because of a failed pod or its deadline.
func (p *planner) fails() bool {
	policy := &p.job.Spec.CompletionPolicy
	if failed := int(p.out.Status.Failed); failed > 0 && p.failsFast() {
		succeeded := p.out.Status.Succeeded
		message := p.fail("failurePolicy is FailFast, and a failed pod was found")
		p.tell(ToldFailed, corev1.EventTypeWarning, "%s; %d succeeded, %d failed", message, succeeded, failed)
		return true
	}
	if policy.Type == appsv1beta1.CompletionNever || policy.ActiveDeadlineSeconds == nil {
		return false
	}

	end := p.out.Status.StartTime.Add(timing.Seconds(*policy.ActiveDeadlineSeconds))
	if p.in.Now.Before(end) {
		p.core.LookAgain(end)
		return false
	}

	message := fmt.Sprintf("the job was active longer than the specified deadline of %s",
		wording.Count(*policy.ActiveDeadlineSeconds, "second"))
	p.tell(ToldDeadline, corev1.EventTypeWarning, "%s", p.fail(message))
	return true
}

// failsFast reports whether one failed pod ends the job, which is the default.
func (p *planner) failsFast() bool {
	policy := p.job.Spec.FailurePolicy.Type
	return policy == "" || policy == appsv1beta1.FailurePolicyFailFast
}

// mostUnfinished is how many nodes are named when a job ends.
const mostUnfinished = 10

// fail ends the job, and returns the message with the nodes on which it failed and those on which it did not
// finish. Pods that still run are deleted once this is written.
func (p *planner) fail(message string) string {
	failed, open := p.withoutSuccess()
	for _, of := range []struct {
		what  string
		nodes []string
	}{{"failed on", failed}, {"not finished on", open}} {
		if len(of.nodes) > 0 {
			message += fmt.Sprintf("; %s %s: %s", of.what, wording.Count(len(of.nodes), "node"),
				wording.Few(of.nodes, mostUnfinished))
		}
	}

	p.end(appsv1beta1.BroadcastJobFailed, appsv1beta1.JobFailed, "Failed", message)
	p.out.Status.Failed += p.out.Status.Active
	p.cleanUp((*member).runs)
	return message
}

// withoutSuccess returns the nodes whose pod failed and the nodes that are not finished, each in the order of
// their names. Nodes that no longer count are left out.
func (p *planner) withoutSuccess() (failed, open []string) {
	open = slices.Clone(p.out.Missing)
	for i := range p.sites {
		if s := &p.sites[i]; len(s.pods) > 0 && !s.gone {
			switch state := s.pods[0].state; {
			case state.failed():
				failed = append(failed, s.name)
			case !state.finished():
				open = append(open, s.name)
			}
		}
	}

	slices.Sort(failed)
	slices.Sort(open)
	return failed, open
}

// end records in the status that the job ends.
func (p *planner) end(
	phase appsv1beta1.BroadcastJobPhase, of appsv1beta1.JobConditionType, reason, message string,
) {
	now := metav1.NewTime(p.in.Now).Rfc3339Copy()
	p.out.Status.Phase, p.out.Status.CompletionTime, p.out.Ends, p.out.Hold =
		phase, &now, true, "the job has ended: "+message
	p.out.Status.Conditions = slices.DeleteFunc(p.out.Status.Conditions,
		func(c appsv1beta1.JobCondition) bool { return c.Type == of })
	p.out.Status.Conditions = append(p.out.Status.Conditions,
		appsv1beta1.JobCondition{Type: of, Status: corev1.ConditionTrue, LastProbeTime: now,
			LastTransitionTime: now, Reason: reason, Message: message})
	p.core.Say("%s: %s", phase, message)
}

// complete ends the job if all nodes are finished.
func (p *planner) complete() {
	if p.job.Spec.CompletionPolicy.Type == appsv1beta1.CompletionNever || p.out.Status.Desired == 0 ||
		p.out.Done < int(p.out.Status.Desired) {
		return
	}

	message := fmt.Sprintf("Job completed, %d pods succeeded, %d pods failed", p.out.Status.Succeeded,
		p.out.Status.Failed)
	p.tell(ToldComplete, corev1.EventTypeNormal, "%s/%s completed: %d pods succeeded, %d pods failed",
		p.job.Namespace, p.job.Name, p.out.Status.Succeeded, p.out.Status.Failed)
	p.end(appsv1beta1.BroadcastJobCompleted, appsv1beta1.JobComplete, "Complete", message)
	p.cleanUp((*member).runs)
}

// afterEnd handles a job that has ended. It deletes the pods that still have to go with its end, and the job
// when its time to live is over.
func (p *planner) afterEnd() {
	p.cleanUp((*member).runs)
	p.out.Status.Active = min(p.out.Status.Active, int32(p.by[Active]))
	p.out.Hold = "the job has ended"
	policy := &p.job.Spec.CompletionPolicy
	if policy.Type == appsv1beta1.CompletionNever || policy.TTLSecondsAfterFinished == nil ||
		*policy.TTLSecondsAfterFinished < 0 || p.job.Status.CompletionTime == nil {
		return
	}

	end := p.job.Status.CompletionTime.Add(timing.Seconds(int64(*policy.TTLSecondsAfterFinished)))
	if p.in.Now.Before(end) {
		p.core.LookAgain(end)
		return
	}

	p.out.Expired = true
	p.core.Say("it has ended, and its time to live of %s is over: it is deleted",
		wording.Count(*policy.TTLSecondsAfterFinished, "second"))
}

// runs reports whether something of the pod still runs or would be started again.
func (m *member) runs() bool { return m.state == Active || m.state == Restarting }

// cleanUp deletes the pods that have to go when the job ends.
func (p *planner) cleanUp(goes func(*member) bool) {
	for i := range p.members {
		if m := &p.members[i]; goes(m) {
			p.core.Decide(m.pod, podplan.Delete, ReasonEnded, "the job has ended, and it is %s", m.state)
		}
	}
}
