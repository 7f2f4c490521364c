// Package statefulset has the rules of the Advanced StatefulSet: what is filled in, what is refused, and which ordinals get a pod. It is
// pure: it has no client, no context and no clock.
package statefulset
