// Package controller drives CloneSets: a pass takes a snapshot from the caches, has package cloneset plan,
// applies the plan and writes the status, and the metrics tell of it.
package controller
