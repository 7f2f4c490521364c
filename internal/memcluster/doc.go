// Package memcluster provides a cluster in memory: an API server with resource versions and conflicts, the
// caches of a manager, and kubelets that start, restart and resize containers.
//
// The kubectl plugin is built on it: internal/rehearsal predicts there what the manager would do. Therefore
// everything that it imports is linked into a released program. Tests of rollouts use it through
// internal/simulation, which adds faults.
package memcluster
