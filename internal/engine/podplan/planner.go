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
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Policy defines how pods get another revision. The values are those of the API.
type Policy string

// These are the policies.
const (
	// ReCreate replaces pods.
	ReCreate Policy = "ReCreate"
	// InPlaceIfPossible replaces the pods that cannot be updated in place.
	InPlaceIfPossible Policy = "InPlaceIfPossible"
	// InPlaceOnly leaves alone the pods that cannot be updated in place.
	InPlaceOnly Policy = "InPlaceOnly"
)

// Traits define how the kinds of workloads differ from each other. Each kind declares them once, since they
// are the same for all its objects.
type Traits struct {
	// HashLabel is the label of a revision that contains its hash; empty means the label that CloneSets use
	// (CS-082, ADS-060).
	HashLabel string
	// TemplateHash labels pods with pod-template-hash, too (CS-053).
	TemplateHash bool
	// Gated is true if only pods with readiness gate InPlaceUpdateReady are taken out of service to be
	// updated in place. Other pods are recreated once (ADS-140).
	Gated bool
	// Stateless is true if new pods start without a lifecycle state (ADS-112).
	Stateless bool
	// Completes is true if templates are stored as users write them. To compare two of them, the API server
	// completes both (ADS-061).
	Completes bool
	// BornNormal is true if new pods that their preNormal hook does not hold start in state Normal, not
	// PreparingNormal (ASTS-221).
	BornNormal bool
	// SameClaims is true if pods of all revisions have claims of the present claim templates (ASTS-080).
	SameClaims bool
}

// Workload is what a plan needs to know about a workload whose pods are made from one template.
type Workload struct {
	// Namespace and Name are those of the workload. Owner is the owner reference for its pods, claims and
	// revisions.
	Namespace, Name string
	Owner           metav1.OwnerReference
	// Annotations are those of the workload; its revisions keep them.
	Annotations map[string]string
	// Deleted is true if the workload is being deleted, so that nothing of it is written any more.
	Deleted bool
	// Template and Claims are what its pods are made from; Selector matches the pods.
	Template *template.PodTemplate
	Claims   template.VolumeClaimTemplates
	Selector *metav1.LabelSelector
	// MinReadySeconds is how long a pod must be ready to count as available.
	MinReadySeconds int32
	// HistoryLimit is how many revisions that no pod carries are kept; nil means ten.
	HistoryLimit *int32
	// Lifecycle are the hooks of the pods; nil means none.
	Lifecycle *pub.Lifecycle
	// Rolling is true if the controller updates pods by itself; the fields below apply then. OnDelete is true
	// if only others replace pods for an update.
	Rolling, OnDelete bool
	// Policy defines how pods get another revision.
	Policy Policy
	// Paused is true if no update may start.
	Paused bool
	// MaxUnavailable is the value in the spec; nil means the default.
	MaxUnavailable *intstr.IntOrString
	// Strategy defines how updates in place are made; nil means the defaults.
	Strategy *pub.InPlaceUpdateStrategy
	// CollisionCount and CurrentRevision are those in the status.
	CollisionCount  *int32
	CurrentRevision string

	// Traits are those of the workload's kind.
	Traits Traits
	// ShortHash labels pods with the short hash of their revision (CS-050).
	ShortHash bool
	// Gates are the readiness gates that new pods get beside those of the template.
	Gates []corev1.PodConditionType
	// RecreateOnClaimChange is true if pods are recreated whose claim templates changed with the pod template
	// (IPU-046).
	RecreateOnClaimChange bool
	// InPlace defines what may be updated in place beside images and metadata.
	InPlace inplace.Options
	// DeferredResize is how long a node may defer a resize before the pod is recreated; 0 means forever
	// (IPU-315).
	DeferredResize time.Duration
	// PreDownload is true if new images are pulled ahead (CS-200).
	PreDownload bool
}

// Snapshot is what the plan is made from, beside the workload.
type Snapshot struct {
	// Pods are all pods controlled by the workload, inactive ones included (CS-055).
	Pods []*corev1.Pod
	// Revisions are the workload's stored revisions (CS-057). Foreign are revisions of other owners that its
	// pods carry: when pods change owners, they may come before their revision.
	Revisions, Foreign []*appsv1.ControllerRevision
	// PullJobs are the ImagePullJobs that the workload controls. PullJobsServed reports whether they can be
	// known at all (CS-200).
	PullJobs       []*metav1.PartialObjectMetadata
	PullJobsServed bool
	// PullJobsHeldUntil is when jobs may be written again after a failure; zero if there was none.
	PullJobsHeldUntil time.Time
	// UpdateRefused is the message with which the last update of a pod in place failed, empty if it did not
	// fail. UpdateHeldUntil is when another update may be tried.
	UpdateRefused   string
	UpdateHeldUntil time.Time
	// CreationHeldUntil is when pods may be created again after a failure, zero if there was none.
	// CreationError is the message of that failure.
	CreationHeldUntil time.Time
	CreationError     string
	// GrowthHeldUntil is when claims may be grown again after a failure, zero if there was none. GrowthError
	// is the message of that failure.
	GrowthHeldUntil time.Time
	GrowthError     string
	// Refused are the objects for which the last request failed, and when, by UID. Other
	// objects come before them.
	Refused map[types.UID]time.Time
	// RefusedLong are those of them for which requests fail for ten minutes or longer.
	RefusedLong map[types.UID]bool
	// FailedNodes are nodes for which a pod could not be created in the last hours, and when last. Others come before
	// them, because the failure may concern one node only.
	FailedNodes map[string]time.Time
	// Disruptions are what budgets allow of what takes pods out of service; nil if there are none (PUB-100).
	Disruptions disruption.Limits
	// Known is what earlier plans found out, nil for nothing. What this plan finds out replaces it.
	Known *Knowledge
	// CompletionError is why the API server did not complete templates, empty if it did (ADS-061).
	CompletionError string
	// Now is the time of the snapshot.
	Now time.Time
}

