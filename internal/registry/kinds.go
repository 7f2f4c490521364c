// Package registry lists the kinds that are built in. Their controllers, webhooks, conversions and caches are
// set up from this list (docs/develop/adding-a-kind.md).
package registry

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	advancedcronjobcontroller "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/controller"
	broadcastjobcontroller "github.com/afloat-project/afloat/internal/kinds/broadcastjob/controller"
	clonesetcontroller "github.com/afloat-project/afloat/internal/kinds/cloneset/controller"
	containerrecreatecontroller "github.com/afloat-project/afloat/internal/kinds/containerrecreate/controller"
	daemonsetcontroller "github.com/afloat-project/afloat/internal/kinds/daemonset/controller"
	ephemeraljobcontroller "github.com/afloat-project/afloat/internal/kinds/ephemeraljob/controller"
	imagepullcontroller "github.com/afloat-project/afloat/internal/kinds/imagepull/controller"
	persistentpodstatecontroller "github.com/afloat-project/afloat/internal/kinds/persistentpodstate/controller"
	podprobemarkercontroller "github.com/afloat-project/afloat/internal/kinds/podprobemarker/controller"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	resourcedistributioncontroller "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/controller"
	sidecarsetcontroller "github.com/afloat-project/afloat/internal/kinds/sidecarset/controller"
	statefulsetcontroller "github.com/afloat-project/afloat/internal/kinds/statefulset/controller"
	uniteddeploymentcontroller "github.com/afloat-project/afloat/internal/kinds/uniteddeployment/controller"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
)

// Kind is one kind with everything that is set up for it.
type Kind struct {
	framework.Kind
	// Setup adds its controller as soon as the kind, and the kinds of its group in With, are served. It is
	// nil if another kind's Setup does that.
	Setup func(context.Context, *Environment) error
	// Absent is called if these kinds are not served at the start, unless it is nil.
	Absent func(*Environment)
	// Rehearse makes passes without a cluster, to predict what they would do. It is nil if the kind does not
	// plan for pods.
	Rehearse Rehearsal
}

// Served returns the kinds, in the version that the controller reads, that must be served before it is set
// up.
func (k *Kind) Served() []schema.GroupVersionKind {
	served := []schema.GroupVersionKind{k.Stored()}
	for _, name := range k.With {
		other := Kinds[slices.IndexFunc(Kinds, func(o Kind) bool {
			return o.Group == k.Group && o.Name == name
		})]
		served = append(served, other.Stored())
	}
	return served
}

// Kinds lists all kinds that are built in. Their controllers are started in this order.
var Kinds = []Kind{
	{
		Kind:  containerrecreatecontroller.ContainerRecreateRequest,
		Setup: containerRecreateRequests,
	},
	{
		Kind:  imagepullcontroller.NodeImage,
		Setup: images,
	},
	{
		Kind: imagepullcontroller.ImagePullJob,
	},
	{
		Kind: imagepullcontroller.ImageListPullJob,
	},
	{
		Kind:  sidecarsetcontroller.SidecarSet,
		Setup: sidecarSets, Rehearse: rehearseSidecarSets,
		Absent: withoutSidecarSets,
	},
	{
		Kind:   workloadspreadcontroller.WorkloadSpread,
		Setup:  workloadSpreads,
		Absent: func(e *Environment) { e.Spreads.Absent() },
	},
	{
		Kind:  clonesetcontroller.CloneSet,
		Setup: cloneSets, Rehearse: rehearseCloneSets,
	},
	{
		Kind:  statefulsetcontroller.StatefulSet,
		Setup: statefulSets, Rehearse: rehearseStatefulSets,
	},
	{
		Kind:  daemonsetcontroller.DaemonSet,
		Setup: daemonSets, Rehearse: rehearseDaemonSets,
	},
	{
		Kind:  broadcastjobcontroller.BroadcastJob,
		Setup: broadcastJobs, Rehearse: rehearseBroadcastJobs,
	},
	{
		Kind:  advancedcronjobcontroller.AdvancedCronJob,
		Setup: advancedCronJobs,
	},
	{
		Kind:  ephemeraljobcontroller.EphemeralJob,
		Setup: ephemeralJobs,
	},
	{
		Kind:  podprobemarkercontroller.PodProbeMarker,
		Setup: podProbeMarkers,
	},
	{
		Kind: podprobemarkercontroller.NodePodProbe,
	},
	{
		Kind:  uniteddeploymentcontroller.UnitedDeployment,
		Setup: unitedDeployments,
	},
	{
		Kind:  resourcedistributioncontroller.ResourceDistribution,
		Setup: resourceDistributions,
	},
	{
		Kind:   persistentpodstatecontroller.PersistentPodState,
		Setup:  persistentPodStates,
		Absent: func(e *Environment) { e.States.Absent() },
	},
	{
		Kind:   podunavailablebudgetcontroller.PodUnavailableBudget,
		Setup:  podUnavailableBudgets,
		Absent: func(e *Environment) { e.Budgets.Absent() },
	},
}

// InUse returns the kinds that block the uninstallation while objects of them exist (OPS-116).
func InUse() []schema.GroupKind {
	var kinds []schema.GroupKind
	for i := range Kinds {
		if Kinds[i].Workload {
			kinds = append(kinds, schema.GroupKind{Group: Kinds[i].Group, Kind: Kinds[i].Name})
		}
	}
	return kinds
}

// ForUsers returns the kinds whose objects users may read, first those that own pods.
func ForUsers() []*Kind {
	var workloads, others []*Kind
	for i := range Kinds {
		switch kind := &Kinds[i]; {
		case kind.Access == framework.NotForUsers:
		case kind.Workload:
			workloads = append(workloads, kind)
		default:
			others = append(others, kind)
		}
	}
	return append(workloads, others...)
}

// Held returns the finalizers that only a manager removes, by kind. Those of Jobs are of runs that
// AdvancedCronJobs have started and not yet recorded. Who removes them needs the rights to get and patch.
func Held() map[schema.GroupKind]string {
	held := map[schema.GroupKind]string{{Group: "batch", Kind: "Job"}: pub.UnrecordedRun}
	for i := range Kinds {
		if kind := &Kinds[i]; kind.Finalizer != "" {
			held[schema.GroupKind{Group: kind.Group, Kind: kind.Name}] = kind.Finalizer
		}
	}
	return held
}

// Converted returns the names of all CustomResourceDefinitions with conversion.
func Converted() (names []string) {
	for i := range Kinds {
		if Kinds[i].Conversion != nil {
			names = append(names, Kinds[i].Definition())
		}
	}
	slices.Sort(names)
	return names
}

// The manager publishes its CA in the definitions of the kinds that it converts.
//
// +kubebuilder:rbac:groups=apiextensions.k8s.io,roleName=kruise-certs-role,resources=customresourcedefinitions,resourceNames=advancedcronjobs.apps.kruise.io;clonesets.apps.kruise.io;containerrecreaterequests.apps.kruise.io;daemonsets.apps.kruise.io;nodeimages.apps.kruise.io;persistentpodstates.apps.kruise.io;podunavailablebudgets.policy.kruise.io;resourcedistributions.apps.kruise.io;sidecarsets.apps.kruise.io;statefulsets.apps.kruise.io;uniteddeployments.apps.kruise.io;workloadspreads.apps.kruise.io,verbs=get;list;watch;patch

// Admitted returns the kinds in the form that the webhooks use.
func Admitted() []framework.Kind {
	kinds := make([]framework.Kind, len(Kinds))
	for i := range Kinds {
		kinds[i] = Kinds[i].Kind
	}
	return kinds
}
