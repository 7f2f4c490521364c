package pub

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxSidecarSets is how many SidecarSets of a pod's list count. No webhook writes a longer list, but users can.
const MaxSidecarSets = 256

// InjectedSidecarSets returns the names in the value of SidecarSetInjectedList, sorted, at most the first MaxSidecarSets (SS-182).
func InjectedSidecarSets(list string) []string {
	names := strings.SplitN(list, ",", MaxSidecarSets+1)
	names = names[:min(len(names), MaxSidecarSets)]
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// Annotations of SidecarSets, their revisions and their pods.
const (
	// SidecarSetHash on a SidecarSet and its revisions is the hash of the containers; on a pod a JSON map from the names of SidecarSets
	// to SidecarSetRecord: what was injected or upgraded last (SS-017, SS-180). The node daemon reports on such pods (ND-082).
	SidecarSetHash = "kruise.io/sidecarset-hash"
	// SidecarSetHashWithoutImage is the same with the images left out: if it differs, a pod cannot be upgraded (SS-018, SS-211).
	SidecarSetHashWithoutImage = "kruise.io/sidecarset-hash-without-image"
	// SidecarSetInjectedList on a pod lists the names of the SidecarSets, with commas between (SS-182).
	SidecarSetInjectedList = "kruise.io/sidecarset-injected-list"
	// SidecarSetInPlaceUpdateState on a pod is a JSON map from the names of SidecarSets to SidecarSetState (SS-231).
	SidecarSetInPlaceUpdateState = "kruise.io/sidecarset-inplace-update-state"
	// SidecarSetWorkingHotUpgradeContainer on a pod is a JSON map from hot-upgrade sidecars to the one of their two containers that
	// works (SS-126).
	SidecarSetWorkingHotUpgradeContainer = "kruise.io/sidecarset-working-hotupgrade-container"
	// SidecarSetVersionPrefix and SidecarSetVersionAltPrefix, followed by the name of a container, are the version of a hot-upgrade
	// container and that of the other of its pair (SS-125).
	SidecarSetVersionPrefix    = "version.sidecarset.kruise.io/"
	SidecarSetVersionAltPrefix = "versionalt.sidecarset.kruise.io/"
	// SidecarSetCanary: "true" on a SidecarSet, with SidecarSetBase, makes it a canary of that one (SS-070).
	SidecarSetCanary = "apps.kruise.io/sidecarset-canary"
	SidecarSetBase   = "apps.kruise.io/sidecarset-base"
	// SidecarSetV1alpha1Namespace remembers spec.namespace of an object that was written in v1alpha1 (SS-274).
	SidecarSetV1alpha1Namespace = "apps.kruise.io/sidecarset-v1alpha1-namespace"
)

// Labels of revisions of SidecarSets.
const (
	// SidecarSetName is the SidecarSet that a revision is of (SS-183).
	SidecarSetName = "kruise.io/sidecarset-name"
	// SidecarSetCustomVersion is the version that the user gave it; in v1alpha1 it is a label of the SidecarSet (SS-183, SS-271).
	SidecarSetCustomVersion = "apps.kruise.io/sidecarset-custom-version"
)

// Environment variables of injected containers.
const (
	// SidecarInjectedEnv: "true" marks an injected container (SS-105, SS-106).
	SidecarInjectedEnv = "IS_INJECTED"
	// SidecarSetVersionEnv and SidecarSetVersionAltEnv tell a hot-upgrade container its version and that of the other (SS-125, IPU-092).
	SidecarSetVersionEnv    = "SIDECARSET_VERSION"
	SidecarSetVersionAltEnv = "SIDECARSET_VERSION_ALT"
)

// SidecarSetUpgradable is the pod condition that tells which SidecarSets cannot be upgraded in place there (SS-260).
const SidecarSetUpgradable = "SidecarSetUpgradable"

// SidecarSetRecord is what a pod's annotation records of one SidecarSet (SS-180).
type SidecarSetRecord struct {
	UpdateTimestamp    metav1.Time `json:"updateTimestamp"`
	Hash               string      `json:"hash"`
	SidecarSetName     string      `json:"sidecarSetName"`
	SidecarList        []string    `json:"sidecarList"`
	ControllerRevision string      `json:"controllerRevision,omitempty"`
}

// SidecarSetState is the state of the last upgrade of a pod by one SidecarSet (SS-231).
type SidecarSetState struct {
	// Revision is the hash that was upgraded to.
	Revision        string      `json:"revision,omitempty"`
	UpdateTimestamp metav1.Time `json:"updateTimestamp"`
	// LastContainerStatuses are the images that the changed containers ran before.
	LastContainerStatuses map[string]SidecarSetContainerState `json:"lastContainerStatuses,omitempty"`
	// Resizing are the hashes whose resources may have been written to the pod since its last upgrade, by separate writes before the
	// images. The reference ignores this field.
	Resizing []string `json:"resizing,omitempty"`
}

// SidecarSetContainerState is what a container ran before its image was changed (SS-231). The reference knows the image ID alone.
type SidecarSetContainerState struct {
	ImageID     string `json:"imageID,omitempty"`
	ContainerID string `json:"containerID,omitempty"`
	// Image is the image in the pod's spec that was replaced, RunningImage the one that the container was started with (SS-D03).
	Image        string `json:"image,omitempty"`
	RunningImage string `json:"runningImage,omitempty"`
	// Overtaken are other images that the pod's spec had since that container was started. Kubelet may still start them for a moment.
	Overtaken []string `json:"overtaken,omitempty"`
}
