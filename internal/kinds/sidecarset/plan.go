package sidecarset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Action is what a plan does with a pod.
type Action string

// Actions.
const (
	// Keep means that the pod is current.
	Keep Action = "keep"
	// Wait means that something remains to be done that cannot be done now.
	Wait Action = "wait"
	// Upgrade changes images in place (SS-225).
	Upgrade Action = "upgrade"
	// Reset gives the empty image to the half of a hot-upgrade pair that stands by (SS-242).
	Reset Action = "reset"
)

// Reason is the reason of a verdict in one word.
type Reason string

// Reasons of verdicts.
const (
	ReasonUpdated          Reason = "Updated"
	ReasonOutdated         Reason = "Outdated"
	ReasonUnreadable       Reason = "UnreadableRecord"
	ReasonUpgrading        Reason = "Upgrading"
	ReasonNotReady         Reason = "NotReady"
	ReasonNotUpdate        Reason = "NotUpdate"
	ReasonPaused           Reason = "Paused"
	ReasonNotSelected      Reason = "NotSelected"
	ReasonNotUpgradable    Reason = "NotUpgradable"
	ReasonFinished         Reason = "Finished"
	ReasonPartition        Reason = "Partition"
	ReasonMaxUnavailable   Reason = "MaxUnavailable"
	ReasonResetFirst       Reason = "ResetFirst"
	ReasonStandby          Reason = "HotUpgradeDone"
	ReasonNativeSidecars   Reason = "NativeSidecars"
	ReasonMetadata         Reason = "MetadataNotMergeable"
	ReasonNoHash           Reason = "NoHash"
	ReasonResizeInfeasible Reason = "ResizeInfeasible"
	ReasonRefused          Reason = "Refused"
	ReasonBudget           Reason = "PodUnavailableBudget"
)

// PodVerdict is the decision about one pod.
type PodVerdict struct {
	Pod     *corev1.Pod
	Action  Action
	Reason  Reason
	Message string
	// Change returns the patches of an upgrade or a reset for a version of the pod, in the order in which
	// they are sent.
	Change func(pod *corev1.Pod, now time.Time) ([]*podpatch.Patch, error)
	// By is the operation by which a change takes the pod out of service, as budgets name it.
	By disruption.Operation
	// Upgradable is what the pod's condition should say about the SidecarSet. If it is nil, the condition
	// stays. After an upgrade it is written when the upgrade is done (SS-230).
	Upgradable *bool
	// Forget removes the SidecarSet from the pod's condition (SS-261).
	Forget bool
}

// RevisionChange is a change of a stored revision.
type RevisionChange struct {
	Revision *appsv1.ControllerRevision
	// Number is the new number. 0 means no change (SS-184).
	Number int64
	// CustomVersion is the new label. Empty means no change (SS-186).
	CustomVersion string
}

// Plan is what a pass is to do.
type Plan struct {
	SidecarSet *appsv1beta1.SidecarSet
	// NewRevision is to be created, ChangeRevision is to be changed, and History is to be deleted.
	NewRevision    *appsv1.ControllerRevision
	ChangeRevision *RevisionChange
	History        []*appsv1.ControllerRevision
	// Verdicts has an entry for each matched pod, and for each other pod whose condition still lists the
	// SidecarSet.
	Verdicts []*PodVerdict
	// Status is the new status. It is written if it differs.
	Status appsv1beta1.SidecarSetStatus
	// NotUpgradable is the number of pods that cannot be upgraded in place. Differences says what differs in
	// their containers.
	NotUpgradable int
	Differences   string
	// Unmatched says why injected pods are no longer matched, with the numbers of pods (SS-W09).
	// UnmatchedWhys is the same without numbers.
	Unmatched, UnmatchedWhys string
	// HeldBack says why no pod is upgraded although some could be. It is empty if something moves (SS-D23).
	HeldBack       string
	HeldBackReason Reason
	// Waiting is what holds up the rollout without being asked for, or nil (OPS-099).
	Waiting *waiting.Wait
	// HeldByBudget reports that a budget holds some pods (PUB-101).
	HeldByBudget bool
	// Again is when to plan again even if nothing happens. 0 means never.
	Again time.Duration
	// Sentences explain the plan.
	Sentences []string

	planner *planner
}

