package memcluster

import (
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/memcluster/rules"
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
	if err := guard(key, before, uid, version); err != nil {
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

	how, structure := types.MergePatchType, any(nil)
	switch {
	case body[0] == '[':
		how = types.JSONPatchType
	case key.Kind == "Pod":
		how, structure = types.StrategicMergePatchType, &corev1.Pod{}
	}
	merged, err := rules.Patch(group, key.Name, original, body, how, structure)
	if err != nil {
		return nil, err
	}

	after := before.DeepCopyObject().(client.Object)
	reflect.ValueOf(after).Elem().SetZero()
	if err := json.Unmarshal(merged, after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if key.Kind == "Pod" {
		return rules.Settle(before, after, subresource, true, equality.Semantic.DeepEqual)
	}

	return after, nil
}
