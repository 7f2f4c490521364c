// Package v1alpha1 holds the types of policy.kruise.io/v1alpha1, still served, and their conversion to and from v1beta1, the hub.
//
// +kubebuilder:object:generate=true
// +groupName=policy.kruise.io
package v1alpha1
