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
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// The annotation with the acknowledged pods is a sequence of hashes of their UIDs, of hashLength characters
// each. mostAcknowledged keeps it far below the size limit of annotations. A job with more failed pods stays
// paused until some of them are deleted.
const hashLength, mostAcknowledged = 6, 8000

// mark returns the hash of a pod in the annotation.
func mark(uid types.UID) string {
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], nodes.Hash(string(uid)))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:hashLength]
}

// acknowledged returns the hashes in the annotation of a job.
func acknowledged(job *appsv1beta1.BroadcastJob) map[string]bool {
	text := job.Annotations[pub.BroadcastJobAcknowledged]
	marks := make(map[string]bool, min(len(text)/hashLength, mostAcknowledged))
	for len(text) >= hashLength && len(marks) < mostAcknowledged {
		marks[text[:hashLength]], text = true, text[hashLength:]
	}
	return marks
}

// unacknowledged returns the number of failed pods that nobody has acknowledged.
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

// acknowledge records which pods had failed when the user resumed the job. The webhook recorded when that
// was, so the controller need not have seen the job paused.
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
	p.core.Say("the user let the job go on: %s acknowledged", wording.Count(len(marks), "failed pod"))
}

// failedBetween reports whether a container of the pod ended after the user resumed the job and before this
// plan, so that the user could not know about it. The end time comes from the node's clock. A time in the
// future shows that this clock is ahead, and does not count.
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
