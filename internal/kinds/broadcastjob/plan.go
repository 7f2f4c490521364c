package broadcastjob

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Reasons that only BroadcastJobs use.
const (
	// ReasonNode means that the pod may not run on its node, or that the node is gone.
	ReasonNode podplan.Reason = "Node"
	// ReasonExcess means that another pod has its place.
	ReasonExcess podplan.Reason = "Excess"
	// ReasonSucceeded means that the pod has succeeded.
	ReasonSucceeded podplan.Reason = "Succeeded"
	// ReasonRunning means that the pod runs.
	ReasonRunning podplan.Reason = "Running"
	// ReasonEnded means that the job has ended.
	ReasonEnded podplan.Reason = "JobEnded"
)

// Plan is what one pass is to do.
type Plan struct {
	// Job is the BroadcastJob that the plan is for.
	Job *appsv1beta1.BroadcastJob
	podplan.Plan
	// Annotations are changes to the job's annotations; nil removes one. If there are any, nothing else is
	// done (BJ-094).
	Annotations map[string]any
	// Ends reports that the job ends, so that the status must be written before anything else is done.
	Ends bool
	// Expired reports that the job is to be deleted (BJ-120).
	Expired bool
	// More reports that the plan does not have all pods that may be created. The next plan is due at once.
	More bool
	// Tell are the events to send, by reason.
	Tell map[string]Event
	// Missing are the nodes that should have a pod and have none, in the order of their names. Hold says why
	// they get none now. It is empty if all get one.
	Missing []string
	Hold    string
	// Counted are the nodes that are not eligible but count because they hold a pod.
	Counted []string
	// Status is the status as far as it follows from the snapshot.
	Status appsv1beta1.BroadcastJobStatus
	// Done is how many nodes are finished.
	Done int
}

// Event is an event about the job.
type Event struct{ Type, Message string }

// Reasons of events. An event is sent once while its message stays the same.
const (
	ToldPaused    = "Paused"
	ToldContinue  = "Continue"
	ToldFailed    = "FailedPodFound"
	ToldDeadline  = "DeadlineExceeded"
	ToldComplete  = "JobComplete"
	ToldTooMany   = "TooManyActivePods"
	ToldDuplicate = "DuplicatePodCreatedOnSameNode"
	ToldBadSpec   = "InvalidSpec"
)

// Told are all reasons of events.
var Told = []string{ToldPaused, ToldContinue, ToldFailed, ToldDeadline, ToldComplete, ToldTooMany,
	ToldDuplicate, ToldBadSpec}

// member is one pod of the job.
type member struct {
	pod   *corev1.Pod
	state State
}

// planner is the working state of Make. in is what it decides from, out is what it decides, and core makes
// the decisions that all pod workloads share.
type planner struct {
	core  *podplan.Planner
	in    Snapshot
	out   *Plan
	job   *appsv1beta1.BroadcastJob
	rules *nodes.Rules
	// placement is a hash of what the template requires of nodes.
	placement string
	members   []member
	// sites are the sites of nodes that exist. homeless are the pods that are meant for none of them, by the
	// name of the node for which they are meant.
	sites    []site
	homeless map[string][]*member
	limit    int
	// by counts pods by state.
	by map[State]int
	// document is the template.
	document map[string]any
	raw      []byte
}