// Plan contains the decisions that are common to all kinds.
type Plan struct {
	// Limits are the numbers in the spec, resolved.
	Limits rollout.Limits
	// NewRevision must be written before anything else; nil if the template is already stored.
	NewRevision *appsv1.ControllerRevision
	// Templates must be completed before the plan can be made (ADS-061).
	Templates [][]byte
	// Renumber is a stored revision that becomes the update revision again, with the number in NewNumber
	// (CS-083).
	Renumber         *appsv1.ControllerRevision
	NewNumber        int64
	ClaimFingerprint string
	// Remembered are the annotations with which the revision in Renumber remembers the claim templates
	// (CS-336); nil if it does not remember them (ASTS-081).
	Remembered map[string]any
	// UpdateRevision and CurrentRevision are names of revisions (CS-086).
	UpdateRevision, CurrentRevision string
	// CollisionCount is the value for the status (CS-084).
	CollisionCount *int32
	// Verdicts has one entry for every owned pod, by name.
	Verdicts []*Verdict
	// Create are the pods to create.
	Create []Creation
	// Probing is true if creation failed a moment ago, and one pod is created to find out whether it works
	// again.
	Probing bool
	// ClaimLines describe what happens to claims.
	ClaimLines []wording.Line
	// History are the revisions to delete (CS-088).
	History []*appsv1.ControllerRevision
	// Pulls are the ImagePullJobs to create, EndedPulls those to delete (CS-201, CS-207).
	Pulls      []PullJob
	EndedPulls []*metav1.PartialObjectMetadata
	// RevisionLabels are changes to the labels of MarkedRevision, the update revision, once the jobs exist; a
	// nil value removes a label (CS-206).
	RevisionLabels map[string]any
	MarkedRevision *appsv1.ControllerRevision
	// ForeignImages are images that others wrote into pods, and that stay there (IPU-326).
	ForeignImages []ForeignImage
	// Sentences describe what was found and decided about the workload as a whole.
	Sentences []string
	// ScaleLimited describes how creation is limited, empty if it is not (CS-111).
	ScaleLimited string
	// ClaimsAwaited names the claims that new pods wait for, empty if they wait for none (CS-272).
	ClaimsAwaited string
	// UpdateError and ScaleError are problems that the user has to fix (CS-225, CS-096, IPU-173).
	UpdateError, ScaleError string
	// Waiting describes what holds up the rollout or the scaling without the user having asked for it; nil if
	// nothing does (OPS-099).
	Waiting *waiting.Wait
	// HeldByBudget is true if a budget holds some of the pods.
	HeldByBudget bool
	// After is when to plan again although nothing happened; 0 means not at all (CS-076).
	After time.Duration
}

// Shared returns the plan itself, for those who have the plan of a kind.
func (p *Plan) Shared() *Plan { return p }

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
	// Replace decides about a pod that is to be recreated at the update revision; unstored is as in
	// [Verdict]. If Replace is nil, the pod is marked for deletion, so that a new one can come first
	// (CS-126).
	Replace func(info *Pod, reason Reason, unstored, why string)
	// Images returns the images to pull ahead, by container, or the reason why none are. If Images is nil,
	// these are the images of updates in place.
	Images func() (images map[string]string, skip string)
	// Scaling is true if the plan creates or deletes pods, so that no update may start.
	Scaling bool

	// before is what earlier plans found out. kept is what this plan used of it, and what it found out
	// itself.
	before, kept *Knowledge
	// lacks is why templates that the plan needs are not completed.
	lacks error
	// contents holds what revisions contain; sources holds their templates, by name of the revision.
	contents map[*appsv1.ControllerRevision]*contents
	sources  map[string]map[string]any

	observed []Pod
	// revisions are those of the workload, foreign those of other owners.
	revisions, foreign []Revision
	// found and same are by label; same is for SameTemplate.
	found    map[string]*Revision
	verdicts map[*corev1.Pod]*Verdict
	modes    map[modeKey]Mode
	same     map[string]bool
	// decided are the verdicts that change pods and about which the budgets have not been asked yet, in the
	// order in which they were made. It is used only if there are budgets.
	decided []*Verdict
	// asked are the verdicts that the budgets allow.
	asked map[*Verdict]bool
	// probing is true if one pod tries whether updates in place are still refused.
	probing bool
	// unused is a patch that is still empty, for reuse.
	unused *podpatch.Patch
	// room is preallocated for further verdicts.
	room []Verdict
}

// New returns a Planner for a workload. It writes its decisions into out.
func New(of *Workload, in *Snapshot, out *Plan) *Planner {
	before, kept := in.Known.begin()
	return &Planner{
		Workload: of, in: in, out: out, before: before, kept: kept,
		contents: map[*appsv1.ControllerRevision]*contents{},
		sources:  map[string]map[string]any{},
		verdicts: make(map[*corev1.Pod]*Verdict, len(in.Pods)),
		modes:    map[modeKey]Mode{},
	}
}

// Verdict returns what was decided about a pod, nil if nothing was decided yet.
func (p *Planner) Verdict(pod *corev1.Pod) *Verdict { return p.verdicts[pod] }

// Conclude completes the plan with the verdicts, with what holds up the workload, and with when to plan
// again.
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
