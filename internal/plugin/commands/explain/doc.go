// Package explain implements the commands why and plan. why explains the state of each pod, and plan
// forecasts what would happen to the pods if a manifest were applied. Both read the input of a plan with the
// user's own rights, and rehearse the manager's own passes on it (internal/rehearsal). They write nothing to
// the cluster except dry runs.
//
//	Reader.Load   reads an object with all that its plan needs       -> World
//	World.Ask     one pass: what is decided about each pod           -> Explanation
//	World.Play    passes and kubelets until nothing happens any more -> Forecast
//
// # Invariants
//
//   - If the user may not read something, it is an error if a correct answer needs it, and a note otherwise.
//   - Feature gates and flags are those of the running manager, if the user may read its Deployment.
//     Otherwise they are the defaults, and a note says so.
package explain
