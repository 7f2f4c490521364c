// Package registry lists the kinds that are built. What runs them, admits them, converts them and caches for
// them goes through this list (docs/develop/adding-a-kind.md).
package registry

import (
	"context"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1alpha1 "github.com/afloat-project/afloat/api/policy/v1alpha1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// Kind is one kind, with all that drives it.
type Kind struct {
	admission.Kind
	// Controller names its controller in the flag --<controller>-workers; Workers is the default. Empty if
	// another kind's works for it.
	Controller string
	Workers    int
	// Setup adds its controller, as soon as the kind, and those of its group that are named in With, are
	// served; nil if another kind's does.
	Setup func(context.Context, *Environment) error
	With  []string
	// Absent, unless nil, is called if they are not served at the start.
	Absent func(*Environment)
	// Rehearse plays its passes without a cluster, for those who ask what they would do; nil if it plans
	// nothing about pods of others.
	Rehearse Rehearsal
	// Workload says that it owns pods: nothing is uninstalled while there are objects of it (OPS-116).
	Workload bool
	// Beside are kinds of which it reads objects in the install namespace, even where --namespace restricts
	// the caches.
	Beside []client.Object
}

// Served are the kinds that must be served before the controller is set up, in the version that it reads.
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

// Gates of the kinds that the node daemon works on (CRR-020, IMG-020, IMG-030, PPM-020).
var (
	ofDaemon   = admission.Gates{{features.KruiseDaemon}}
	ofPullJobs = admission.Gates{{features.KruiseDaemon}, {features.ImagePullJobGate}}
	ofProbes   = admission.Gates{{features.KruiseDaemon}, {features.PodProbeMarkerGate}}
)

// Groups of kinds.
var apps, policy = appsv1beta1.GroupVersion.Group, policyv1beta1.GroupVersion.Group

// Kinds are all kinds that are built. Their controllers start in this order.
var Kinds = []Kind{
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "ContainerRecreateRequest",
			Plural:   "containerrecreaterequests",
			Gates:    ofDaemon,
			Webhooks: admission.ContainerRecreateRequests,
			Conversion: admission.Between((*appsv1alpha1.ContainerRecreateRequest).ToV1beta1,
				appsv1alpha1.ContainerRecreateRequestFromV1beta1, nil),
		},
		Controller: "crr", Workers: 3, Setup: containerRecreateRequests,
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "NodeImage",
			Plural:   "nodeimages",
			Cluster:  true,
			Gates:    ofDaemon,
			Webhooks: admission.NodeImages,
			Conversion: admission.Between((*appsv1alpha1.NodeImage).ToV1beta1,
				appsv1alpha1.NodeImageFromV1beta1, nil),
		},
		Controller: "nodeimage", Workers: 3, Setup: images,
		With: []string{"ImagePullJob", "ImageListPullJob"},
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "ImagePullJob",
			Plural:   "imagepulljobs",
			Gates:    ofPullJobs,
			Webhooks: admission.ImagePullJobs,
		},
		Controller: "imagepulljob", Workers: 3,
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "ImageListPullJob",
			Plural:   "imagelistpulljobs",
			Gates:    ofPullJobs,
			Webhooks: admission.ImageListPullJobs,
		},
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "SidecarSet",
			Plural:   "sidecarsets",
			Cluster:  true,
			Webhooks: admission.SidecarSets,
			Conversion: admission.Between((*appsv1alpha1.SidecarSet).ToV1beta1,
				appsv1alpha1.SidecarSetFromV1beta1, nil),
		},
		Controller: "sidecarset", Workers: 3, Setup: sidecarSets, Absent: withoutSidecarSets,
		Rehearse: rehearseSidecarSets,
		Beside:   []client.Object{&appsv1.ControllerRevision{}}, // SS-183
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "WorkloadSpread",
			Plural:   "workloadspreads",
			Gates:    admission.Gates{{features.WorkloadSpread}},
			Webhooks: admission.WorkloadSpreads,
			Conversion: admission.Between((*appsv1alpha1.WorkloadSpread).ToV1beta1,
				appsv1alpha1.WorkloadSpreadFromV1beta1,
				admission.RenamedInWorkloadSpreads),
		},
		Controller: "workloadspread", Workers: 3, Setup: workloadSpreads, Absent: func(e *Environment) {
			e.Spreads.Absent()
		},
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "CloneSet",
			Plural:   "clonesets",
			Webhooks: admission.CloneSets,
			Conversion: admission.Between((*appsv1alpha1.CloneSet).ToV1beta1,
				appsv1alpha1.CloneSetFromV1beta1,
				admission.MovedInCloneSets),
		},
		// A worker waits while requests of its set are on the way; the server's priority and fairness bounds
		// them.
		Controller: "cloneset", Workers: 20, Setup: cloneSets, Rehearse: rehearseCloneSets, Workload: true,
	},
	{
		Kind: admission.Kind{
			Group:      apps,
			Name:       "StatefulSet",
			Plural:     "statefulsets",
			Webhooks:   admission.StatefulSets,
			Conversion: admission.StatefulSetConversion(),
		},
		Controller: "statefulset", Workers: 20, Setup: statefulSets, Rehearse: rehearseStatefulSets,
		Workload: true,
	},
	{
		Kind: admission.Kind{
			Group:      apps,
			Name:       "DaemonSet",
			Plural:     "daemonsets",
			Webhooks:   admission.DaemonSets,
			Conversion: admission.DaemonSetConversion(),
		},
		Controller: "daemonset", Workers: 20, Setup: daemonSets, Rehearse: rehearseDaemonSets, Workload: true,
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "BroadcastJob",
			Plural:   "broadcastjobs",
			Webhooks: admission.BroadcastJobs,
		},
		Controller: "broadcastjob", Workers: 3, Setup: broadcastJobs, Rehearse: rehearseBroadcastJobs,
		Workload: true,
	},
	{
		Kind: admission.Kind{
			Group:      apps,
			Name:       "AdvancedCronJob",
			Plural:     "advancedcronjobs",
			Webhooks:   admission.AdvancedCronJobs,
			Conversion: admission.AdvancedCronJobConversion(),
		},
		Controller: "advancedcronjob", Workers: 3, Setup: advancedCronJobs, Workload: true,
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "EphemeralJob",
			Plural:   "ephemeraljobs",
			Version:  appsv1alpha1.GroupVersion.Version,
			Webhooks: admission.EphemeralJobs,
		},
		Controller: "ephemeraljob", Workers: 10, Setup: ephemeralJobs,
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "PodProbeMarker",
			Plural:   "podprobemarkers",
			Version:  appsv1alpha1.GroupVersion.Version,
			Gates:    ofProbes,
			Webhooks: admission.PodProbeMarkers,
		},
		Controller: "podprobemarker", Workers: 3, Setup: podProbeMarkers, With: []string{"NodePodProbe"},
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "NodePodProbe",
			Plural:   "nodepodprobes",
			Version:  appsv1alpha1.GroupVersion.Version,
			Cluster:  true,
			Gates:    ofProbes,
			Webhooks: admission.NodePodProbes,
		},
		Controller: "nodepodprobe", Workers: 3,
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "UnitedDeployment",
			Plural:   "uniteddeployments",
			Webhooks: admission.UnitedDeployments,
			Conversion: admission.Between((*appsv1alpha1.UnitedDeployment).ToV1beta1,
				appsv1alpha1.UnitedDeploymentFromV1beta1, nil),
		},
		Controller: "uniteddeployment", Workers: 3, Setup: unitedDeployments, Workload: true,
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "ResourceDistribution",
			Plural:   "resourcedistributions",
			Cluster:  true,
			Gates:    admission.Gates{{features.ResourceDistributionGate}},
			Webhooks: admission.ResourceDistributions,
			Conversion: admission.Between((*appsv1alpha1.ResourceDistribution).ToV1beta1,
				appsv1alpha1.ResourceDistributionFromV1beta1,
				admission.RenamedInResourceDistributions),
		},
		// Not a workload: but while there are some, nothing is uninstalled either.
		Controller: "resourcedistribution", Workers: 3, Setup: resourceDistributions, Workload: true,
	},
	{
		Kind: admission.Kind{
			Group:    apps,
			Name:     "PersistentPodState",
			Plural:   "persistentpodstates",
			Webhooks: admission.PersistentPodStates,
			Conversion: admission.Between((*appsv1alpha1.PersistentPodState).ToV1beta1,
				appsv1alpha1.PersistentPodStateFromV1beta1,
				admission.RenamedInPersistentPodStates),
		},
		Controller: "persistentpodstate", Workers: 3, Setup: persistentPodStates,
		With:   []string{"StatefulSet"},
		Absent: func(e *Environment) { e.States.Absent() },
	},
	{
		Kind: admission.Kind{
			Group:  policy,
			Name:   "PodUnavailableBudget",
			Plural: "podunavailablebudgets",
			// PUB-016
			Gates: admission.Gates{{features.PodUnavailableBudgetDeleteGate,
				features.PodUnavailableBudgetUpdateGate}},
			OffCode:  http.StatusBadRequest,
			Webhooks: admission.PodUnavailableBudgets,
			Conversion: admission.Between((*policyv1alpha1.PodUnavailableBudget).ToV1beta1,
				policyv1alpha1.PodUnavailableBudgetFromV1beta1, nil),
		},
		Controller: "podunavailablebudget", Workers: 3, Setup: podUnavailableBudgets,
		Absent: func(e *Environment) {
			e.Budgets.Absent()
		},
	},
}

