// Package imagepull pulls the images that the node's NodeImage lists, through the runtime's image service
// (IMG-004, IMG-130 to IMG-146).
//
// There is one task for every tag whose result for the current version is not recorded yet. Tasks run
// concurrently, as many at once as the node allows, in the order in which they were added. Their results are
// written to the status now and then. A pass compares spec, recorded status and tasks. Its plan is a pure
// function: which tasks begin, which are stopped, and what the status is. Everything can be rebuilt from the
// spec and the recorded status, so that a restarted daemon pulls what is unfinished and nothing else
// (IMG-143).
package imagepull
