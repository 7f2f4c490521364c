package ephemeraljob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Snapshot is what a plan is made from.
type Snapshot struct {
	Job *appsv1alpha1.EphemeralJob
	// Pods are the pods of the namespace that the selector matches, and those that the job has treated.
	Pods []*corev1.Pod
	// Ledger is the ledger of the previous plan.
	Ledger Ledger
	// Held returns until when a pod whose last attempt failed is not tried again, and why. If Held is nil,
	// all pods are tried.
	Held func(types.UID) (until time.Time, why string)
	// Failed reports whether the last attempt to treat a pod failed, so that the pod comes after all others.
	// It may be nil.
	Failed func(types.UID) bool
	// Refused is why the API server finds the containers invalid in a pod, which does not change (EJ-048).
	Refused map[types.UID]string
	// Unsupported is why the API server adds no ephemeral containers to any pod. It applies until
	// UnsupportedUntil (EJ-046).
	Unsupported      string
	UnsupportedUntil time.Time
	Now              time.Time
}

// Verdict is the decision about one pod.
type Verdict struct {
	Pod string
	// Done reports that nothing remains to be done. Waits reports that something remains, and is held back.
	// If neither is set, the next pass does something, or the pod makes progress by itself.
	Done, Waits bool
	Reason      string
	Message     string
	Until       time.Time
}

// Plan is what is to be done for a job. Writes are made in the order of the fields.
type Plan struct {
	// AddFinalizer and RemoveFinalizer are about the finalizer EphemeralContainersCleanup (EJ-041). Delete
	// deletes the job (EJ-042).
	AddFinalizer, RemoveFinalizer, Delete bool
	// Inject are the pods that get the containers now, in this order (EJ-044).
	Inject []*corev1.Pod
	// Status is the status to be written, or nil if the job needs no status any more.
	Status *appsv1alpha1.EphemeralJobStatus
	// Ended reports that this plan ends the job.
	Ended bool
	// Ledger is the ledger for the next plan.
	Ledger Ledger
	// Missing is how many treated pods the first plan of a manager considers gone. Stale caches may not show
	// yet that they were treated.
	Missing int
	// Taken are the pods that have a container of the same name from somebody else (EJ-036).
	Taken []string
	// Verdicts are the decisions about the pods.
	Verdicts []Verdict
	// After is when to look again; 0 means when something changes.
	After time.Duration
	// Why describes what happens, or what is waited for.
	Why string
}

// String returns the plan as one sentence.
func (p *Plan) String() string {
	text := p.Why
	if len(p.Inject) > 0 {
		names := make([]string, len(p.Inject))
		for i, pod := range p.Inject {
			names[i] = pod.Name
		}
		text += "; containers are added to " + wording.Few(names, 3)
	}
	if p.After > 0 {
		text += fmt.Sprintf("; again in %s", p.After)
	}
	return text
}

// Defaults of fields.
const (
	defaultParallelism = 1
	defaultTTL         = 1800
)

// Finished reports whether the job has ended.
func Finished(job *appsv1alpha1.EphemeralJob) bool { return job.Status.CompletionTime != nil }

// NewPlan returns the plan for a snapshot.
func NewPlan(s Snapshot) *Plan {
	p, job := &Plan{Ledger: s.Ledger}, s.Job
	held := slices.Contains(job.Finalizers, pub.EphemeralContainersCleanup)
	switch {
	case job.DeletionTimestamp != nil:
		p.RemoveFinalizer, p.Why = held, "being deleted"
		return p
	case Finished(job):
		p.expire(s)
		return p
	}

	p.AddFinalizer = !held
	t := &tally{in: s, plan: p, status: job.Status.DeepCopy()}
	if t.status.StartTime == nil {
		t.status.StartTime = &metav1.Time{Time: s.Now}
	}

	t.find()
	t.decide()
	t.conclude()
	p.Status, p.Ledger = t.status, t.ledger.showing(t.status)
	return p
}

