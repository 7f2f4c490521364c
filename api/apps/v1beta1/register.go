package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is apps.kruise.io/v1beta1.
var GroupVersion = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1beta1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &AdvancedCronJob{}, &AdvancedCronJobList{}, &BroadcastJob{}, &BroadcastJobList{}, &CloneSet{}, &CloneSetList{},
		&ContainerRecreateRequest{}, &ContainerRecreateRequestList{}, &DaemonSet{}, &DaemonSetList{},
		&ImageListPullJob{}, &ImageListPullJobList{}, &ImagePullJob{}, &ImagePullJobList{}, &NodeImage{}, &NodeImageList{},
		&PersistentPodState{}, &PersistentPodStateList{}, &ResourceDistribution{}, &ResourceDistributionList{}, &SidecarSet{}, &SidecarSetList{}, &StatefulSet{}, &StatefulSetList{},
		&UnitedDeployment{}, &UnitedDeploymentList{}, &WorkloadSpread{}, &WorkloadSpreadList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
