package podplan

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/planlog"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/waiting"
)

// Policy is how pods get another revision; the values are those of the wire.
type Policy string

// Policies.
const (
	// ReCreate replaces pods.
	ReCreate Policy = "ReCreate"
	// InPlaceIfPossible replaces the pods that cannot be updated in place.
	InPlaceIfPossible Policy = "InPlaceIfPossible"
	// InPlaceOnly leaves alone the pods that cannot be updated in place.
	InPlaceOnly Policy = "InPlaceOnly"
)

// Traits are where the kinds of workloads differ from each other. They are the same for all objects of a kind,
// which declares them once.
type Traits struct {
	// HashLabel is the label that names a revision's hash on the revision itself; empty means that of
	// CloneSets (CS-082, ADS-060).
	HashLabel string
	// TemplateHash gives pods the label pod-template-hash too (CS-053).
	TemplateHash bool
	// Gated: only pods with readiness gate InPlaceUpdateReady are taken out of service to be updated in
	// place; others are recreated once (ADS-140).
	Gated bool
	// Stateless: new pods begin without a lifecycle state (ADS-112).
	Stateless bool
	// Completes: templates are stored as users write them, so that two are compared as the API server
	// completes them (ADS-061).
	Completes bool
	// BornNormal: new pods whose preNormal hook does not hold them begin in state Normal, not PreparingNormal
	// (ASTS-221).
	BornNormal bool
	// SameClaims: pods of all revisions have claims of the present templates (ASTS-080).
	SameClaims bool
}

// Workload is what a plan needs to know of a workload whose pods are made of one template.
type Workload struct {
	// Namespace and Name are the workload's; Owner is how its pods, claims and revisions refer to it.
	Namespace, Name string
	Owner           metav1.OwnerReference
	// Annotations are the workload's own, which its revisions keep.
	Annotations map[string]string
	// Deleted: the workload is being deleted, so that nothing of it is written any more.
	Deleted bool
	// Template and Claims are what its pods are made of; Selector finds them.
	Template *template.PodTemplate
	Claims   template.VolumeClaimTemplates
	Selector *metav1.LabelSelector
	// MinReadySeconds is how long a pod must be ready to count as available.
	MinReadySeconds int32
	// HistoryLimit is how many revisions are kept that no pod carries; nil means ten.
	HistoryLimit *int32
	// Lifecycle are the hooks of the pods; nil means none.
	Lifecycle *pub.Lifecycle
	// Rolling: pods are updated by themselves, and the numbers below hold. OnDelete: others alone replace
	// pods for an update.
	Rolling, OnDelete bool
	// Policy is how pods get another revision.
	Policy Policy
	// Paused: no update starts.
	Paused bool
	// MaxUnavailable is as the user wrote it; nil means the default.
	MaxUnavailable *intstr.IntOrString
	// Strategy is how updates in place are made; nil means the defaults.
	Strategy *pub.InPlaceUpdateStrategy
	// CollisionCount and CurrentRevision are what the status says of revisions.
	CollisionCount  *int32
	CurrentRevision string

	// Traits are what the kind has of its own.
	Traits Traits
	// ShortHash labels pods with the short hash of their revision (CS-050).
	ShortHash bool
	// Gates are the readiness gates that new pods get beside those of the template.
	Gates []corev1.PodConditionType
	// RecreateOnClaimChange recreates pods whose claim templates changed with the pod template (IPU-046).
	RecreateOnClaimChange bool
	// InPlace is what qualifies beside images and metadata.
	InPlace inplace.Options
	// DeferredResize is how long a node may defer a resize before the pod is recreated; 0 means for ever
	// (IPU-315).
	DeferredResize time.Duration
	// PreDownload pulls new images ahead (CS-200).
	PreDownload bool
}

// Snapshot is what the plan is made from, beside the workload.
type Snapshot struct {
	// Pods are all pods controlled by the workload, inactive ones included (CS-055).
	Pods []*corev1.Pod
	// Revisions are its stored revisions (CS-057). Foreign are those of others that its pods carry: pods that
	// change hands may come before their revision.
	Revisions, Foreign []*appsv1.ControllerRevision
	// PullJobs are the ImagePullJobs that it controls; PullJobsServed tells whether they can be known at all
	// (CS-200).
	PullJobs       []*metav1.PartialObjectMetadata
	PullJobsServed bool
	// PullJobsHeldUntil is when jobs may be written again after that failed; zero if it did not.
	PullJobsHeldUntil time.Time
	// UpdateRefused is how the API server refused the last update of a pod in place, empty if it did not;
	// UpdateHeldUntil is when another one may be tried.
	UpdateRefused   string
	UpdateHeldUntil time.Time
	// CreationHeldUntil is when pods may be created again after that failed, zero if it did not;
	// CreationError is how it failed.
	CreationHeldUntil time.Time
	CreationError     string
	// GrowthHeldUntil is when claims may be grown again after that failed, zero if it did not; GrowthError is
	// how it failed.
	GrowthHeldUntil time.Time
	GrowthError     string
	// Refused are the objects about which the API server refused the last request, and when, by UID. Others
	// come before them.
	Refused map[types.UID]time.Time
	// Disruptions are what budgets allow of what takes pods out of service; nil if there are none (PUB-100).
	Disruptions disruption.Limits
	// Known is what former plans found out; nil for nothing. What this one finds out replaces it.
	Known *Knowledge
	// CompletionError is why the API server did not complete templates, empty if it did (ADS-061).
	CompletionError string
	// Now is the time of the snapshot.
	Now time.Time
}

