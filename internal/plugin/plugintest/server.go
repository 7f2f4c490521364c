// Package plugintest provides an API server in memory for tests of the plugin's commands. The server answers
// discovery, reads, lists, watches and all kinds of writes, with optimistic locking and dry runs, and
// remembers the writes.
package plugintest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubectl/pkg/scheme"
	"sigs.k8s.io/yaml"
)

// Request is a write that the server received.
type Request struct {
	// Method, Path and Query are those of the HTTP request. Body is its body, and Type the content type of
	// the body.
	Method, Path, Query, Body, Type string
}

// Server is an API server in memory.
type Server struct {
	*httptest.Server
	// Before, if set, is called before a write is carried out. If it returns an error, the write fails with
	// that error. It may write to the server itself.
	Before func(*http.Request) error
	// BeforeRead does the same for reads, lists and watches of objects.
	BeforeRead func(*http.Request) error

	folder    string // files of clients
	mu        sync.Mutex
	resources []resource
	objects   map[string]*unstructured.Unstructured
	version   int
	events    []event
	news      chan struct{} // closed when there is another event, or when watches must end
	watches   *watches      // the watches that have begun and not ended
	oldest    int           // watches cannot begin before this version
	requests  []Request
}

// watches is a group of watches that end together.
type watches struct {
	sync.WaitGroup
	count int
	over  bool
}

// event is a change of an object, for watches.
type event struct {
	version int
	kind    string
	key     string
	object  *unstructured.Unstructured
}

// New returns a server that serves the project's kinds in the given version, and those kinds of Kubernetes
// that the commands know. It stores the objects given as YAML documents. It ends with the test.
func New(t *testing.T, version string, documents ...string) *Server {
	t.Helper()
	s := &Server{
		objects:   map[string]*unstructured.Unstructured{},
		news:      make(chan struct{}),
		watches:   &watches{},
		resources: resources(t, version),
		folder:    t.TempDir(),
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() { s.EndWatches(); s.Close() })

	for _, text := range documents {
		for one := range strings.SplitSeq(text, "\n---\n") {
			s.Put(t, one)
		}
	}

	return s
}

// Put stores an object, and replaces the present one if there is one. The version grows, and so does the
// generation if the spec changes.
func (s *Server) Put(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
		t.Fatal(err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	r, ok := s.byKind(object.GroupVersionKind())
	if !ok {
		t.Fatalf("%s is not served", object.GroupVersionKind())
	}

	if r.Namespaced && object.GetNamespace() == "" {
		object.SetNamespace("default")
	}

	return s.store(r.key(object.GetNamespace(), object.GetName()), object).DeepCopy()
}

// Change changes a stored object in the namespace default, as another client would. plural is its resource.
func (s *Server) Change(t *testing.T, plural, name string, edit func(object map[string]any)) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()

	key := s.find(t, plural, name)
	object := s.objects[key].DeepCopy()
	edit(object.Object)
	s.store(key, object)
}

// Get returns a stored object in the namespace default. plural is its resource, optionally with the group
// behind a dot.
func (s *Server) Get(t *testing.T, plural, name string) *unstructured.Unstructured {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[s.find(t, plural, name)].DeepCopy()
}

// Delete removes a stored object.
func (s *Server) Delete(t *testing.T, plural, name string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(s.find(t, plural, name))
}

// EndWatches ends all watches, and returns when they have ended.
func (s *Server) EndWatches() { s.endWatches(false) }

// AwaitWatch returns when a client watches.
func (s *Server) AwaitWatch(t *testing.T) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.watches.count > 0, nil
		}); err != nil {
		t.Fatal("nobody watches")
	}
}

// Forget ends all watches, and forgets the past, so that no watch can begin at an earlier version.
func (s *Server) Forget() { s.endWatches(true) }

