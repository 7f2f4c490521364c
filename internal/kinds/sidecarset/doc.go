// Package sidecarset adds containers to pods and keeps their images current (kind SidecarSet).
//
// Two actors use this package, which only makes decisions. The pod webhook adds containers when a pod is
// created: package choose selects the SidecarSets, and package inject computes what they add. The controller
// keeps injected pods current: it reads a snapshot from the caches, a pure plan gives every pod a verdict,
// and the controller carries out the verdicts with patches of images and annotations. Pods are never
// recreated, and containers are never added to running pods (SS-003).
//
// What a pod knows about its SidecarSets is only in its annotations (SS-004), see Records.
package sidecarset
