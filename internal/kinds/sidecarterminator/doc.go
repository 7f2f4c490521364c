// Package sidecarterminator decides when the marked sidecars of a pod that runs to completion are stopped,
// and how, so that the pod ends with its main containers (JST-001). It has no API kind: variables in the
// containers ask for it.
//
// A [Snapshot] is the pod, what sort of node it is on, the requests that were made for it, and the time.
// [NewPlan] makes of it a [Plan]: at most one patch of images, one new ContainerRecreateRequest and one patch
// of the status, or the reason to wait. Nothing is remembered but what stands in the pod and in its requests,
// and when the manager saw a request end; so a manager may die between any two writes.
//
// # Ways
//
//   - Where there is a node daemon, a sidecar is stopped by a request for all that run. Sidecars whose exit
//     code counts are first.
//   - When these have ended, and there are others, whose exit code does not count, the pod gets its final
//     phase with condition SidecarTerminated. Kubelet stops what runs in a finished pod by itself, preStop
//     hooks included; a request for it comes only if it does not.
//   - On a virtual node, and where the daemon does not answer, the image of a sidecar that names one is
//     replaced by it.
//
// # Requests
//
// The name of a request holds the UID of the pod, the group of sidecars, and from the second one on its
// number (JST-032 to JST-034). The next one is made when one has ended and a sidecar still runs, after a
// pause that doubles. Requests go by their TTL, which is longer than the longest pause, so that the number is
// not lost. A request that has such a name and is not for the pod is somebody else's: it is told of, never
// written to, and its name is passed over.
//
// # Invariants
//
//   - Nothing is done while a main container runs, or is started again by kubelet.
//   - No two requests of a pod are under way.
//   - A sidecar whose exit code counts is never ended by a final phase.
//   - The world as it is at the end leads to an empty plan: nothing is written at rest.
package sidecarterminator
