// Package registry lists the kinds that are built in. Their controllers, webhooks, conversions and caches are
// set up from this list (docs/develop/adding-a-kind.md).
package registry

import (
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

// Served returns the kinds, in the version that the controller reads, that must be served before it is set
// up.
func Served(k *framework.Kind) []schema.GroupVersionKind {
	served := []schema.GroupVersionKind{k.Stored()}
	for _, name := range k.With {
		other := Kinds[slices.IndexFunc(Kinds, func(o framework.Kind) bool {
			return o.Group == k.Group && o.Name == name
		})]
		served = append(served, other.Stored())
	}
	return served
}

// Kinds lists all kinds that are built in. They are prepared and set up in this order: PersistentPodState follows
// the list of kinds of WorkloadSpreads, too, and comes after it.
var Kinds = []framework.Kind{
	containerrecreatecontroller.ContainerRecreateRequest,
	imagepullcontroller.NodeImage,
	imagepullcontroller.ImagePullJob,
	imagepullcontroller.ImageListPullJob,
	sidecarsetcontroller.SidecarSet,
	workloadspreadcontroller.WorkloadSpread,
	clonesetcontroller.CloneSet,
	statefulsetcontroller.StatefulSet,
	daemonsetcontroller.DaemonSet,
	broadcastjobcontroller.BroadcastJob,
	advancedcronjobcontroller.AdvancedCronJob,
	ephemeraljobcontroller.EphemeralJob,
	podprobemarkercontroller.PodProbeMarker,
	podprobemarkercontroller.NodePodProbe,
	uniteddeploymentcontroller.UnitedDeployment,
	resourcedistributioncontroller.ResourceDistribution,
	persistentpodstatecontroller.PersistentPodState,
	podunavailablebudgetcontroller.PodUnavailableBudget,
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
func ForUsers() []*framework.Kind {
	var workloads, others []*framework.Kind
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
