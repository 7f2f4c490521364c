package memcluster

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

// Patch applies a patch as the client. The object must have the UID and the resourceVersion in the patch, as
// far as there are any. Pods accept strategic merge patches, other kinds merge patches, and all kinds JSON
// patches.
func (c *Cluster) Patch(key Key, body []byte, subresource string) (client.Object, error) {
	before := c.truth[key]
	if before == nil {
		return nil, notFound(key)
	}

	uid, version, err := guardsOf(body)
	if err != nil {
		return nil, err
	}
	if err := guarded(key, before, uid, version); err != nil {
		return nil, err
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

// guardsOf returns the UID and the resourceVersion in a patch, each empty if it is not there.
func guardsOf(patch []byte) (uid types.UID, version string, err error) {
	if patch[0] != '[' {
		var document struct {
			Metadata struct {
				UID             types.UID `json:"uid"`
				ResourceVersion string    `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(patch, &document); err != nil {
			return "", "", apierrors.NewBadRequest(err.Error())
		}
		return document.Metadata.UID, document.Metadata.ResourceVersion, nil
	}

	var operations []struct {
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(patch, &operations); err != nil {
		return "", "", apierrors.NewBadRequest(err.Error())
	}
	for _, operation := range operations {
		value, _ := operation.Value.(string)
		switch operation.Path {
		case "/metadata/uid":
			uid = types.UID(value)
		case "/metadata/resourceVersion":
			version = value
		}
	}
	return uid, version, nil
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
				!slices.EqualFunc(old.Spec.InitContainers, pod.Spec.InitContainers, sameImage) {
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

// decodeInto decodes data into the object. The previous content of the object is discarded.
func decodeInto(data []byte, object client.Object) error {
	reflect.ValueOf(object).Elem().SetZero()
	return json.Unmarshal(data, object)
}
