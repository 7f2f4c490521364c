package fakeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// target is what the path of a request names.
type target struct {
	*kind
	namespace, name string
}

// ServeHTTP answers a request like an API server.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if answer := s.discovery(path); answer != nil {
		reply(w, http.StatusOK, answer)
		return
	}

	at := s.find(path)
	if at == nil {
		fail(w, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path))
		return
	}

	handle := s.write
	if r.Method == http.MethodGet {
		handle = s.read
	}

	if s.Fault == nil {
		handle(w, r, at)
		return
	}

	if err := s.Fault(true, r.Method, r.URL.Path); err != nil {
		fail(w, err)
		return
	}

	answer := httptest.NewRecorder()
	handle(answer, r, at)
	if err := s.Fault(false, r.Method, r.URL.Path); err != nil {
		fail(w, err)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, err error) {
	status := apierrors.NewInternalError(err).Status()
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	reply(w, int(status.Code), status)
}

// discovery returns the answer to a discovery request, or nil for all other paths.
func (s *Server) discovery(path []string) any {
	switch {
	case len(path) == 1 && path[0] == "version":
		return version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"}
	case len(path) == 1 && path[0] == "api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case len(path) == 1 && path[0] == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		seen := map[string]int{}
		for _, k := range s.kinds {
			if k.Group == "" {
				continue
			}
			at := metav1.GroupVersionForDiscovery{GroupVersion: k.groupVersion().String(), Version: k.Version}
			i, ok := seen[k.Group]
			if !ok {
				seen[k.Group] = len(list.Groups)
				list.Groups = append(list.Groups, metav1.APIGroup{
					Name:             k.Group,
					PreferredVersion: at,
					Versions:         []metav1.GroupVersionForDiscovery{at},
				})
				continue
			}

			known := false
			for _, v := range list.Groups[i].Versions {
				known = known || v == at
			}
			if !known {
				list.Groups[i].Versions = append(list.Groups[i].Versions, at)
			}
		}
		return list
	case len(path) == 2 && path[0] == "api", len(path) == 3 && path[0] == "apis":
		gv := strings.Join(path[1:], "/")
		list := metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: gv,
		}
		for _, k := range s.kinds {
			if k.groupVersion().String() == gv {
				list.APIResources = append(list.APIResources, k.APIResource)
			}
		}
		return list
	}
	return nil
}

// find parses the path of a request. It returns nil if the path names no resource that is served.
func (s *Server) find(path []string) *target {
	var gv schema.GroupVersion
	switch {
	case len(path) > 2 && path[0] == "api":
		gv, path = schema.GroupVersion{Version: path[1]}, path[2:]
	case len(path) > 3 && path[0] == "apis":
		gv, path = schema.GroupVersion{Group: path[1], Version: path[2]}, path[3:]
	default:
		return nil
	}

	at := &target{}
	if len(path) > 2 && path[0] == "namespaces" {
		at.namespace, path = path[1], path[2:]
	}
	if len(path) > 1 {
		at.name = path[1]
	}

	for _, k := range s.kinds {
		if k.Name == path[0] && k.groupVersion() == gv && len(path) <= 2 {
			at.kind = k
			return at
		}
	}

	return nil
}

