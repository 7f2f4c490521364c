// Package probe carries out the probes that the NodePodProbe of the node lists, and writes their results into
// its status.
//
// The schedule says which probe is next and keeps what one namespace asks for from the others; a prober turns
// attempts into a result as kubelet does, with thresholds; the controller follows the NodePodProbe and writes
// what has changed. Schedule, prober and status are plain values without clock and client.
package probe
