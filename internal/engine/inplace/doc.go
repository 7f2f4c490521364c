// Package inplace changes a running pod to another revision of its template without deleting it.
//
// It answers four questions with pure functions:
//
//   - [Compare]: what differs between two templates, and can every difference be applied in place? (IPU-030
//     to 042)
//   - [Update.Start]: which patches start the update of this pod? The first one changes the status and takes
//     the pod out of service. The second one changes the pod: revision labels, state annotation, metadata and
//     images (IPU-080 to 087). With a grace period it stores the content in an annotation instead (IPU-106).
//   - [Progress]: how far is a pod, and what is it waiting for? (IPU-107, IPU-121 to 127, IPU-300, IPU-328)
//   - [Continue]: which patch writes the content when the grace period is over? (IPU-107)
//
// All that must be remembered is stored on the pod (IPU-003). So the manager may die between any two writes:
// the next plan continues from the state of the pod.
package inplace
