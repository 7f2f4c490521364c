package fastserver

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/afloat-project/afloat/internal/memcluster/httpserver"
)

// request is a parsed request of a client.
type request struct {
	*http.Request
	resource                     *resource
	namespace, name, subresource string
	form                         form
	dry                          bool
}

// answer is the answer to a request: an object, or bytes that are encoded already.
type answer struct {
	code    int
	version *version
	form    form
	// body is used if there is no version.
	body  []byte
	media string
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	// The request takes effect when the answer is due, so that no client sees its writes earlier than with a
	// real server.
	time.Sleep(s.delay - time.Since(begin))
	q, err := s.parse(r)
	if err != nil {
		if found := s.discovery(r.URL.Path); found != nil {
			body, err := json.Marshal(found)
			answer{code: http.StatusOK, body: body, media: runtime.ContentTypeJSON}.send(w, err)
			return
		}
		answer{}.send(w, err)
		return
	}
	if r.Method == http.MethodGet && r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "false" {
		q.watch(w)
		return
	}
	a, err := q.answer(body)
	code := a.send(w, err)
	if verb := verbOf[r.Method]; verb != "" && q.resource.kind.Resource != "events" && q.resource.kind.Resource != "leases" {
		key := verb + " " + q.resource.kind.Resource
		if q.subresource != "" {
			key += "/" + q.subresource
		}
		s.count(r.UserAgent(), key, code)
	}
}

var verbOf = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}

// send answers, with an error if there is one, and returns the code.
func (a answer) send(w http.ResponseWriter, err error) int {
	if err == nil && a.version != nil {
		a.body, err = a.version.bytes(a.form)
		a.media = a.form.contentType()
	}
	if err != nil {
		body := httpserver.StatusOf(err)
		a.code, a.media = int(body.Code), runtime.ContentTypeJSON
		a.body, _ = json.Marshal(body)
	}
	w.Header().Set("Content-Type", a.media)
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body)
	return a.code
}

// parse parses a path such as /api/v1/namespaces/default/pods/web-0/status,
// /apis/apps.kruise.io/v1beta1/clonesets.
func (s *Server) parse(r *http.Request) (*request, error) {
	path, ok := httpserver.ParsePath(r.URL.Path)
	q := &request{Request: r, namespace: path.Namespace, name: path.Name, subresource: path.Subresource,
		dry: len(r.URL.Query()["dryRun"]) > 0}
	if q.resource = s.resource(path.GroupVersionResource); !ok || q.resource == nil ||
		q.subresource != "" && !q.resource.kind.has(q.subresource) {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "",
			errNone.Error(), 0, true)
	}
	q.form = accepted(r.Header.Get("Accept"), q.resource.kind)
	return q, nil
}

// accepted returns the first form in a client's Accept header that the kind supports, and otherwise whole
// objects in JSON.
func accepted(header string, k *kind) form {
	for _, entry := range strings.Split(header, ",") {
		media, parameters, err := mime.ParseMediaType(entry)
		if err != nil {
			continue
		}
		f := form{protobuf: media == runtime.ContentTypeProtobuf, partial: strings.HasPrefix(parameters["as"], "PartialObjectMetadata")}
		if as := parameters["as"]; as != "" && !f.partial || f.protobuf && !f.partial && !k.typed ||
			!f.protobuf && media != runtime.ContentTypeJSON {
			continue
		}
		return f
	}
	return form{}
}

func (q *request) key() string { return keyOf(q.namespace, q.name) }

func (q *request) ok(v *version, err error) (answer, error) {
	return answer{code: http.StatusOK, version: v, form: q.form}, err
}

