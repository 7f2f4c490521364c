// Package containerrecreate is the part of ContainerRecreateRequests that the manager does (CRR-005).
//
// A request only moves forward. Admission (Check, Accept) validates it and records the UID of the pod. Right
// after that, the facts about the pod are filled in (Fill); the node daemon does not see the request before.
// The daemon stops the containers and writes the phase and the states. NewPlan decides the rest from the
// request, its pod and the time, in this order:
//
//  1. finished or being deleted: release the pod, then remove the finalizer and the label for the daemons,
//     and delete the request after its TTL;
//  2. the pod is gone: complete;
//  3. no daemon accepted it within a minute: complete;
//  4. the deadline is exceeded: complete;
//  5. not started: wait for the next of these;
//  6. in progress: show the daemon what the kubelet reports of the new containers;
//  7. if the pod must become unready first: write the finalizer, the pod and the condition, in this order, so
//     that a manager that dies between two writes leaves nothing behind that is never released.
//
// Every write is guarded by UID and resourceVersion, so that a decision about another version of the request
// or of the pod is not written (CRR-067).
package containerrecreate
