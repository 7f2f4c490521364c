package controller

import (
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// imagesPatch is what replaces the images, as a merge patch of spec: members that are to go are null.
func imagesPatch(node *appsv1beta1.NodeImage, images map[string]*appsv1beta1.ImageSpec) map[string]any {
	changes := map[string]any{}
	for name, image := range images {
		if image == nil {
			changes[name] = nil
			continue
		}
		entry := map[string]any{"tags": image.Tags, "pullSecrets": nil, "sandboxConfig": nil}
		if len(image.PullSecrets) > 0 {
			entry["pullSecrets"] = image.PullSecrets
		}
		if next := image.SandboxConfig; next != nil {
			before := &appsv1beta1.SandboxConfig{}
			if present := node.Spec.Images[name].SandboxConfig; present != nil {
				before = present
			}
			entry["sandboxConfig"] = map[string]any{"labels": replacing(before.Labels, next.Labels),
				"annotations": replacing(before.Annotations, next.Annotations)}
		}
		changes[name] = entry
	}
	return map[string]any{"images": changes}
}

// replacing is the merge patch that makes after of before.
func replacing(before, after map[string]string) map[string]any {
	changes := map[string]any{}
	for key := range before {
		changes[key] = nil
	}
	for key, value := range after {
		changes[key] = value
	}
	if len(changes) == 0 {
		return nil
	}
	return changes
}

// statusPatch is what replaces the status of a NodeImage but for its firstSyncStatus.
func statusPatch(node *appsv1beta1.NodeImage, status *appsv1beta1.NodeImageStatus) map[string]any {
	images := map[string]any{}
	for name := range node.Status.ImageStatuses {
		images[name] = nil
	}
	for name, image := range status.ImageStatuses {
		images[name] = image
	}
	return map[string]any{
		"status": map[string]any{
			"imageStatuses": images,
			"desired":       status.Desired,
			"waiting":       status.Waiting,
			"pulling":       status.Pulling,
			"succeeded":     status.Succeeded,
			"failed":        status.Failed,
		},
	}
}
