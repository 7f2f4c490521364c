package broadcastjob

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/waiting"
)

// Reasons that only BroadcastJobs have.
const (
	// ReasonNode: the pod may not run on its node, or the node is gone.
	ReasonNode podplan.Reason = "Node"
	// ReasonExcess: another pod has its place.
	ReasonExcess podplan.Reason = "Excess"
	// ReasonSucceeded: the pod has succeeded.
	ReasonSucceeded podplan.Reason = "Succeeded"
	// ReasonRunning: the pod runs.
	ReasonRunning podplan.Reason = "Running"
	// ReasonEnded: the job has ended.
	ReasonEnded podplan.Reason = "JobEnded"
)

// Plan is what one pass does.
type Plan struct {
	// Job is the BroadcastJob that the plan is for.
	Job *appsv1beta1.BroadcastJob
	podplan.Plan
	// Annotations change on the job, and nothing else is done; nil removes one (BJ-094).
	Annotations map[string]any
	// Ends: the status is to be written before anything else is done, because the job ends.
	Ends bool
	// Expired: the job is to be deleted (BJ-120).
	Expired bool
	// More: not all pods that may be created are in the plan; the next one is due at once.
	More bool
	// Tell are the events that the plan calls for, by reason.
	Tell map[string]Event
	// Missing are the nodes that are to have a pod and have none, in the order of their names, and Hold says
	// why they get none now; it is empty if all get one.
	Missing []string
	Hold    string
	// Counted are the nodes that are not eligible and count nevertheless, because they hold a pod.
	Counted []string
	// Status is the status as far as the snapshot tells.
	Status appsv1beta1.BroadcastJobStatus
	// Done is how many nodes are done with.
	Done int
}

// Event is something to tell about the job.
type Event struct{ Type, Message string }

// Reasons of events, each of which is told once as long as it is about the same.
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

// Told are all of them.
var Told = []string{ToldPaused, ToldContinue, ToldFailed, ToldDeadline, ToldComplete, ToldTooMany,
	ToldDuplicate, ToldBadSpec}

// site is a node with the pods that are meant for it.
type site struct {
	node *corev1.Node
	name string
	nodes.Verdict
	// pods are all pods of the job that are meant for it: the one that has the place first.
	pods []*member
	// gone: the node leaves desired, because its pod does not fit it.
	gone bool
}

// member is one pod of the job.
type member struct {
	pod   *corev1.Pod
	state State
}

// planner is the working state of Make: in is what it decides from, out what it decides, and core makes the
// decisions that all pod workloads share.
type planner struct {
	core  *podplan.Planner
	in    Snapshot
	out   *Plan
	job   *appsv1beta1.BroadcastJob
	rules *nodes.Rules
	// placement is what the template asks of nodes, as a hash.
	placement string
	members   []member
	// sites are those of nodes that exist; homeless are the pods that are meant for none of them, by the node
	// for which they are meant.
	sites    []site
	homeless map[string][]*member
	limit    int
	// by counts pods by state.
	by map[State]int
	// document is the template.
	document map[string]any
	raw      []byte
}

// Make decides what to do. It changes nothing of the snapshot.
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

// tell calls for an event.
func (p *planner) tell(reason, eventType, format string, args ...any) {
	p.out.Tell[reason] = Event{eventType, fmt.Sprintf(format, args...)}
}

// sortPods finds out what each pod is to the job.
func (p *planner) sortPods() {
	p.by, p.members = map[State]int{}, make([]member, len(p.in.Pods))
	for i, pod := range p.in.Pods {
		p.members[i] = member{pod, StateOf(p.job, pod)}
		p.by[p.members[i].state]++
	}
}

// read reads what the plan needs of the spec, which may have been stored before anybody checked it.
func (p *planner) read() (err error) {
	spec := &p.job.Spec
	if errs := validate(spec); len(errs) > 0 {
		return errs.ToAggregate()
	}
	p.rules, p.raw = nodes.ForJob(&spec.Template.Spec), spec.Template.Raw()
	p.placement, err = placement(&spec.Template.Spec)
	return err
}

// sortSites puts the pods onto their nodes.
func (p *planner) sortSites() {
	p.homeless = make(map[string][]*member, len(p.members))
	for i := range p.members {
		target := nodes.Target(p.members[i].pod)
		p.homeless[target] = append(p.homeless[target], &p.members[i])
	}

	p.sites = make([]site, len(p.in.Nodes))
	unfit := map[string][]string{}
	for i, node := range p.in.Nodes {
		s := &p.sites[i]
		*s = site{node: node, name: node.Name, Verdict: p.rules.Judge(node), pods: p.homeless[node.Name]}
		if len(s.pods) > 0 {
			delete(p.homeless, node.Name)
			slices.SortStableFunc(s.pods, before)
			s.gone = s.leaves(p)
		}
		if !s.Eligible {
			unfit[s.Why] = append(unfit[s.Why], s.name)
		}
	}

	p.sayUnfit(unfit)
}

// mostUnfit is how many reasons are printed why nodes are not eligible.
const mostUnfit = 5

// sayUnfit says which nodes are not eligible, and why.
func (p *planner) sayUnfit(unfit map[string][]string) {
	for i, why := range slices.Sorted(maps.Keys(unfit)) {
		if i == mostUnfit {
			p.core.Say("%s more", plural.Of(len(unfit)-i, "reason"))
			return
		}
		names := unfit[why]
		slices.Sort(names)
		p.core.Say("%s not eligible: %s: %s", plural.Of(len(names), "node"), why,
			plural.Few(names, mostNamed))
	}
}

