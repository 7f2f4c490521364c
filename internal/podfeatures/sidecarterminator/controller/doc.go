// Package controller carries out the plans of package sidecarterminator: it stops the marked sidecars of
// pods.
package controller
