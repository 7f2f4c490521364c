package uniteddeployment

// Labels that the controller sets.
const (
	subsetLabel   = "apps.kruise.io/subset-name"
	revisionLabel = "apps.kruise.io/controller-revision-hash"
	reservedLabel = "apps.kruise.io/united-deployment-reserved-pod"
)
