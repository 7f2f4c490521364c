package sidecarset

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Content is what a ControllerRevision holds of a spec, byte for byte as the reference writes it; fields of
// containers and volumes that nobody here knows are kept (SS-183, SS-292).
func Content(spec *appsv1beta1.SidecarSetSpec) ([]byte, error) {
	held := revision.Document{"$patch": "replace"}
	for _, part := range []struct {
		name      string
		value     any
		empty     bool
		canonical func([]byte) (any, error)
	}{
		{"containers", spec.Containers, len(spec.Containers) == 0,
			revision.CanonicalAs[[]appsv1beta1.SidecarContainerSpec]},
		{"initContainers", spec.InitContainers, len(spec.InitContainers) == 0,
			revision.CanonicalAs[[]appsv1beta1.SidecarContainerSpec]},
		{"volumes", spec.Volumes, spec.Volumes.IsZero(), revision.CanonicalAs[[]corev1.Volume]},
		{"imagePullSecrets", spec.ImagePullSecrets, len(spec.ImagePullSecrets) == 0,
			revision.CanonicalAs[[]corev1.LocalObjectReference]},
		{"patchPodMetadata", spec.PatchPodMetadata, len(spec.PatchPodMetadata) == 0,
			revision.CanonicalAs[[]appsv1beta1.SidecarSetPatchPodMetadata]},
	} {
		held[part.name] = nil
		if part.empty {
			continue
		}
		text, err := json.Marshal(part.value)
		if err != nil {
			return nil, fmt.Errorf("encoding spec.%s: %w", part.name, err)
		}
		if held[part.name], err = part.canonical(text); err != nil {
			return nil, fmt.Errorf("spec.%s: %w", part.name, err)
		}
	}

	content, err := json.Marshal(revision.Document{"spec": held})
	if err != nil {
		return nil, fmt.Errorf("encoding the content of a revision: %w", err)
	}

	return content, nil
}

// Restore returns the spec with what the content of a revision holds in place of its own (SS-171).
func Restore(spec *appsv1beta1.SidecarSetSpec, content []byte) (*appsv1beta1.SidecarSetSpec, error) {
	var stored struct {
		Spec *appsv1beta1.SidecarSetSpec `json:"spec"`
	}
	if err := json.Unmarshal(content, &stored); err != nil {
		return nil, fmt.Errorf("reading the content of a revision: %w", err)
	}
	if stored.Spec == nil {
		return nil, fmt.Errorf("reading the content of a revision: it holds no spec")
	}

	out := spec.DeepCopy()
	out.Containers, out.InitContainers, out.Volumes = stored.Spec.Containers, stored.Spec.InitContainers,
		stored.Spec.Volumes
	out.ImagePullSecrets, out.PatchPodMetadata = stored.Spec.ImagePullSecrets, stored.Spec.PatchPodMetadata
	return out, nil
}
