// Package persistentpodstate decides where pods with stable names come back to (PPS-001, PPS-003).
package persistentpodstate

// leastWeight and mostWeight bound the weight of a preference (PPS-024).
const leastWeight, mostWeight = 1, 100
