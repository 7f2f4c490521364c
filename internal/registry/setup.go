package registry

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/operation/containerrecreate"
	"github.com/afloat-project/afloat/internal/operation/imagepull"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/pods/sidecarset"
	"github.com/afloat-project/afloat/internal/pods/sidecarset/inject"
	"github.com/afloat-project/afloat/internal/pods/workloadspread"
	"github.com/afloat-project/afloat/internal/workload/cloneset"
)

// Environment is what the controllers of kinds are set up with.
type Environment struct {
	Manager ctrl.Manager
	Gates   *features.Gates
	Flags   Flags
	// Namespace is the install namespace, DaemonNamespace that of what node daemons read.
	Namespace, DaemonNamespace string
	// Workers are the numbers of workers by controller, Limiter makes the rate limiter of one.
	Workers map[string]*int
	Limiter func() workqueue.TypedRateLimiter[reconcile.Request]
	// Pods finds the pods of an owner.
	Pods *podindex.Index
	// Minor is the minor version of the API server, Resizes tells whether it has the subresource pods/resize, InPlace is what may change in place on it.
	Minor   uint
	Resizes func() (bool, error)
	InPlace inplace.Options
	// Sidecars chooses what SidecarSets give to pods, on every replica; nil without gate PodWebhook.
	Sidecars *inject.Watch
	Spreads  *Spreads
}

func containerRecreateRequests(ctx context.Context, e *Environment) error {
	return containerrecreate.Setup(ctx, e.Manager, containerrecreate.Options{Workers: *e.Workers["crr"], RateLimiter: e.Limiter()})
}

func images(ctx context.Context, e *Environment) error {
	return imagepull.Setup(ctx, e.Manager, imagepull.Options{
		NodeWorkers: *e.Workers["nodeimage"], JobWorkers: *e.Workers["imagepulljob"],
		CreationDelay: e.Flags.NodeImageDelay, ExtraTTL: time.Duration(e.Flags.NodeImageTTL) * time.Second,
		Namespace: e.DaemonNamespace, Jobs: e.Gates.Enabled(features.ImagePullJobGate), RateLimiter: e.Limiter,
	})
}

// sidecarSets follows SidecarSets on every replica, and adds their controller (SS-280).
func sidecarSets(ctx context.Context, e *Environment) error {
	resize := false
	if e.Gates.Enabled(features.InPlacePodVerticalScaling) {
		var err error
		if resize, err = e.Resizes(); err != nil {
			return err
		}
	}
	if e.Sidecars != nil {
		if err := e.Sidecars.Follow(ctx, e.Manager); err != nil {
			return err
		}
	}
	return sidecarset.Setup(e.Manager, sidecarset.Options{
		Features:    sidecarset.Features{NativeSidecars: e.Minor >= 29 && e.Gates.Enabled(features.SidecarSetInPlaceUpdateNativeSidecar), Resize: resize},
		Workers:     *e.Workers["sidecarset"],
		Pods:        e.Pods,
		RateLimiter: e.Limiter(),
		Namespace:   e.Namespace,
	})
}

func withoutSidecarSets(e *Environment) {
	if e.Sidecars != nil {
		e.Sidecars.Absent()
	}
}

// workloadSpreads follows WorkloadSpreads on every replica, and adds their controller.
func workloadSpreads(ctx context.Context, e *Environment) error {
	s := e.Spreads
	if err := s.Watch.Follow(ctx, e.Manager); err != nil {
		return err
	}
	return workloadspread.Setup(ctx, e.Manager, workloadspread.Options{Workers: *e.Workers["workloadspread"], RateLimiter: e.Limiter(), Pods: e.Pods,
		Workloads: s.Kinds, Booker: s.Watch.Booker, Versioned: s.Versioned, Window: e.Flags.UnschedulableWindow})
}

func withoutWorkloadSpreads(e *Environment) { e.Spreads.Watch.Absent() }

func cloneSets(ctx context.Context, e *Environment) error {
	return cloneset.Setup(ctx, e.Manager, cloneset.Options{
		Features: cloneset.Features{
			ShortHash:               e.Gates.Enabled(features.CloneSetShortHash),
			PartitionRollback:       e.Gates.Enabled(features.CloneSetPartitionRollback),
			RecreateOnClaimChange:   e.Gates.Enabled(features.RecreatePodWhenChangeVCTInCloneSetGate),
			PreparingUpdateAsUpdate: e.Gates.Enabled(features.PreparingUpdateAsUpdate),
			ExcludePreparingDelete:  e.Flags.ExcludePreparingDelete,
			InPlace:                 e.InPlace,
			DeferredResize:          e.Flags.DeferredResize,
			PreDownload:             e.Gates.Enabled(features.KruiseDaemon) && e.Gates.Enabled(features.PreDownloadImageForInPlaceUpdate),
		},
		Workers:     *e.Workers["cloneset"],
		Pods:        e.Pods,
		RateLimiter: e.Limiter(),
	})
}

// Spreads is what the webhooks and the controller of WorkloadSpreads have in common. All nil without the gate (WS-186, WS-187).
type Spreads struct {
	Listed    *workloadspread.Listed
	Kinds     *workloadspread.Kinds
	Watch     *workloadspread.Watch
	Versioned workloadspread.Versioned
}

// NewSpreads is for every replica; namespace is the install namespace.
func NewSpreads(ctx context.Context, mgr ctrl.Manager, flags *Flags, gates *features.Gates, namespace string) (*Spreads, error) {
	s := &Spreads{Versioned: workloadspread.ParseVersioned(flags.VersionedStatus)}
	if !gates.Enabled(features.WorkloadSpread) {
		return s, nil
	}
	var err error
	if s.Listed, err = workloadspread.NewListed(ctx, mgr, namespace); err != nil {
		return nil, err
	}
	s.Kinds = workloadspread.NewKinds(mgr, s.Listed.Kinds, s.Listed.Ready, s.Versioned)
	s.Watch = workloadspread.NewWatch(ctx, mgr, s.Kinds)
	s.Listed.WhenRead(s.Watch.FollowListed)
	return s, nil
}
