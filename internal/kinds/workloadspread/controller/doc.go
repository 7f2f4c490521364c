// Package controller reads and writes for package workloadspread. The leader runs passes over
// WorkloadSpreads. On every replica a Watch follows WorkloadSpreads for the pod webhooks, and a Booker writes
// their decisions into the status.
package controller
