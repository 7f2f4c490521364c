package sidecarset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/rand"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// hashed is what a hash is made of. The order of the fields counts.
type hashed struct {
	Containers     []appsv1beta1.SidecarContainerSpec `json:"containers"`
	InitContainers []appsv1beta1.SidecarContainerSpec `json:"initContainers,omitempty"`
}

// Hash returns the hash of the containers, by which a pod is current or not (SS-017, SS-018). The spec must
// have its defaults.
func Hash(spec *appsv1beta1.SidecarSetSpec) (string, error) { return hash(spec, true) }

// HashWithoutImage is Hash with all images left out; pods whose record differs cannot be upgraded in place
// (SS-018, SS-211).
func HashWithoutImage(spec *appsv1beta1.SidecarSetSpec) (string, error) { return hash(spec, false) }

func hash(spec *appsv1beta1.SidecarSetSpec, images bool) (string, error) {
	view := func(containers []appsv1beta1.SidecarContainer) []appsv1beta1.SidecarContainerSpec {
		if containers == nil {
			return nil
		}
		all := make([]appsv1beta1.SidecarContainerSpec, len(containers))
		for i := range containers {
			all[i] = containers[i].SidecarContainerSpec
			if !images {
				all[i].Image = ""
			}
		}
		return all
	}
	input := hashed{Containers: view(spec.Containers)}
	if len(nativeSidecars(spec)) > 0 {
		input.InitContainers = view(spec.InitContainers)
	}
	text, err := json.Marshal(input)
	if err != nil {
		return "", fmt.Errorf("encoding the containers: %w", err)
	}

	sum := sha256.Sum256(text)
	return rand.SafeEncodeString(hex.EncodeToString(sum[:])), nil
}
