package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const convertPath = "/convert"

// maxReview bounds the memory of one request, which anybody who reaches the port can send. API servers
// convert stored objects one by one, and each has less than 2 MiB.
const maxReview = 32 << 20

// converter converts an object of one version, as JSON, to another version as kind.
type converter func(raw []byte, kind schema.GroupVersionKind) (converted []byte, err error)

// Conversion has the converters of a kind, by the version of the object and the wanted one, without the
// group.
type Conversion map[[2]string]converter

// Convert converts an object of one version to another one; it is as it is if they are the same.
func (c Conversion) Convert(raw []byte, from, to schema.GroupVersionKind) ([]byte, error) {
	if from.Version == to.Version {
		return raw, nil
	}
	convert := c[[2]string{from.Version, to.Version}]
	if convert == nil {
		return nil, fmt.Errorf("%s cannot be converted from %s to %s", from.Kind, from.Version, to.Version)
	}
	return attempt(convert, raw, to)
}

// Between makes the conversion of a kind from functions between its types. Unknown fields keep their path, or
// get the one that place returns if it is not nil.
func Between[Alpha, Beta any](
	up func(*Alpha) *Beta, down func(*Beta) *Alpha, place func(path []string) []string,
) Conversion {
	return Conversion{{alpha, beta}: between(up, place), {beta, alpha}: between(down, place)}
}

const alpha, beta = "v1alpha1", "v1beta1"

// between makes a converter from a function between two types.
func between[From, To any](convert func(*From) *To, place func(path []string) []string) converter {
	return func(raw []byte, kind schema.GroupVersionKind) ([]byte, error) {
		in := new(From)
		unknown, err := decode(raw, in)
		if err != nil {
			return nil, err
		}
		out := any(convert(in))
		if object, ok := out.(schema.ObjectKind); ok {
			object.SetGroupVersionKind(kind)
		}
		converted, err := json.Marshal(out)
		if err != nil || !unknown {
			return converted, err
		}
		return carry(raw, converted, reflect.TypeFor[From](), place)
	}
}

// conversionHandler serves /convert. A review is answered in its own version; v1 and v1beta1 have the same
// fields.
type conversionHandler struct {
	log   logr.Logger
	kinds []Kind
}

func (h *conversionHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("this is no conversion review: %v", err), http.StatusBadRequest)
		return
	}
	review.Response = h.convert(review.Request)
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(&review); err != nil {
		h.log.V(1).Info("The caller of a conversion went away", "err", err)
	}
}

func (h *conversionHandler) convert(
	request *apiextensionsv1.ConversionRequest,
) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{
		UID:    request.UID,
		Result: metav1.Status{Status: metav1.StatusSuccess},
	}
	for i := range request.Objects {
		converted, err := h.convertOne(request.Objects[i].Raw, request.DesiredAPIVersion)
		if err != nil {
			// The protocol has only success or failure of a whole review. Only objects that are not of our
			// kinds get here.
			h.log.Error(err, "Conversion failed", "to", request.DesiredAPIVersion)
			response.ConvertedObjects = nil
			response.Result = metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest,
				Reason:  metav1.StatusReasonBadRequest,
				Message: fmt.Sprintf("object %d: %v", i, err)}
			return response
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	return response
}

func (h *conversionHandler) convertOne(raw []byte, to string) ([]byte, error) {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object.TypeMeta); err != nil {
		return nil, fmt.Errorf("reading apiVersion and kind: %w", err)
	}
	if object.APIVersion == to {
		return raw, nil
	}
	from, wanted := object.GroupVersionKind(), schema.FromAPIVersionAndKind(to, object.Kind)
	var convert converter
	if i := slices.IndexFunc(h.kinds,
		func(k Kind) bool { return k.Name == from.Kind && k.Group == from.Group }); i >= 0 &&
		from.Group == wanted.Group {
		convert = h.kinds[i].Conversion[[2]string{from.Version, wanted.Version}]
	}
	if convert == nil {
		return nil, fmt.Errorf("%s cannot be converted from %s to %s", object.Kind, object.APIVersion, to)
	}
	// the webhooks refuse these, but anybody who can reach the port can send them
	if n := items(raw); n > mostItems {
		return nil, errors.New(tooMany(n))
	}
	converted, err := attempt(convert, raw, wanted)
	if err == nil {
		return converted, nil
	}
	// an object that does not fit its types must not break the list it is in. It keeps its content
	// under the new version; the API server prunes what that schema does not know.
	h.log.Error(err, "An object does not fit its types and is passed on as it is", "kind", object.Kind,
		"from", object.APIVersion, "to", to, "name", nameOf(raw))
	document, err := decodeDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	document["apiVersion"] = to
	return json.Marshal(document)
}

// attempt converts, and returns a panic as an error.
func attempt(convert converter, raw []byte, kind schema.GroupVersionKind) (converted []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic in conversion: %v", cause)
		}
	}()
	return convert(raw, kind)
}

func nameOf(raw []byte) string {
	var object struct {
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return ""
	}
	return object.Metadata.Namespace + "/" + object.Metadata.Name
}
