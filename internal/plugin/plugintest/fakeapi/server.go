// Package fakeapi provides a small API server in memory for tests of the plugin's commands. The server stores
// documents, with versions, generations and optimistic locking. It answers discovery, lists, tables, watches
// and patches, and lets tests act as the controllers that react to writes.
package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"
)

// Namespace is the default namespace of the commands.
const Namespace = "shop"

// Request is a write request, whether or not it changed anything.
type Request struct {
	// Verb is create, update, patch or delete.
	Verb string
	// Resource is the plural name of the resource, followed by its group unless that is the core group.
	Resource string
	Name     string
	// Query is the query of the URL.
	Query string
	Body  string
}

// String returns the request in one line. It sorts the operations of a JSON patch by their paths, because
// they are created in random order.
func (r Request) String() string {
	body := r.Body
	var operations []operation
	if r.Verb == "patch" && json.Unmarshal([]byte(body), &operations) == nil {
		slices.SortStableFunc(operations, func(a, b operation) int { return strings.Compare(a.Path, b.Path) })
		sorted, _ := json.Marshal(operations)
		body = string(sorted)
	}

	return fmt.Sprintf("%s %s/%s?%s %s", r.Verb, r.Resource, r.Name, r.Query, body)
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Server is the API server.
type Server struct {
	// Before is called before every write. If it returns an error, that is the answer. It may change objects,
	// like another client that is faster.
	Before func(Request) error
	// After is called after every write that was stored, so that a test can act as a controller.
	After func(verb string, object *unstructured.Unstructured)

	// Read is called before every read of a single object, so that the object can change step by step while a
	// command follows it.
	Read func(resource, name string)

	// Fault is called before every request except discovery, and again after the request was carried out. If
	// it returns an error, that is the answer. An error after the request stands for a lost answer.
	Fault func(before bool, method, path string) error

	t        testing.TB
	http     *httptest.Server
	kinds    []*kind
	lock     sync.Mutex
	version  int64
	objects  map[string]*unstructured.Unstructured
	changed  chan struct{}
	log      []event
	requests []Request
	served   discovery.CachedDiscoveryInterface
	watches  atomic.Int32
	stopped  chan struct{}
	stop     func()
}

// event is an event of a watch.
type event struct {
	version int64
	kind    *kind
	verb    string
	object  *unstructured.Unstructured
}

// New starts a server that serves the current version of all kinds, and stores the objects of the manifests.
func New(t testing.TB, manifests ...string) *Server {
	t.Helper()
	return NewVersion(t, "v1beta1", manifests...)
}

// NewVersion is like New with another version of the project's kinds, for tests of older servers.
func NewVersion(t testing.TB, version string, manifests ...string) *Server {
	t.Helper()
	s := &Server{
		t:       t,
		kinds:   append(coreKinds(), ownKinds(t, version)...),
		objects: map[string]*unstructured.Unstructured{},
		changed: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	s.http = httptest.NewServer(s)
	t.Cleanup(s.Stop)

	for _, manifest := range append([]string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: " + Namespace + "}}",
	}, manifests...) {
		s.Add(manifest)
	}

	return s
}

// Without stops serving the kinds with these plural names, such as clonesets.apps.kruise.io.
func (s *Server) Without(plurals ...string) *Server {
	var left []*kind
	for _, k := range s.kinds {
		keep := true
		for _, plural := range plurals {
			keep = keep && k.Name+"."+k.Group != plural
		}
		if keep {
			left = append(left, k)
		}
	}

	s.kinds, s.served = left, nil
	return s
}

// With serves one more kind.
func (s *Server) With(group, version, plural, kind string) *Server {
	s.kinds, s.served = append(s.kinds, core(group, version, plural, kind, true)), nil
	return s
}

// Watches returns the number of watches that have begun.
func (s *Server) Watches() int { return int(s.watches.Load()) }

