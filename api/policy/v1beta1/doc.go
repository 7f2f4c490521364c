// Package v1beta1 holds the types of policy.kruise.io/v1beta1: the storage version, and the hub of conversion.
//
// +kubebuilder:object:generate=true
// +groupName=policy.kruise.io
package v1beta1
