// Package controller wires PodUnavailableBudgets up: [Watch] follows them on every replica, [Guard] books
// disruptions in them, for the webhooks of pods and for our own controllers, and a controller on the leader
// counts (docs/spec/protection.md).
package controller
