// Package runtime connects to the container runtimes of the node through the container runtime interface, CRI
// v1 (ND-001). It finds their sockets, keeps the connections, lists, inspects, execs into and stops
// containers, and pulls images. It never creates or removes anything (ND-002).
package runtime
