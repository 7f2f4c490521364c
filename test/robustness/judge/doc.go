// Package judge decides from a record which promises were broken. It uses nothing of the code that is tested
// but the names of labels: what it expects is written down here, by the words of docs/spec.
//
// The changes of a record are played in the order of etcd's revisions. Each rule sees each change, with the
// state before and after it. Two things are taken into account everywhere:
//
//   - A manager learns late. What a user has just changed, and which pods somebody else has just taken
//     away, may be unknown to it for as long as a fault may last. So limits are the loosest that held within
//     the last [Lag], and pods that others took away within it are allowed for.
//   - For a while two managers may write, if the network holds back what a leader has sent until there is
//     another one. Decision 0004 says what comes of it: a creation may be repeated, and is taken back.
//     Findings that may come of it are counted apart, as consequences that are known. What must hold even
//     then is not.
package judge
