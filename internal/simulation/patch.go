package simulation

import (
	"encoding/json"
	"reflect"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patch is a patch by the manager; it carries UID and version as guards. Pods take strategic merge patches,
// others merge patches, and all of them JSON patches.
func (c *Cluster) Patch(key Key, body []byte, subresource string) (client.Object, error) {
	if c.dead {
		return nil, ErrDead
	}

	before := c.truth[key]
	if before == nil {
		return nil, notFound(key)
	}

	var guard struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	guards := body
	if body[0] == '[' { // operations that replace them
		var err error
		if guards, err = operate(
			[]byte(
				`{"metadata":{"uid":"","resourceVersion":"","labels":{},"annotations":{},"finalizers":[]},"spec":{"ephemeralContainers":[]}}`), body); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if err := json.Unmarshal(guards, &guard); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if guard.Metadata.UID == "" || guard.Metadata.ResourceVersion == "" {
		panic("a patch without guard: " + string(body))
	}
	if guard.Metadata.UID != before.GetUID() ||
		guard.Metadata.ResourceVersion != before.GetResourceVersion() {
		return nil, conflict(key, "another version")
	}

	after, err := c.patched(key, before, body, subresource)
	if err != nil {
		return nil, err
	}

	err = c.write(Write{Verb: "patch", Subresource: subresource, Key: key}, before, after, func() {
		c.Store(key, after)
	})
	return after, err
}

func (c *Cluster) patched(
	key Key, before client.Object, body []byte, subresource string,
) (client.Object, error) {
	original, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}

	var merged []byte
	if body[0] == '[' {
		merged, err = operate(original, body)
	} else if key.Kind == "Pod" {
		merged, err = strategicpatch.StrategicMergePatch(original, body, &corev1.Pod{})
	} else {
		merged, err = jsonpatch.MergePatch(original, body)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	after := before.DeepCopyObject().(client.Object)
	if err := decodeInto(merged, after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	if pod, ok := after.(*corev1.Pod); ok {
		old := before.(*corev1.Pod)
		switch subresource {
		case "status":
			pod.Spec = old.Spec
		case "ephemeralcontainers":
			added := pod.Spec.EphemeralContainers
			*pod = *old.DeepCopy()
			pod.Spec.EphemeralContainers = added
			pod.Generation++
		case "resize":
			resized := pod.Spec.Containers
			*pod = *old.DeepCopy()
			for i := range resized {
				pod.Spec.Containers[i].Resources = resized[i].Resources
			}
			if qualityOf(old) != qualityOf(pod) {
				return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, key.Name, field.ErrorList{
					field.Invalid(field.NewPath("metadata"), key.Name,
						"Pod QOS Class may not change as a result of resizing")})
			}
			pod.Generation++
		default:
			pod.Status = old.Status
			sameImage := func(a, b corev1.Container) bool { return a.Image == b.Image }
			if !slices.EqualFunc(old.Spec.Containers, pod.Spec.Containers, sameImage) ||
				!slices.EqualFunc(old.Spec.InitContainers,
					pod.Spec.InitContainers, sameImage) {
				pod.Generation++
			}
		}
	}

	return after, nil
}

// operate applies a JSON patch.
func operate(original, body []byte) ([]byte, error) {
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, err
	}
	return patch.Apply(original)
}

// decodeInto decodes into the object, nothing of which is kept.
func decodeInto(data []byte, object client.Object) error {
	reflect.ValueOf(object).Elem().SetZero()
	return json.Unmarshal(data, object)
}
