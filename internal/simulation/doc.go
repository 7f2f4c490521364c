// Package simulation is an in-memory cluster for tests of rollouts: an API server with versions and conflicts, caches that lag,
// requests that fail before or after they took effect, a manager that dies between any two writes, and kubelets that start,
// restart and crash containers. Everything random comes from one seed, so that a failing run can be repeated.
package simulation
