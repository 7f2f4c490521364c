// Package rules decides what API servers in memory store: which writes are conflicts, what a patch results
// in, and which part of an object a subresource changes. internal/memcluster and the servers over HTTP that
// tests and benchmarks use decide by these rules, so that none of them is kinder than another.
package rules

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // the one that API servers use
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Guard returns a conflict if an object has another UID or resourceVersion than those that a write sends.
// Empty ones are not compared. name is that of the object in errors.
func Guard(of schema.GroupResource, name string, object metav1.Object, uid types.UID, version string) error {
	asked := &metav1.Preconditions{}
	if uid != "" {
		asked.UID = &uid
	}
	if version != "" {
		asked.ResourceVersion = &version
	}
	return GuardDeletion(of, name, object, asked)
}

// GuardDeletion is like [Guard] for the preconditions of a deletion, which may be nil.
func GuardDeletion(
	of schema.GroupResource, name string, object metav1.Object, asked *metav1.Preconditions,
) error {
	switch {
	case asked == nil:
	case asked.UID != nil && *asked.UID != object.GetUID():
		return apierrors.NewConflict(of, name, fmt.Errorf("precondition failed: "+
			"UID in precondition: %s, UID in object meta: %s", *asked.UID, object.GetUID()))
	case asked.ResourceVersion != nil && *asked.ResourceVersion != object.GetResourceVersion():
		return apierrors.NewConflict(of, name, errors.New(
			"the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// Patch returns a document in JSON after a patch. structure is a value of the Go type of the document, which
// strategic merge patches need; nil means that there is none, as for custom resources. name is that of the
// object in errors.
func Patch(
	of schema.GroupResource, name string, document, patch []byte, how types.PatchType, structure any,
) (after []byte, err error) {
	refused := func(code int, why string) error {
		return apierrors.NewGenericServerResponse(code, http.MethodPatch, of, name, why, 0, true)
	}

	switch {
	case how == types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if after, err = operations.Apply(document); err != nil {
			return nil, refused(http.StatusUnprocessableEntity, err.Error())
		}
	case how == types.MergePatchType:
		after, err = jsonpatch.MergePatch(document, patch)
	case how == types.StrategicMergePatchType && structure != nil:
		after, err = strategicpatch.StrategicMergePatch(document, patch, structure)
	default:
		return nil, refused(http.StatusUnsupportedMediaType, "no patches of this kind of type "+string(how))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, nil
}

// Settle returns the object to store for a write of a whole object, or of a subresource, which changes its
// part alone. What the API server owns stays as it was before, and the generation grows with the spec. status
// means that the kind has the subresource status. equal reports whether two specs are the same. sent may be
// changed.
func Settle(
	before, sent client.Object, subresource string, status bool, equal func(a, b any) bool,
) (client.Object, error) {
	if subresource != "" {
		kept := before.DeepCopyObject().(client.Object)
		if err := take(kept, sent, subresource); err != nil {
			return nil, err
		}
		sent = kept
	} else if status {
		SetPart(sent, before, "status")
	}

	sent.SetUID(before.GetUID())
	sent.SetName(before.GetName())
	sent.SetNamespace(before.GetNamespace())
	sent.SetGenerateName(before.GetGenerateName())
	sent.SetResourceVersion(before.GetResourceVersion())
	sent.SetCreationTimestamp(before.GetCreationTimestamp())
	sent.SetDeletionTimestamp(before.GetDeletionTimestamp())
	sent.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
	sent.SetManagedFields(before.GetManagedFields())
	sent.SetGeneration(before.GetGeneration())
	if subresource != "status" && !equal(part(before, "spec"), part(sent, "spec")) {
		sent.SetGeneration(before.GetGeneration() + 1)
	}
	return sent, nil
}

// take takes the part of a subresource from the object that was sent.
func take(kept, sent client.Object, subresource string) error {
	pod, _ := kept.(*corev1.Pod)
	switch {
	case subresource == "status":
		SetPart(kept, sent, "status")
		if pod != nil { // whose metadata a write of the status may change
			pod.SetLabels(sent.GetLabels())
			pod.SetAnnotations(sent.GetAnnotations())
			pod.SetFinalizers(sent.GetFinalizers())
		}
	case subresource == "ephemeralcontainers" && pod != nil:
		pod.Spec.EphemeralContainers = sent.(*corev1.Pod).Spec.EphemeralContainers
	case subresource == "resize" && pod != nil:
		before := qualityOf(pod)
		for i, resized := range sent.(*corev1.Pod).Spec.Containers {
			pod.Spec.Containers[i].Resources = resized.Resources
		}
		if qualityOf(pod) != before {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod.Name, field.ErrorList{
				field.Invalid(field.NewPath("metadata"), pod.Name,
					"Pod QOS Class may not change as a result of resizing")})
		}
	default:
		SetPart(kept, sent, "spec")
	}
	return nil
}

// qualityOf returns the QoS class of a pod, given its regular containers.
func qualityOf(pod *corev1.Pod) corev1.PodQOSClass {
	some, guaranteed := false, true
	for i := range pod.Spec.Containers {
		r := &pod.Spec.Containers[i].Resources
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := r.Limits[name]
			request, requested := r.Requests[name]
			some = some || limited || requested
			guaranteed = guaranteed && limited && requested && limit.Equal(request)
		}
	}

	switch {
	case !some:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}

	return corev1.PodQOSBurstable
}

// fieldNames are the names of parts in Go types.
var fieldNames = map[string]string{"spec": "Spec", "status": "Status"}

// part returns the spec or the status of an object, or nil if its kind has none.
func part(object client.Object, name string) any {
	if document, ok := object.(*unstructured.Unstructured); ok {
		return document.Object[name]
	}
	if value := reflect.ValueOf(object).Elem().FieldByName(fieldNames[name]); value.IsValid() {
		return value.Interface()
	}
	return nil
}

// SetPart sets the spec or the status of an object to that of another one of its type, and clears it if that
// is nil.
func SetPart(object, from client.Object, name string) {
	if document, ok := object.(*unstructured.Unstructured); ok {
		var value any
		if from != nil {
			value = part(from, name)
		}
		if value == nil {
			delete(document.Object, name)
		} else {
			document.Object[name] = value
		}
		return
	}

	value := reflect.ValueOf(object).Elem().FieldByName(fieldNames[name])
	switch {
	case !value.IsValid():
	case from == nil:
		value.SetZero()
	default:
		value.Set(reflect.ValueOf(from).Elem().FieldByName(fieldNames[name]))
	}
}
