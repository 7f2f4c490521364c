package webhooktest

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/fuzzing"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// anything is an API server that accepts every pod template, and has no defaults.
type anything struct{}

func (anything) Complete(_ context.Context, _ string, t framework.Document, _ []string) (framework.Document,
	error) {
	return t, nil
}

func (anything) Judge(context.Context, string, framework.Document, []string) ([]metav1.StatusCause, error) {
	return nil, nil
}

// Names are members of objects that fuzz targets add: keys of annotations and labels that webhooks and
// conversions read, and fields that no type has.
var Names = []string{
	"annotations", "labels", "name", "future", "metadata", "spec", "status", "template", "updateStrategy",
	pub.V1beta1OnlyFields, pub.ConversionData, pub.ImageListTemplate, pub.BudgetOperations,
	pub.BudgetTotalReplicas,
	pub.BudgetIgnoredPods, pub.BudgetWindows, pub.SidecarSetCustomVersion, pub.SidecarSetV1alpha1Namespace,
	pub.CloneSetExcludePreparingDelete, pub.ImagePreDownloadParallelism, pub.ImagePreDownloadTimeoutSeconds,
	pub.ImagePreDownloadMinUpdatedReadyPods, pub.ProgressiveCreatePod, pub.RecreateContainerStatuses,
	pub.RecreateUnreadyAcquired, pub.DeletionProtection,
}

// fuzzEnvironment returns what webhooks need, with all gates of the kind on.
func fuzzEnvironment(f *testing.F, kind *framework.Kind, objects ...client.Object) *framework.Environment {
	f.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, appsv1beta1.AddToScheme, policyv1beta1.AddToScheme,
	} {
		if err := add(known); err != nil {
			f.Fatal(err)
		}
	}
	var on []string
	for _, list := range kind.Gates {
		for _, gate := range list {
			on = append(on, string(gate)+"=true")
		}
	}
	gates, err := features.Parse(strings.Join(on, ","))
	if err != nil {
		f.Fatal(err)
	}
	reader := fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).Build()
	e := &framework.Environment{
		Gates: gates, Validator: anything{}, Cache: reader, APIReader: reader, Writer: reader,
		Namespace:       "kruise-system",
		DaemonNamespace: "kruise-daemon-config", Minor: 36, Mapper: meta.NewDefaultRESTMapper(nil),
		Protect: func(string, framework.Protection) admission.HandlerFunc {
			return func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }
		},
	}
	return e
}

// Fuzz plays the webhooks of a kind: the patch of the mutating webhook applies to the object, the mutating
// webhook changes nothing in its own result, no answer is longer than a few times the object, and an object
// that may be created may be updated without a change. Specs are specs of objects that are admitted.
func Fuzz(f *testing.F, kind framework.Kind, prepare func(*framework.Environment), objects []client.Object,
	specs ...string) {
	f.Helper()
	e := fuzzEnvironment(f, &kind, objects...)
	if prepare != nil {
		prepare(e)
	}
	handlers := kind.Handlers(e)
	mutate, validate := handlers[kind.Path("mutate")], handlers[kind.Path("validate")]
	for _, spec := range specs {
		for _, version := range kind.Versions() {
			document := seed(&kind, version, spec)
			f.Add(document, []byte{})
			f.Add(document, []byte("\x03\x02\x01\x05\x04"))
			f.Add(document, []byte("afloat fuzzes what users write"))
		}
	}
	f.Fuzz(func(t *testing.T, document string, changes []byte) {
		object := fuzzing.Edit(document, changes, Names...)
		mutated := object
		if mutate != nil {
			var patched bool
			if mutated, patched = mutatedBy(t, mutate, &kind, admissionv1.Create, object, ""); !patched {
				return
			}
			for _, old := range []string{"", mutated} {
				operation := admissionv1.Create
				if old != "" {
					operation = admissionv1.Update
				}
				again, patched := mutatedBy(t, mutate, &kind, operation, mutated, old)
				if !patched || !sameDocument(again, mutated) {
					t.Errorf("%s of the result of the webhook changes it again\nfrom %s\ninto %s", operation, mutated, again)
				}
			}
		}
		if validate == nil {
			return
		}
		request := reviewOf(&kind, admissionv1.Create, mutated, "")
		created := answer(t, validate, request)
		request = reviewOf(&kind, admissionv1.Update, mutated, mutated)
		if updated := answer(t, validate, request); created.Allowed && !updated.Allowed {
			t.Errorf("%s may be created, and not be updated without a change: %s", mutated, updated.Result.Message)
		}
		// A change of anything else is judged without a panic, whatever was stored.
		answer(t, validate, reviewOf(&kind, admissionv1.Update, mutated, document))
	})
}

