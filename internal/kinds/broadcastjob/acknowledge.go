package broadcastjob

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/plural"
)

// The annotation with the acknowledged pods is a row of hashes of their UIDs, of six characters each. There
// is room for so many that it stays far below what annotations may hold; a job with more failed pods stays
// paused until some are deleted.
const hashLength, mostAcknowledged = 6, 8000

// mark is the hash of a pod in the annotation.
func mark(uid types.UID) string {
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], nodes.Hash(string(uid)))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:hashLength]
}

// acknowledged are the marks in the annotation of a job.
func acknowledged(job *appsv1beta1.BroadcastJob) map[string]bool {
	text := job.Annotations[pub.BroadcastJobAcknowledged]
	marks := make(map[string]bool, min(len(text)/hashLength, mostAcknowledged))
	for len(text) >= hashLength && len(marks) < mostAcknowledged {
		marks[text[:hashLength]], text = true, text[hashLength:]
	}
	return marks
}

// unacknowledged counts the failed pods that nobody has acknowledged.
func (p *planner) unacknowledged() (n int) {
	marks := acknowledged(p.job)
	p.eachFailed(func(pod *corev1.Pod) {
		if !marks[mark(pod.UID)] {
			n++
		}
	})
	return n
}

// eachFailed calls do for the pods that count as failed, in the order of their names.
func (p *planner) eachFailed(do func(*corev1.Pod)) {
	for i := range p.members {
		m := &p.members[i]
		if target := nodes.Target(m.pod); m.state.failed() && (target == "" || len(p.homeless[target]) == 0) {
			do(m.pod)
		}
	}
}

// acknowledge notes which pods had failed when the user let the job go on. The webhook has written when that
// was, so that nobody need have seen the job paused.
func (p *planner) acknowledge() {
	text, resumed := p.job.Annotations[pub.BroadcastJobResumed]
	if !resumed || p.job.Spec.Paused {
		return
	}

	p.out.Annotations = map[string]any{pub.BroadcastJobResumed: nil}
	if p.job.Spec.FailurePolicy.Type != appsv1beta1.FailurePolicyPause {
		return
	}

	before, at := acknowledged(p.job), resumedAt(text, p.in.Now)
	var marks []string
	p.eachFailed(func(pod *corev1.Pod) {
		if m := mark(pod.UID); (before[m] || !failedBetween(pod, at, p.in.Now)) &&
			len(marks) < mostAcknowledged {
			marks = append(marks, m)
		}
	})
	slices.Sort(marks)
	p.out.Annotations[pub.BroadcastJobAcknowledged] = strings.Join(slices.Compact(marks), "")
	p.core.Say("the user let the job go on: %s acknowledged", plural.Of(len(marks), "failed pod"))
}

// failedBetween tells whether a container of a pod ended after the user let the job go on, and before this
// plan, so that nobody knew of it then. The time is of the node's clock: one that has not come yet says that
// this clock is ahead, and is none after anything.
func failedBetween(pod *corev1.Pod, at, now time.Time) bool {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses} {
		for i := range list {
			if end := list[i].State.Terminated; end != nil && end.FinishedAt.After(at) &&
				!end.FinishedAt.After(now) {
				return true
			}
		}
	}
	return false
}
