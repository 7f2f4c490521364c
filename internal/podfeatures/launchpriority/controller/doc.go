// Package controller carries out the plans of package launchpriority: it writes the barrier ConfigMaps of
// pods.
package controller