func (s *Server) endWatches(forget bool) {
	s.mu.Lock()
	ended := s.watches
	ended.over, s.watches = true, &watches{}
	if forget {
		s.version++
		s.oldest = s.version
	}
	s.tell()
	s.mu.Unlock()
	ended.Wait()
}

// Requests returns the writes that the server received, and forgets them.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// find returns the key of a stored object.
func (s *Server) find(t *testing.T, plural, name string) string {
	t.Helper()
	for _, r := range s.resources {
		for _, namespace := range []string{"default", ""} {
			key := r.key(namespace, name)
			if _, ok := s.objects[key]; ok && (r.Name == plural || r.Name+"."+r.Group == plural) {
				return key
			}
		}
	}

	t.Fatalf("there is no %s named %s", plural, name)
	return ""
}

// store stores an object and publishes the event. The caller holds the lock.
func (s *Server) store(key string, object *unstructured.Unstructured) *unstructured.Unstructured {
	old, kind := s.objects[key], "MODIFIED"
	s.version++
	switch {
	case old == nil:
		kind = "ADDED"
		if object.GetUID() == "" {
			object.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
		}
		if object.GetGeneration() == 0 {
			object.SetGeneration(1)
		}
	case !equality.Semantic.DeepEqual(old.Object["spec"], object.Object["spec"]):
		object.SetGeneration(old.GetGeneration() + 1)
	}

	if old != nil && object.GetUID() == "" {
		object.SetUID(old.GetUID())
	}

	object.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[key] = object
	s.events = append(s.events, event{s.version, kind, key, object})
	s.tell()
	return object
}

// remove removes an object and publishes the event. The caller holds the lock.
func (s *Server) remove(key string) *unstructured.Unstructured {
	object := s.objects[key].DeepCopy()
	delete(s.objects, key)
	s.version++
	object.SetResourceVersion(strconv.Itoa(s.version))
	s.events = append(s.events, event{s.version, "DELETED", key, object})
	s.tell()
	return object
}

// tell wakes all watches.
func (s *Server) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		if s.Before != nil {
			if err := s.Before(r); err != nil {
				answer(w, nil, err)
				return
			}
		}

		s.mu.Lock()
		s.requests = append(s.requests, Request{
			r.Method, r.URL.Path, r.URL.RawQuery, string(body), r.Header.Get("Content-Type"),
		})
		s.mu.Unlock()
	}

	if found := s.discovery(r.URL.Path); found != nil {
		answer(w, found, nil)
		return
	}

	target, ok := s.parse(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}

	if r.Method == http.MethodGet && s.BeforeRead != nil {
		if err := s.BeforeRead(r); err != nil {
			answer(w, nil, err)
			return
		}
	}

	if watching := r.URL.Query().Get("watch"); watching == "true" || watching == "1" {
		s.watch(w, r, target)
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	object, err := s.handle(r, target, body)
	answer(w, object, err)
}

// handle carries out a request and returns its answer. The caller holds the lock.
func (s *Server) handle(r *http.Request, to target, body []byte) (any, error) {
	dryRun := r.URL.Query().Get("dryRun") == metav1.DryRunAll
	key := to.key(to.namespace, to.name)
	old := s.objects[key]
	kind := schema.GroupResource{Group: to.Group, Resource: to.Name}

	write := func(object *unstructured.Unstructured) (any, error) {
		if to.subresource == "status" {
			changed := old.DeepCopy()
			changed.Object["status"] = object.Object["status"]
			object = changed
		}

		if old != nil && equality.Semantic.DeepEqual(old.Object, object.Object) || dryRun {
			return object, nil
		}
		return s.store(key, object), nil
	}

	switch {
	case r.Method == http.MethodPost:
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(body, &object.Object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}

		if to.Namespaced {
			object.SetNamespace(to.namespace)
		}
		if key = to.key(to.namespace, object.GetName()); s.objects[key] != nil {
			return nil, apierrors.NewAlreadyExists(kind, object.GetName())
		}
		return write(object)
	case to.name == "":
		return s.list(r, to)
	case old == nil:
		return nil, apierrors.NewNotFound(kind, to.name)
	case r.Method == http.MethodGet:
		return old, nil
	case r.Method == http.MethodDelete:
		if dryRun {
			return old, nil
		}
		return s.remove(key), nil
	}

	object, err := changed(old, body, r, to)
	if err != nil {
		return nil, err
	}

	if version := object.GetResourceVersion(); version != "" && version != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(kind, to.name, fmt.Errorf("the object has been modified"))
	}

	object.SetResourceVersion(old.GetResourceVersion())
	return write(object)
}

