// Package containerrecreate is the manager's part of ContainerRecreateRequests (CRR-005).
//
// A request goes forward only. Admission (Check, Accept) judges it and notes the UID of the pod; right after
// that the facts about the pod are filled in (Fill), and only with them does the node daemon see the request.
// It stops the containers and writes phase and states. NewPlan decides the rest, from the request, its pod
// and the time, in this order:
//
//  1. finished or being deleted: let go of the pod, then of the finalizer, of the label for the daemons, and
//     after the TTL of the request;
//  2. the pod is gone: complete;
//  3. no daemon took it for a minute: complete;
//  4. the deadline is over: complete;
//  5. not being worked on: wait for the next of these;
//  6. being worked on: show the daemon what the kubelet says of the new containers;
//  7. if the pod is to be not ready first: finalizer, pod, condition, in this order, so that whoever dies
//     between two writes leaves nothing behind that nobody releases.
//
// Every write is guarded by UID and resourceVersion: what was decided about another version of the request,
// or of the pod, is not written (CRR-067).
package containerrecreate
