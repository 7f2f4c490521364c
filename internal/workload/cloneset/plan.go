package cloneset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/planlog"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/waiting"
)

// Action is what a plan does with a pod.
type Action string

// Actions.
const (
	// Keep leaves the pod alone; nothing is to be done with it.
	Keep Action = "keep"
	// Wait leaves the pod alone although something remains to be done; the reason says what it waits for.
	Wait Action = "wait"
	// Delete deletes the pod and its claims.
	Delete Action = "delete"
	// Recreate marks the pod for replacement (CS-126).
	Recreate Action = "recreate"
	// UpdateInPlace takes the pod out of service and begins its update.
	UpdateInPlace Action = "update in place"
	// Continue writes the content of an update whose grace period is over, or its next batch (IPU-103, IPU-107).
	Continue Action = "continue update"
	// Patch changes labels or conditions of the pod: admission after creation or update, lifecycle states, missing labels.
	Patch Action = "patch"
	// Release gives up a pod that the selector does not match any more (CS-056).
	Release Action = "release"
)

// Reason is why a pod gets the action that it gets, or what holds it.
type Reason string

// Reasons.
const (
	ReasonUpToDate          Reason = "UpToDate"
	ReasonNotReady          Reason = "NotReady"
	ReasonMinReadySeconds   Reason = "MinReadySeconds"
	ReasonPartition         Reason = "Partition"
	ReasonMaxUnavailable    Reason = "MaxUnavailable"
	ReasonUpdateUnhealthy   Reason = "UpdatedPodsUnavailable"
	ReasonPaused            Reason = "Paused"
	ReasonOnDelete          Reason = "OnDelete"
	ReasonScaling           Reason = "Scaling"
	ReasonGracePeriod       Reason = "GracePeriod"
	ReasonUpdating          Reason = "UpdatingInPlace"
	ReasonUpdated           Reason = "InPlaceUpdateComplete"
	ReasonOutdated          Reason = "Outdated"
	ReasonInPlaceImpossible Reason = "InPlaceImpossible"
	ReasonUnreadableState   Reason = "UnreadableState"
	ReasonBadSpec           Reason = "BadSpec"
	ReasonUpdateRefused     Reason = "UpdateRefused"
	ReasonResizePending     Reason = "ResizePending"
	ReasonNoDaemon          Reason = "NoNodeDaemon"
	ReasonFailedPods        Reason = "FailedPods"
	ReasonSpecifiedDelete   Reason = "SpecifiedDelete"
	ReasonScaleIn           Reason = "ScaleIn"
	ReasonLifecycleHook     Reason = "LifecycleHook"
	ReasonStarted           Reason = "Started"
	ReasonUnscheduled       Reason = "Unscheduled"
	ReasonInactive          Reason = "Inactive"
	ReasonSelector          Reason = "SelectorMismatch"
	ReasonMissingLabel      Reason = "MissingLabel"
	ReasonCloneSetDeleted   Reason = "CloneSetDeleted"
)

// Verdict is the decision about one pod.
type Verdict struct {
	Pod    *corev1.Pod
	Action Action
	Reason Reason
	// Message says it in words, with numbers.
	Message string
	// Until is when time alone lifts what holds the pod; zero if it does not.
	Until time.Time
	// Update is set for UpdateInPlace.
	Update *inplace.Update
	// MayRecreate: the pod is recreated if the API server refuses its update (IPU-184).
	MayRecreate bool
	// Unstored is the revision that the pod carries and the cache lacks, if that is why it is recreated: it is looked for in the API server
	// before.
	Unstored string
	// Patch is set for Patch and Recreate and Release, made for exactly this version of the pod.
	Patch *podpatch.Patch
	// Claims are made the pod's own before it is deleted, so that they go with it whatever happens (CS-061).
	Claims []*corev1.PersistentVolumeClaim
}

// Creation is one pod to make, with the claims that it lacks.
type Creation struct {
	Name, ID string
	// Revision is the name of the revision to make it from.
	Revision string
	// Pod and Claims are the documents to send.
	Pod    map[string]any
	Claims []map[string]any
}

// ClaimFate is what happens to a claim without an active pod (CS-064), or to one that its pod shall not take along after all.
type ClaimFate struct {
	Claim *corev1.PersistentVolumeClaim
	// HandTo is the pod that takes the claim along when it goes.
	HandTo *corev1.Pod
	// TakeBack: the claim is the set's again. If neither is set the claim is deleted, after a live read has shown that its pod does not exist.
	TakeBack bool
	Why      string
}