// read answers a get, list or watch request.
func (s *Server) read(w http.ResponseWriter, r *http.Request, at *target) {
	query := r.URL.Query()
	matches, err := filter(query.Get("labelSelector"), query.Get("fieldSelector"))
	if err != nil {
		fail(w, apierrors.NewBadRequest(err.Error()))
		return
	}

	if query.Get("watch") == "true" || query.Get("watch") == "1" {
		s.watch(w, r, at, matches)
		return
	}

	if s.Read != nil && at.name != "" {
		s.Read(at.resource(), at.name)
	}

	s.lock.Lock()
	var found []unstructured.Unstructured
	for _, object := range s.objects {
		if at.holds(object) && (at.namespace == "" || object.GetNamespace() == at.namespace) &&
			(at.name == "" || object.GetName() == at.name) && matches(object) {
			found = append(found, *object.DeepCopy())
		}
	}
	now := strconv.FormatInt(s.version, 10)
	s.lock.Unlock()

	sort.Slice(found, func(i, j int) bool {
		return found[i].GetNamespace()+"/"+found[i].GetName() < found[j].GetNamespace()+"/"+found[j].GetName()
	})

	asTable := strings.Contains(r.Header.Get("Accept"), "as=Table")
	switch {
	case at.name != "" && len(found) == 0:
		fail(w, apierrors.NewNotFound(schema.GroupResource{Group: at.Group, Resource: at.Name}, at.name))
	case asTable:
		reply(w, http.StatusOK, at.table(found, now))
	case at.name != "":
		reply(w, http.StatusOK, found[0].Object)
	default:
		list := &unstructured.UnstructuredList{Items: found, Object: map[string]any{
			"kind":       at.Kind + "List",
			"apiVersion": at.groupVersion().String(),
			"metadata":   map[string]any{"resourceVersion": now},
		}}
		reply(w, http.StatusOK, list)
	}
}

// filter returns a function that reports whether the selectors match an object.
func filter(labelSelector, fieldSelector string) (func(*unstructured.Unstructured) bool, error) {
	selector, err := labels.Parse(labelSelector)
	if err != nil {
		return nil, err
	}

	return func(object *unstructured.Unstructured) bool {
		for _, term := range strings.Split(fieldSelector, ",") {
			if path, want, ok := strings.Cut(term, "="); ok {
				value, _, _ := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
				if fmt.Sprint(value) != strings.TrimPrefix(want, "=") {
					return false
				}
			}
		}
		return selector.Matches(labels.Set(object.GetLabels()))
	}, nil
}

// table returns the objects as a table for kubectl get.
func (k *kind) table(objects []unstructured.Unstructured, now string) *metav1.Table {
	table := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ListMeta:          metav1.ListMeta{ResourceVersion: now},
		ColumnDefinitions: k.columns,
		Rows:              []metav1.TableRow{},
	}
	for i := range objects {
		row := metav1.TableRow{Cells: []any{objects[i].GetName()}}
		for _, path := range k.paths {
			value, _, _ := unstructured.NestedFieldNoCopy(objects[i].Object,
				strings.Split(strings.Trim(path, "."), ".")...)
			row.Cells = append(row.Cells, value)
		}

		metadata := objects[i].DeepCopy()
		metadata.Object = map[string]any{
			"kind":       "PartialObjectMetadata",
			"apiVersion": "meta.k8s.io/v1",
			"metadata":   metadata.Object["metadata"],
		}
		row.Object.Raw, _ = json.Marshal(metadata)
		table.Rows = append(table.Rows, row)
	}

	return table
}

