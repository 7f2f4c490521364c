// Package controller drives SidecarSets: a pass takes a snapshot from the caches, has package sidecarset
// plan, applies the plan and writes the status. Package choose below it says what the webhook of pods
// injects.
package controller