// planner makes a plan. in is what it decides from, and out is what it decides.
type planner struct {
	in  Snapshot
	out Plan

	selector, namespaces, update labels.Selector
	stored                       []*appsv1.ControllerRevision
	hash, hashWithoutImage       string
	about                        string
	matched                      []*podInfo
	// hotWaits says for pods why their hot upgrade is not complete.
	hotWaits map[*podInfo]string
	compared map[*appsv1.ControllerRevision]comparison
	sizing   sync.Mutex
	sizes    map[*appsv1.ControllerRevision]map[string]corev1.ResourceRequirements
}

func (p *planner) say(format string, args ...any) {
	p.out.Sentences = append(p.out.Sentences, fmt.Sprintf(format, args...))
}

// Make returns the plan for a snapshot. Its steps are those of SS-192.
func Make(s Snapshot) *Plan {
	p := &planner{in: s, hotWaits: map[*podInfo]string{},
		compared: map[*appsv1.ControllerRevision]comparison{},
		sizes:    map[*appsv1.ControllerRevision]map[string]corev1.ResourceRequirements{}}
	p.out.SidecarSet = s.Set
	p.out.Status = *s.Set.Status.DeepCopy()
	p.prepare()
	if err := p.decodes(); err != nil {
		p.say("nothing is done: %v", err)
		return p.result()
	}

	var known, found map[*corev1.Pod]*podInfo
	if s.Known != nil {
		known, found = s.Known.of(&s), make(map[*corev1.Pod]*podInfo, len(s.Pods))
		defer func() { s.Known.pods = found }()
	}

	unmatched := map[string]int{}
	for _, pod := range inNames(s.Pods) {
		if !readiness.Active(pod) {
			continue
		}
		info := known[pod]
		if info == nil {
			info = p.examine(pod)
		}
		if found != nil {
			found[pod] = info
		}
		if info.matched {
			p.matched = append(p.matched, info)
			continue
		}
		unmatched[info.why]++
		if Lists(pod, s.Set.Name) {
			p.out.Verdicts = append(p.out.Verdicts,
				&PodVerdict{Pod: pod, Action: Keep, Reason: ReasonNotSelected, Forget: true,
					Message: "the pod is not matched any more: " + info.why})
		}
	}

	if len(unmatched) > 0 {
		p.out.Unmatched = differences(unmatched)
		p.out.UnmatchedWhys = strings.Join(slices.Sorted(maps.Keys(unmatched)), " | ")
		p.say("pods that list the SidecarSet and are not matched: %s", p.out.Unmatched)
	}
	if s.Set.DeletionTimestamp != nil {
		p.say("the SidecarSet is being deleted")
		return p.result()
	}
	if err := p.revisions(); err != nil {
		p.say("nothing is done: %v", err)
		return p.result()
	}
	if p.out.NewRevision != nil || p.out.ChangeRevision != nil {
		if why := p.heldBack(s.Set.UID); why != "" {
			p.say("nothing is done: revision %s is not stored: %s", p.out.Status.LatestRevision, why)
			p.out.NewRevision, p.out.ChangeRevision, p.out.Status = nil, nil, *s.Set.Status.DeepCopy()
			return p.result()
		}
	}

	p.history()
	p.status()
	p.decide()
	p.out.Waiting = p.waits()
	return p.result()
}

// inNames sorts pods by name. Caches return them in any order, which must not affect what is reported about a
// plan.
func inNames(pods []*corev1.Pod) []*corev1.Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// heldBack returns why a write that failed is not retried yet, or "" if it may be retried. uid is the UID of
// a pod, of an old revision, or of the SidecarSet, which stands for its new revision.
func (p *planner) heldBack(uid types.UID) string {
	if p.in.Known == nil {
		return ""
	}
	until, why := p.in.Known.retries.Held(uid, p.about, p.in.Now)
	if until.IsZero() {
		return ""
	}
	p.comeBack(until.Sub(p.in.Now))
	return fmt.Sprintf("the last attempt failed, the next one comes at %s: %s",
		until.UTC().Format("15:04:05"), why)
}

// refused reports whether the pod could not be written. Others are tried before it is retried.
func (p *planner) refused(pod *corev1.Pod) bool {
	return p.in.Known != nil && p.in.Known.retries.Has(pod.UID, p.about)
}

// comeBack makes the next plan due after the given time at the latest.
func (p *planner) comeBack(after time.Duration) {
	timing.MinWait(&p.out.Again, after)
}

