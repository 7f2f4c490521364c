package plugintest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/scheme"

	"github.com/afloat-project/afloat/internal/memcluster/httpserver"
	"github.com/afloat-project/afloat/internal/memcluster/rules"
)

// serve answers a request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if found := s.discovery(r.URL.Path); found != nil {
		answer(w, http.StatusOK, found, nil)
		return
	}

	to, ok := s.parse(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}

	handle := s.write
	if r.Method == http.MethodGet {
		handle = s.read
	}

	if s.Fault == nil {
		handle(w, r, to)
		return
	}

	if err := s.Fault(true, r.Method, r.URL.Path); err != nil {
		answer(w, 0, nil, err)
		return
	}

	recorded := httptest.NewRecorder()
	handle(recorded, r, to)
	if err := s.Fault(false, r.Method, r.URL.Path); err != nil {
		answer(w, 0, nil, err)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(recorded.Code)
	_, _ = w.Write(recorded.Body.Bytes())
}

// answer writes the object with the code, or the status of the error, as the response.
func answer(w http.ResponseWriter, code int, object any, err error) {
	if err != nil {
		status := httpserver.StatusOf(err)
		code, object = int(status.Code), status
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// read answers a get, list or watch request.
func (s *Server) read(w http.ResponseWriter, r *http.Request, to target) {
	if s.BeforeRead != nil {
		if err := s.BeforeRead(to.request(r, nil)); err != nil {
			answer(w, 0, nil, err)
			return
		}
	}

	if watching := r.URL.Query().Get("watch"); watching == "true" || watching == "1" {
		s.watch(w, r, to)
		return
	}

	found, err := s.list(r, to)
	answer(w, http.StatusOK, found, err)
}

// list returns the answer to a get or list request.
func (s *Server) list(r *http.Request, to target) (any, error) {
	matches, err := selected(r)
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	now := strconv.Itoa(s.version)

	if to.name != "" {
		object := s.objects[to.key(to.namespace, to.name)]
		switch {
		case object == nil:
			return nil, apierrors.NewNotFound(to.groupResource(), to.name)
		case asTable(r):
			return to.table(now, object), nil
		}
		return object, nil
	}

	var keys []string
	for key, object := range s.objects {
		if to.holds(key) && matches(object) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)

	var found []*unstructured.Unstructured
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": to.groupVersion().String(),
		"kind":       to.Kind + "List",
		"metadata":   map[string]any{"resourceVersion": now},
	}}
	for _, key := range keys {
		found = append(found, s.objects[key])
		list.Items = append(list.Items, *s.objects[key])
	}

	if asTable(r) {
		return to.table(now, found...), nil
	}
	return list, nil
}

// selected returns a function that reports whether the selectors of a request match an object.
func selected(r *http.Request) (func(*unstructured.Unstructured) bool, error) {
	selector, err := httpserver.ParseSelector(r.URL.Query())
	return func(object *unstructured.Unstructured) bool {
		return selector.Matches(object, func(path string) string {
			value, found, _ := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
			if !found {
				return ""
			}
			return fmt.Sprint(value)
		})
	}, err
}

// write remembers a write request, carries it out and answers it.
func (s *Server) write(w http.ResponseWriter, r *http.Request, to target) {
	body, _ := io.ReadAll(r.Body)
	request := to.request(r, body)
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()

	if s.Before != nil {
		if err := s.Before(request); err != nil {
			answer(w, 0, nil, err)
			return
		}
	}

	s.mu.Lock()
	object, stored, err := s.decide(r, to, body)
	if err == nil {
		object = object.DeepCopy()
	}
	s.mu.Unlock()

	if stored && s.After != nil {
		s.After(object.DeepCopy())
	}

	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	answer(w, code, object, err)
}

// decide carries out a write, and returns the object after it, and whether it was stored or removed. The
// caller holds the lock.
func (s *Server) decide(r *http.Request, to target, body []byte) (*unstructured.Unstructured, bool, error) {
	dryRun := r.URL.Query().Get("dryRun") == metav1.DryRunAll
	if r.Method == http.MethodPost {
		object, err := s.created(to, body)
		if err != nil || dryRun {
			return object, false, err
		}
		s.store(to.resource, object)
		return object, true, nil
	}

	old := s.objects[to.key(to.namespace, to.name)]
	switch {
	case old == nil:
		return nil, false, apierrors.NewNotFound(to.groupResource(), to.name)
	case r.Method == http.MethodDelete:
		return s.deleted(to, old, body, dryRun)
	}

	object, err := changed(old, body, r, to)
	if err != nil {
		return nil, false, err
	}

	if dryRun || equality.Semantic.DeepEqual(old.Object, object.Object) {
		return object, false, nil
	}
	s.store(to.resource, object)
	return object, true, nil
}

// created returns the object that a request creates.
func (s *Server) created(to target, body []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(body); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	if got := object.GroupVersionKind(); got != to.groupVersion().WithKind(to.Kind) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s was sent to %s", got, to.groupVersion()))
	}

	if to.Namespaced {
		object.SetNamespace(to.namespace)
	}
	if object.GetName() == "" {
		object.SetName(fmt.Sprintf("%s%05d", object.GetGenerateName(), s.version))
	}
	if s.objects[to.key(to.namespace, object.GetName())] != nil {
		return nil, apierrors.NewAlreadyExists(to.groupResource(), object.GetName())
	}
	return object, nil
}

// deleted deletes an object, and returns what is left of it, or what was there last.
func (s *Server) deleted(
	to target, old *unstructured.Unstructured, body []byte, dryRun bool,
) (*unstructured.Unstructured, bool, error) {
	options := metav1.DeleteOptions{}
	_ = json.Unmarshal(body, &options)
	if err := rules.GuardDeletion(to.groupResource(), to.name, old, options.Preconditions); err != nil {
		return nil, false, err
	}

	left := rules.Delete(old, &options, time.Now())
	object, kept := left.(*unstructured.Unstructured)
	if !kept {
		object = old.DeepCopy()
	}

	switch {
	case object == old, dryRun, slices.Contains(options.DryRun, metav1.DryRunAll):
		return object, false, nil
	case kept:
		s.store(to.resource, object)
	default:
		s.remove(to.resource, object)
	}
	return object, true, nil
}

// changed returns the object after an update or patch, of the object or of its status.
func changed(
	old *unstructured.Unstructured, body []byte, r *http.Request, to target,
) (*unstructured.Unstructured, error) {
	after := body
	if r.Method == http.MethodPatch {
		before, err := json.Marshal(old)
		if err != nil {
			return nil, err
		}
		var structure any // nil for custom resources
		if typed, err := scheme.Scheme.New(old.GroupVersionKind()); err == nil {
			structure = typed
		}
		if after, err = rules.Patch(to.groupResource(), to.name, before, body,
			types.PatchType(r.Header.Get("Content-Type")), structure); err != nil {
			return nil, err
		}
	}

	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := rules.Guard(to.groupResource(), to.name, old, object.GetUID(),
		object.GetResourceVersion()); err != nil {
		return nil, err
	}

	settled, err := rules.Settle(old, object, to.subresource, true, equality.Semantic.DeepEqual)
	if err != nil {
		return nil, err
	}
	return settled.(*unstructured.Unstructured), nil
}
