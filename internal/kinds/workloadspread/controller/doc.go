// Package controller reads and writes for package workloadspread. Passes over WorkloadSpreads run on the
// manager that leads; on every replica a Watch follows WorkloadSpreads for the webhooks of pods, and a Booker
// writes what those decide into the status.
package controller