// Plan is what one pass does.
type Plan struct {
	// Set is the CloneSet that the plan is for.
	Set *appsv1beta1.CloneSet
	// Limits are the user's numbers, resolved.
	Limits rollout.Limits
	// NewRevision must be written before anything else; nil if the template is stored already.
	NewRevision *appsv1.ControllerRevision
	// Renumber is a stored revision that becomes the update revision again, under the number in NewNumber (CS-083).
	Renumber         *appsv1.ControllerRevision
	NewNumber        int64
	ClaimFingerprint string
	// ClaimTemplates are what the raised revision remembers of the claim templates (CS-336).
	ClaimTemplates string
	// UpdateRevision and CurrentRevision are names (CS-086).
	UpdateRevision, CurrentRevision string
	// Verdicts has one entry for every owned pod, by name.
	Verdicts []*Verdict
	// Create are the pods to make.
	Create []Creation
	// Probing: creation failed a moment ago, and one pod is created to see whether it is possible again.
	Probing bool
	// ClaimFates are what becomes of claims without an active pod.
	ClaimFates []ClaimFate
	// History are the revisions to delete (CS-088).
	History []*appsv1.ControllerRevision
	// PodsToDelete is what remains of scaleStrategy.podsToDelete, if PrunePodsToDelete is set (CS-134).
	PodsToDelete      []string
	PrunePodsToDelete bool
	// ScaleLimited says how creation is limited, empty if it is not (CS-111).
	ScaleLimited string
	// ClaimsAwaited says which claims new pods wait for, empty if they wait for none (CS-272). ClaimsNotReused says which claims new pods get
	// no more, because pods hold them that do not go (CS-335).
	ClaimsAwaited, ClaimsNotReused string
	// ClaimGrowth are the claims to be grown to what their templates ask for (CS-338).
	ClaimGrowth []ClaimGrowth
	// ClaimsHeld says which claims cannot follow their templates, empty if all can.
	ClaimsHeld string
	// Pulls are the ImagePullJobs to create, EndedPulls those to delete (CS-201, CS-207).
	Pulls      []PullJob
	EndedPulls []*metav1.PartialObjectMetadata
	// RevisionLabels change on MarkedRevision, the update revision, once the jobs exist; nil removes one (CS-206).
	RevisionLabels map[string]any
	MarkedRevision *appsv1.ControllerRevision
	// Orphans are pods that match the selector and belong to nobody (CS-355).
	Orphans []string
	// ForeignImages are images that others wrote into pods, and that stay (IPU-326).
	ForeignImages []ForeignImage
	// Sentences say what the pass found and decided about the set as a whole.
	Sentences []string
	// UpdateError and ScaleError are what the user has to mend (CS-225, CS-096, IPU-173).
	UpdateError, ScaleError string
	// Waiting is what holds the rollout or the scaling, and was not asked for; nil if nothing does (OPS-099).
	Waiting *waiting.Wait
	// After is when to look again although nothing happened; 0 means not at all (CS-076).
	After time.Duration
	// Status is the status as far as the snapshot tells.
	Status appsv1beta1.CloneSetStatus
}

// Empty tells whether the plan writes nothing but, maybe, the status.
func (p *Plan) Empty() bool {
	if p.NewRevision != nil || p.Renumber != nil || p.PrunePodsToDelete || len(p.Create)+len(p.ClaimFates)+len(p.ClaimGrowth)+len(p.History) > 0 {
		return false
	}
	if len(p.Pulls)+len(p.EndedPulls)+len(p.RevisionLabels) > 0 {
		return false
	}
	return !slices.ContainsFunc(p.Verdicts, func(v *Verdict) bool { return v.Action != Keep && v.Action != Wait })
}

// planner is the working state of Make.
type planner struct {
	Snapshot
	*Plan
	Set       *appsv1beta1.CloneSet
	selector  labels.Selector
	revisions []revisionInfo
	found     map[string]*revisionInfo // by label
	update    *revisionInfo
	current   *revisionInfo
	pods      []*podInfo
	verdicts  map[*corev1.Pod]*Verdict
	modes     map[modeKey]mode
	deadline  time.Time
	// scaling: this plan creates or deletes pods, so that no update starts.
	scaling bool
	// creationHeld: pods are missing, and none are created because that failed a moment ago.
	creationHeld bool
	// probing: one pod tries whether updates in place are refused still.
	probing bool
	// unused is a patch that is empty as yet.
	unused *podpatch.Patch
	// claimsOf are the live claims of the set by instance ID, and taken the IDs that no new pod may have.
	claimsOf map[string][]*corev1.PersistentVolumeClaim
	// toDelete are the names in scaleStrategy.podsToDelete.
	toDelete map[string]bool
	// spent are the words of refusals to delete.
	spent string
	// room is for verdicts to come.
	room []Verdict
}

