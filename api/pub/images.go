package pub

// Keys of NodeImages, ImagePullJobs and the copies of their pull secrets.
const (
	// PullJobProtection is the finalizer on ImagePullJobs whose secrets must be released first (IMG-032, IMG-082).
	PullJobProtection = "apps.kruise.io/deletion-protection"
	// FakeNodeImage is the label on NodeImages that may exist without a node, for tests (IMG-052).
	FakeNodeImage = "apps.kruise.io/fake-nodeimage"
	// PulledBy is the annotation, and its value for the node daemon, in the sandbox config of every pull request (IMG-139).
	PulledBy       = "apps.kruise.io/pulling-image-by"
	PulledByDaemon = "kruise-daemon"

	// SecretSource on the copy of a pull secret names the source as namespace/name (IMG-113).
	SecretSource = "imagepulljobs.kruise.io/source-key"
	// SecretReferences on the copy of a pull secret lists the jobs that use it, as namespace/name, sorted, separated by commas (IMG-113).
	SecretReferences = "imagepulljobs.kruise.io/references"
	// SecretSourceMissing is, on a copy, since when its source has not been there.
	SecretSourceMissing = "imagepulljobs.kruise.io/source-missing-since"
	// SecretMode: SecretModeBatch on the copy of a pull secret marks copies that jobs share (IMG-113).
	SecretMode = "imagepulljobs.kruise.io/mode"
	// SecretModeBatch is the value of SecretMode, and of mode in references to such copies (IMG-118).
	SecretModeBatch = "batch"
	// SecretCopy: "true" is the label on copies of pull secrets (IMG-115).
	SecretCopy = "apps.kruise.io/pull-secret-copy"
	// SecretCopyOf is the label on copies of pull secrets with the namespace of the source (IMG-119).
	SecretCopyOf = "apps.kruise.io/pull-secret-namespace"
	// DaemonConfigNamespace is the only namespace in which node daemons read secrets (IMG-110, ND-066).
	DaemonConfigNamespace = "kruise-daemon-config"
)

// Bounds of an ImagePullJob, which each of its nodes gets (IMG-097). A controller that makes jobs from larger lists leaves the rest out.
const (
	// MaxPullSandboxBytes is how many bytes the labels and annotations of its sandboxConfig may have together.
	MaxPullSandboxBytes = 4 << 10
	// MaxPullSecrets is how many pull secrets it may name.
	MaxPullSecrets = 32
	// MaxPullSecretBytes is how many bytes of data a pull secret may have. One with the largest tokens for all regions of
	// several clouds has half of it.
	MaxPullSecretBytes = 512 << 10
)