// seed returns an object of a kind as JSON.
func seed(kind *framework.Kind, version, spec string) string {
	place := `,"namespace":"shop"`
	if kind.Cluster {
		place = ""
	}
	return `{"apiVersion":"` + kind.Group + `/` + version + `","kind":"` + kind.Name + `","metadata":{"name":"web"` + place +
		`,"labels":{"app":"web"},"annotations":{"a":"b"}},"spec":` + spec + `}`
}

func reviewOf(kind *framework.Kind, operation admissionv1.Operation, object, old string) admission.Request {
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "uid", Operation: operation, Namespace: "shop", Name: "web",
		Kind: metav1.GroupVersionKind{Group: kind.Group, Version: kind.Stored().Version, Kind: kind.Name},
		Resource: metav1.GroupVersionResource{Group: kind.Group, Version: kind.Stored().Version,
			Resource: kind.Plural},
	}}
	if kind.Cluster {
		request.Namespace = ""
	}
	request.Object.Raw = []byte(object)
	if old != "" {
		request.OldObject.Raw = []byte(old)
	}
	return request
}

// mostAnswer is how much longer than the objects of a request an answer may be.
const mostAnswer = 256 << 10

// answer returns the answer to a request, which has a bound, and a reason if it refuses.
func answer(t *testing.T, handler admission.Handler, request admission.Request) admission.Response {
	t.Helper()
	response := handler.Handle(t.Context(), request)
	if !response.Allowed && (response.Result == nil || response.Result.Message == "") {
		t.Errorf("%s of %s is refused without a reason", request.Operation, request.Object.Raw)
	}
	text, err := json.Marshal(response)
	if err != nil {
		t.Fatalf("the answer to %s cannot be written: %v", request.Object.Raw, err)
	}
	if given := len(request.Object.Raw) + len(request.OldObject.Raw); len(text) > mostAnswer+4*given {
		t.Errorf("the answer to an object of %d bytes has %d bytes", given, len(text))
	}
	return response
}

// mutatedBy returns what a mutating webhook makes of an object, and false if it refuses it.
func mutatedBy(
	t *testing.T, handler admission.Handler, kind *framework.Kind, operation admissionv1.Operation, object,
	old string,
) (string, bool) {
	t.Helper()
	response := answer(t, handler, reviewOf(kind, operation, object, old))
	var sent struct{ Metadata map[string]any }
	if !response.Allowed || json.Unmarshal([]byte(object), &sent) != nil || sent.Metadata == nil { // no API server sends that
		return object, false
	}
	if len(response.Patches) == 0 {
		return object, true
	}
	text, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatalf("the patch of %s cannot be written: %v", object, err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatalf("%s is no patch: %v", text, err)
	}
	changed, err := patch.Apply([]byte(object))
	if err != nil {
		t.Fatalf("%s does not apply to %s: %v", text, object, err)
	}
	return string(changed), true
}

// sameDocument reports whether two texts are one JSON value.
func sameDocument(a, b string) bool { return reflect.DeepEqual(fuzzing.Value(a), fuzzing.Value(b)) }

// Exact says what a conversion keeps.
type Exact bool

const (
	// Lossless conversions change nothing of an object that is read and written back in its other version.
	Lossless Exact = true
	// Settling conversions change what one of the versions cannot express, and nothing any more when it is
	// read and written back once more.
	Settling Exact = false
)

