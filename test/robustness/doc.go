// Command robustness plays rollouts on a local cluster while faults are injected, records what happened, and
// judges the record afterwards. docs/develop/robustness.md says how to run it and how to read what it prints.
//
// Its parts, in the order in which they are used:
//
//   - cluster starts, kills and pauses the programs of the local cluster and two managers, and watches etcd.
//   - proxy stands between each manager and the API server, and injects the faults of the network.
//   - faults chooses faults from a seed, and injects them.
//   - rollouts makes workloads of many kinds, and changes them from the same seed.
//   - record has the types of the record, and reads and writes it as JSON lines.
//   - judge decides from a record alone, without a cluster, which rules were violated.
package main
