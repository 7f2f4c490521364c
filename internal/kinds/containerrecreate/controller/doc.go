// Package controller drives ContainerRecreateRequests as package containerrecreate has it, and reads the
// facts that admission asks for.
package controller