// Stop ends the server and all watches.
func (s *Server) Stop() {
	s.stop()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Object parses an object in YAML.
func Object(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	if err == nil {
		err = object.UnmarshalJSON(raw)
	}

	if err != nil {
		t.Fatalf("%v in manifest:\n%s", err, manifest)
	}
	return object
}

// Add parses a manifest and stores the object.
func (s *Server) Add(manifest string) {
	s.t.Helper()
	object := Object(s.t, manifest)
	k := s.kindOf(object)
	if k.Namespaced && object.GetNamespace() == "" {
		object.SetNamespace(Namespace)
	}

	s.lock.Lock()
	defer s.lock.Unlock()
	s.store(k, "ADDED", object)
}

// kindOf returns the kind of an object.
func (s *Server) kindOf(object *unstructured.Unstructured) *kind {
	s.t.Helper()
	for _, k := range s.kinds {
		if k.holds(object) {
			return k
		}
	}
	s.t.Fatalf("kind %s of %s is not served", object.GetKind(), object.GetAPIVersion())
	return nil
}

// kindNamed returns the kind of a resource, given by its plural name with or without the group.
func (s *Server) kindNamed(resource string) *kind {
	s.t.Helper()
	for _, k := range s.kinds {
		if k.Name == resource || k.Name+"."+k.Group == resource {
			return k
		}
	}
	s.t.Fatalf("resource %s is not served", resource)
	return nil
}

// key returns the key under which the server stores an object.
func key(k *kind, namespace, name string) string {
	return k.Group + "/" + k.Name + "/" + namespace + "/" + name
}

// where returns the key of an object in the default namespace.
func (s *Server) where(resource, name string) string {
	k, namespace := s.kindNamed(resource), Namespace
	if !k.Namespaced {
		namespace = ""
	}
	return key(k, namespace, name)
}

// Get returns a copy of an object, or nil. The resource is a plural name, followed by its group if it would
// be ambiguous otherwise.
func (s *Server) Get(resource, name string) *unstructured.Unstructured {
	s.t.Helper()
	where := s.where(resource, name)
	s.lock.Lock()
	defer s.lock.Unlock()
	if object := s.objects[where]; object != nil {
		return object.DeepCopy()
	}
	return nil
}

// Edit changes an object, as a controller or another client does. It does nothing if there is no such object.
func (s *Server) Edit(resource, name string, edit func(map[string]any)) {
	s.t.Helper()
	where := s.where(resource, name)
	s.lock.Lock()
	defer s.lock.Unlock()
	if old := s.objects[where]; old != nil {
		object := old.DeepCopy()
		edit(object.Object)
		if equality.Semantic.DeepEqual(old.Object, object.Object) {
			return
		}
		s.store(s.kindNamed(resource), "MODIFIED", object)
	}
}

// Delete deletes an object.
func (s *Server) Delete(resource, name string) {
	s.t.Helper()
	where := s.where(resource, name)
	s.lock.Lock()
	defer s.lock.Unlock()
	if object := s.objects[where]; object != nil {
		s.store(s.kindNamed(resource), "DELETED", object.DeepCopy())
	}
}

// Requests returns all write requests so far, including dry runs.
func (s *Server) Requests() []Request {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]Request(nil), s.requests...)
}

// store stores the object with a new version, or deletes it, and publishes the event. The caller holds the
// lock.
func (s *Server) store(k *kind, verb string, object *unstructured.Unstructured) {
	s.version++
	object.SetResourceVersion(fmt.Sprint(s.version))

	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("uid-%s-%s", k.SingularName, object.GetName())))
	}
	if object.GetGeneration() == 0 {
		object.SetGeneration(1)
	}

	where := key(k, object.GetNamespace(), object.GetName())
	if verb == "DELETED" {
		delete(s.objects, where)
	} else {
		s.objects[where] = object
	}

	s.log = append(s.log, event{s.version, k, verb, object.DeepCopy()})
	close(s.changed)
	s.changed = make(chan struct{})
}