// watch sends the events after the version that the client knows, until the client disconnects.
func (s *Server) watch(
	w http.ResponseWriter, r *http.Request, at *target, matches func(*unstructured.Unstructured) bool,
) {
	from, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	asTable := strings.Contains(r.Header.Get("Accept"), "as=Table")

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flusher, _ := w.(http.Flusher)
	s.watches.Add(1)

	for next := 0; ; {
		s.lock.Lock()
		events, changed := s.log[next:], s.changed
		next = len(s.log)
		s.lock.Unlock()

		for _, e := range events {
			if e.version <= from || e.kind != at.kind ||
				at.namespace != "" && e.object.GetNamespace() != at.namespace || !matches(e.object) {
				continue
			}
			var object any = e.object.Object

			if asTable {
				object = at.table([]unstructured.Unstructured{*e.object}, e.object.GetResourceVersion())
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": e.verb, "object": object})
		}

		flusher.Flush()
		select {
		case <-r.Context().Done():
			return
		case <-s.stopped:
			return
		case <-changed:
		}
	}
}

// write carries out a write request and answers it.
func (s *Server) write(w http.ResponseWriter, r *http.Request, at *target) {
	body, _ := io.ReadAll(r.Body)
	verb := map[string]string{
		http.MethodPost:   "create",
		http.MethodPut:    "update",
		http.MethodPatch:  "patch",
		http.MethodDelete: "delete",
	}[r.Method]
	request := Request{
		Verb:     verb,
		Resource: at.resource(),
		Name:     at.name,
		Query:    r.URL.RawQuery,
		Body:     strings.TrimSpace(string(body)),
	}
	if verb == "create" {
		sent := &unstructured.Unstructured{}
		_ = json.Unmarshal(body, &sent.Object)
		request.Name = sent.GetName()
	}

	s.lock.Lock()
	s.requests = append(s.requests, request)
	s.lock.Unlock()

	if s.Before != nil {
		if err := s.Before(request); err != nil {
			fail(w, err)
			return
		}
	}

	dry := r.URL.Query().Get("dryRun") == "All" ||
		verb == "delete" && strings.Contains(request.Body, `"dryRun":["All"]`)

	s.lock.Lock()
	object, err := s.decide(verb, r.Header.Get("Content-Type"), at, body)
	if err == nil && !dry {
		kind := "MODIFIED"
		switch {
		case verb == "create":
			kind = "ADDED"
		case verb == "delete" && len(object.GetFinalizers()) == 0:
			kind = "DELETED"
		}
		s.store(at.kind, kind, object)
	}
	s.lock.Unlock()
	if err != nil {
		fail(w, err)
		return
	}

	if s.After != nil && !dry {
		s.After(verb, object.DeepCopy())
	}

	code := http.StatusOK
	if verb == "create" {
		code = http.StatusCreated
	}
	reply(w, code, object.Object)
}

// decide returns the object after a write, or the error of the API server. The caller holds the lock.
func (s *Server) decide(
	verb, contentType string, at *target, body []byte,
) (*unstructured.Unstructured, error) {
	resource := schema.GroupResource{Group: at.Group, Resource: at.Name}
	if verb == "create" {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(body); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}

		if object.GetName() == "" {
			object.SetName(fmt.Sprintf("%s%05d", object.GetGenerateName(), s.version))
		}

		if object.GetKind() != at.Kind || object.GetAPIVersion() != at.groupVersion().String() {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s %s was sent to %s",
				object.GetAPIVersion(), object.GetKind(), at.groupVersion()))
		}

		if at.Namespaced {
			object.SetNamespace(at.namespace)
		}

		if s.objects[key(at.kind, at.namespace, object.GetName())] != nil {
			return nil, apierrors.NewAlreadyExists(resource, object.GetName())
		}

		return object, nil
	}

	old := s.objects[key(at.kind, at.namespace, at.name)]
	if old == nil {
		return nil, apierrors.NewNotFound(resource, at.name)
	}

	if verb == "delete" {
		options := metav1.DeleteOptions{}
		_ = json.Unmarshal(body, &options)
		if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != old.GetUID() ||
			p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()) {
			return nil, apierrors.NewConflict(resource, at.name, errors.New("the object is another one"))
		}

		object := old.DeepCopy()
		if p := options.PropagationPolicy; p != nil && *p == metav1.DeletePropagationOrphan {
			now := metav1.Now()
			object.SetDeletionTimestamp(&now)
			object.SetFinalizers(append(object.GetFinalizers(), metav1.FinalizerOrphanDependents))
		}
		return object, nil
	}

	raw, err := changed(verb, contentType, old, body)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, verb,
			resource, at.name, err.Error(), 0, false)
	}

	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	if v := object.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(resource, at.name, errors.New("the object has been modified"))
	}

	if !equality.Semantic.DeepEqual(old.Object["spec"], object.Object["spec"]) {
		object.SetGeneration(old.GetGeneration() + 1)
	}

	return object, nil
}

// changed returns the object after an update or patch, in JSON.
func changed(verb, contentType string, old *unstructured.Unstructured, body []byte) ([]byte, error) {
	if verb == "update" {
		return body, nil
	}
	before, err := json.Marshal(old.Object)
	if err != nil {
		return nil, err
	}

	switch contentType {
	case "application/json-patch+json":
		patch, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, err
		}
		return patch.Apply(before)
	case "application/merge-patch+json":
		return jsonpatch.MergePatch(before, body)
	}

	return nil, fmt.Errorf("patches of type %s are not supported", contentType)
}
