package sidecarterminator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/timing"
)

// Node is the sort of the node that a pod is on (JST-025).
type Node string

// Sorts of nodes. Unknown means that the node was not found.
const (
	Unknown Node = ""
	Normal  Node = "Normal"
	Virtual Node = "Virtual"
)

// NodeOf returns the sort of a node with these labels.
func NodeOf(labels map[string]string) Node {
	if labels[pub.NodeType] == pub.VirtualNode {
		return Virtual
	}
	return Normal
}

// Snapshot is the input of a plan.
type Snapshot struct {
	Pod  *corev1.Pod
	Node Node
	// Requests are all requests with the UID of the pod in their name, whoever made them.
	Requests []*appsv1beta1.ContainerRecreateRequest
	// Ended holds when the manager first saw that a request had ended, by UID. Other clocks, such as those of
	// statuses, are not used.
	Ended map[types.UID]time.Time
	Now   time.Time
}

// Way is how sidecars are stopped.
type Way string

// Ways. ByPhase means that kubelet stops them.
const (
	ByRequest Way = "Request"
	ByImage   Way = "Image"
	ByPhase   Way = "Phase"
)

// Warning is about something that the owner of the pod can fix. It is reported when About changes.
type Warning struct{ Reason, About, Message string }

// Plan defines what to do for a pod. Writes are made in the order of the fields; the first that fails ends
// the pass (JST-030).
type Plan struct {
	// Images is the patch of images, or nil; Replaced are the containers whose image changes.
	Images   *podpatch.Patch
	Replaced []string
	// Request is the request to create, or nil.
	Request *appsv1beta1.ContainerRecreateRequest
	// Status is the patch that sets the phase ahead, or nil; Freed are the sidecars that kubelet stops then.
	Status *podpatch.Patch
	Freed  []string
	// Warnings are about what delays the end of the pod.
	Warnings []Warning
	// After is when to plan again even if nothing happens; 0 means never.
	After time.Duration
	// Why explains what happens, or what the pod waits for.
	Why string
}

// Idle reports whether there is nothing to write.
func (p *Plan) Idle() bool { return p.Images.Empty() && p.Request == nil && p.Status.Empty() }

// String formats the plan as one sentence.
func (p *Plan) String() string {
	if p.After > 0 {
		return fmt.Sprintf("%s; again in %s", p.Why, p.After)
	}
	return p.Why
}

func (p *Plan) because(format string, args ...any) {
	if p.Why != "" {
		p.Why += "; "
	}
	p.Why += fmt.Sprintf(format, args...)
}

func (p *Plan) again(after time.Duration) {
	timing.MinWait(&p.After, after)
}

func (p *Plan) warn(reason, about, format string, args ...any) {
	p.Warnings = append(p.Warnings, Warning{reason, about, fmt.Sprintf(format, args...)})
}

// Reasons of warnings. Done is the reason of the event about what was done (JST-050).
const (
	Done        = "SidecarTerminator"
	NotOurs     = "SidecarRequestNotOurs"
	StartsAgain = "SidecarStartsAgain"
	NoWay       = "SidecarCannotBeStopped"
)

// NewPlan makes the plan of a pod (JST-030).
func NewPlan(s Snapshot) *Plan {
	p := &Plan{}
	all, why := interest(s.Pod)
	if why != "" {
		p.because("%s", why)
		return p
	}

	sidecars := slices.DeleteFunc(slices.Clone(all), func(c container) bool { return !c.sidecar() })
	slices.SortFunc(sidecars, func(a, b container) int { return cmp.Compare(a.Name, b.Name) })
	switch s.Node {
	case Virtual:
		s.onVirtual(p, sidecars)
	case Normal:
		s.onNormal(p, sidecars, all)
	default:
		p.because("node %s is not found, so that it is not known how sidecars are stopped on it",
			s.Pod.Spec.NodeName)
		p.again(s.sinceDone(all))
	}

	return p
}

