// Package fakeapi is a small API server in memory for tests of the plugin's commands. It keeps documents,
// with versions, generations and optimistic locking, answers discovery, lists, tables, watches and patches,
// and lets tests play the controllers that act on what is written.
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

// Namespace is the one that commands use unless told otherwise.
const Namespace = "shop"

// Request is a request that wrote, or would have.
type Request struct {
	// Verb is one of create, update, patch and delete.
	Verb string
	// Resource is the plural name, with its group unless that is the core's.
	Resource string
	// Name is the name of the object.
	Name string
	// Query is what stood behind the path.
	Query string
	// Body is what was sent.
	Body string
}

// String is the request in a line. Operations of a JSON patch are in the order of their paths, since they are
// made in none.
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

// operation is one of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Server is the API server.
type Server struct {
	// Before is asked before every write, and an error is its answer. It may change objects, as somebody else
	// who is faster.
	Before func(Request) error
	// After is told of every write that was stored, as the controllers are.
	After func(verb string, object *unstructured.Unstructured)

	// Read is told of every read of one object before it is answered, so that what is followed can go on step
	// by step.
	Read func(resource, name string)

	// Fault is asked before every request that is not discovery, and after it was carried out; its error is
	// the answer then, and of an answer that is lost so nobody learns.
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

// event is what a watch tells.
type event struct {
	version int64
	kind    *kind
	verb    string
	object  *unstructured.Unstructured
}

// New starts a server that serves the present version of all kinds, and has the objects of the manifests.
func New(t testing.TB, manifests ...string) *Server {
	t.Helper()
	return NewVersion(t, "v1beta1", manifests...)
}

// NewVersion is New with another version of the project's kinds: an older server.
func NewVersion(t testing.TB, version string, manifests ...string) *Server {
	t.Helper()
	s := &Server{t: t, kinds: append(coreKinds(), ownKinds(t, version)...), objects: map[string]*unstructured.Unstructured{},
		changed: make(chan struct{}),
		stopped: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	s.http = httptest.NewServer(s)
	t.Cleanup(s.Stop)
	for _, manifest := range append([]string{"{apiVersion: v1, kind: Namespace, metadata: {name: " + Namespace + "}}"}, manifests...) {
		s.Add(manifest)
	}
	return s
}

// Without stops serving kinds, by their plural names.
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

// With serves one kind more.
func (s *Server) With(group, version, plural, kind string) *Server {
	s.kinds, s.served = append(s.kinds, core(group, version, plural, kind, true)), nil
	return s
}

// Watches is how many watches have begun.
func (s *Server) Watches() int { return int(s.watches.Load()) }

// Stop ends the server, and with it all watches.
func (s *Server) Stop() {
	s.stop()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Object is a document from YAML.
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

// Add stores the object of a manifest.
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

func key(k *kind, namespace, name string) string {
	return k.Group + "/" + k.Name + "/" + namespace + "/" + name
}

func (s *Server) where(resource, name string) string {
	k, namespace := s.kindNamed(resource), Namespace
	if !k.Namespaced {
		namespace = ""
	}
	return key(k, namespace, name)
}

// Get returns a copy of an object, or nil. The resource is a plural name, with its group where it alone is
// not unique.
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

// Edit changes an object in place, as a controller or somebody else does, if there is one.
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

// Delete takes an object away.
func (s *Server) Delete(resource, name string) {
	s.t.Helper()
	where := s.where(resource, name)
	s.lock.Lock()
	defer s.lock.Unlock()
	if object := s.objects[where]; object != nil {
		s.store(s.kindNamed(resource), "DELETED", object.DeepCopy())
	}
}

// Requests are all requests so far that wrote or would have.
func (s *Server) Requests() []Request {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]Request(nil), s.requests...)
}

// store keeps the object as it is now, with a new version. The lock is held.
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