// Make decides what to do. It does not change the snapshot.
func Make(s Snapshot) *Plan {
	p := &planner{in: s, job: s.Job,
		out: &Plan{Job: s.Job, Tell: map[string]Event{}, Status: *s.Job.Status.DeepCopy()}}
	p.in.Pods = slices.SortedFunc(slices.Values(s.Pods),
		func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	p.core = podplan.New(&podplan.Workload{Namespace: s.Job.Namespace, Name: s.Job.Name,
		Owner:   *metav1.NewControllerRef(s.Job, appsv1beta1.GroupVersion.WithKind(kind)),
		Deleted: s.Job.DeletionTimestamp != nil},
		&p.in.Snapshot, &p.out.Plan)
	p.make()
	p.settle()
	p.core.HeedBudgets()
	p.core.Conclude()
	p.waits()
	return p.out
}

func (p *planner) make() {
	if p.job.DeletionTimestamp != nil {
		p.core.HoldDeleted()
		return
	}

	p.sortPods()
	ended, counted := Ended(p.job)
	if ended && !counted {
		p.afterEnd()
		return
	}
	if err := p.read(); err != nil {
		p.out.ScaleError = err.Error()
		p.tell(ToldBadSpec, corev1.EventTypeWarning, "nothing is done: %v", err)
		p.core.HoldAll(podplan.ReasonBadSpec, p.out.ScaleError)
		return
	}

	if p.out.Status.StartTime == nil {
		start := metav1.NewTime(p.in.Now).Rfc3339Copy()
		p.out.Status.StartTime = &start
	}
	if p.out.Status.Phase == "" {
		p.out.Status.Phase = appsv1beta1.BroadcastJobRunning
	}
	p.sortSites()
	p.count()
	if ended {
		p.afterEnd()
		return
	}
	if p.acknowledge(); p.out.Annotations != nil {
		return
	}
	if p.paused() || p.fails() {
		return
	}

	p.remove()
	p.create()
	p.complete()
}

// tell adds an event to the plan.
func (p *planner) tell(reason, eventType, format string, args ...any) {
	p.out.Tell[reason] = Event{eventType, fmt.Sprintf(format, args...)}
}

// sortPods records the state of each pod.
func (p *planner) sortPods() {
	p.by, p.members = map[State]int{}, make([]member, len(p.in.Pods))
	for i, pod := range p.in.Pods {
		p.members[i] = member{pod, StateOf(p.job, pod)}
		p.by[p.members[i].state]++
	}
}

// read reads what the plan needs from the spec. The spec is validated, because it may have been stored
// without validation.
func (p *planner) read() (err error) {
	spec := &p.job.Spec
	if errs := validate(spec); len(errs) > 0 {
		return errs.ToAggregate()
	}
	p.rules, p.raw = nodes.ForJob(&spec.Template.Spec), spec.Template.Raw()
	p.placement, err = placement(&spec.Template.Spec)
	return err
}

// count computes the number of desired nodes, the limit of active pods, and the counters.
func (p *planner) count() {
	desired := 0
	for i := range p.sites {
		switch s := &p.sites[i]; {
		case len(s.pods) == 0 && !s.Eligible || s.gone:
		case len(s.pods) == 0:
			desired++
			p.out.Missing = append(p.out.Missing, s.name)
		default:
			desired++
			if s.pods[0].state.finished() {
				p.out.Done++
			}
			if !s.Eligible {
				p.out.Counted = append(p.out.Counted, s.name)
			}
		}
	}

	slices.Sort(p.out.Missing)
	p.limit = math.MaxInt32
	if parallelism := p.job.Spec.Parallelism; parallelism != nil {
		p.limit, _ = rollout.Scaled(*parallelism, desired, true) // it was validated
	}
	p.out.Status.Desired = int32(desired)
	p.out.Status.Active, p.out.Status.Succeeded = int32(p.by[Active]), int32(p.by[Succeeded])
	p.out.Status.Failed = int32(p.failedPods())
	if ended, _ := Ended(p.job); ended { // pods deleted because the job failed stay counted
		p.out.Status.Failed = max(p.out.Status.Failed, p.job.Status.Failed)
	}
}

// failedPods returns the number of failed pods. Pods of nodes that are gone do not count: the pod garbage
// collector marks them as failed before it deletes them, which is not a failure of the job.
func (p *planner) failedPods() int {
	n := p.by[Failed] + p.by[Restarting]
	for target, members := range p.homeless {
		for _, m := range members {
			if target != "" && m.state.failed() {
				n--
			}
		}
	}
	return n
}

// paused reports whether the job is paused, by its user or because of failed pods.
func (p *planner) paused() bool {
	status, failed := &p.out.Status, p.unacknowledged()
	hold := func(why string) bool {
		status.Phase, p.out.Hold = appsv1beta1.BroadcastJobPaused, why
		p.core.Say("paused: %s", why)
		return true
	}

	if p.job.Spec.Paused {
		return hold("spec.paused is true")
	}
	if p.job.Spec.FailurePolicy.Type == appsv1beta1.FailurePolicyPause && failed > 0 {
		why := fmt.Sprintf(
			"%s, and failurePolicy is Pause: delete the failed pods, or set spec.paused and unset it, or change the policy",
			wording.Count(failed, "failed pod"))
		if status.Phase != appsv1beta1.BroadcastJobPaused {
			p.tell(ToldPaused, corev1.EventTypeWarning, "%s", why)
		}
		return hold(why)
	}
	if status.Phase == appsv1beta1.BroadcastJobPaused {
		status.Phase = appsv1beta1.BroadcastJobRunning
		p.tell(ToldContinue, corev1.EventTypeNormal, "the job goes on")
	}

	return false
}

// remove deletes pods that do not fit their node or are duplicates. Pods that are already being deleted are
// left alone, and pods bound to a node that is gone are left to the pod garbage collector.
func (p *planner) remove() {
	var duplicates []string
	for i := range p.sites {
		s := &p.sites[i]
		for i, m := range s.pods {
			switch {
			case m.state == Leaving:
			case i > 0:
				duplicates = append(duplicates, s.name)
				p.core.Decide(m.pod, podplan.Delete, ReasonExcess, "pod %s has its place on node %s",
					s.pods[0].pod.Name, s.name)
			case s.gone:
				p.core.Decide(m.pod, podplan.Delete, ReasonNode, "it may not run on node %s: %s",
					s.name, s.Why)
			// The pod might never be able to run there.
			case m.state == Active && m.pod.Spec.NodeName == "" && p.madeOtherwise(m):
				p.core.Decide(m.pod, podplan.Delete, ReasonNode, "%s",
					"it is not bound yet, and the template asks something else of nodes now")
			}
		}
	}

	if len(duplicates) > 0 {
		slices.Sort(duplicates)
		p.tell(ToldDuplicate, corev1.EventTypeWarning, "more than one pod on %s: %s; one of each stays",
			wording.Count(len(duplicates), "node"), wording.Few(duplicates, mostNamed))
	}

	for target, members := range p.homeless {
		for _, m := range members {
			switch {
			case m.pod.Spec.NodeName != "" || m.state != Active:
			case target == "": // its node gets another pod
				p.core.Decide(m.pod, podplan.Delete, ReasonNode, "%s",
					"it is meant for no node: somebody changed its affinity")
			default:
				p.core.Decide(m.pod, podplan.Delete, ReasonNode,
					"node %s, for which it is meant, does not exist", target)
			}
		}
	}
}

// settle gives all remaining pods a verdict that describes their state.
func (p *planner) settle() {
	suffering := map[string]bool{}
	for _, node := range p.in.Nodes {
		suffering[node.Name] = Suffers(node)
	}
	for i := range p.members {
		m := &p.members[i]
		if p.core.Verdict(m.pod) != nil {
			continue
		}
		switch target := nodes.Target(m.pod); {
		case m.state == Leaving:
			p.core.Decide(m.pod, podplan.Wait, podplan.ReasonInactive, "%s", "it is being deleted")
		case m.state == Succeeded:
			p.core.Decide(m.pod, podplan.Keep, ReasonSucceeded, "%s", "it has succeeded")
		case m.state == Failed:
			p.core.Decide(m.pod, podplan.Keep, podplan.ReasonFailed, "%s", "it has failed")
		case m.state == Restarting:
			p.core.Decide(m.pod, podplan.Keep, podplan.ReasonFailed,
				"it has failed: its containers restarted %s, and restartLimit is %d",
				wording.Count(restarts(m.pod), "time"), p.job.Spec.FailurePolicy.RestartLimit)
		case len(p.homeless[target]) > 0 && target == "":
			p.core.Decide(m.pod, podplan.Wait, ReasonNode, "%s",
				"it is meant for no node: somebody changed its affinity")
		case len(p.homeless[target]) > 0:
			p.core.Decide(m.pod, podplan.Wait, ReasonNode,
				"node %s does not exist: the pod is cleaned up with it", target)
		case m.pod.Spec.NodeName != "" && suffering[target]:
			p.core.Decide(m.pod, podplan.Wait, ReasonNode,
				"node %s is lost or not ready: the job waits until the node is well again, or is deleted", target)
		case m.pod.Status.Phase != corev1.PodRunning && m.pod.Spec.NodeName == "":
			p.core.Decide(m.pod, podplan.Wait, podplan.ReasonUnscheduled, "%s",
				"it is not scheduled yet"+schedulerWords(m.pod))
		case m.pod.Status.Phase != corev1.PodRunning:
			p.core.Decide(m.pod, podplan.Wait, podplan.ReasonNotReady, "%s",
				"it has not started: "+podplan.NotReadyWords(m.pod))
		default:
			p.core.Decide(m.pod, podplan.Keep, ReasonRunning, "%s", "it runs")
		}
	}
}

// waiting returns a wait that names the pods that wait for one of the reasons, or nil if none does.
func (p *planner) waiting(reason, message string, of ...podplan.Reason) *waiting.Wait {
	var wait *waiting.Wait
	for _, v := range p.out.Verdicts {
		if v.Action != podplan.Wait || !slices.Contains(of, v.Reason) {
			continue
		}
		if wait == nil {
			wait = &waiting.Wait{Reason: reason, Message: message}
		}
		wait.Name(v.Pod.Name, v.Message)
	}
	return wait
}

// waits records what holds up the job without being asked for.
func (p *planner) waits() {
	if p.out.Waiting == nil && p.out.HeldByBudget {
		for _, v := range p.out.Verdicts {
			if v.Reason == podplan.ReasonBudget {
				if p.out.Waiting == nil {
					p.out.Waiting = &waiting.Wait{Reason: string(v.Reason),
						Message: "a budget holds pods that are to be deleted"}
				}
				p.out.Waiting.Name(v.Pod.Name, v.Message)
			}
		}
	}
	if p.out.Waiting == nil {
		p.out.Waiting = p.waiting("PodsNotStarted", "pods have not started", podplan.ReasonUnscheduled, podplan.ReasonNotReady)
	}
	if p.out.Waiting == nil {
		p.out.Waiting = p.waiting("NodesLost", "nodes of pods are lost or not ready", ReasonNode)
	}
	if p.out.Waiting == nil {
		p.out.Waiting = p.core.Lingering()
	}
}
