// Package simulation is a cluster in memory: an API server with versions and conflicts, and kubelets that
// start, restart and crash containers.
//
// Tests of rollouts use all of it, with faults: caches that lag, requests that fail before or after they took
// effect, and a manager that dies between any two writes. Everything random comes from one seed, so that a
// failing run can be repeated.
//
// The kubectl plugin uses it too, without faults: internal/rehearsal plays on it what the manager would do.
// So it is part of a shipped program, and what it imports is linked into that.
package simulation
