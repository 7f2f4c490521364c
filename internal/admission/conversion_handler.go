package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/framework"
)

const convertPath = "/convert"

// maxReview limits the memory of one request, which anyone who can reach the port can send. API servers
// convert stored objects one by one, and each is smaller than 2 MiB.
const maxReview = 32 << 20

// conversionHandler serves /convert. The response has the version of the review; v1 and v1beta1 have the same
// fields.
type conversionHandler struct {
	log   logr.Logger
	kinds []framework.Kind
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
			// The protocol only knows success or failure of a whole review. Only objects that are unreadable,
			// too large or not of this project's kinds get here.
			h.log.Error(err, "Conversion failed", "to", request.DesiredAPIVersion)
			response.ConvertedObjects = nil
			response.Result = metav1.Status{
				Status:  metav1.StatusFailure,
				Code:    http.StatusBadRequest,
				Reason:  metav1.StatusReasonBadRequest,
				Message: fmt.Sprintf("object %d: %v", i, err),
			}
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
	var convert framework.Converter
	if i := slices.IndexFunc(h.kinds,
		func(k framework.Kind) bool { return k.Name == from.Kind && k.Group == from.Group }); i >= 0 &&
		from.Group == wanted.Group {
		convert = h.kinds[i].Conversion.Converter(from, wanted)
	}

	if convert == nil {
		return nil, fmt.Errorf("%s cannot be converted from %s to %s", object.Kind, object.APIVersion, to)
	}

	// The webhooks reject these, but anyone who can reach the port can send them.
	if n := items(raw); n > mostItems {
		return nil, errors.New(tooMany(n))
	}

	converted, err := convert(raw, wanted)
	if err == nil {
		return converted, nil
	}

	// An object that does not fit its types must not break the list that contains it. It keeps its content
	// under the new version; the API server prunes fields that are not in the schema of that version.
	h.log.Error(err, "An object does not fit its types and is passed on as it is", "kind", object.Kind,
		"from", object.APIVersion, "to", to, "name", nameOf(raw))
	document, err := framework.DecodeDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}

	document["apiVersion"] = to
	return json.Marshal(document)
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