func (p *planner) result() *Plan {
	for _, v := range p.out.Verdicts {
		if v.Change == nil && (v.Upgradable != nil || v.Forget) && p.heldBack(v.Pod.UID) != "" {
			v.Upgradable, v.Forget = nil, false
		}
	}
	plan := p.out
	plan.planner = p
	return &plan
}

// prepare compiles the selectors. An invalid selector selects nothing.
func (p *planner) prepare() {
	compile := func(selector *metav1.LabelSelector, absent labels.Selector) labels.Selector {
		if selector == nil {
			return absent
		}
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return labels.Nothing()
		}
		return compiled
	}

	p.selector = compile(p.in.Set.Spec.Selector, labels.Nothing())
	if p.selector.Empty() {
		p.selector = labels.Nothing()
	}
	p.namespaces = compile(p.in.Set.Spec.NamespaceSelector, labels.Everything())
	p.update = compile(p.in.Set.Spec.UpdateStrategy.Selector, labels.Everything())
	p.hash, p.about = p.in.Set.Annotations[pub.SidecarSetHash], aboutOf(p.in.Set)
	p.hashWithoutImage = p.in.Set.Annotations[pub.SidecarSetHashWithoutImage]
}

// decodes returns why the documents of the containers cannot be used, or nil. Admission rejects such
// documents, but the API server alone does not.
func (p *planner) decodes() error {
	spec := &p.in.Set.Spec
	for list, containers := range map[string][]appsv1beta1.SidecarContainer{"containers": spec.Containers,
		"initContainers": spec.InitContainers} {
		for i := range containers {
			if err := containers[i].DecodeError(); err != nil {
				return fmt.Errorf("spec.%s[%d]: %w", list, i, err)
			}
		}
	}

	if err := spec.Volumes.DecodeError(); err != nil {
		return fmt.Errorf("spec.volumes: %w", err)
	}

	return nil
}

// status counts the matched pods.
func (p *planner) status() {
	s := &p.out.Status
	s.ObservedGeneration = p.in.Set.Generation
	s.MatchedPods, s.UpdatedPods, s.ReadyPods, s.UpdatedReadyPods = 0, 0, 0, 0
	for _, pod := range p.matched {
		s.MatchedPods++
		if pod.updated {
			s.UpdatedPods++
		}
		if pod.available() {
			s.ReadyPods++
			if pod.updated {
				s.UpdatedReadyPods++
			}
		}
	}

	p.say("%s, %d at %s, %d ready, %d both", wording.Count(s.MatchedPods, "pod"), s.UpdatedPods, s.LatestRevision,
		s.ReadyPods, s.UpdatedReadyPods)
}

// PodsByRevision returns the number of matched pods by revision.
func (p *Plan) PodsByRevision() map[string]int {
	revisions := map[string]int{}
	for _, pod := range p.planner.matched {
		revisions[p.planner.revisionOf(pod)]++
	}
	return revisions
}

// told returns the plan with the given verdicts for printing.
func (p *Plan) told(verdicts []*PodVerdict) *wording.Report {
	t := &wording.Report{Summary: p.Sentences}
	for _, r := range p.History {
		t.Add("revision "+r.Name, "delete")
	}
	for _, v := range verdicts {
		t.Add("pod "+v.Pod.Namespace+"/"+v.Pod.Name, "%s: %s: %s", v.Action, v.Reason, v.Message)
	}
	return t
}

// digestAbove is the number of pods above which a plan is printed by groups of pods.
const digestAbove = 20

// Headline returns the plan without the pods that are current. If there are many pods, those with the same
// verdict share a line.
func (p *Plan) Headline() string { return p.headline().String() }

// Record returns the headline for the log.
func (p *Plan) Record() []any { return p.headline().Record() }

func (p *Plan) headline() *wording.Report {
	brief := slices.DeleteFunc(slices.Clone(p.Verdicts),
		func(v *PodVerdict) bool { return v.Action == Keep && !v.Forget })
	if len(p.Verdicts) <= digestAbove {
		return p.told(brief)
	}

	groups := map[string][]*PodVerdict{}
	for _, v := range brief {
		key := string(v.Action) + ": " + string(v.Reason)
		groups[key] = append(groups[key], v)
	}

	t := &wording.Report{Summary: p.Sentences}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		names := make([]string, 0, len(groups[key]))
		for _, v := range groups[key] {
			names = append(names, v.Pod.Namespace+"/"+v.Pod.Name)
		}
		t.AddGroup(key, names, groups[key][0].Message)
	}

	return t
}
