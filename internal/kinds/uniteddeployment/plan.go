package uniteddeployment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Reasons of events (UD-144).
const (
	EventUpdated       = "SuccessfulUpdateSubset"
	EventFailed        = "FailedUpdateSubset"
	EventRevision      = "FailedRevisionProvision"
	EventFind          = "FailedFindSubsets"
	EventDuplicates    = "FailedDeleteDuplicatedSubsets"
	EventSpecify       = "FailedSpecifySubsetReplicas"
	EventWithoutSubset = "IgnoredSubset"
)

// refusedAgain is when numbers that do not fit together are looked at again without an event.
const refusedAgain = time.Minute

// Snapshot is everything that a plan is made from.
type Snapshot struct {
	United *appsv1beta1.UnitedDeployment
	// Children are the workloads of all kinds that the UnitedDeployment controls.
	Children []*Child
	// Orphans are workloads of its namespace that have the label of a subset and no controller.
	Orphans []*Child
	// Pods are the pods of the children, by the UID of the child.
	Pods map[types.UID][]*corev1.Pod
	// Revisions are the revisions that the UnitedDeployment controls.
	Revisions []*appsv1.ControllerRevision
	// Absent are the kinds that the cluster does not serve.
	Absent []Kind
	Known  *Knowledge
	Now    time.Time
}

// Action is what is done about a subset.
type Action string

// The actions.
const (
	Keep   Action = "keep"
	Create Action = "create"
	Update Action = "update"
	// Verify checks that a child that still has pods of other revisions has the present template.
	Verify Action = "verify"
	Adopt  Action = "adopt"
	// Hold waits for the reasons in the verdict.
	Hold Action = "hold"
)

// Verdict is the decision about a subset.
type Verdict struct {
	Subset *appsv1beta1.Subset
	// Child is the child of the subset, which may still have to be adopted. It is nil if there is none.
	Child  *Child
	Action Action
	Wanted Wanted
	// There is how many active pods the subset has, Reserved how many of them have substitutes, Updated how
	// many have the expected revision, and UpdatedReady how many of these are ready.
	There, Reserved, Updated, UpdatedReady int
	// Why are the differences for which a child is updated, or what it waits for.
	Why []string
	// Passed reports that the subset is unschedulable. Until is when that ends, if it is known.
	Passed bool
	Until  time.Time

	bounds    Bounds
	pods      []*corev1.Pod
	marked    bool // new pods are reserved
	condition *appsv1beta1.UnitedDeploymentSubsetCondition
	// unready is how many reserved pods are not ready.
	unready int
}

// now returns how many replicas the child has in its spec at present.
func (v *Verdict) now() int32 {
	if v.Child == nil {
		return 0
	}
	return v.Child.Replicas
}

// String describes the state of the subset and what it waits for.
func (v *Verdict) String() string {
	text := fmt.Sprintf("subset %s: %d wanted, %d there", v.Subset.Name, v.Wanted.Replicas, v.There)
	if v.Child != nil {
		text += fmt.Sprintf(", %d ready", v.Child.Ready)
	}
	if v.Reserved > 0 {
		text += fmt.Sprintf(", %d reserved", v.Reserved)
	}
	if v.Action != Keep {
		text += "; " + string(v.Action)
	}
	if len(v.Why) > 0 {
		text += ": " + strings.Join(v.Why, "; ")
	}

	return text
}

// Mark is a change of a pod's reservation label (UD-111).
type Mark struct {
	Pod      *corev1.Pod
	Reserved bool
}

// Removal is a child to be deleted or released.
type Removal struct {
	Child *Child
	Why   string
	// Duplicate reports that the subset has another child, which is kept.
	Duplicate bool
}

// Note is an event.
type Note struct{ Type, Reason, Message string }

