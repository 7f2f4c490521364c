// Package launchpriority starts the containers of a pod by their launch priority (ND-120 to ND-147).
//
// Admission gives every container of such a pod a variable that reads a key of the pod's barrier ConfigMap,
// p_<priority>, and kubelet starts no container whose key is missing. The controller adds keys: that of the
// highest priority at once, the next one when all containers of higher priority have started, and so on. What
// is due is a function of the pod alone,
//
//	due      = the highest priority of a container that has not started
//	released = the keys of all priorities >= due, and of containers that ran before
//
// so that a ConfigMap that was lost is written again as it was. Which keys it has stands in an annotation
// too: caches hold only the metadata of ConfigMaps, and only of those with our label.
package launchpriority