// before orders the pods of a node: those that are done first, and those that are being deleted last, and
// then the older ones.
func before(a, b *member) int {
	rank := func(m *member) int {
		switch m.state {
		case Succeeded, Failed:
			return 0
		case Leaving:
			return 2
		case Active, Restarting:
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)),
		a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.Name, b.pod.Name))
}

// Taints by which nodes suffer passingly. The cluster itself evicts the pods there, when the time is over
// that they tolerate: a pod that runs through a flap of its node goes on.
var passing = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// goneAfter is how long after its time a pod that is being deleted still counts on a node that suffers: a
// node that died does not let it go, and would keep the job running for ever.
const goneAfter = time.Minute

// leaves tells whether the pod that has the place has to go, or is going, because the node does not fit it.
func (s *site) leaves(p *planner) bool {
	m := s.pods[0]
	switch {
	case m.state == Succeeded || m.state == Failed || s.Eligible:
		return false
	case m.state == Leaving && Suffers(s.node): // nobody may be there who could let it go
		until := m.pod.DeletionTimestamp.Add(goneAfter)
		if p.in.Now.Before(until) {
			p.core.LookAgain(until)
		}
		return !p.in.Now.Before(until)
	case m.pod.Spec.NodeName == "":
		return true
	case s.Tolerable:
		return false
	}
	if p.madeOtherwise(m) {
		return false // what the user asks of nodes now is asked of later pods
	}
	if !Suffers(s.node) {
		return true
	}

	well := s.node.DeepCopy()
	well.Spec.Taints = slices.DeleteFunc(well.Spec.Taints, suffers)
	return !p.rules.Judge(well).Tolerable
}

// madeOtherwise tells whether the template asked something else of nodes when the pod was made.
func (p *planner) madeOtherwise(m *member) bool {
	made := m.pod.Annotations[pub.BroadcastJobPlacement]
	return made != "" && made != p.placement
}

// Suffers tells whether a node suffers passingly.
func Suffers(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, suffers) }

func suffers(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoExecute && slices.Contains(passing, taint.Key)
}

// count computes desired, the limit, and the counters.
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
		p.limit, _ = rollout.Scaled(*parallelism, desired, true) // it was checked
	}
	p.out.Status.Desired = int32(desired)
	p.out.Status.Active, p.out.Status.Succeeded = int32(p.by[Active]), int32(p.by[Succeeded])
	p.out.Status.Failed = int32(p.failedPods())
	if ended, _ := Ended(p.job); ended { // those that were deleted because the job failed stay counted
		p.out.Status.Failed = max(p.out.Status.Failed, p.job.Status.Failed)
	}
}

// failedPods counts the pods that failed. The garbage collector lets pods of nodes that are gone fail before
// it deletes them: that is no failure of the job.
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

// paused tells whether the job is paused, by its user or by failed pods (BJ-080 to 082, BJ-092 to 094).
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
			plural.Of(failed, "failed pod"))
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

// remove deletes pods that do not fit their node, or of which there is another one. What others deleted
// already is left to them; pods that were bound to a node that is gone are the garbage collector's.
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
			// it might never come to run there
			case m.state == Active && m.pod.Spec.NodeName == "" && p.madeOtherwise(m):
				p.core.Decide(m.pod, podplan.Delete, ReasonNode, "%s",
					"it is not bound yet, and the template asks something else of nodes now")
			}
		}
	}

	if len(duplicates) > 0 {
		slices.Sort(duplicates)
		p.tell(ToldDuplicate, corev1.EventTypeWarning, "more than one pod on %s: %s; one of each stays",
			plural.Of(len(duplicates), "node"), plural.Few(duplicates, mostNamed))
	}

	for target, members := range p.homeless {
		for _, m := range members {
			switch {
			case m.pod.Spec.NodeName != "" || m.state != Active:
			case target == "": // its node gets another one
				p.core.Decide(m.pod, podplan.Delete, ReasonNode, "%s",
					"it is meant for no node: somebody changed its affinity")
			default:
				p.core.Decide(m.pod, podplan.Delete, ReasonNode,
					"node %s, for which it is meant, does not exist", target)
			}
		}
	}
}

// settle says of all pods about which nothing is decided what they are to the job.
func (p *planner) settle() {
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
				plural.Of(restarts(m.pod), "time"), p.job.Spec.FailurePolicy.RestartLimit)
		case len(p.homeless[target]) > 0 && target == "":
			p.core.Decide(m.pod, podplan.Wait, ReasonNode, "%s",
				"it is meant for no node: somebody changed its affinity")
		case len(p.homeless[target]) > 0:
			p.core.Decide(m.pod, podplan.Wait, ReasonNode,
				"node %s does not exist: the pod is cleaned up with it", target)
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

// waits says what holds the job and was not asked for.
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
		wait := &waiting.Wait{Reason: "PodsNotStarted", Message: "pods have not started"}
		for _, v := range p.out.Verdicts {
			if v.Action == podplan.Wait &&
				(v.Reason == podplan.ReasonUnscheduled || v.Reason == podplan.ReasonNotReady) {
				p.out.Waiting = wait
				wait.Name(v.Pod.Name, v.Message)
			}
		}
	}
	if p.out.Waiting == nil {
		p.out.Waiting = p.core.Lingering()
	}
}
