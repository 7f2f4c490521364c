package admission

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzIdentity: an object whose identity can be read has each of its fields once, so that every parser of
// JSON reads the same name.
func FuzzIdentity(f *testing.F) {
	for _, text := range []string{`{"metadata":{"name":"web","namespace":"shop"}}`, `{"metadata":{"name":"a","Name":"b"}}`, `{"metadata":{"name":"a","name":"b"}}`,
		`{"Metadata":{"name":"b"},"metadata":{"name":"a"}}`, `{"metadata":null}`, `{"metadata":[]}`, `null`, ``, `{"metadata":{"name":5}}`,
		`{"metadata":{"\u006eame":"a","ſname":"b"}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		id, err := identityOf(raw)
		if err != nil || len(raw) == 0 {
			return
		}
		// The parser of the standard library does not tell upper from lower case, and takes the last of several.
		var object struct {
			Metadata identity `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &object); err != nil || object.Metadata != id {
			t.Errorf("%s is %+v, and for the standard library %+v, %v", raw, id, object.Metadata, err)
		}
		for _, err := range nameErrors(id) {
			if len(err.Error()) > 4000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		}
	})
}

// FuzzConversionReview: a body that is no review is refused, and a review has an answer that either
// converts all of its objects or none.
func FuzzConversionReview(f *testing.F) {
	const review = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[{"apiVersion":"apps.kruise.io/v1alpha1","kind":"CloneSet","metadata":{"name":"web"},"spec":{"replicas":1}},{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"logs"},"spec":{"containers":"broken"}}]}}`
	f.Add(review, []byte{})
	f.Add(review, []byte("\x02\x01\x00\x01\x02\x03"))
	f.Add(`{"request":null}`, []byte{})
	f.Add(`[]`, []byte{})
	handler := &conversionHandler{log: logr.Discard(), kinds: Registered}
	f.Fuzz(func(t *testing.T, body string, changes []byte) {
		body = fuzzing.Edit(body, changes, "apiVersion", "kind", "spec", "objects", "metadata", "annotations")
		recorder := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, convertPath,
			bytes.NewReader([]byte(body)))
		handler.ServeHTTP(recorder, r)
		if recorder.Code == http.StatusBadRequest {
			return
		}
		var asked, answered apiextensionsv1.ConversionReview
		if json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&asked) != nil ||
			json.Unmarshal(recorder.Body.Bytes(), &answered) != nil ||
			answered.Response == nil || answered.Response.UID != asked.Request.UID {
			t.Fatalf("%s is answered by %d %s", body, recorder.Code, recorder.Body)
		}
		switch converted := len(answered.Response.ConvertedObjects); {
		case answered.Response.Result.Status == "Success" && converted != len(asked.Request.Objects),
			answered.Response.Result.Status != "Success" && (converted > 0 || answered.Response.Result.Message == ""):
			t.Errorf("%s is answered by %s", body, recorder.Body)
		}
	})
}
