package fastserver

import (
	"bytes"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// quickPatch is a strategic merge patch of a pod as a rollout sends thousands: labels and annotations,
// images, conditions, and guards. The library uses JSON documents, which takes ten times as long and would be
// most of this server's cost.
type quickPatch struct {
	Metadata struct {
		UID             types.UID          `json:"uid"`
		ResourceVersion string             `json:"resourceVersion"`
		Labels          map[string]*string `json:"labels"`
		Annotations     map[string]*string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Name  string `json:"name"`
			Image string `json:"image"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Conditions []quickCondition `json:"conditions"`
	} `json:"status"`
}

type quickCondition struct {
	Type               corev1.PodConditionType `json:"type"`
	Status             corev1.ConditionStatus  `json:"status"`
	LastTransitionTime *metav1.Time            `json:"lastTransitionTime"`
	// A null removes them.
	Reason  json.RawMessage `json:"reason"`
	Message json.RawMessage `json:"message"`
}

// quickly applies such a patch. It returns nil for any other patch, which the library must apply.
func quickly(before *corev1.Pod, patch []byte) *corev1.Pod {
	var p quickPatch
	decoder := json.NewDecoder(bytes.NewReader(patch))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&p) != nil {
		return nil
	}
	pod := before.DeepCopy()
	if p.Metadata.UID != "" {
		pod.UID = p.Metadata.UID
	}
	if p.Metadata.ResourceVersion != "" {
		pod.ResourceVersion = p.Metadata.ResourceVersion
	}
	pod.Labels, pod.Annotations = merged(pod.Labels, p.Metadata.Labels), merged(pod.Annotations, p.Metadata.Annotations)
	for _, c := range p.Spec.Containers {
		i := slices.IndexFunc(pod.Spec.Containers, func(has corev1.Container) bool { return has.Name == c.Name })
		if i < 0 || c.Image == "" {
			return nil
		}
		pod.Spec.Containers[i].Image = c.Image
	}
	for _, c := range p.Status.Conditions {
		i := slices.IndexFunc(pod.Status.Conditions, func(has corev1.PodCondition) bool { return has.Type == c.Type })
		if i < 0 {
			i = len(pod.Status.Conditions)
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c.Type})
		}
		to := &pod.Status.Conditions[i]
		if c.Status == "" || !text(&to.Reason, c.Reason) || !text(&to.Message, c.Message) {
			return nil
		}
		to.Status = c.Status
		if c.LastTransitionTime != nil {
			to.LastTransitionTime = *c.LastTransitionTime
		}
	}
	return pod
}

func merged(to map[string]string, patch map[string]*string) map[string]string {
	for key, value := range patch {
		if value == nil {
			delete(to, key)
			continue
		}
		if to == nil {
			to = map[string]string{}
		}
		to[key] = *value
	}
	return to
}

// text merges a string; it returns false if the patch is not a string.
func text(to *string, patch json.RawMessage) bool {
	switch {
	case patch == nil:
		return true
	case string(patch) == "null":
		*to = ""
		return true
	}
	return json.Unmarshal(patch, to) == nil
}
