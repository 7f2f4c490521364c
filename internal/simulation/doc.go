// Package simulation provides a cluster in memory: an API server with resource versions and conflicts, and
// kubelets that start, restart and crash containers.
//
// Tests of rollouts use it with faults: stale caches, requests that fail before or after they took effect,
// and a manager that dies between any two writes. All randomness comes from one seed, so that a failing run
// can be repeated.
//
// The kubectl plugin uses it without faults: internal/rehearsal predicts on it what the manager would do.
// Therefore it is part of a released program, and everything it imports is linked into that program.
package simulation