// Plan is what is to be done for a UnitedDeployment.
type Plan struct {
	// Going reports that it is being deleted, so that nothing is done (UD-004). Fault is why nothing can be
	// done, and Refused why no child is scaled, created or deleted.
	Going          bool
	Fault, Refused *Note
	// Expected is the revision of the template. NewRevision is to be created, and Renumber to get Number.
	Expected    string
	NewRevision *appsv1.ControllerRevision
	Renumber    *appsv1.ControllerRevision
	Number      int64
	Collisions  *int32
	History     []*appsv1.ControllerRevision
	Template    *Template
	// Subsets are the verdicts, in the order of the spec.
	Subsets          []Verdict
	Release, Deletes []Removal
	Marks            []Mark
	// Restart are broken pods that keep a rolling update from making progress (UD-072).
	Restart []*corev1.Pod
	// First reports that conditions of subsets change that decide where pods go. They are stored before
	// anything else is done.
	First  bool
	Status appsv1beta1.UnitedDeploymentStatus
	Notes  []Note
	// After is when to look again although nothing happens; 0 means not at all.
	After time.Duration

	label string
}

// Make returns the plan for a snapshot.
func Make(s Snapshot) *Plan {
	p := &Plan{Status: *s.United.Status.DeepCopy()}
	if s.United.DeletionTimestamp != nil {
		p.Going = true
		return p
	}

	if s.Known == nil {
		s.Known = &Knowledge{}
	}

	template, data, err := s.Known.read(s.United)
	if err != nil {
		return p.faulty(&s, EventRevision, "spec.template: %v", err)
	}

	matches, err := metav1.LabelSelectorAsSelector(s.United.Spec.Selector)
	if s.United.Spec.Selector == nil || err != nil || matches.Empty() {
		return p.faulty(&s, EventFind, "spec.selector must be a selector that is not empty")
	}

	if err := names(s.United.Spec.Topology.Subsets); err != nil {
		return p.faulty(&s, EventFind, "%v", err)
	}

	p.revisions(&s, template, data)
	if err := p.selected(&s, template, matches); err != nil {
		p.NewRevision, p.Renumber = nil, nil
		return p.faulty(&s, EventFind, "%v", err)
	}

	p.Template = template
	p.assign(&s, matches)
	p.allocate(&s)
	p.decide(&s)
	p.clear(&s)
	p.state(&s, matches)
	return p
}

