// Package sidecarterminator decides when the marked sidecars of a pod that runs to completion are stopped,
// and how, so that the pod ends with its main containers (JST-001). It has no API kind: variables in the
// containers ask for it.
//
// A [Snapshot] is the pod, the sort of its node, the requests that were made for it, and the time. [NewPlan]
// returns a [Plan]: at most one patch of images, one new ContainerRecreateRequest and one patch of the
// status, or the reason to wait. The only state is in the pod and its requests, except when the manager saw a
// request end, so a manager may die between any two writes.
//
// # Ways
//
//   - On a node with a node daemon, one request stops all running sidecars. Sidecars whose exit code counts
//     come first.
//   - When these have ended and others remain, whose exit code does not count, the pod gets its final phase
//     with condition SidecarTerminated. Kubelet by itself stops what runs in a finished pod, preStop hooks
//     included; a request is made only if it does not.
//   - On a virtual node, and if the daemon does not answer, the image of a sidecar is replaced by the one
//     that the sidecar names, if it names one.
//
// # Requests
//
// The name of a request contains the UID of the pod, the group of sidecars, and its number from the second
// one on (JST-032 to JST-034). The next request is made when one has ended and a sidecar still runs, after a
// pause that doubles each time. Requests are deleted after their TTL, which is longer than the longest pause,
// so that the number is not lost. A request that has such a name but is not for the pod belongs to somebody
// else: there is a warning about it, it is never written to, and its name is skipped.
//
// # Invariants
//
//   - Nothing is done while a main container runs, or is restarted by kubelet.
//   - No two requests of a pod are active at the same time.
//   - A final phase never ends a sidecar whose exit code counts.
//   - The final state leads to an empty plan: nothing is written at rest.
package sidecarterminator
