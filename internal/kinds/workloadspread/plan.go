package workloadspread

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// Plan is what is to be done for one WorkloadSpread, in the order of its fields (WS-130).
type Plan struct {
	Spread *appsv1beta1.WorkloadSpread
	Target *Target
	// Writes are the patches of pods that are adopted, or whose deletion cost changes.
	Writes []*PodWrite
	// Status is the status to be written: the result of StatusOn for the WorkloadSpread that was planned for.
	// It is not used if Problem is set.
	Status StatusChange
	// Delete are the pods that could not be scheduled in time. They are deleted only after the status is
	// written (WS-175).
	Delete []*corev1.Pod
	// Problem is why nothing could be planned, and Reason the reason of its event, empty if there is no event
	// (WS-133, WS-157).
	Problem error
	Reason  string
	// Incomplete is why only a part could be planned; the rest is tried again (WS-085).
	Incomplete error
	// Again is when to look again although nothing happens, or zero. Because is what is done then (WS-122).
	Again   time.Time
	Because string

	snapshot  *Snapshot
	quotas    []SubsetQuota
	members   []*member
	tally     *tally
	stuck     []int
	patience  time.Duration
	sentences []string
}

// PodWrite is one patch of a pod.
type PodWrite struct {
	Pod *corev1.Pod
	// Adopt is the subset that adopts the pod, or empty if the pod is in a subset already, or in none.
	Adopt string
	// Cost is the deletion cost to be written, or empty if the present one is right.
	Cost string
	// Metadata is the part of the patch that changes the pod's metadata.
	Metadata map[string]any
}

// StatusChange is a status and what there is to report about it.
type StatusChange struct {
	Status appsv1beta1.WorkloadSpreadStatus
	// Lost are expired bookings. Recovered are subsets that are no longer passed over.
	Lost      []LostBooking
	Recovered []string
	// Again is when the status changes although nothing happens, or zero.
	Again   time.Time
	because string
}

// member is an active pod and the subset that it belongs to.
type member struct {
	pod     *corev1.Pod
	version string
	// subset is an index, or unmatched.
	subset   int
	booking  string
	adopted  bool
	timedOut bool
}

const unmatched = -1

// Reasons of events that OpenKruise does not have.
const (
	// ReasonReplicasUnknown means that the desired number of pods cannot be computed (WS-133).
	ReasonReplicasUnknown = "ReplicasUnknown"
	// ReasonQuotaUnknown means that a quota cannot be computed (WS-157).
	ReasonQuotaUnknown = "QuotaUnknown"
	// ReasonStatusTooLarge means that there are more subsets and versions than a status can hold (WS-154).
	ReasonStatusTooLarge = "StatusTooLarge"
)

// Make returns the plan for a snapshot.
func Make(snapshot Snapshot) *Plan {
	p := &Plan{Spread: snapshot.Spread, Target: snapshot.Target, snapshot: &snapshot}
	s := &snapshot
	if s.Spread.DeletionTimestamp != nil {
		p.Problem = errors.New("it is being deleted")
		return p
	}
	if s.Target.DesiredError != nil {
		p.Problem, p.Reason = fmt.Errorf("the replicas of %s %s: %w", s.Target.Kind, s.Target.Name,
			s.Target.DesiredError), ReasonReplicasUnknown
		return p
	}

	var err error
	if p.quotas, err = Quotas(s.Spread.Spec.Subsets, s.Target.Desired); err != nil {
		p.Problem, p.Reason = err, ReasonQuotaUnknown
		return p
	}

	p.patience, _ = Critical(s.Spread)
	p.assign()
	if p.Problem = p.tooLarge(); p.Problem != nil {
		p.Reason = ReasonStatusTooLarge
		return p
	}
	p.reschedule()
	p.rank()
	p.Status = p.StatusOn(s.Spread)
	p.look(p.Status.Again, p.Status.because)
	if len(s.Unseen) > 0 {
		p.look(s.LookAgain, "pods that the cache does not show are looked for again")
	}

	return p
}

// say adds a sentence about a pod to the printed plan.
func (p *Plan) say(pod *corev1.Pod, format string, args ...any) {
	p.sentences = append(p.sentences, fmt.Sprintf("pod %s: %s", pod.Name, fmt.Sprintf(format, args...)))
}

