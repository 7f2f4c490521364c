// Package probe carries out the probes that the NodePodProbe of the node lists, and writes their results to
// its status.
//
// The schedule decides which probe is next, and prevents the probes of one namespace from delaying those of
// others. A prober computes the result from attempts, with thresholds as in kubelet. The controller watches
// the NodePodProbe and writes what has changed. Schedule, prober and status are plain values without clock
// and client.
package probe
