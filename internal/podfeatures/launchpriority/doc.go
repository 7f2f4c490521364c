// Package launchpriority starts the containers of a pod by their launch priority (ND-120 to ND-147).
//
// Admission gives every container of such a pod a variable that reads a key of the pod's barrier ConfigMap,
// p_<priority>, and kubelet starts no container whose key is missing. The controller adds keys: the one of
// the highest priority at once, the next one when all containers of higher priority have started, and so on.
// The keys to add depend on the pod alone,
//
//	due      = the highest priority of a container that has not started
//	released = the keys of all priorities >= due, and of containers that ran before
//
// so that a lost ConfigMap is recreated as it was. An annotation lists the keys as well, because caches hold
// only the metadata of ConfigMaps, and only of those with the label of this project.
package launchpriority