// look records when to look again, unless an earlier time is recorded already.
func (p *Plan) look(at time.Time, because string) {
	if !at.IsZero() && (p.Again.IsZero() || at.Before(p.Again)) {
		p.Again, p.Because = at, because
	}
}

// Members returns the UIDs of the active pods that were planned for.
func (p *Plan) Members() map[types.UID]bool {
	uids := make(map[types.UID]bool, len(p.members))
	for _, m := range p.members {
		uids[m.pod.UID] = true
	}
	return uids
}

// Unmatched returns how many members are in no subset.
func (p *Plan) Unmatched() int {
	n := 0
	for _, m := range p.members {
		if m.subset == unmatched {
			n++
		}
	}
	return n
}

// Overdue returns the creations that are no longer waited for.
func (p *Plan) Overdue() []LostBooking {
	return slices.DeleteFunc(slices.Clone(p.Status.Lost), func(lost LostBooking) bool { return lost.Deletion })
}

// Looked records that the API server was asked about these overdue creations, and about no others. The status
// may be written to a version of the WorkloadSpread that has more of them than the cache showed.
func (p *Plan) Looked(overdue []LostBooking) {
	p.tally.only = make(map[LostBooking]bool, len(overdue))
	for _, lost := range overdue {
		p.tally.only[lost] = true
	}
}

// LookEvery is how often at most the API server is asked for pods that the cache does not show.
const LookEvery = 5 * time.Second

// nodeAgain is how long to wait before looking again for a node that is not known yet.
const nodeAgain = 10 * time.Second

// assign determines the subset of each active pod.
func (p *Plan) assign() {
	s := p.snapshot
	indices := make(map[string]int, len(p.quotas))
	for i, q := range p.quotas {
		indices[q.Name] = i
	}

	type place struct {
		version string
		subset  int
	}
	taken := map[place]int32{}
	var strangers []*member
	seen := make([]Seen, 0, len(s.Pods))
	for _, pod := range s.Pods {
		version := s.Versioned.Of(pod)
		placed, ok := PlacementOf(s.Spread, pod)
		index, known := indices[placed.Subset]
		switch {
		case !readiness.Active(pod):
			seen = append(seen, seenOf(pod, version, placed.Subset, placed.UID))
			continue
		case ok && known:
			taken[place{version, index}]++
		default:
			index = unmatched
		}
		m := &member{pod: pod, version: version, subset: index, booking: placed.UID}
		p.members = append(p.members, m)
		if !ok {
			strangers = append(strangers, m)
		}
	}

	slices.SortFunc(p.members, func(a, b *member) int { return byCreation(a.pod, b.pod) })
	slices.SortFunc(strangers, func(a, b *member) int { return byCreation(a.pod, b.pod) })

	p.Incomplete = s.Unread
	for _, m := range strangers {
		if s.NodeUnknown[m.pod.UID] {
			p.look(s.Now.Add(nodeAgain), "a node is looked for again")
		}
		// Quotas are by version.
		chosen, ok := choose(s.Fits[m.pod.UID], func(subset int) bool {
			return p.quotas[subset].Quota == Unlimited ||
				taken[place{m.version, subset}] < p.quotas[subset].Quota
		})
		if !ok {
			p.held(m)
			continue
		}
		m.subset, m.adopted = chosen, true
		taken[place{m.version, chosen}]++
	}

	for _, m := range p.members {
		seen = append(seen, seenOf(m.pod, m.version, p.nameOf(m), m.booking))
	}
	p.tally = newTally(seen, s.Unseen, s.Now)
	p.tally.known = s.Known
}

// byCreation orders older pods first.
func byCreation(a, b *corev1.Pod) int {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order
	}
	return cmp.Compare(a.Name, b.Name)
}

// nameOf returns the name of a member's subset, or an empty string.
func (p *Plan) nameOf(m *member) string {
	if m.subset == unmatched {
		return ""
	}
	return p.quotas[m.subset].Name
}