// Plan is what is decided for every kind.
type Plan struct {
	// Limits are the user's numbers, resolved.
	Limits rollout.Limits
	// NewRevision must be written before anything else; nil if the template is stored already.
	NewRevision *appsv1.ControllerRevision
	// Templates are those that have to be completed before the plan can be made (ADS-061).
	Templates [][]byte
	// Renumber is a stored revision that becomes the update revision again, under the number in NewNumber
	// (CS-083).
	Renumber         *appsv1.ControllerRevision
	NewNumber        int64
	ClaimFingerprint string
	// Remembered are the annotations by which the raised revision remembers the claim templates (CS-336); nil
	// if it does not (ASTS-081).
	Remembered map[string]any
	// UpdateRevision and CurrentRevision are names (CS-086).
	UpdateRevision, CurrentRevision string
	// CollisionCount is for the status (CS-084).
	CollisionCount *int32
	// Verdicts has one entry for every owned pod, by name.
	Verdicts []*Verdict
	// Create are the pods to make.
	Create []Creation
	// Probing: creation failed a moment ago, and one pod is created to see whether it is possible again.
	Probing bool
	// ClaimLines say what becomes of claims.
	ClaimLines []planlog.Line
	// History are the revisions to delete (CS-088).
	History []*appsv1.ControllerRevision
	// Pulls are the ImagePullJobs to create, EndedPulls those to delete (CS-201, CS-207).
	Pulls      []PullJob
	EndedPulls []*metav1.PartialObjectMetadata
	// RevisionLabels change on MarkedRevision, the update revision, once the jobs exist; nil removes one
	// (CS-206).
	RevisionLabels map[string]any
	MarkedRevision *appsv1.ControllerRevision
	// ForeignImages are images that others wrote into pods, and that stay (IPU-326).
	ForeignImages []ForeignImage
	// Sentences say what was found and decided about the workload as a whole.
	Sentences []string
	// ScaleLimited says how creation is limited, empty if it is not (CS-111).
	ScaleLimited string
	// ClaimsAwaited says which claims new pods wait for, empty if they wait for none (CS-272).
	ClaimsAwaited string
	// UpdateError and ScaleError are what the user has to mend (CS-225, CS-096, IPU-173).
	UpdateError, ScaleError string
	// Waiting is what holds the rollout or the scaling, and was not asked for; nil if nothing does (OPS-099).
	Waiting *waiting.Wait
	// HeldByBudget: a budget holds some pods.
	HeldByBudget bool
	// After is when to look again although nothing happened; 0 means not at all (CS-076).
	After time.Duration
}

// Planner decides what is common to all kinds, into a plan. A kind's planner has one as its core, and
// decides itself who its pods are, how many there shall be, and in which order they are updated.
type Planner struct {
	Workload *Workload
	in       *Snapshot
	out      *Plan

	// Members are the active pods.
	Members []*Pod
	// Update and Current are the revisions that the plan leads to, and that pods came from.
	Update, Current *Revision
	// Replace decides about a pod that is to be made anew at the update revision; unstored is as in
	// [Verdict]. If it is nil the pod is marked for deletion, so that a new one can come first (CS-126).
	Replace func(info *Pod, reason Reason, unstored, why string)
	// Images returns the images that are pulled ahead, by container, or why none are. If it is nil they are
	// those of updates in place.
	Images func() (images map[string]string, skip string)
	// Scaling: the plan creates or deletes pods, so that no update starts.
	Scaling bool

	// before is what is known, and kept what this plan needed of it and found out.
	before, kept *Knowledge
	// lacks is why templates are not completed that the plan needs.
	lacks error
	// contents are what revisions hold; sources are their templates, by name.
	contents map[*appsv1.ControllerRevision]*contents
	sources  map[string]map[string]any

	observed []Pod
	// revisions are the workload's, foreign are others.
	revisions, foreign []Revision
	found              map[string]*Revision // by label
	verdicts           map[*corev1.Pod]*Verdict
	modes              map[modeKey]Mode
	same               map[string]bool // by label: see SameTemplate
	// decided are the verdicts that change pods, and of which budgets have not been asked, in the order in
	// which they were made; only where there are budgets.
	decided []*Verdict
	// probing: one pod tries whether updates in place are refused still.
	probing bool
	// unused is a patch that is empty as yet.
	unused *podpatch.Patch
	// room is for verdicts to come.
	room []Verdict
}

// New returns a Planner for a workload; what it decides goes into the plan.
func New(of *Workload, in *Snapshot, out *Plan) *Planner {
	before, kept := in.Known.begin()
	return &Planner{Workload: of, in: in, out: out, before: before, kept: kept, contents: map[*appsv1.ControllerRevision]*contents{},
		sources: map[string]map[string]any{}, verdicts: make(map[*corev1.Pod]*Verdict, len(in.Pods)), modes: map[modeKey]Mode{}}
}

// Verdict is what is decided about a pod, nil if nothing is as yet.
func (p *Planner) Verdict(pod *corev1.Pod) *Verdict { return p.verdicts[pod] }

// Conclude hands over the verdicts, what holds the workload, and when to look again.
func (p *Planner) Conclude() {
	for _, pod := range p.in.Pods {
		v := p.verdicts[pod]
		p.out.Verdicts = append(p.out.Verdicts, v)
		p.LookAgain(v.Until)
	}
	p.out.Waiting = p.waits()
	p.keepCompletions()
	if p.in.Known != nil {
		*p.in.Known = *p.kept
	}
}
