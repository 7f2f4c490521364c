package pub

const (
	// EphemeralContainersCleanup is the finalizer on EphemeralJobs (EJ-041).
	EphemeralContainersCleanup = "apps.kruise.io/ephemeralcontainers-cleanup"
	// EphemeralJobEnv is the variable of an ephemeral container whose value is the UID of the EphemeralJob that added it (EJ-018).
	EphemeralJobEnv = "KRUISE_EJOB_ID"
)