// faulty returns the plan for a spec that cannot be acted on.
func (p *Plan) faulty(s *Snapshot, reason, format string, args ...any) *Plan {
	p.Fault = &Note{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
	p.Status.ObservedGeneration = s.United.Generation
	p.condition(s.Now, appsv1beta1.SubsetUpdated, corev1.ConditionFalse, "Error", p.Fault.Message)
	return p
}

// names rejects names that cannot be label values, and names that would give two subsets the same child.
func names(subsets []appsv1beta1.Subset) error {
	seen := map[string]bool{}
	for i := range subsets {
		name := subsets[i].Name
		if problems := validation.IsValidLabelValue(name); name == "" || len(problems) > 0 {
			return fmt.Errorf("spec.topology.subsets[%d].name: %q can be no value of a label", i, name)
		}
		if seen[name] {
			return fmt.Errorf("spec.topology.subsets[%d].name: another subset has the name %q", i, name)
		}
		seen[name] = true
	}
	return nil
}

func (v *Verdict) wait(format string, args ...any) {
	v.Why = append(v.Why, fmt.Sprintf(format, args...))
}

func (p *Plan) note(kind, reason, format string, args ...any) {
	p.Notes = append(p.Notes, Note{kind, reason, fmt.Sprintf(format, args...)})
}

func (p *Plan) again(s *Snapshot, at time.Time) {
	timing.MinWaitUntil(&p.After, s.Now, at)
}

// allocate determines how many replicas each subset gets.
func (p *Plan) allocate(s *Snapshot) {
	subsets := s.United.Spec.Topology.Subsets
	replicas := Replicas(s.United.Spec.Replicas, subsets)
	strategy := options(s.United)
	var err error
	for i := range p.Subsets {
		v := &p.Subsets[i]
		if v.bounds, err = BoundsOf(v.Subset, replicas); err != nil {
			break
		}
	}

	next := make([]int32, len(subsets))
	switch { // subsets and pods are judged even if the numbers are refused
	case strategy.reserve:
		next = p.reserve(s, strategy, replicas)
	case strategy.adaptive:
		next = p.adapt(s, strategy, replicas)
	case err != nil:
	case Elastic(subsets):
		bounds := make([]Bounds, len(subsets))
		for i := range bounds {
			bounds[i] = p.Subsets[i].bounds
		}
		next, _ = Stretch(bounds, replicas)
	default:
		current := make([]int32, len(subsets))
		for i := range current {
			current[i] = p.Subsets[i].now()
		}
		next, err = Specify(subsets, current, replicas)
	}
	if err != nil {
		p.Refused = &Note{corev1.EventTypeWarning, EventSpecify, err.Error()}
		p.Notes = append(p.Notes, *p.Refused)
		p.again(s, s.Now.Add(refusedAgain))
	}

	for i := range p.Subsets {
		v := &p.Subsets[i]
		v.Wanted = Wanted{Revision: p.label, Patch: string(v.Subset.Patch.Raw)}
		if v.Wanted.Replicas = v.now(); p.Refused == nil {
			v.Wanted.Replicas = next[i]
		}
		if p.Template.Kind.partitioned() && s.United.Spec.UpdateStrategy.ManualUpdate != nil {
			v.Wanted.Partition = min(
				max(s.United.Spec.UpdateStrategy.ManualUpdate.Partitions[v.Subset.Name], 0),
				v.Wanted.Replicas)
		}
		if strategy.reserve {
			v.Wanted.MaxUnavailable = p.room(v)
		}
	}

	if p.Refused == nil && strategy.reserve {
		p.prove(s)
	}
}

// decide decides what is done about each subset.
func (p *Plan) decide(s *Snapshot) {
	adaptive := options(s.United)
	for i := range p.Subsets {
		v := &p.Subsets[i]
		c := v.Child
		switch {
		case v.Action == Adopt:
			v.wait("%s has no controller", c)
			continue
		case c == nil && slices.Contains(s.Absent, p.Template.Kind):
			v.Action = Hold
			v.wait("the cluster does not serve %s of %s", p.Template.Kind, p.Template.Kind.APIVersion())
			continue
		case c == nil && p.Refused != nil:
			v.Action = Hold
			v.wait("%s", p.Refused.Message)
			continue
		case c == nil:
			v.Action = Create
		case c.Going():
			v.Action = Hold
			v.wait("%s is being deleted: another one is created when it is gone", c)
			continue
		default:
			differences := p.differences(v)
			if len(differences) > 0 {
				if v.Wanted.MaxUnavailable == nil { // reservation may have been on before
					v.Wanted.MaxUnavailable = p.room(v)
				}
				v.Action, v.Why = Update, append(differences, v.Why...)
			} else if v.Updated < int(c.Total) {
				v.Action = Verify
			}
		}

		if adaptive.adaptive && v.Wanted.Replicas > v.now() {
			p.again(s, s.Now.Add(adaptive.critical))
		}

		if c == nil {
			continue
		}
		p.waits(v)

		if v.Action != Update {
			p.restart(v)
		}
	}
}

// differences returns the reasons for which a child is updated.
func (p *Plan) differences(v *Verdict) (found []string) {
	c, wanted := v.Child, &v.Wanted
	differs := func(does bool, what string, is, should any) {
		if does {
			found = append(found, fmt.Sprintf("%s %v instead of %v", what, should, is))
		}
	}
	label := c.Object.GetLabels()[SubsetName]

	differs(label != c.Subset, "label "+SubsetName, label, c.Subset)
	differs(c.Revision != wanted.Revision, "revision", c.Revision, wanted.Revision)
	differs(c.Replicas != wanted.Replicas, "replicas", c.Replicas, wanted.Replicas)
	if p.Template.Kind.partitioned() && !c.OnDelete {
		present := int32(0)
		if c.Partition != nil {
			present = *c.Partition
		}
		differs(present != wanted.Partition, "partition", present, wanted.Partition)
	}
	if c.Patch != wanted.Patch {
		found = append(found, "another patch")
	}
	if most := wanted.MaxUnavailable; most != nil && c.MaxUnavailable != nil && *most != *c.MaxUnavailable {
		differs(true, "maxUnavailable", c.MaxUnavailable.String(), most.String())
	}

	return found
}

// waits records what a child waits for that needs no update.
func (p *Plan) waits(v *Verdict) {
	c := v.Child
	if c.Failure != "" {
		v.wait("%s", c.Failure)
	}
	if missing := int(c.Replicas) - v.There; missing > 0 {
		v.wait("%s to be created by %s", wording.Count(missing, "pod"), c)
	}
	unready, old := 0, v.There-v.Updated
	for _, pod := range v.pods {
		if !readiness.Ready(pod) {
			unready++
		}
	}

	if unready > 0 {
		v.wait("%s not ready", wording.Count(unready, "pod"))
	}
	if kept := min(int(v.Wanted.Partition), old); kept > 0 {
		v.wait("%s at an older revision by the partition", wording.Count(kept, "pod"))
		old -= kept
	}
	if old > 0 {
		v.wait("%s to be updated", wording.Count(old, "pod"))
	}
}

// restart lists broken pods of a native StatefulSet that its rolling update waits for.
func (p *Plan) restart(v *Verdict) {
	c := v.Child
	if c.Kind != StatefulSet || c.OnDelete || !c.Observed {
		return
	}
	for _, pod := range v.pods {
		ordinal, ok := ordinalOf(pod.Name)
		if ok && ordinal-c.Start >= int(v.Wanted.Partition) && pod.Labels[RevisionHash] != p.label &&
			!readiness.Ready(pod) {
			p.Restart = append(p.Restart, pod)
			v.wait("pod %s is of an older revision and not ready, and recreated", pod.Name)
		}
	}
}

// String returns the plan in words.
func (p *Plan) String() string { return p.log().String() }

// Record returns the plan as keys and values.
func (p *Plan) Record() []any { return p.log().Record() }

func (p *Plan) log() *wording.Report {
	log := &wording.Report{}
	add := func(format string, args ...any) {
		log.Summary = append(log.Summary, fmt.Sprintf(format, args...))
	}

	switch {
	case p.Going:
		add("it is being deleted: nothing is done")
	case p.Fault != nil:
		add("%s", p.Fault.Message)
	}
	if p.Refused != nil {
		add("%s", p.Refused.Message)
	}
	if p.NewRevision != nil {
		add("the template is new: revision %s", p.Expected)
	}

	for i := range p.Subsets {
		about, words, _ := strings.Cut(p.Subsets[i].String(), ": ")
		log.Add(about, "%s", words)
	}

	for _, m := range p.Marks {
		log.Add(m.Pod.Name, "%s=%t", ReservedPod, m.Reserved)
	}

	for _, r := range slices.Concat(p.Release, p.Deletes) {
		log.Add(r.Child.String(), "goes: %s", r.Why)
	}

	return log
}

// Waiting reports whether anything is not as it should be.
func (p *Plan) Waiting() bool {
	return p.Fault != nil || p.Refused != nil ||
		slices.ContainsFunc(p.Subsets, func(v Verdict) bool { return len(v.Why) > 0 })
}

// Reason returns the first thing that the object itself waits for, or an empty string.
func (p *Plan) Reason() string {
	note := cmp.Or(p.Fault, p.Refused)
	if note == nil {
		return ""
	}
	return note.Message
}
