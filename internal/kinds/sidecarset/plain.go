package sidecarset

import (
	"encoding/json"
	"fmt"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// own are the fields of a container that Kubernetes does not have.
var own = []string{"podInjectPolicy", "upgradeStrategy", "shareVolumePolicy", "shareVolumeDevicePolicy",
	"transferEnv", "resourcesPolicy"}

// Plain returns the document of a container as Kubernetes has it, with the fields that nobody here knows
// (SS-D24).
func Plain(c *appsv1beta1.SidecarContainer) (map[string]any, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding container %s: %w", c.Name, err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("reading container %s: %w", c.Name, err)
	}
	for _, name := range own {
		delete(document, name)
	}
	return document, nil
}

// PodTemplate returns containers and volumes as the document of a pod template, which the API server can
// judge (SS-034). A SidecarSet without regular containers gets one with the returned name (SS-D12); else the
// name is empty.
func PodTemplate(spec *appsv1beta1.SidecarSetSpec) (template map[string]any, placeholder string, err error) {
	pod := map[string]any{"restartPolicy": "Always", "serviceAccountName": "default"}
	taken := occupied(spec)
	for name, list := range map[string][]appsv1beta1.SidecarContainer{"containers": spec.Containers,
		"initContainers": spec.InitContainers} {
		documents := []any{}
		for i := range list {
			document, err := Plain(&list[i])
			if err != nil {
				return nil, "", err
			}
			documents = append(documents, document)
		}
		pod[name] = documents
	}

	if len(spec.Containers) == 0 {
		for placeholder = "placeholder"; taken[placeholder]; placeholder += "-x" {
		}
		pod["containers"] = []any{map[string]any{"name": placeholder, "image": placeholder}}
	}
	if !spec.Volumes.IsZero() {
		text, err := json.Marshal(spec.Volumes)
		if err != nil {
			return nil, "", fmt.Errorf("encoding the volumes: %w", err)
		}
		pod["volumes"] = json.RawMessage(text)
	}

	return map[string]any{"metadata": map[string]any{}, "spec": pod}, placeholder, nil
}
