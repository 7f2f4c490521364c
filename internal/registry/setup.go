package registry

import (
	"context"
	"fmt"
	"time"

	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/featuregate"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/framework"
	advancedcronjobcontroller "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/controller"
	broadcastjobcontroller "github.com/afloat-project/afloat/internal/kinds/broadcastjob/controller"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	clonesetcontroller "github.com/afloat-project/afloat/internal/kinds/cloneset/controller"
	containerrecreatecontroller "github.com/afloat-project/afloat/internal/kinds/containerrecreate/controller"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	daemonsetcontroller "github.com/afloat-project/afloat/internal/kinds/daemonset/controller"
	ephemeraljobcontroller "github.com/afloat-project/afloat/internal/kinds/ephemeraljob/controller"
	imagepullcontroller "github.com/afloat-project/afloat/internal/kinds/imagepull/controller"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	persistentpodstatecontroller "github.com/afloat-project/afloat/internal/kinds/persistentpodstate/controller"
	podprobemarkercontroller "github.com/afloat-project/afloat/internal/kinds/podprobemarker/controller"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	resourcedistributioncontroller "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/controller"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	sidecarsetcontroller "github.com/afloat-project/afloat/internal/kinds/sidecarset/controller"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	statefulsetcontroller "github.com/afloat-project/afloat/internal/kinds/statefulset/controller"
	uniteddeploymentcontroller "github.com/afloat-project/afloat/internal/kinds/uniteddeployment/controller"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/platform/watches"
	sidecarterminatorcontroller "github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator/controller"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Environment is the environment in which the webhooks and controllers of kinds are set up.
type Environment struct {
	admission.Options
	Manager ctrl.Manager
	Flags   Flags
	// Workers holds the numbers of workers by controller. Limiter returns a rate limiter for a controller.
	Workers map[string]*int
	Limiter func() workqueue.TypedRateLimiter[ctrl.Request]
	// Watches follows the informers of the caches.
	Watches *watches.Watches
	// Pulse monitors whether the controllers work.
	Pulse *reconcile.Pulse
	// Flow bounds the tasks that controllers have in progress.
	Flow *reconcile.WriteLimiter
	// Index finds the pods of an owner.
	Index *podindex.Index
	// Resizes reports whether the gate is enabled and the API server has the subresource pods/resize.
	Resizes func(gate featuregate.Feature) (bool, error)
	// PullJobs holds the ImagePullJobs that the controllers of workloads read.
	PullJobs *podapply.PullJobs
	// Workloads reads the workloads of WorkloadSpreads. It is nil if their gate is disabled.
	Workloads *workloadspreadcontroller.Kinds
	// Remembered reads the workloads of PersistentPodStates.
	Remembered *persistentpodstatecontroller.Kinds
}

// controller returns the options that all controllers have. name is the name in the flag with the number of
// workers.
func (e *Environment) controller(name string) reconcile.Options {
	return reconcile.Options{
		Workers:     *e.Workers[name],
		RateLimiter: e.Limiter,
		Pods:        e.Index,
		Limit:       e.Flow,
		Guard:       e.guard(),
		Pulse:       e.Pulse,
	}
}

// guard returns the guard that decides whether pods may be taken out of service. It is nil if the gates of
// PodUnavailableBudgets are disabled.
func (e *Environment) guard() reconcile.Guard {
	if e.Budgets == nil {
		return nil
	}
	return e.Budgets.Guard
}

// containerRecreateRequests adds the controller of ContainerRecreateRequests and the sidecar terminator,
// which creates such requests.
func containerRecreateRequests(ctx context.Context, e *Environment) error {
	if err := containerrecreatecontroller.Setup(ctx, e.Manager, e.controller("crr")); err != nil {
		return err
	}
	if !terminatesSidecars(e.Gates) {
		return nil
	}
	return sidecarterminatorcontroller.Setup(ctx, e.Manager, e.controller(sidecarTerminator))
}

func ephemeralJobs(ctx context.Context, e *Environment) error {
	return ephemeraljobcontroller.Setup(ctx, e.Manager, e.controller("ephemeraljob"))
}

// terminatesSidecars reports whether the sidecar terminator is enabled.
func terminatesSidecars(gates *features.Gates) bool { return gates.Enabled(features.SidecarTerminator) }

func images(ctx context.Context, e *Environment) error {
	return imagepullcontroller.Setup(ctx, e.Manager, imagepullcontroller.Options{
		Options:       e.controller("nodeimage"),
		JobWorkers:    *e.Workers["imagepulljob"],
		CreationDelay: e.Flags.NodeImageDelay,
		ExtraTTL:      time.Duration(e.Flags.NodeImageTTL) * time.Second,
		Namespace:     e.DaemonNamespace,
		Jobs:          e.Gates.Enabled(features.ImagePullJobGate),
	})
}

// sidecarSets watches SidecarSets on every replica and adds their controller.
func sidecarSets(ctx context.Context, e *Environment) error {
	features, err := e.sidecarSetFeatures()
	if err != nil {
		return err
	}

	if e.Sidecars != nil {
		if err := e.Sidecars.Follow(ctx, e.Manager); err != nil {
			return err
		}
	}

	return sidecarsetcontroller.Setup(e.Manager, sidecarsetcontroller.Options{
		Features:  features,
		Options:   e.controller("sidecarset"),
		Namespace: e.Namespace,
	})
}

func (e *Environment) sidecarSetFeatures() (sidecarset.Features, error) {
	resize, err := e.Resizes(features.InPlacePodVerticalScaling)
	return sidecarset.Features{
		Resize:         resize,
		NativeSidecars: e.Minor >= 29 && e.Gates.Enabled(features.SidecarSetInPlaceUpdateNativeSidecar),
	}, err
}

func withoutSidecarSets(e *Environment) {
	if e.Sidecars != nil {
		e.Sidecars.Absent()
	}
}

// workloadSpreads watches WorkloadSpreads on every replica and adds their controller.
func workloadSpreads(ctx context.Context, e *Environment) error {
	if err := e.Spreads.Follow(ctx, e.Manager); err != nil {
		return err
	}
	return workloadspreadcontroller.Setup(ctx, e.Manager, workloadspreadcontroller.Options{
		Options:   e.controller("workloadspread"),
		Workloads: e.Workloads,
		Booker:    e.Spreads.Booker,
		Versioned: e.Versioned,
		Window:    e.UnschedulableWindow,
	})
}

// persistentPodStates watches PersistentPodStates on every replica and adds their controllers.
func persistentPodStates(ctx context.Context, e *Environment) error {
	if err := e.States.Follow(ctx, e.Manager); err != nil {
		return err
	}
	return persistentpodstatecontroller.Setup(ctx, e.Manager, persistentpodstatecontroller.Options{
		Options:   e.controller("persistentpodstate"),
		Workloads: e.Remembered,
		Cleanup:   e.Gates.Enabled(features.PersistentPodStateAutoCleanup),
	})
}

func cloneSets(ctx context.Context, e *Environment) error {
	return clonesetcontroller.Setup(ctx, e.Manager, clonesetcontroller.Options{
		Features: e.cloneSetFeatures(),
		Options:  e.controller("cloneset"),
		PullJobs: e.PullJobs,
	})
}

func (e *Environment) cloneSetFeatures() cloneset.Features {
	return cloneset.Features{
		ShortHash:               e.Gates.Enabled(features.CloneSetShortHash),
		PartitionRollback:       e.Gates.Enabled(features.CloneSetPartitionRollback),
		RecreateOnClaimChange:   e.Gates.Enabled(features.RecreatePodWhenChangeVCTInCloneSetGate),
		PreparingUpdateAsUpdate: e.Gates.Enabled(features.PreparingUpdateAsUpdate),
		ExcludePreparingDelete:  e.Flags.ExcludePreparingDelete,
		InPlace:                 e.InPlace,
		DeferredResize:          e.Flags.DeferredResize,
		PreDownload: e.Gates.Enabled(features.KruiseDaemon) &&
			e.Gates.Enabled(features.PreDownloadImageForInPlaceUpdate),
	}
}

func statefulSets(ctx context.Context, e *Environment) error {
	return statefulsetcontroller.Setup(ctx, e.Manager, statefulsetcontroller.Options{
		Features: e.statefulSetFeatures(),
		Options:  e.controller("statefulset"),
		PullJobs: e.PullJobs,
	})
}

func (e *Environment) statefulSetFeatures() statefulset.Features {
	return statefulset.Features{
		StartOrdinal:   e.Gates.Enabled(features.StatefulSetStartOrdinal),
		PodIndexLabel:  e.Gates.Enabled(features.PodIndexLabel),
		DeleteClaims:   e.Gates.Enabled(features.StatefulSetAutoDeletePVC),
		ResizeClaims:   e.Gates.Enabled(features.StatefulSetAutoResizePVCGate),
		InPlace:        e.InPlace,
		DeferredResize: e.Flags.DeferredResize,
		PreDownload: e.Gates.Enabled(features.KruiseDaemon) &&
			e.Gates.Enabled(features.PreDownloadImageForInPlaceUpdate),
	}
}

func daemonSets(ctx context.Context, e *Environment) error {
	kube, err := typedcorev1.NewForConfigAndClient(e.Manager.GetConfig(), e.Manager.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client that completes templates: %w", err)
	}
	return daemonsetcontroller.Setup(ctx, e.Manager, daemonsetcontroller.Options{
		Features: e.daemonSetFeatures(),
		Options:  e.controller("daemonset"),
		PullJobs: e.PullJobs,
		CompleteTemplate: framework.CompleteTemplate(
			framework.NewTemplateValidator(kube.RESTClient())),
	})
}

func podProbeMarkers(ctx context.Context, e *Environment) error {
	return podprobemarkercontroller.Setup(ctx, e.Manager, podprobemarkercontroller.Options{
		Options:     e.controller("podprobemarker"),
		NodeWorkers: *e.Workers["nodepodprobe"],
		Serverless:  e.Gates.Enabled(features.EnablePodProbeMarkerOnServerless),
		Liveness:    e.Gates.Enabled(features.EnhancedLivenessProbe),
	})
}

func advancedCronJobs(ctx context.Context, e *Environment) error {
	return advancedcronjobcontroller.Setup(ctx, e.Manager, e.controller("advancedcronjob"))
}

func unitedDeployments(ctx context.Context, e *Environment) error {
	return uniteddeploymentcontroller.Setup(ctx, e.Manager, e.controller("uniteddeployment"))
}

func resourceDistributions(_ context.Context, e *Environment) error {
	return resourcedistributioncontroller.Setup(e.Manager, e.controller("resourcedistribution"), e.Namespace,
		e.DaemonNamespace)
}

func (e *Environment) daemonSetFeatures() daemonset.Features {
	return daemonset.Features{
		PruneIneligible: e.Gates.Enabled(features.DaemonSetPruneIneligibleNodes),
		Binds:           !e.Flags.AssignByScheduler,
		InPlace:         e.InPlace,
		DeferredResize:  e.Flags.DeferredResize,
		PreDownload: e.Gates.Enabled(features.KruiseDaemon) &&
			e.Gates.Enabled(features.PreDownloadImageForDaemonSetUpdate),
	}
}

func broadcastJobs(ctx context.Context, e *Environment) error {
	return broadcastjobcontroller.Setup(ctx, e.Manager, broadcastjobcontroller.Options{
		Options: e.controller("broadcastjob"),
		Binds:   !e.Flags.AssignJobsByScheduler,
	})
}

// FollowSpreads sets what the webhooks and the controller of WorkloadSpreads share, on every replica. It sets
// nothing if the gate is disabled (WS-186, WS-187).
func (e *Environment) FollowSpreads(ctx context.Context) error {
	e.Versioned = workloadspread.ParseVersioned(e.Flags.VersionedStatus)
	if !e.Gates.Enabled(features.WorkloadSpread) {
		return nil
	}
	e.Listed = workloadspreadcontroller.NewListed(workloadspread.AllowListKey,
		e.Manager.GetLogger().WithName("workloadspread"))
	e.Workloads = workloadspreadcontroller.NewKinds(e.Manager, e.Listed.Kinds, e.Listed.Ready, e.Versioned)
	e.Spreads = workloadspreadcontroller.NewWatch(ctx, e.Manager, e.Workloads)
	e.Listed.WhenRead(e.Spreads.FollowListed)
	return nil
}

// FollowStates sets what the webhooks and the controller of PersistentPodStates share, on every replica. It
// must be called after FollowSpreads.
func (e *Environment) FollowStates(ctx context.Context) error {
	e.ListedForStates = workloadspreadcontroller.NewListed(persistentpodstate.AllowListKey,
		e.Manager.GetLogger().WithName("persistentpodstate"))
	e.States = persistentpodstatecontroller.NewWatch(e.Manager, e.ListedForStates.Kinds,
		e.ListedForStates.Ready)
	e.Remembered = persistentpodstatecontroller.NewKinds(e.Manager, e.ListedForStates.Kinds,
		e.ListedForStates.Ready, e.Gates.Enabled(features.StatefulSetStartOrdinal))
	e.ListedForStates.WhenRead(e.Remembered.Relisted)

	lists := []*workloadspreadcontroller.Listed{e.ListedForStates}
	if e.Listed != nil {
		lists = append(lists, e.Listed)
	}

	return workloadspreadcontroller.FollowLists(ctx, e.Manager, e.Namespace,
		e.Watches.Following(nil), lists...)
}

// FollowBudgets sets what the webhooks and all controllers that take pods out of service share, on every
// replica. It sets nothing if the gates are disabled (PUB-016).
func (e *Environment) FollowBudgets() error {
	options, err := e.budgetOptions()
	if options.Deletes || options.Updates {
		e.Budgets = podunavailablebudgetcontroller.NewWatch(e.Manager, options)
	}
	return err
}

// budgetOptions returns which operations PodUnavailableBudgets apply to.
func (e *Environment) budgetOptions() (options podunavailablebudget.Options, err error) {
	options.Deletes, options.Updates = e.Gates.Enabled(features.PodUnavailableBudgetDeleteGate),
		e.Gates.Enabled(features.PodUnavailableBudgetUpdateGate)
	if options.Deletes || options.Updates {
		options.Resizes, err = e.Resizes(features.InPlacePodVerticalScaling)
	}
	return options, err
}

// podUnavailableBudgets watches budgets, and those of Kubernetes, on every replica and adds the controller
// that counts their pods.
func podUnavailableBudgets(ctx context.Context, e *Environment) error {
	if err := e.Budgets.Follow(ctx, e.Manager); err != nil {
		return err
	}
	if err := e.FollowDisruptionBudgets(ctx, e.Manager.GetCache()); err != nil {
		return err
	}
	return podunavailablebudgetcontroller.Setup(e.Manager, e.Budgets, e.controller("podunavailablebudget"))
}
