// Package podprobemarker decides what nodes probe and how the results change pods:
//
//   - [PlanNode] computes the list of a node's NodePodProbe from its pods and the PodProbeMarkers of their
//     namespaces, and patches of pods from the results in its status. It plans one whole node at a time, so
//     that probes that are no longer wanted disappear by themselves, and PodProbeMarkers do not overwrite
//     each other.
//   - [Validate] and [Default] validate and default PodProbeMarkers.
//   - [Travelling] returns the probes that a pod on a virtual node carries in its annotations, because no node
//     daemon runs there.
//
// Nothing here has a client, a context or a clock.
package podprobemarker
