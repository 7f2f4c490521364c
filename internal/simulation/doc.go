// Package simulation plays managers against a cluster in memory (internal/memcluster) with faults: stale
// caches, requests that fail before or after they took effect, and a manager that dies between any two
// writes. All randomness comes from one seed, so that a failing run can be repeated.
//
// Only tests import it.
package simulation
