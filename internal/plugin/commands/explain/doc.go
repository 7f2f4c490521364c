// Package explain says what the manager would do: why each pod is as it is (why), and what would become of
// the pods if a manifest were applied (plan). It reads what a plan is made from with the user's own rights,
// and has the manager's own passes rehearsed on that (internal/rehearsal); nothing is written to the cluster
// but dry runs.
//
//	Reader.Load   reads an object with all that its plan needs       -> World
//	World.Ask     one pass: what is decided about each pod           -> Explanation
//	World.Play    passes and kubelets until nothing happens any more -> Forecast
//
// # Invariants
//
//   - What may not be read and is not needed for a right answer is named in a note; what is needed is an
//     error.
//   - Gates and flags are those that the running manager was given, if its Deployment may be read; otherwise
//     the defaults, and a note says so.
package explain