// answer carries out the request.
func (q *request) answer(body []byte) (answer, error) {
	switch {
	case q.resource.kind.Resource == "events" && q.Method == http.MethodPost: // nobody reads them
		return answer{code: http.StatusCreated, body: body, media: q.Header.Get("Content-Type")}, nil
	case q.subresource == "scale":
		return q.scale(body)
	case q.Method == http.MethodGet && q.name == "":
		return q.list()
	case q.Method == http.MethodGet:
		v := q.resource.get(q.key())
		if v == nil {
			return answer{}, q.resource.notFound(q.name)
		}
		return q.ok(v, nil)
	case q.Method == http.MethodPost && q.name == "":
		return q.create(body)
	case q.Method == http.MethodPut && q.name != "":
		o, err := q.decode(body)
		if err != nil {
			return answer{}, err
		}
		return q.ok(q.resource.update(q.Context(), q.key(), q.name, q.subresource, q.dry,
			func(*version) (object, error) { return o.DeepCopyObject().(object), nil }))
	case q.Method == http.MethodPatch && q.name != "":
		return q.patch(body)
	case q.Method == http.MethodDelete && q.name != "" && q.subresource == "":
		return q.remove(body)
	}
	return answer{}, apierrors.NewMethodNotSupported(q.resource.kind.GroupResource(), q.Method)
}

func (q *request) create(body []byte) (answer, error) {
	o, err := q.decode(body)
	if err != nil {
		return answer{}, err
	}
	if q.resource.kind.namespaced {
		o.SetNamespace(q.namespace)
	}
	v, err := q.resource.create(o, q.dry)
	if crd, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok && err == nil && !q.dry {
		err = q.resource.server.define(crd)
	}
	return answer{code: http.StatusCreated, version: v, form: q.form}, err
}

func (q *request) remove(body []byte) (answer, error) {
	options := &metav1.DeleteOptions{}
	if len(body) > 0 {
		if _, _, err := codecs.UniversalDeserializer().Decode(body, &deleteOptions, options); err != nil {
			return answer{}, apierrors.NewBadRequest(err.Error())
		}
	}
	if q.dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return q.ok(q.resource.remove(q.key(), q.name, options))
}

var (
	codecs        = serializer.NewCodecFactory(scheme)
	deleteOptions = metav1.SchemeGroupVersion.WithKind("DeleteOptions")
)

// decode reads an object of the request's kind, in any form.
func (q *request) decode(body []byte) (object, error) {
	k := q.resource.kind
	if !k.typed {
		return k.fromJSON(body)
	}
	gvk := k.gvk()
	o, actual, err := codecs.UniversalDeserializer().Decode(body, &gvk, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if *actual != gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s is not %s", actual, gvk))
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o.(object), nil
}

// fromJSON reads an object of the kind.
func (k *kind) fromJSON(body []byte) (object, error) {
	if !k.typed {
		document := &unstructured.Unstructured{}
		if err := document.UnmarshalJSON(body); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return document, nil
	}
	o, err := scheme.New(k.gvk())
	if err == nil {
		err = json.Unmarshal(body, o)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.GetObjectKind().SetGroupVersionKind(k.gvk())
	return o.(object), nil
}

// list answers with all objects that are selected.
func (q *request) list() (answer, error) {
	chosen, err := q.selected()
	if err != nil {
		return answer{}, err
	}
	all, number, _ := q.resource.list(chosen)
	k := q.resource.kind
	header := metav1.ListMeta{ResourceVersion: fmt.Sprint(number)}
	gvk := k.GroupVersion().WithKind(k.name + "List")
	if q.form.partial {
		gvk = partialKind.GroupVersion().WithKind("PartialObjectMetadataList")
	}
	if !q.form.protobuf {
		items := make([]json.RawMessage, len(all))
		for i, v := range all {
			if items[i], err = v.bytes(q.form); err != nil {
				return answer{}, err
			}
		}
		body, err := json.Marshal(map[string]any{"kind": gvk.Kind, "apiVersion": gvk.GroupVersion().String(), "metadata": header,
			"items": items})
		return answer{code: http.StatusOK, body: body, media: runtime.ContentTypeJSON}, err
	}
	var list runtime.Object = &metav1.PartialObjectMetadataList{}
	if !q.form.partial {
		if list, err = scheme.New(gvk); err != nil {
			return answer{}, err
		}
	}
	items := make([]runtime.Object, len(all))
	for i, v := range all {
		if items[i] = v.object; q.form.partial {
			items[i] = metadataOf(v.object)
		}
	}
	if err := meta.SetList(list, items); err != nil {
		return answer{}, err
	}
	list.(metav1.ListInterface).SetResourceVersion(header.ResourceVersion)
	list.GetObjectKind().SetGroupVersionKind(gvk)
	body, err := encode(list, q.form)
	return answer{code: http.StatusOK, body: body, media: runtime.ContentTypeProtobuf}, err
}