// sinceDone returns for how long the main containers have been done, within bounds. As the time until the
// next plan, this doubles each time.
func (s *Snapshot) sinceDone(all []container) time.Duration {
	var done time.Time
	for i := range all {
		if ended := all[i].terminated(); !all[i].sidecar() && ended != nil && ended.FinishedAt.After(done) {
			done = ended.FinishedAt.Time
		}
	}
	return min(max(s.Now.Sub(done), firstPause), longestPause)
}

// onVirtual replaces images, which is the only way to stop a container on a virtual node.
func (s *Snapshot) onVirtual(p *Plan, sidecars []container) {
	var stuck []string
	for i := range sidecars {
		switch c := &sidecars[i]; {
		case c.terminated() != nil:
		case c.image == "":
			stuck = append(stuck, c.Name)
		default:
			s.replace(p, c)
		}
	}

	s.tellReplaced(p)
	if len(stuck) > 0 {
		p.because("%s cannot be stopped on virtual node %s: variable %s is missing",
			plural(stuck), s.Pod.Spec.NodeName, pub.TerminateSidecarImageEnv)
		p.warn(NoWay, "virtual",
			"virtual node %s stops no container: %s cannot be stopped there without variable %s",
			s.Pod.Spec.NodeName, plural(stuck), pub.TerminateSidecarImageEnv)
	}
}

// replace changes the image of a sidecar.
func (s *Snapshot) replace(p *Plan, c *container) {
	if c.Image == c.image {
		p.because("sidecar %s has got image %s, which has to exit", c.Name, c.image)
		return
	}
	if p.Images == nil {
		p.Images = &podpatch.Patch{}
	}
	p.Images.Image(c.Name, c.image)
	p.Replaced = append(p.Replaced, c.Name)
}

func (s *Snapshot) tellReplaced(p *Plan) {
	if len(p.Replaced) > 0 {
		p.because("%s: the image is replaced", plural(p.Replaced))
	}
}

// onNormal asks the node's daemon to stop the sidecars, first those whose exit code counts.
func (s *Snapshot) onNormal(p *Plan, sidecars, all []container) {
	var counting, ignored []container
	for _, c := range sidecars {
		if c.ignored {
			ignored = append(ignored, c)
		} else {
			counting = append(counting, c) // includes those with only an image
		}
	}

	if finished(s.Pod) { // set ahead, otherwise interest would have ignored the pod
		s.afterPhase(p, ignored)
		return
	}

	if slices.ContainsFunc(counting, func(c container) bool { return !c.done(s.Pod) }) {
		s.stop(p, counting, false)
		return
	}

	s.ahead(p, ignored, all)
}

// ahead sets the final phase, so that the exit codes of the sidecars that still run do not count.
func (s *Snapshot) ahead(p *Plan, ignored, all []container) {
	for i := range ignored {
		if ignored[i].terminated() == nil {
			p.Freed = append(p.Freed, ignored[i].Name)
		}
	}

	if len(p.Freed) == 0 { // each ended by itself; kubelet decides the phase
		p.because("all sidecars have ended")
		return
	}

	phase := corev1.PodSucceeded
	for i := range all {
		if !all[i].sidecar() && all[i].terminated().ExitCode != 0 {
			phase = corev1.PodFailed
		}
	}

	p.Status = &podpatch.Patch{}
	p.Status.Phase(phase)
	// Kubelet looks at a pod whose status alone has changed only when it looks at it anyway, which can take more
	// than a minute, and until then it writes its own phase back every ten seconds.
	p.Status.Annotation(pub.SidecarTerminatedAt, s.Now.UTC().Format(time.RFC3339Nano))
	p.Status.Condition(corev1.PodCondition{
		Type:   pub.SidecarTerminated,
		Status: corev1.ConditionTrue,
		Reason: Done,
		Message: fmt.Sprintf(
			"the main containers are done: the phase is %s, and %s still to be stopped", phase, are(p.Freed),
		),
		LastTransitionTime: metav1.NewTime(s.Now),
	})
	p.because("the phase becomes %s, and kubelet stops %s", phase, plural(p.Freed))
	p.again(s.grace() + ofKubelet)
}

