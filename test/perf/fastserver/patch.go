package fastserver

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/memcluster/rules"
)

// patch changes an object. Server-side apply creates it if it does not exist; field owners are not kept.
func (q *request) patch(body []byte) (answer, error) {
	media, _, err := mime.ParseMediaType(q.Header.Get("Content-Type"))
	if err != nil {
		return answer{}, apierrors.NewBadRequest(err.Error())
	}
	if types.PatchType(media) == types.ApplyYAMLPatchType {
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return answer{}, apierrors.NewBadRequest(err.Error())
		}
		media = string(types.MergePatchType)
		if q.subresource == "" && q.resource.get(q.key()) == nil {
			return q.create(body)
		}
	}
	return q.ok(q.resource.update(q.Context(), q.key(), q.name, q.subresource, q.dry, func(before *version) (object, error) {
		return q.resource.kind.patched(before, types.PatchType(media), body)
	}))
}

// patched returns the object that results from a patch of a version.
func (k *kind) patched(before *version, media types.PatchType, patch []byte) (object, error) {
	if pod, ok := before.object.(*corev1.Pod); ok && media == types.StrategicMergePatchType {
		if after := quickly(pod, patch); after != nil {
			return after, nil
		}
	}
	return k.patchedDocument(before, media, patch)
}

// patchedDocument is like patched, for any kind and any patch.
func (k *kind) patchedDocument(before *version, media types.PatchType, patch []byte) (object, error) {
	document, err := before.bytes(form{})
	if err != nil {
		return nil, err
	}
	var structure any
	if k.typed {
		structure = before.object
	}
	if document, err = rules.Patch(k.GroupResource(), before.GetName(), document, patch, media, structure); err != nil {
		return nil, err
	}
	return k.fromJSON(document)
}

// scale serves the subresource scale, with replicas at the usual paths of spec and status.
func (q *request) scale(body []byte) (answer, error) {
	respond := func(v *version, err error) (answer, error) {
		if err != nil {
			return answer{}, err
		}
		scale, err := scaleOf(v)
		if err != nil {
			return answer{}, err
		}
		encoded, err := encode(scale, form{protobuf: q.form.protobuf})
		return answer{code: http.StatusOK, body: encoded, media: q.form.contentType()}, err
	}
	if q.Method == http.MethodGet {
		v := q.resource.get(q.key())
		if v == nil {
			return answer{}, q.resource.notFound(q.name)
		}
		return respond(v, nil)
	}
	return respond(q.resource.update(q.Context(), q.key(), q.name, "scale", q.dry, func(before *version) (object, error) {
		scale, err := scaleOf(before)
		if err != nil {
			return nil, err
		}
		scale.ResourceVersion = "" // guards are those of the request
		switch q.Method {
		case http.MethodPut:
			err = runtime.DecodeInto(codecs.UniversalDeserializer(), body, scale)
		case http.MethodPatch:
			err = json.Unmarshal(body, scale) // a merge patch, since a scale has no lists and no nulls that count
		default:
			err = fmt.Errorf("no %s of a scale", q.Method)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o := before.DeepCopyObject().(object)
		o.SetResourceVersion(scale.ResourceVersion)
		document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err == nil {
			err = unstructured.SetNestedField(document, int64(scale.Spec.Replicas), "spec", "replicas")
		}
		if err != nil {
			return nil, err
		}
		encoded, err := json.Marshal(document)
		if err != nil {
			return nil, err
		}
		return q.resource.kind.fromJSON(encoded)
	}))
}

func scaleOf(v *version) (*autoscalingv1.Scale, error) {
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v.object)
	if err != nil {
		return nil, err
	}
	number := func(part string) int32 {
		n, _, _ := unstructured.NestedInt64(document, part, "replicas")
		return int32(n) //nolint:gosec // of pods
	}
	selector, _, _ := unstructured.NestedString(document, "status", "labelSelector")
	return &autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{Kind: "Scale", APIVersion: "autoscaling/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: v.GetName(), Namespace: v.GetNamespace(), UID: v.GetUID(),
			ResourceVersion:   v.GetResourceVersion(),
			CreationTimestamp: v.GetCreationTimestamp()},
		Spec:   autoscalingv1.ScaleSpec{Replicas: number("spec")},
		Status: autoscalingv1.ScaleStatus{Replicas: number("status"), Selector: selector}}, nil
}
