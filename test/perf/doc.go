// Command perf measures a manager on a real control plane with simulated nodes: how fast it brings pods where
// they should be, what it writes for that, and what it costs in CPU and memory. Beside every measurement it
// measures the ceiling: a client that does nothing but the writes that cannot be avoided, on the same
// cluster.
//
// Nothing here is a test of time. A scenario that misses a target says so in its report; a scenario that
// breaks (pods not updated, pods replaced instead of updated in place, budget violated) ends with an error.
//
// `make perf` runs it by perf.sh, which makes the cluster. What it needs is in the environment:
//
//	KUBECONFIG     the cluster
//	AUDIT_LOG      the file to which the API server writes every write
//	CLUSTER        its name
//	PERF_RUN       command that starts a program beside the cluster: afloat-cluster run
//	PERF_BINARY    the manager that scenario fast, which needs no cluster, runs by itself (bin/manager); all others run PERF_MANAGER
//	PERF_DELAY     after what time the API server of scenario fast answers (1ms)
//	PERF_MANAGER   command line of the manager, started by a shell
//	PERF_MEMORY    its GOMEMLIMIT (that of the manifests)
//	PERF_NAME      what the report calls it
//	PERF_AGENT     how its user agent begins (kruise-manager)
//	PERF_READY     URL that answers 200 when it is ready
//	PERF_METRICS   URL of its metrics; empty: what only they tell is left out
//	PERF_PPROF     URL of its profiles; empty: no profiles
//	PERF_PROFILES  folder for profiles taken during updates, and for the logs of the manager and the writes; empty: none
//	PERF_HOST      address of the cluster, set for PERF_MANAGER
//	PERF_REPORTS   folder of the reports
//	PERF_ROUNDS    pods of each kind that scenario admission creates (1000); fewer for a try
package main
