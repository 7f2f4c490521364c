// Package imagepull keeps images on nodes (IMG-001 to IMG-005): NodeImages, one for each node, which the node
// daemons carry out; ImagePullJobs, which write their image into NodeImages, some nodes at a time;
// ImageListPullJobs, which make an ImagePullJob for each image; and copies of pull secrets in the one
// namespace that node daemons may read.
//
// Each kind has a plan, a function from what is there to what is to be written, and a controller in package
// controller. NodeImages are shared by all jobs and by the daemon, so each write is a patch of one image of
// exactly the version that it was decided on; a job whose write comes second decides again, at once (IMG-213,
// IMG-214). A job counts only on NodeImages that show its own last writes (IMG-212).
//
// A change of a NodeImage concerns the jobs that own the tags that changed, nobody else (IMG-075).
package imagepull
