// Package controller carries out what is decided about PodProbeMarkers and NodePodProbes.
//
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=podprobemarkers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=podprobemarkers/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=nodepodprobes,verbs=get;list;watch;create;patch;delete
package controller
