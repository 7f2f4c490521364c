package pub

// Keys of BroadcastJobs.
const (
	// BroadcastJobName and BroadcastJobUID are the labels of a job's pods, with its name and its UID (BJ-040).
	BroadcastJobName = "broadcastjob-name"
	BroadcastJobUID  = "broadcastjob-controller-uid"
	// BroadcastJobPlacement on a pod is a hash of what its template asked of nodes when it was made (BJ-133).
	BroadcastJobPlacement = "apps.kruise.io/broadcastjob-placement"
	// BroadcastJobResumed on a job is when its user unset spec.paused, in RFC 3339; the controller takes it off when it has written
	// BroadcastJobAcknowledged, which are the failed pods that the job does not pause for any more (BJ-094).
	BroadcastJobResumed      = "apps.kruise.io/broadcastjob-resumed"
	BroadcastJobAcknowledged = "apps.kruise.io/broadcastjob-acknowledged"
)
