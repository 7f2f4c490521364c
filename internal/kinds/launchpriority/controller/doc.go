// Package controller writes the barrier ConfigMaps of pods as package launchpriority has it.
package controller
