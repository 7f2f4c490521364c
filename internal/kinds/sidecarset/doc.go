// Package sidecarset adds containers to pods and keeps their images current (kind SidecarSet).
//
// Two actors share this package. The pod webhook injects at creation what package inject makes of the SidecarSets chosen here. The
// controller follows the pods that were injected: a snapshot is read from the caches, a pure plan gives every pod a verdict, and apply
// carries it out with patches of images and annotations. Pods are never recreated, containers never added to running pods (SS-003).
//
// What a pod knows of its SidecarSets stands in its annotations alone (SS-004), see Records.
package sidecarset