// afterPhase waits for kubelet to stop what runs in the finished pod, and asks the daemon if it does not.
func (s *Snapshot) afterPhase(p *Plan, ignored []container) {
	if left := aheadOf(s.Pod).LastTransitionTime.Add(s.grace() + ofKubelet).Sub(s.Now); left > 0 {
		p.because("the phase is %s: kubelet stops the sidecars that still run", s.Pod.Status.Phase)
		p.again(left)
		return
	}
	s.stop(p, ignored, true)
}

// stop stops the sidecars of a group by requests, or by images if no daemon answers.
func (s *Snapshot) stop(p *Plan, group []container, ignored bool) {
	h := s.history(ignored)
	if len(h.foreign) > 0 {
		p.warn(NotOurs, strings.Join(h.foreign, ","),
			"%s: not made for this pod, and left alone; another name is taken", strings.Join(h.foreign, ", "))
	}

	if h.last != nil && !Over(h.last) {
		p.because("%s is under way", described(h.last))
		return
	}

	images := !ignored && h.unanswered()
	var running, fresh, back []string
	for i := range group {
		c := &group[i]
		switch {
		case c.terminated() != nil && !c.done(s.Pod):
			p.because("sidecar %s is started again by kubelet, and stopped then", c.Name)
		case c.terminated() != nil:
		case images && c.image != "":
			s.replace(p, c)
		case !c.running():
			p.because("sidecar %s does not run yet: it is stopped when it does", c.Name)
		default:
			running = append(running, c.Name)
			if request, _ := h.covering(c.Name); request == nil {
				fresh = append(fresh, c.Name)
			} else if h.cameBack(c) {
				back = append(back, c.Name)
			}
		}
	}

	s.tellReplaced(p)
	if len(back) > 0 {
		p.warn(StartsAgain, h.last.Name,
			"%s: stopped, and started again by kubelet. Let it exit with 0 when it gets SIGTERM, or set variable %s",
			plural(back), pub.TerminateSidecarIgnoreExitEnv)
	}

	if len(running) == 0 {
		return
	}

	if h.last != nil && len(fresh) == 0 {
		wait := pause(h.number())
		left := wait
		if ended, seen := s.Ended[h.last.UID]; seen {
			left = min(ended.Add(wait).Sub(s.Now), wait)
		}
		if left > 0 {
			p.because("%s: still to be stopped although %s has ended; the next one comes after %s",
				plural(running), described(h.last), wait)
			p.again(left)
			return
		}
	}

	number, ok := h.next()
	if !ok {
		p.because("%s: all names of requests are taken", plural(running))
		p.again(longestPause)
		return
	}

	p.Request = s.request(running, ignored, number)
	p.because("%s: stopped by %s", plural(running), described(p.Request))
}

func plural(names []string) string {
	if len(names) == 1 {
		return "sidecar " + names[0]
	}
	return "sidecars " + strings.Join(names, ", ")
}

func are(names []string) string {
	if len(names) == 1 {
		return plural(names) + " is"
	}
	return plural(names) + " are"
}

// Event returns the message of the event about what was done (JST-050, JST-052).
func Event(way Way, plan *Plan) string {
	switch way {
	case ByImage:
		return fmt.Sprintf("All main containers are done: %s, by in-place update of the image",
			stopped(plan.Replaced))
	case ByRequest:
		var names []string
		for i := range plan.Request.Spec.Containers {
			names = append(names, plan.Request.Spec.Containers[i].Name)
		}
		return fmt.Sprintf("All main containers are done: %s, by %s (CRR)",
			stopped(names), described(plan.Request))
	default:
		return fmt.Sprintf("All main containers are done: %s, by kubelet, for the phase was set ahead",
			stopped(plan.Freed))
	}
}

func stopped(names []string) string { return "stopping " + plural(names) }
