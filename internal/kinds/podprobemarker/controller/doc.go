// Package controller carries out what is decided about PodProbeMarkers and NodePodProbes.
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-sidecarterminator-role,resources=containerrecreaterequests,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=podprobemarkers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=podprobemarkers/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=nodepodprobes,verbs=get;list;watch;create;patch;delete
package controller