// expire deletes a finished job when its time to live is over.
func (p *Plan) expire(s Snapshot) {
	ttl := int64(defaultTTL)
	if given := s.Job.Spec.TTLSecondsAfterFinished; given != nil {
		ttl = int64(max(*given, 0))
	}

	p.Why = fmt.Sprintf("finished, to be deleted %d s after that", ttl)
	if left := s.Job.Status.CompletionTime.Add(timing.Seconds(ttl)).Sub(s.Now); left > 0 {
		p.After = left
	} else {
		p.Delete = true
	}
}

// tally is the state of a plan that is being made.
type tally struct {
	in     Snapshot
	plan   *Plan
	status *appsv1alpha1.EphemeralJobStatus
	ledger Ledger
	// wrong is why nothing can be done at all.
	wrong string
	// targets are the pods to be treated, and unfinished is how many treated pods have unfinished containers.
	targets    []*corev1.Pod
	unfinished int
	// refused are the targets for which the containers are invalid, and why is the reason for the first of
	// them.
	refused []string
	why     string
}

func (t *tally) say(pod string, v Verdict) {
	v.Pod = pod
	t.plan.Verdicts = append(t.plan.Verdicts, v)
}

// soon schedules another look at the job, if at is later than now.
func (t *tally) soon(at time.Time) {
	timing.MinWaitUntil(&t.plan.After, t.in.Now, at)
}

// SelectorOf returns the selector of a job. A selector that cannot be parsed selects no pods, and neither
// does an empty one, which would otherwise select all of them (EJ-029).
func SelectorOf(job *appsv1alpha1.EphemeralJob) (labels.Selector, error) {
	given := job.Spec.Selector
	if given == nil || len(given.MatchLabels)+len(given.MatchExpressions) == 0 {
		return labels.Nothing(), fmt.Errorf(
			"spec.selector is empty, and would select all pods of the namespace")
	}
	selector, err := metav1.LabelSelectorAsSelector(given)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("spec.selector: %w", err)
	}
	return selector, nil
}

// find determines the treated pods and the targets.
func (t *tally) find() {
	job := t.in.Job
	selector, err := SelectorOf(job)
	template := &job.Spec.Template.EphemeralContainers
	switch {
	case template.DecodeError() != nil:
		t.wrong = fmt.Sprintf("spec.template.ephemeralContainers: %v", template.DecodeError())
	case len(template.Containers) == 0:
		t.wrong = "spec.template.ephemeralContainers is empty: there is nothing to add"
	case slices.ContainsFunc(template.Containers, func(c corev1.EphemeralContainer) bool { return c.Name == "" }):
		t.wrong = "spec.template.ephemeralContainers has a container without a name"
	case err != nil:
		t.wrong = err.Error()
	case t.in.Unsupported != "" && t.in.Now.Before(t.in.UnsupportedUntil):
		t.wrong = t.in.Unsupported
		t.soon(t.in.UnsupportedUntil)
	}
	pods := slices.Clone(t.in.Pods)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})

	names := map[string]bool{}
	for i := range template.Containers {
		names[template.Containers[i].Name] = true
	}

	var treated []live
	var treatedPods, candidates []*corev1.Pod
	for _, pod := range pods {
		switch {
		case Treated(pod, job.UID):
			treated = append(treated, live{pod.UID, judge(pod, job.UID, false),
				func() outcome { return judge(pod, job.UID, true) }})
			treatedPods = append(treatedPods, pod)
		case !active(pod) || !selector.Matches(labels.Set(pod.Labels)):
		case taken(pod, names):
			t.plan.Taken = append(t.plan.Taken, pod.Name)
			t.say(pod.Name, Verdict{Done: true, Reason: "NameTaken",
				Message: "it has an ephemeral container of the same name, which this job did not add, and is left out"})
		default:
			candidates = append(candidates, pod)
		}
	}

	t.ledger = t.in.Ledger.next(&job.Status, treated, t.in.Now)
	if !t.in.Ledger.begun {
		t.plan.Missing = t.ledger.gone()
	}
	t.soon(t.ledger.soonest(t.in.Now))
	t.count(treated, treatedPods)
	room := len(candidates)
	if replicas := job.Spec.Replicas; replicas != nil {
		room = min(max(int(*replicas)-len(treated)-t.ledger.gone(), 0), room)
	}

	t.targets = candidates[:room]
	for _, pod := range candidates[room:] {
		t.say(pod.Name, Verdict{Done: true, Reason: "NoTarget",
			Message: fmt.Sprintf("spec.replicas is %d, and older pods come first", *job.Spec.Replicas)})
	}

	t.status.Matches = number(len(treated) + t.ledger.gone() + room)
}

