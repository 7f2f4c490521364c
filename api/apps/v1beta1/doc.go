// Package v1beta1 holds the types of apps.kruise.io/v1beta1: the storage version, and the hub of conversion.
//
// +kubebuilder:object:generate=true
// +groupName=apps.kruise.io
package v1beta1
