// Package gitops tests what is shipped for Argo CD and Flux in config/argocd and config/flux: the health of
// objects by the engine that Argo CD uses, with no more libraries of Lua than Argo CD has open; actions; and
// the rules that say which differences are the manager's own.
package gitops