// taken reports whether the pod has an ephemeral container with one of these names.
func taken(pod *corev1.Pod, names map[string]bool) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers,
		func(c corev1.EphemeralContainer) bool { return names[c.Name] })
}

// count counts the treated pods. Pods of which nothing is known yet count as waiting, so that each pod is in
// one of the numbers.
func (t *tally) count(treated []live, pods []*corev1.Pod) {
	succeeded, failed, running, waiting := t.ledger.succeeded, t.ledger.failed, 0, 0
	for i := range treated {
		o := treated[i].outcome
		switch o.result {
		case Succeeded:
			succeeded++
		case Failed:
			failed++
		case Running:
			running++
		default:
			waiting++
		}
		if !o.done {
			t.unfinished++
		}
		v := Verdict{Done: o.done, Waits: !o.done && o.result != Running, Reason: string(o.result),
			Message: o.why}
		if since, ok := t.ledger.stuck[treated[i].uid]; ok && !o.done {
			v.Until = since.Add(hopelessAfter)
		}
		t.say(pods[i].Name, v)
	}

	t.status.Succeeded, t.status.Failed = number(succeeded), number(failed)
	t.status.Running, t.status.Waiting = number(running), number(waiting)
}

// rank returns 1 for pods that come after others because their last attempt failed.
func (t *tally) rank(pod *corev1.Pod) int {
	if t.in.Failed != nil && t.in.Failed(pod.UID) {
		return 1
	}
	return 0
}

// decide decides about each target.
func (t *tally) decide() {
	parallelism := defaultParallelism
	if given := t.in.Job.Spec.Parallelism; given != nil {
		parallelism = max(int(*given), 0)
	}

	// Otherwise a pod that is always rejected would always be tried first.
	slices.SortStableFunc(t.targets, func(a, b *corev1.Pod) int {
		return t.rank(a) - t.rank(b)
	})

	slots, full := parallelism-t.unfinished, ""
	for _, pod := range t.targets {
		wait := func(reason, format string, args ...any) {
			t.say(pod.Name, Verdict{Waits: true, Reason: reason, Message: fmt.Sprintf(format, args...)})
		}
		if why, ok := t.in.Refused[pod.UID]; ok {
			t.refused = append(t.refused, pod.Name)
			t.why = cmp.Or(t.why, why)
			t.say(pod.Name, Verdict{Done: true, Reason: "Refused",
				Message: "the containers cannot be added: " + why})
			continue
		}

		var until time.Time
		var why string
		if t.in.Held != nil {
			until, why = t.in.Held(pod.UID)
		}

		switch {
		case t.wrong != "":
			wait("Error", "%s", t.wrong)
		case t.in.Job.Spec.Paused:
			wait("Paused", "spec.paused is true")
		case pod.Spec.NodeName == "":
			wait("NotScheduled", "the pod has no node yet")
		case until.After(t.in.Now):
			t.soon(until)
			t.say(pod.Name, Verdict{Waits: true, Reason: "CreateFailed",
				Message: "it could not be treated: " + why, Until: until})
		case slots <= 0:
			if full == "" {
				full = fmt.Sprintf("%s unfinished containers, spec.parallelism is %d",
					wording.Count(t.unfinished, "pod")+
						wording.Form(t.unfinished, " has", " have"), parallelism)
			}
			wait("Parallelism", "%s", full)
		default:
			slots--
			t.unfinished++
			t.plan.Inject = append(t.plan.Inject, pod)
			t.say(pod.Name, Verdict{Reason: "Inject", Message: "it is the next to get the containers"})
		}
	}
}
