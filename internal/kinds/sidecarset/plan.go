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
	"github.com/afloat-project/afloat/internal/engine/again"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/planlog"
	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/waiting"
)

// Action is what a plan does with a pod.
type Action string

// Actions.
const (
	// Keep: the pod is current.
	Keep Action = "keep"
	// Wait: something is to be done that cannot be done now.
	Wait Action = "wait"
	// Upgrade changes images in place (SS-225).
	Upgrade Action = "upgrade"
	// Reset gives the half of a hot-upgrade pair that stands by its empty image (SS-242).
	Reset Action = "reset"
)

// Reason is why, in one word.
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
	// Change makes the patches of the pod for a version of it, in the order in which they are sent: those of
	// an upgrade or a reset.
	Change func(pod *corev1.Pod, now time.Time) ([]*podpatch.Patch, error)
	// By is by which operation a change takes the pod out of service, as budgets name it.
	By disruption.Operation
	// Upgradable is what the pod's condition shall say of the SidecarSet; nil leaves it. Of an upgrade it is
	// said when that is done (SS-230).
	Upgradable *bool
	// Forget takes the SidecarSet out of the pod's condition (SS-261).
	Forget bool
}

// RevisionChange is what is to be changed of a stored revision.
type RevisionChange struct {
	Revision *appsv1.ControllerRevision
	// Number is the new one, 0 leaves it (SS-184).
	Number int64
	// CustomVersion is the new label, empty leaves it (SS-186).
	CustomVersion string
}

// Plan is what a pass does.
type Plan struct {
	SidecarSet *appsv1beta1.SidecarSet
	// NewRevision is to be created; ChangeRevision to be changed; History to be deleted.
	NewRevision    *appsv1.ControllerRevision
	ChangeRevision *RevisionChange
	History        []*appsv1.ControllerRevision
	// Verdicts are those of the matched pods, and of others that list the SidecarSet and where something is
	// to be forgotten.
	Verdicts []*PodVerdict
	// Status is to be written if it differs.
	Status appsv1beta1.SidecarSetStatus
	// NotUpgradable is the number of pods that were met and cannot be upgraded in place, Differences what in
	// their containers differs.
	NotUpgradable int
	Differences   string
	// Unmatched says why pods that were injected are not matched any more, with their numbers (SS-W09);
	// unmatchedWhys without.
	Unmatched, UnmatchedWhys string
	// HeldBack says why no pod is upgraded although some could be, empty if something moves (SS-D23).
	HeldBack       string
	HeldBackReason Reason
	// Waiting is what holds the rollout, and was not asked for; nil if nothing does (OPS-099).
	Waiting *waiting.Wait
	// HeldByBudget: a budget holds some pods (PUB-101).
	HeldByBudget bool
	// Again is when to plan again although nothing happens; 0 means not at all.
	Again time.Duration
	// Sentences explain the plan.
	Sentences []string

	planner *planner
}

// planner makes a plan: in is what it decides from, out what it decides.
type planner struct {
	in  Snapshot
	out Plan

	selector, namespaces, update labels.Selector
	stored                       []*appsv1.ControllerRevision
	hash, hashWithoutImage       string
	about                        string
	matched                      []*podInfo
	// hotWaits is why hot upgrades are not done yet.
	hotWaits map[*podInfo]string
	compared map[*appsv1.ControllerRevision]comparison
	sizing   sync.Mutex
	sizes    map[*appsv1.ControllerRevision]map[string]corev1.ResourceRequirements
}

func (p *planner) say(format string, args ...any) {
	p.out.Sentences = append(p.out.Sentences, fmt.Sprintf(format, args...))
}

// Make decides. The steps are those of SS-192.
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

// inNames puts pods in an order: caches give them in any, and what is told of a plan must not differ by that.
func inNames(pods []*corev1.Pod) []*corev1.Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// heldBack says why what could not be written is not tried again yet: a pod, an old revision, or, by the UID
// of the SidecarSet, the new one. It is empty if it may be.
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

// refused tells of a pod that could not be written: others are tried before it is again.
func (p *planner) refused(pod *corev1.Pod) bool {
	return p.in.Known != nil && p.in.Known.retries.Has(pod.UID, p.about)
}

// comeBack plans again after that time at the latest.
func (p *planner) comeBack(after time.Duration) {
	again.In(&p.out.Again, after)
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

// prepare compiles the selectors. One that cannot be used selects nothing.
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

// decodes tells why the documents of the containers cannot be used. Admission refuses such; the API server
// alone would not.
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

// status counts.
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

	p.say("%s, %d at %s, %d ready, %d both", plural.Of(s.MatchedPods, "pod"), s.UpdatedPods, s.LatestRevision,
		s.ReadyPods, s.UpdatedReadyPods)
}

// PodsByRevision is how many of the matched pods have which revision.
func (p *Plan) PodsByRevision() map[string]int {
	revisions := map[string]int{}
	for _, pod := range p.planner.matched {
		revisions[p.planner.revisionOf(pod)]++
	}
	return revisions
}

// told is the plan with these of its verdicts.
func (p *Plan) told(verdicts []*PodVerdict) *planlog.Plan {
	t := &planlog.Plan{Summary: p.Sentences}
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

// Headline is the plan without the pods that are current; of many pods, those with the same verdict are one
// line.
func (p *Plan) Headline() string { return p.headline().String() }

// Record is the headline for the log.
func (p *Plan) Record() []any { return p.headline().Record() }

func (p *Plan) headline() *planlog.Plan {
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

	t := &planlog.Plan{Summary: p.Sentences}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		names := make([]string, 0, len(groups[key]))
		for _, v := range groups[key] {
			names = append(names, v.Pod.Namespace+"/"+v.Pod.Name)
		}
		t.AddGroup(key, names, groups[key][0].Message)
	}

	return t
}
