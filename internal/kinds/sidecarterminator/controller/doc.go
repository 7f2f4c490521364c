// Package controller stops the marked sidecars of pods as package sidecarterminator has it.
package controller
