// Package controller runs PodUnavailableBudgets: [Watch] follows them on every replica, [Guard] books
// disruptions in them, for the pod webhooks and for our own controllers, and a controller on the leader
// counts pods (docs/spec/protection.md).
package controller
