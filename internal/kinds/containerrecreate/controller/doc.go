// Package controller carries out the plans of package containerrecreate for ContainerRecreateRequests, and
// reads the facts that admission needs.
package controller