// InUse are the kinds while objects of which nothing is uninstalled (OPS-116).
func InUse() []schema.GroupKind {
	var kinds []schema.GroupKind
	for i := range Kinds {
		if Kinds[i].Workload {
			kinds = append(kinds, schema.GroupKind{Group: Kinds[i].Group, Kind: Kinds[i].Name})
		}
	}
	return kinds
}

// Converted are the names of all definitions that are converted.
func Converted() (names []string) {
	for i := range Kinds {
		if Kinds[i].Conversion != nil {
			names = append(names, Kinds[i].Definition())
		}
	}
	slices.Sort(names)
	return names
}

// The manager publishes its authority in the definitions of the kinds that it converts (OPS-080).
//
// +kubebuilder:rbac:groups=apiextensions.k8s.io,roleName=kruise-certs-role,resources=customresourcedefinitions,resourceNames=advancedcronjobs.apps.kruise.io;clonesets.apps.kruise.io;containerrecreaterequests.apps.kruise.io;daemonsets.apps.kruise.io;nodeimages.apps.kruise.io;persistentpodstates.apps.kruise.io;podunavailablebudgets.policy.kruise.io;resourcedistributions.apps.kruise.io;sidecarsets.apps.kruise.io;statefulsets.apps.kruise.io;uniteddeployments.apps.kruise.io;workloadspreads.apps.kruise.io,verbs=get;list;watch;patch

// Admitted are the kinds as the webhooks know them.
func Admitted() []admission.Kind {
	kinds := make([]admission.Kind, len(Kinds))
	for i := range Kinds {
		kinds[i] = Kinds[i].Kind
	}
	return kinds
}
