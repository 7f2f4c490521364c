// Package imagepull pulls the images that the node's NodeImage lists, through the runtime's image service (IMG-004, IMG-130 to IMG-146).
//
// There is one task for every tag whose result for the current version is not recorded yet. Tasks run by themselves, as many at once as
// the node allows, in the order in which they came; what they have come to is written to the status now and then. A pass compares spec,
// recorded status and tasks: it is a pure function that says which tasks begin, which are stopped, and what the status is. Everything can
// be rebuilt from the spec and the recorded status, so that a daemon that starts anew pulls what is unfinished and nothing else (IMG-143).
package imagepull
