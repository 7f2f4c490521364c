// Package controller is the controller of SidecarSets. A pass takes a snapshot from the caches, lets package
// sidecarset make a plan, applies the plan and writes the status. The subpackage choose decides what the pod
// webhook injects.
package controller