// FuzzConversion plays the conversion of a kind: it always ends, metadata change in labels and annotations
// only, and once an object has been written in one version and read in the other, nothing changes any more,
// however often clients of both versions read and write it. That is so for every content of the annotations
// that conversion itself writes. An object that does not fit the types is an error.
func FuzzConversion[Alpha, Beta any](f *testing.F, kind framework.Kind, exact Exact, specs ...string) {
	f.Helper()
	for _, version := range kind.Versions() {
		for _, spec := range specs {
			f.Add(seed(&kind, version, spec), []byte{})
			f.Add(seed(&kind, version, spec), []byte("\x02\x01\x01\x03\x02"))
		}
		for _, hostile := range []string{"", "null", "[]", "{}", `{"type":{"was":5,"as":"ReCreate"}}`, "garbage"} {
			f.Add(seed(&kind, version, specs[0]), []byte(hostile))
		}
	}
	f.Add(framework.V1alpha1, []byte("an object of v1alpha1 with all of its fields, made from these bytes"))
	f.Add(framework.V1beta1, []byte("an object of v1beta1 with all of its fields, made from these bytes"))
	f.Fuzz(func(t *testing.T, document string, changes []byte) {
		var object string
		switch document {
		case framework.V1alpha1:
			object = typed(&kind, document, fuzzing.Fill[Alpha](changes))
		case framework.V1beta1:
			object = typed(&kind, document, fuzzing.Fill[Beta](changes))
		default:
			object = fuzzing.Edit(document, changes, Names...)
		}
		var given metav1.TypeMeta
		_ = json.Unmarshal([]byte(object), &given)
		from, to := framework.V1beta1, framework.V1alpha1
		if strings.HasSuffix(given.APIVersion, framework.V1alpha1) {
			from, to = to, from
		}
		there, ok := converted(t, &kind, object, from, to)
		if !ok {
			return
		}
		back, ok := converted(t, &kind, there, to, from)
		if !ok { // a field that one version does not have need not fit the type that the other has
			return
		}
		again, ok := converted(t, &kind, back, from, to)
		if !ok || exact == Lossless && visible(again) != visible(there) {
			t.Errorf("%s of %s\nbecame %s in %s\nand after %s\nit is %s", from, object, there, to, back, again)
		}
		if settled, ok := converted(t, &kind, again, to, from); !ok || visible(settled) != visible(back) {
			t.Errorf("%s of %s\nwas read as %s\nand after it was written once more as %s", from, object, back, settled)
		}
		var before, after metav1.PartialObjectMetadata
		if json.Unmarshal([]byte(object), &before) == nil && json.Unmarshal([]byte(there), &after) == nil {
			for _, m := range []*metav1.PartialObjectMetadata{&before, &after} {
				m.TypeMeta, m.Labels, m.Annotations = metav1.TypeMeta{}, nil, nil
			}
			if a, b := fuzzing.JSON(before), fuzzing.JSON(after); a != b {
				t.Errorf("conversion of %s changed its metadata\nfrom %s\ninto %s", object, a, b)
			}
		}
	})
}

// typed returns an object of a type as JSON.
func typed(kind *framework.Kind, version string, object any) string {
	if o, ok := object.(interface {
		SetGroupVersionKind(schema.GroupVersionKind)
	}); ok {
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: version, Kind: kind.Name})
	}
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return fuzzing.JSON(object)
}

// converted returns an object in another version, and false if that is an error. A panic is none.
func converted(t *testing.T, kind *framework.Kind, object, from, to string) (string, bool) {
	t.Helper()
	result, err := kind.Conversion.Convert([]byte(object),
		schema.GroupVersionKind{Group: kind.Group, Version: from, Kind: kind.Name},
		schema.GroupVersionKind{Group: kind.Group, Version: to, Kind: kind.Name})
	if err != nil && strings.Contains(err.Error(), "panic") {
		t.Fatalf("%s: %v", object, err)
	}
	if err == nil && !json.Valid(result) {
		t.Fatalf("%s became %s, which is no JSON", object, result)
	}
	return string(result), err == nil
}

// visible returns an object without empty maps of metadata, which are the same as none.
func visible(object string) string {
	document, _ := fuzzing.Value(object).(map[string]any)
	document = maps.Clone(document)
	if metadata, ok := document["metadata"].(map[string]any); ok {
		for _, key := range []string{"labels", "annotations"} {
			if keys, ok := metadata[key].(map[string]any); ok && len(keys) == 0 {
				delete(metadata, key)
			}
		}
	}
	return fuzzing.JSON(document)
}