// changed returns the object after a PUT or PATCH.
func changed(
	old *unstructured.Unstructured, body []byte, r *http.Request, to target,
) (*unstructured.Unstructured, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}

	after := body
	if r.Method == http.MethodPatch {
		switch how := types.PatchType(r.Header.Get("Content-Type")); how {
		case types.JSONPatchType:
			operations, err := jsonpatch.DecodePatch(body)
			if err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			if after, err = operations.Apply(before); err != nil {
				return nil, apierrors.NewGenericServerResponse(422, "patch",
					schema.GroupResource{}, to.name, err.Error(), 0, true)
			}
		case types.MergePatchType:
			after, err = jsonpatch.MergePatch(before, body)
		case types.StrategicMergePatchType:
			typed, unknown := scheme.Scheme.New(old.GroupVersionKind())
			if unknown != nil { // it is a custom resource
				return nil, apierrors.NewGenericServerResponse(415, "patch",
					schema.GroupResource{}, to.name, unknown.Error(), 0, true)
			}
			after, err = strategicpatch.StrategicMergePatch(before, body, typed)
		default:
			return nil, apierrors.NewBadRequest("patch of type " + string(how))
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}

	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(after)
}

func (s *Server) list(r *http.Request, to target) (any, error) {
	matches, err := selected(r)
	if err != nil {
		return nil, err
	}

	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": to.GroupVersion().String(),
		"kind":       to.Kind + "List",
		"metadata":   map[string]any{"resourceVersion": strconv.Itoa(s.version)},
	}}

	var keys []string
	for key, object := range s.objects {
		if to.holds(key) && matches(object) {
			keys = append(keys, key)
		}
	}

	slices.Sort(keys)
	for _, key := range keys {
		list.Items = append(list.Items, *s.objects[key])
	}
	return list, nil
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, to target) {
	matches, err := selected(r)
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		answer(w, nil, err)
		return
	}

	s.mu.Lock()
	mine, tooOld := s.watches, since < s.oldest
	mine.Add(1)
	mine.count++
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		mine.count--
		s.mu.Unlock()
		mine.Done()
	}()

	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)

	if tooOld {
		gone := apierrors.NewResourceExpired("too old resource version").ErrStatus
		gone.Kind, gone.APIVersion = "Status", "v1"
		_ = out.Encode(map[string]any{"type": "ERROR", "object": gone})
		return
	}

	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		s.mu.Lock()
		news, events, over := s.news, s.events, mine.over
		s.mu.Unlock()

		for _, e := range events {
			if e.version > since && to.holds(e.key) && matches(e.object) {
				_ = out.Encode(map[string]any{"type": e.kind, "object": e.object})
			}
			since = max(since, e.version)
		}
		w.(http.Flusher).Flush()

		if over {
			return
		}

		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}

// answer writes the object, or the status of the error, as the response.
func answer(w http.ResponseWriter, object any, err error) {
	w.Header().Set("Content-Type", "application/json")
	code := http.StatusOK
	if err != nil {
		status := metav1.Status{
			Status:  metav1.StatusFailure,
			Message: err.Error(),
			Code:    http.StatusInternalServerError,
		}
		if known, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // the server's own errors are not wrapped
			status = known.Status()
		}
		status.Kind, status.APIVersion = "Status", "v1"
		code, object = int(status.Code), status
	}

	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}
