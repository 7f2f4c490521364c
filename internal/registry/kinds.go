// Package registry lists the kinds that are built in. Their controllers, webhooks, conversions and caches are
// set up from this list (docs/develop/adding-a-kind.md).
package registry

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// Controller is the name of its controller in the flag --<controller>-workers, and Workers is the default
	// of the flag. Controller is empty if the controller of another kind handles it.
	Controller string
	Workers    int
	// Setup adds its controller as soon as the kind, and the kinds of its group in With, are served. It is
	// nil if another kind's Setup does that.
	Setup func(context.Context, *Environment) error
	With  []string
	// Absent is called if these kinds are not served at the start, unless it is nil.
	Absent func(*Environment)
	// Rehearse makes passes without a cluster, to predict what they would do. It is nil if the kind does not
	// plan for pods.
	Rehearse Rehearsal
	// Workload means that it owns pods, so that nothing is uninstalled while objects of it exist (OPS-116).
	Workload bool
	// Access is what the shipped roles let users do with its objects.
	Access Access
	// Finalizer is a finalizer that only the manager removes from its objects, so that an uninstallation must.
	Finalizer string
	// Beside lists kinds whose objects its controller reads in the install namespace, even if --namespace
	// restricts the caches.
	Beside []client.Object
}

// Access is what users with the roles view, edit and admin of Kubernetes may do with the objects of a kind
// (OPS-084).
type Access int

const (
	// NotForUsers is for objects that the manager makes itself.
	NotForUsers Access = iota
	// View is for objects that everybody may read, while writing them needs a role of its own: they change pods
	// in other namespaces, or run code in pods.
	View
	// Edit is for objects that whoever may edit workloads may write.
	Edit
	// Administer is for objects that may hold Secrets: only the role admin may read and write them.
	Administer
)

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
		Kind:       containerrecreatecontroller.ContainerRecreateRequest,
		Controller: "crr", Workers: 3, Setup: containerRecreateRequests,
		Access:    Edit,
		Finalizer: pub.RecreateUnreadyAcquired,
	},
	{
		Kind:       imagepullcontroller.NodeImage,
		Controller: "nodeimage", Workers: 3, Setup: images,
		With: []string{"ImagePullJob", "ImageListPullJob"},
	},
	{
		Kind:       imagepullcontroller.ImagePullJob,
		Controller: "imagepulljob", Workers: 3,
		Access:    Edit,
		Finalizer: pub.PullJobProtection,
	},
	{
		Kind:      imagepullcontroller.ImageListPullJob,
		Access:    Edit,
		Finalizer: pub.UnrecordedRun,
	},
	{
		Kind:       sidecarsetcontroller.SidecarSet,
		Controller: "sidecarset", Workers: 3, Setup: sidecarSets, Absent: withoutSidecarSets,
		Rehearse: rehearseSidecarSets,
		Beside:   []client.Object{&appsv1.ControllerRevision{}},
		Access:   View,
	},
	{
		Kind:       workloadspreadcontroller.WorkloadSpread,
		Controller: "workloadspread", Workers: 3, Setup: workloadSpreads,
		Absent: func(e *Environment) { e.Spreads.Absent() },
		Access: Edit,
	},
	{
		Kind: clonesetcontroller.CloneSet,
		// A worker waits while requests of its set are in flight. The priority and fairness of the API server
		// limits them.
		Controller: "cloneset", Workers: 20, Setup: cloneSets, Rehearse: rehearseCloneSets, Workload: true,
		Access: Edit,
	},
	{
		Kind:       statefulsetcontroller.StatefulSet,
		Controller: "statefulset", Workers: 20, Setup: statefulSets, Rehearse: rehearseStatefulSets,
		Workload: true,
		Access:   Edit,
	},
	{
		Kind:       daemonsetcontroller.DaemonSet,
		Controller: "daemonset", Workers: 20, Setup: daemonSets, Rehearse: rehearseDaemonSets, Workload: true,
		Access: Edit,
	},
	{
		Kind:       broadcastjobcontroller.BroadcastJob,
		Controller: "broadcastjob", Workers: 3, Setup: broadcastJobs, Rehearse: rehearseBroadcastJobs,
		Workload:  true,
		Access:    Edit,
		Finalizer: pub.UnrecordedRun,
	},
	{
		Kind:       advancedcronjobcontroller.AdvancedCronJob,
		Controller: "advancedcronjob", Workers: 3, Setup: advancedCronJobs, Workload: true,
		Access: Edit,
	},
	{
		Kind:       ephemeraljobcontroller.EphemeralJob,
		Controller: "ephemeraljob", Workers: 10, Setup: ephemeralJobs,
		Access:    View,
		Finalizer: pub.EphemeralContainersCleanup,
	},
	{
		Kind:       podprobemarkercontroller.PodProbeMarker,
		Controller: "podprobemarker", Workers: 3, Setup: podProbeMarkers, With: []string{"NodePodProbe"},
		Access:    Edit,
		Finalizer: pub.ProbeCleanup,
	},
	{
		Kind:       podprobemarkercontroller.NodePodProbe,
		Controller: "nodepodprobe", Workers: 3,
	},
	{
		Kind:       uniteddeploymentcontroller.UnitedDeployment,
		Controller: "uniteddeployment", Workers: 3, Setup: unitedDeployments, Workload: true,
		Access: Edit,
	},
	{
		Kind: resourcedistributioncontroller.ResourceDistribution,
		// This is not a workload, but nothing is uninstalled while objects of it exist.
		Controller: "resourcedistribution", Workers: 3, Setup: resourceDistributions, Workload: true,
		Access: Administer,
	},
	{
		Kind:       persistentpodstatecontroller.PersistentPodState,
		Controller: "persistentpodstate", Workers: 3, Setup: persistentPodStates,
		With:   []string{"StatefulSet"},
		Absent: func(e *Environment) { e.States.Absent() },
		Access: Edit,
	},
	{
		Kind:       podunavailablebudgetcontroller.PodUnavailableBudget,
		Controller: "podunavailablebudget", Workers: 3, Setup: podUnavailableBudgets,
		Absent: func(e *Environment) { e.Budgets.Absent() },
		Access: Edit,
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
		case kind.Access == NotForUsers:
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
