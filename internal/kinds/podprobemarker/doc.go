// Package podprobemarker decides what nodes are to probe, and what pods get of the results:
//
//   - [PlanNode] makes the list of a node's NodePodProbe from its pods and the PodProbeMarkers of their
//     namespaces, and patches of pods from the results in its status. One node is planned at a time, whole,
//     so that probes that are not wanted any more go by themselves, and no two PodProbeMarkers write over
//     each other.
//   - [Validate] and [Default] judge and complete PodProbeMarkers.
//   - [Travelling] is what a pod on a virtual node carries along, where no daemon of ours is.
//
// Nothing here has a client, a context or a clock.
package podprobemarker
