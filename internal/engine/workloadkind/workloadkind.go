// Package workloadkind is the table of the kinds whose objects have pods. It says how objects of each kind
// are read, where they have their pod templates and the field that pauses them, and who controls their pods.
package workloadkind

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// The kinds of Kubernetes, and those of this project.
var (
	Deployment            = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	ReplicaSet            = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	StatefulSet           = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	DaemonSet             = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	ReplicationController = schema.GroupKind{Group: "", Kind: "ReplicationController"}
	Job                   = schema.GroupKind{Group: "batch", Kind: "Job"}
	CronJob               = schema.GroupKind{Group: "batch", Kind: "CronJob"}

	CloneSet            = schema.GroupKind{Group: appsv1beta1.GroupVersion.Group, Kind: "CloneSet"}
	AdvancedStatefulSet = schema.GroupKind{Group: appsv1beta1.GroupVersion.Group, Kind: "StatefulSet"}
	AdvancedDaemonSet   = schema.GroupKind{Group: appsv1beta1.GroupVersion.Group, Kind: "DaemonSet"}
	BroadcastJob        = schema.GroupKind{Group: appsv1beta1.GroupVersion.Group, Kind: "BroadcastJob"}
	UnitedDeployment    = schema.GroupKind{Group: appsv1beta1.GroupVersion.Group, Kind: "UnitedDeployment"}
	AdvancedCronJob     = schema.GroupKind{Group: appsv1beta1.GroupVersion.Group, Kind: "AdvancedCronJob"}
)

// Kind describes a kind of workloads. The zero value describes a kind of which nothing is known.
type Kind struct {
	schema.GroupKind
	// Version is the version in which controllers read objects of the kind.
	Version string
	// New returns an empty object. It is nil for kinds whose objects StateOf does not read.
	New func() Object
	// Ordinals means that its pods are named by ordinals.
	Ordinals bool
	// InPlace means that its controller updates pods in place, and opens their readiness gates in a write
	// that it makes anyway.
	InPlace bool
	// Schedule means that its objects have no pods but those of the jobs that they create from time to time.
	Schedule bool
	// Children lists the kinds of objects between its objects and their pods. It is empty if its objects
	// control pods themselves.
	Children []schema.GroupKind
	// Templates are the paths at which its objects may have pod templates.
	Templates []Path
	// Paused is the path of the field that pauses an object, or nil if it cannot be paused. PausedV1alpha1 is
	// that of version v1alpha1, if it is another one.
	Paused, PausedV1alpha1 Path
}

// Object is an object that clients can read.
type Object interface {
	metav1.Object
	runtime.Object
}

// Path is the path of a field in a document.
type Path []string

// Child returns the path of a field below this one.
func (p Path) Child(names ...string) Path { return append(p[:len(p):len(p)], names...) }

// GroupVersionKind returns the kind in the version in which controllers read it.
func (k Kind) GroupVersionKind() schema.GroupVersionKind { return k.WithVersion(k.Version) }

// Of returns what is known of a kind.
func Of(kind schema.GroupKind) Kind { return kinds[kind] }

var (
	template = Path{"spec", "template"}
	paused   = Path{"spec", "paused"}
	update   = Path{"spec", "updateStrategy"}
	rolling  = update.Child("rollingUpdate", "paused")
)

// kinds is the table. Adding a kind takes an entry here (docs/develop/adding-a-kind.md).
var kinds = byKind([]Kind{
	{
		GroupKind: Deployment, Version: "v1", New: func() Object { return &appsv1.Deployment{} },
		Children: []schema.GroupKind{ReplicaSet}, Templates: []Path{template}, Paused: paused,
	},
	{
		GroupKind: ReplicaSet, Version: "v1", New: func() Object { return &appsv1.ReplicaSet{} },
		Templates: []Path{template},
	},
	{
		GroupKind: StatefulSet, Version: "v1", New: func() Object { return &appsv1.StatefulSet{} },
		Ordinals: true, Templates: []Path{template},
	},
	{GroupKind: DaemonSet, Version: "v1", Templates: []Path{template}},
	{GroupKind: ReplicationController, Version: "v1", Templates: []Path{template}},
	{
		GroupKind: Job, Version: "v1", New: func() Object { return &batchv1.Job{} },
		Templates: []Path{template},
	},
	{
		GroupKind: CronJob, Version: "v1", Schedule: true, Children: []schema.GroupKind{Job},
		Templates: []Path{{"spec", "jobTemplate", "spec", "template"}},
	},
	{
		GroupKind: CloneSet, Version: "v1beta1", New: func() Object { return &appsv1beta1.CloneSet{} },
		InPlace: true, Templates: []Path{template}, Paused: rolling, PausedV1alpha1: update.Child("paused"),
	},
	{
		GroupKind: AdvancedStatefulSet, Version: "v1beta1",
		New:      func() Object { return &appsv1beta1.StatefulSet{} },
		Ordinals: true, InPlace: true, Templates: []Path{template}, Paused: rolling,
	},
	{
		GroupKind: AdvancedDaemonSet, Version: "v1beta1", InPlace: true, Templates: []Path{template},
		Paused: rolling,
	},
	{GroupKind: BroadcastJob, Version: "v1beta1", Templates: []Path{template}, Paused: paused},
	{
		GroupKind: UnitedDeployment, Version: "v1beta1",
		Children: []schema.GroupKind{StatefulSet, AdvancedStatefulSet, CloneSet, Deployment},
		Templates: []Path{
			within("cloneSetTemplate"), within("advancedStatefulSetTemplate"), within("statefulSetTemplate"),
			within("deploymentTemplate"),
		},
	},
	{
		GroupKind: AdvancedCronJob, Version: "v1beta1", Schedule: true,
		Children:  []schema.GroupKind{Job, BroadcastJob},
		Templates: []Path{within("jobTemplate"), within("broadcastJobTemplate")}, Paused: paused,
	},
})

// within returns the path of the pod template inside a template of workloads.
func within(workload string) Path { return template.Child(workload, "spec", "template") }

func byKind(list []Kind) map[schema.GroupKind]Kind {
	table := make(map[schema.GroupKind]Kind, len(list))
	for _, kind := range list {
		table[kind.GroupKind] = kind
	}
	return table
}