// Make decides what to do. It changes nothing of the snapshot.
func Make(s Snapshot) *Plan {
	p := &planner{Snapshot: s, Set: s.Set, Plan: &Plan{Set: s.Set}, verdicts: make(map[*corev1.Pod]*Verdict, len(s.Pods)), modes: map[modeKey]mode{},
		toDelete: map[string]bool{}}
	for _, name := range s.Set.Spec.ScaleStrategy.PodsToDelete {
		p.toDelete[name] = true
	}
	p.Plan.Orphans = slices.Sorted(slices.Values(s.Orphans)) // an index gives them in any order
	p.Pods = slices.SortedFunc(slices.Values(s.Pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	p.make()
	for _, pod := range p.Pods {
		p.Verdicts = append(p.Verdicts, p.verdicts[pod])
	}
	for _, v := range p.Verdicts {
		p.lookAgain(v.Until)
	}
	p.status()
	p.Waiting = p.waits()
	if !p.deadline.IsZero() {
		p.After = max(p.deadline.Sub(p.Now), time.Millisecond)
	}
	return p.Plan
}

func (p *planner) make() {
	selector, err := metav1.LabelSelectorAsSelector(p.Set.Spec.Selector)
	if err != nil {
		p.stand(fmt.Errorf("spec.selector: %w", err))
		return
	}
	p.selector = selector
	if err := p.determineRevisions(); err != nil {
		p.stand(err)
		return
	}
	if p.Set.DeletionTimestamp == nil && !selector.Matches(labels.Set(p.Set.Spec.Template.Labels)) {
		p.stand(fmt.Errorf("spec.selector %s does not match the labels of spec.template.metadata: pods would be made without end; correct the labels", selector))
		return
	}
	if p.Set.DeletionTimestamp != nil {
		p.classify()
		p.holdAll(ReasonCloneSetDeleted, "the CloneSet is being deleted")
		return
	}
	p.release()
	p.sortClaims()
	p.classify()
	p.settleClaims()
	p.growClaims()
	limits, err := p.limits()
	p.Limits = limits
	if err != nil {
		p.UpdateError = err.Error()
	}
	p.decideModes()
	p.preDownload(err)
	if p.scaling = p.scale(); !p.scaling {
		p.updatePods(err)
	}
	p.refreshPods()
	p.takeClaimsBack()
	p.prune()
}

// stand leaves everything as it is, because the spec cannot be used. What the status says of revisions stays.
func (p *planner) stand(err error) {
	p.UpdateError, p.NewRevision, p.Renumber, p.update = err.Error(), nil, nil, nil
	p.UpdateRevision, p.CurrentRevision = p.Set.Status.UpdateRevision, p.Set.Status.CurrentRevision
	p.Status.CollisionCount = p.Set.Status.CollisionCount
	p.classify()
	p.holdAll(ReasonBadSpec, p.UpdateError)
}

// limits resolves the user's numbers. If one is unusable nothing is updated, and nothing available is taken away (CS-096).
func (p *planner) limits() (rollout.Limits, error) {
	spec := rollout.Spec{Replicas: p.replicas(), ScaleMaxUnavailable: p.Set.Spec.ScaleStrategy.MaxUnavailable}
	if r := p.rolling(); r != nil {
		spec.Partition, spec.MaxSurge, spec.MaxUnavailable, spec.Paused = r.Partition, r.MaxSurge, r.MaxUnavailable, r.Paused
	}
	limits, err := rollout.Resolve(spec)
	if err != nil {
		return rollout.Limits{Replicas: spec.Replicas, Partition: spec.Replicas, ScaleMaxUnavailable: rollout.Unlimited},
			fmt.Errorf("spec.updateStrategy: %w", err)
	}
	return limits, nil
}

// rolling returns the options of rolling updates, nil under OnDelete (CS-093).
func (p *planner) rolling() *appsv1beta1.RollingUpdateCloneSetStrategy {
	if p.onDelete() {
		return nil
	}
	return p.Set.Spec.UpdateStrategy.RollingUpdate
}

func (p *planner) onDelete() bool {
	return p.Set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteCloneSetUpdateStrategyType
}

func (p *planner) paused() bool { r := p.rolling(); return r != nil && r.Paused }

func (p *planner) policy() appsv1beta1.CloneSetPodUpdatePolicy {
	if r := p.rolling(); r != nil && r.PodUpdatePolicy != "" {
		return r.PodUpdatePolicy
	}
	return appsv1beta1.ReCreateCloneSetPodUpdatePolicy
}

func (p *planner) replicas() int {
	if p.Set.Spec.Replicas == nil {
		return 1
	}
	return int(*p.Set.Spec.Replicas)
}

func (p *planner) decide(pod *corev1.Pod, action Action, reason Reason, format string, args ...any) *Verdict {
	if len(p.room) == 0 { // one allocation for all pods, another for those that are decided twice
		p.room = make([]Verdict, max(len(p.Pods), 1))
	}
	v := &p.room[0]
	p.room = p.room[1:]
	*v = Verdict{Pod: pod, Action: action, Reason: reason, Message: words(format, args)}
	p.verdicts[pod] = v
	return v
}

// words formats a message; one that is ready is taken as it is, since most pods of a large set share theirs.
func words(format string, args []any) string {
	if len(args) == 1 && format == "%s" {
		if text, ok := args[0].(string); ok {
			return text
		}
	}
	return fmt.Sprintf(format, args...)
}

func (p *planner) holdAll(reason Reason, message string) {
	for _, pod := range p.Pods {
		if p.verdicts[pod] == nil {
			p.decide(pod, Wait, reason, "%s", message)
		}
	}
}

func (p *planner) lookAgain(at time.Time) {
	if !at.IsZero() && (p.deadline.IsZero() || at.Before(p.deadline)) {
		p.deadline = at
	}
}

func (p *planner) say(format string, args ...any) {
	p.Sentences = append(p.Sentences, fmt.Sprintf(format, args...))
}

// release gives up pods that the selector does not match any more (CS-056).
func (p *planner) release() {
	for _, pod := range p.Pods {
		if Active(pod) && !p.selector.Matches(labels.Set(pod.Labels)) {
			patch := &podpatch.Patch{}
			patch.ReleaseOwner(string(p.Set.UID))
			p.decide(pod, Release, ReasonSelector, "its labels do not match the selector %s any more", p.selector).Patch = patch
		}
	}
}

// prune removes names from podsToDelete that are no active pods any more (CS-134).
func (p *planner) prune() {
	names := p.Set.Spec.ScaleStrategy.PodsToDelete
	if len(names) == 0 {
		return
	}
	active := make(map[string]bool, len(p.pods))
	for _, info := range p.pods {
		active[info.Pod.Name] = true
	}
	p.PodsToDelete = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !active[name] })
	p.PrunePodsToDelete = len(p.PodsToDelete) < len(names)
}

