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

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

const convertPath = "/convert"

// maxReview bounds the memory of one request, which anybody who reaches the port can send. API servers convert what they store one by
// one, and objects have less than 2 MiB.
const maxReview = 32 << 20

// converter converts an object of one version, as JSON, to another version as kind.
type converter func(raw []byte, kind schema.GroupVersionKind) (converted []byte, err error)

// converters of the kinds whose versions differ (OPS-070), by kind and from-version and to-version.
var converters = map[[3]string]converter{
	{"CloneSet", alpha, beta}:                 between((*appsv1alpha1.CloneSet).ToV1beta1, movedInCloneSets),
	{"CloneSet", beta, alpha}:                 between(appsv1alpha1.CloneSetFromV1beta1, movedInCloneSets),
	{"ContainerRecreateRequest", alpha, beta}: between((*appsv1alpha1.ContainerRecreateRequest).ToV1beta1),
	{"ContainerRecreateRequest", beta, alpha}: between(appsv1alpha1.ContainerRecreateRequestFromV1beta1),
	{"NodeImage", alpha, beta}:                between((*appsv1alpha1.NodeImage).ToV1beta1),
	{"NodeImage", beta, alpha}:                between(appsv1alpha1.NodeImageFromV1beta1),
	{"SidecarSet", alpha, beta}:               between((*appsv1alpha1.SidecarSet).ToV1beta1),
	{"SidecarSet", beta, alpha}:               between(appsv1alpha1.SidecarSetFromV1beta1),
	{"WorkloadSpread", alpha, beta}:           between((*appsv1alpha1.WorkloadSpread).ToV1beta1, renamedInWorkloadSpreads),
	{"WorkloadSpread", beta, alpha}:           between(appsv1alpha1.WorkloadSpreadFromV1beta1, renamedInWorkloadSpreads),
}

const alpha, beta = "apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1"

// between makes a converter of a function between two types. Fields that the first has no place for keep theirs, or get the one that place
// says.
func between[From, To any](convert func(*From) *To, place ...func(path []string) []string) converter {
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
		var moved func(path []string) []string
		if len(place) > 0 {
			moved = place[0]
		}
		return carry(raw, converted, reflect.TypeFor[From](), moved)
	}
}

// movedInCloneSets is where a field of one version of a CloneSet is in the other. What v1beta1 has in updateStrategy.rollingUpdate v1alpha1
// has in updateStrategy itself (CS-253). What v1beta1 has in updateStrategy itself takes the place that this leaves free, so that every
// field comes back to where it was.
func movedInCloneSets(path []string) []string {
	const strategy, rolling = "updateStrategy", "rollingUpdate"
	switch {
	case len(path) < 3 || path[0] != "spec" || path[1] != strategy:
		return path
	case len(path) > 3 && path[2] == rolling:
		return append([]string{"spec", strategy}, path[3:]...)
	}
	return append([]string{"spec", strategy, rolling}, path[2:]...)
}

// renamedInWorkloadSpreads is where a field of one version of a WorkloadSpread is in the other: node selectors have other names (WS-180). What has the
// other name already takes the place that this leaves free.
func renamedInWorkloadSpreads(path []string) []string {
	if len(path) < 4 || path[0] != "spec" || path[1] != "subsets" {
		return path
	}
	for _, names := range [][2]string{{"requiredNodeSelectorTerm", "requiredNodeSelector"}, {"preferredNodeSelectorTerms", "preferredNodeSelector"}} {
		if i := slices.Index(names[:], path[3]); i >= 0 {
			return slices.Concat(path[:3], []string{names[1-i]}, path[4:])
		}
	}
	return path
}

// conversionHandler serves /convert (OPS-040). A review is answered in the version in which it came; v1 and v1beta1 are alike.
type conversionHandler struct{ log logr.Logger }

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

func (h *conversionHandler) convert(request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for i := range request.Objects {
		converted, err := h.convertOne(request.Objects[i].Raw, request.DesiredAPIVersion)
		if err != nil {
			// The protocol knows success and failure of a whole review only. What gets here is no object of ours at all.
			h.log.Error(err, "Conversion failed", "to", request.DesiredAPIVersion)
			response.ConvertedObjects = nil
			response.Result = metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest,
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
	convert, ok := converters[[3]string{object.Kind, object.APIVersion, to}]
	if !ok {
		return nil, fmt.Errorf("%s cannot be converted from %s to %s", object.Kind, object.APIVersion, to)
	}
	if n := items(raw); n > mostItems { // admission refuses these; who reaches the port can send them
		return nil, errors.New(tooMany(n))
	}
	converted, err := attempt(convert, raw, schema.FromAPIVersionAndKind(to, object.Kind))
	if err == nil {
		return converted, nil
	}
	// OPS-072: an object that does not fit its types must not break the list it is in. It keeps its document under the new version;
	// what the schema there does not know is pruned by the API server.
	h.log.Error(err, "An object does not fit its types and is passed on as it is", "kind", object.Kind, "from", object.APIVersion, "to", to, "name", nameOf(raw))
	document, err := decodeDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	document["apiVersion"] = to
	return json.Marshal(document)
}

// attempt converts, and makes an error of a panic (OPS-066).
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
