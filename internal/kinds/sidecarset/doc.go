// Package sidecarset adds containers to pods and keeps their images current (kind SidecarSet).
//
// Two actors share this package, which only decides. The pod webhook injects at creation what package inject
// makes of the SidecarSets that package choose has found. The controller follows the pods that were injected:
// it reads a snapshot from the caches, the pure plan made here gives every pod a verdict, and the controller
// carries that out with patches of images and annotations. Pods are never recreated, containers never added
// to running pods (SS-003).
//
// What a pod knows of its SidecarSets stands in its annotations alone (SS-004), see Records.
package sidecarset