// reschedule determines which pods have waited for a node for too long.
func (p *Plan) reschedule() {
	p.stuck = make([]int, len(p.quotas))
	if p.patience == 0 {
		return
	}

	for _, m := range p.members {
		if m.subset == unmatched || m.subset == len(p.quotas)-1 {
			continue
		}
		timedOut, again := unscheduled(m.pod, p.patience, p.snapshot.Now)
		if p.look(again, "pod "+m.pod.Name+" will have waited long enough for a node"); !timedOut {
			continue
		}
		m.timedOut = true
		p.stuck[m.subset]++
		if p.held(m) {
			continue
		}
		p.Delete = append(p.Delete, m.pod)
		p.say(m.pod, "deleted, because it could not be scheduled in subset %s for %s",
			p.nameOf(m), p.patience)
	}
}

// rank determines which deletion costs and adoptions are to be written to which pods.
func (p *Plan) rank() {
	s := p.snapshot
	wanted := map[*member]int{}
	switch {
	case !s.Target.Costs:
	case s.Target.LatestError != nil: // the ranks depend on it
		p.Incomplete = errors.Join(p.Incomplete,
			fmt.Errorf("the latest version of %s %s: %w", s.Target.Kind, s.Target.Name, s.Target.LatestError))
	default:
		wanted = p.costs()
	}

	for _, m := range p.members {
		write := &PodWrite{Pod: m.pod, Metadata: map[string]any{}}
		if m.adopted {
			subset := &s.Spread.Spec.Subsets[m.subset]
			metadata, err := adoptedMetadata(s.Spread, subset)
			if err != nil {
				p.Incomplete = errors.Join(p.Incomplete, err)
				continue
			}
			write.Adopt, write.Metadata = subset.Name, metadata
			p.say(m.pod, "adopted into subset %s, which fits its node %s", subset.Name, m.pod.Spec.NodeName)
		}

		if cost, ranked := wanted[m]; ranked && !m.timedOut &&
			m.pod.Annotations[pub.PodDeletionCost] != costText(cost) {
			write.Cost = costText(cost)
			annotate(write.Metadata, pub.PodDeletionCost, write.Cost)
			p.say(m.pod, "deletion cost %s, was %q: %s", write.Cost, m.pod.Annotations[pub.PodDeletionCost],
				p.whyCost(m, cost))
		}
		if (write.Adopt != "" || write.Cost != "") && !p.held(m) {
			p.Writes = append(p.Writes, write)
		}
	}
}

// held reports whether a pod is not tried again yet after a failed attempt.
func (p *Plan) held(m *member) bool {
	until, held := p.snapshot.Held[m.pod.UID]
	if held {
		p.look(until, "pod "+m.pod.Name+", which was refused, is tried again")
		p.say(m.pod, "tried again at %s, because the last attempt failed", until.UTC().Format("15:04:05"))
	}
	return held
}

func (p *Plan) costs() map[*member]int {
	s := p.snapshot
	type group struct {
		version string
		subset  int
	}
	groups := map[group][]*member{}
	wanted := make(map[*member]int, len(p.members))
	for _, m := range p.members {
		if m.subset == unmatched {
			wanted[m] = unmatchedCost(len(p.quotas))
			continue
		}
		key := group{p.costVersion(m), m.subset}
		groups[key] = append(groups[key], m)
	}

	for key, members := range groups {
		pods := make([]*corev1.Pod, len(members))
		for i, m := range members {
			pods[i] = m.pod
		}
		for i, cost := range costs(pods, p.quotas[key.subset].Quota, key.subset, len(p.quotas),
			key.version == s.Target.Latest) {
			wanted[members[i]] = cost
		}
	}

	return wanted
}

// costVersion returns the version that a pod is ranked in. If the target has no versions, all pods have the
// same one.
func (p *Plan) costVersion(m *member) string {
	if p.Target.Latest == "" || !p.snapshot.Versioned.Has(p.Target.Kind) {
		return p.Target.Latest
	}
	return m.version
}

func (p *Plan) whyCost(m *member, cost int) string {
	n := len(p.quotas)
	if m.subset == unmatched {
		return "it is in no subset"
	}

	index, order := m.subset, ""
	if p.costVersion(m) != p.Target.Latest {
		index, order = n-1-index, fmt.Sprintf(", in mirrored order since %s is not the latest version",
			m.version)
	}
	if cost < 0 {
		return fmt.Sprintf("more than the %d of subset %s%s", p.quotas[m.subset].Quota, p.nameOf(m), order)
	}

	return fmt.Sprintf("subset %s is %d of %d%s", p.nameOf(m), index+1, n, order)
}
