// Package imagepull pulls images onto nodes (IMG-001 to IMG-005). It plans NodeImages, one for each node,
// which the node daemons carry out; ImagePullJobs, which write their image into NodeImages, some nodes at a
// time; ImageListPullJobs, which create an ImagePullJob for each image; and copies of pull secrets in the one
// namespace that node daemons may read.
//
// The plan of each kind is a function of the objects that exist and returns what to write. Package controller
// has a controller for each kind. All jobs and the daemon share NodeImages, so each write is a patch of one
// image, guarded by the version that the plan was made from. A job whose write conflicts decides again, at
// once (IMG-213, IMG-214). A job counts results only on NodeImages that show its own last writes (IMG-212).
//
// A change of a NodeImage concerns only the jobs that own the tags that changed (IMG-075).
package imagepull
