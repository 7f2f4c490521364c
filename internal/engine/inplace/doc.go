// Package inplace changes a running pod to another revision of its template without deleting it.
//
// It answers four questions, all of them pure:
//
//   - [Compare]: what differs between two templates, and does every difference qualify? (IPU-030 to 042)
//   - [Start]: which patches begin the update of this pod? First one of the status that takes it out of
//     service, then one of the pod with revision labels, state annotation, metadata and images (IPU-080 to
//     087). With a grace period the second one stores the content in an annotation instead (IPU-106).
//   - [Progress]: how far is a pod, and what is it waiting for? (IPU-107, IPU-121 to 127, IPU-300, IPU-328)
//   - [Continue]: which patch writes the content when its grace period is over? (IPU-107)
//
// All that must be remembered is kept on the pod (IPU-003). So the manager may die between any two writes:
// the next plan goes on from what the pod says.
package inplace
