// Package imagepull pulls the images that the node's NodeImage lists, through the runtime's image service
// (IMG-004, IMG-130 to IMG-146).
//
// There is one task for every tag whose result for the current version is not recorded yet. Tasks start in
// the order in which they were added and run concurrently, up to the limit of the node. Their results are
// written to the status at intervals. A pass compares the spec, the recorded status and the tasks. Its plan
// is a pure function that decides which tasks are started and stopped, and what the status is. All state can
// be rebuilt from the spec and the recorded status, so a restarted daemon pulls what is unfinished and
// nothing else (IMG-143).
package imagepull
