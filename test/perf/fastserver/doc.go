// Package fastserver is an API server for benchmarks: it keeps objects in memory, sends watches, answers
// every request after a fixed short time and costs next to no CPU. What is measured on it is the client
// alone.
//
// It is no test double of an API server: it accepts everything that it can decode, calls no webhooks, sets no
// defaults, keeps no managed fields, collects no garbage and lets everybody do everything. What clients rely
// on when they write works as in the real one: versions and UIDs guard writes, a write that changes nothing
// makes no version, subresources change their part only, deletions respect preconditions, grace and
// finalizers, and watches go on from a version without gaps. internal/memcluster/rules has these rules.
//
// Simulated kubelets bind and start pods, restart containers whose image changes, and keep the condition
// Ready true to containers and readiness gates; see [Kubelets].
package fastserver