// String prints the plan as sentences.
func (p *Plan) String() string { return p.told(p.Verdicts).String() }

// told is the plan with these of its verdicts.
func (p *Plan) told(verdicts []*Verdict) *planlog.Plan {
	t := &planlog.Plan{Summary: slices.Concat(p.Sentences, p.pullSentences())}
	for _, fate := range p.ClaimFates {
		about := "claim " + fate.Claim.Name
		switch {
		case fate.HandTo != nil:
			t.Add(about, "handed to pod %s: %s", fate.HandTo.Name, fate.Why)
		case fate.TakeBack:
			t.Add(about, "taken back: %s", fate.Why)
		default:
			t.Add(about, "delete: %s", fate.Why)
		}
	}
	for _, growth := range p.ClaimGrowth {
		t.Add("claim "+growth.Claim.Name, "grow to %s", growth.Storage.String())
	}
	for _, creation := range p.Create {
		t.Add("pod "+creation.Name, "create from %s", creation.Revision)
	}
	for _, v := range verdicts {
		t.Add("pod "+v.Pod.Name, "%s: %s: %s", v.Action, v.Reason, v.Message)
	}
	return t
}

// digestAbove is the number of pods above which a plan is printed by groups of pods.
const digestAbove = 20

// Headline is the plan without the pods that only wait for time or for kubelet, so that it changes only when a decision does. Of a large
// set, pods with the same verdict are one line.
func (p *Plan) Headline() string { return p.headline().String() }

// Record is the plan for the log, to be written when the headline changes.
func (p *Plan) Record() []any {
	if len(p.Verdicts) <= digestAbove {
		return p.told(p.Verdicts).Record()
	}
	return p.headline().Record()
}

func (p *Plan) headline() *planlog.Plan {
	brief := slices.DeleteFunc(slices.Clone(p.Verdicts), func(v *Verdict) bool {
		return v.Action == Keep || v.Reason == ReasonGracePeriod || v.Reason == ReasonMinReadySeconds
	})
	if len(p.Verdicts)+len(p.Create) <= digestAbove {
		return p.told(brief)
	}
	type group struct {
		names []string
		words string
	}
	groups := map[string]*group{}
	add := func(key, name, words string) {
		if groups[key] == nil {
			groups[key] = &group{words: words}
		}
		groups[key].names = append(groups[key].names, name)
	}
	for _, creation := range p.Create {
		add("create from "+creation.Revision, creation.Name, "")
	}
	for _, v := range brief {
		add(string(v.Action)+": "+string(v.Reason), v.Pod.Name, v.Message)
	}
	t := &planlog.Plan{Summary: p.Sentences}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		t.AddGroup(key, groups[key].names, groups[key].words)
	}
	return t
}
