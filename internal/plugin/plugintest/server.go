package plugintest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"
)

// Server is an API server in memory. Its hooks are called without a lock and may use the server themselves,
// as a controller or another client does.
type Server struct {
	*httptest.Server
	// Before is called before a write is carried out. If it returns an error, that is the answer.
	Before func(Request) error
	// After is called after every write that was stored, with a copy of the object.
	After func(*unstructured.Unstructured)
	// BeforeRead does the same as Before for reads, lists and watches of objects, so that an object can
	// change step by step while a command follows it.
	BeforeRead func(Request) error
	// Fault is called before every request except discovery, and again after the request was carried out. If
	// it returns an error, that is the answer. An error after the request stands for a lost answer.
	Fault func(before bool, method, path string) error

	namespace string // the default namespace of clients
	folder    string // files of clients
	served    discovery.CachedDiscoveryInterface
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

// New returns a server that serves the project's kinds in the given version, or in the one that they have,
// and those kinds of Kubernetes that the commands know. It stores the objects given as YAML documents. It
// ends with the test.
func New(t testing.TB, version string, documents ...string) *Server {
	t.Helper()
	s := &Server{
		namespace: metav1.NamespaceDefault,
		folder:    t.TempDir(),
		resources: resources(t, version),
		objects:   map[string]*unstructured.Unstructured{},
		news:      make(chan struct{}),
		watches:   &watches{},
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.EndWatches()
		s.CloseClientConnections()
		s.Close()
	})

	s.putAll(t, documents)
	return s
}

// NewIn is like New, with a default namespace of clients that it stores first.
func NewIn(t testing.TB, namespace, version string, documents ...string) *Server {
	t.Helper()
	s := New(t, version)
	s.namespace = namespace
	s.Put(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")
	s.putAll(t, documents)
	return s
}

func (s *Server) putAll(t testing.TB, documents []string) {
	t.Helper()
	for _, text := range documents {
		for one := range strings.SplitSeq(text, "\n---\n") {
			s.Put(t, one)
		}
	}
}

// Object parses an object in YAML.
func Object(t testing.TB, document string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(document))
	if err == nil {
		err = object.UnmarshalJSON(raw)
	}

	if err != nil {
		t.Fatalf("%v in the document:\n%s", err, document)
	}
	return object
}

// Put stores an object, and replaces the present one if there is one. The version grows, and so does the
// generation if the spec changes. An object without a namespace is stored in the default namespace.
func (s *Server) Put(t testing.TB, document string) {
	t.Helper()
	object := Object(t, document)
	s.mu.Lock()
	defer s.mu.Unlock()

	r, ok := s.byKind(object.GroupVersionKind())
	if !ok {
		t.Fatalf("%s is not served", object.GroupVersionKind())
	}

	if r.Namespaced && object.GetNamespace() == "" {
		object.SetNamespace(s.namespace)
	}
	s.store(r, object)
}

// Change changes a stored object in the default namespace, as another client would. plural is its resource,
// optionally with the group behind a dot.
func (s *Server) Change(t testing.TB, plural, name string, edit func(object map[string]any)) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()

	r, old := s.find(t, plural, name)
	if old == nil {
		t.Errorf("there is no %s named %s", plural, name)
		return
	}

	object := old.DeepCopy()
	edit(object.Object)
	if !equality.Semantic.DeepEqual(old.Object, object.Object) {
		s.store(r, object)
	}
}

// Get returns a copy of a stored object in the default namespace, or nil if there is none. plural is its
// resource, optionally with the group behind a dot.
func (s *Server) Get(t testing.TB, plural, name string) *unstructured.Unstructured {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, object := s.find(t, plural, name); object != nil {
		return object.DeepCopy()
	}
	return nil
}

// Delete removes a stored object in the default namespace.
func (s *Server) Delete(t testing.TB, plural, name string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()

	r, object := s.find(t, plural, name)
	if object == nil {
		t.Errorf("there is no %s named %s", plural, name)
		return
	}
	s.remove(r, object)
}

// find returns a resource, and the object in the default namespace, or nil. A plural name without a group is
// that of the first group in which there is such an object. The caller holds the lock.
func (s *Server) find(t testing.TB, plural, name string) (resource, *unstructured.Unstructured) {
	t.Helper()
	served := false
	for _, r := range s.resources {
		if r.Name != plural && r.Name+"."+r.Group != plural {
			continue
		}

		served = true
		namespace := s.namespace
		if !r.Namespaced {
			namespace = ""
		}
		if object := s.objects[r.key(namespace, name)]; object != nil {
			return r, object
		}
	}

	if !served {
		t.Errorf("%s is not served", plural)
	}
	return resource{}, nil
}

// store stores an object and publishes the event. The caller holds the lock.
func (s *Server) store(r resource, object *unstructured.Unstructured) {
	key := r.key(object.GetNamespace(), object.GetName())
	old := s.objects[key]
	if old == nil {
		if object.GetUID() == "" {
			object.SetUID(types.UID(fmt.Sprintf("uid-%s-%s", r.SingularName, object.GetName())))
		}
		if object.GetGeneration() == 0 {
			object.SetGeneration(1)
		}
	} else {
		if object.GetUID() == "" {
			object.SetUID(old.GetUID())
		}
		setGeneration(old, object)
	}

	s.objects[key] = object
	s.publish(event{key: key, before: old, object: object})
}

// setGeneration lets the generation of a changed object grow if its spec changed.
func setGeneration(old, object *unstructured.Unstructured) {
	if !equality.Semantic.DeepEqual(old.Object["spec"], object.Object["spec"]) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
}

// remove removes an object and publishes the event. The caller holds the lock.
func (s *Server) remove(r resource, object *unstructured.Unstructured) {
	key := r.key(object.GetNamespace(), object.GetName())
	delete(s.objects, key)
	s.publish(event{key: key, before: object, object: object.DeepCopy(), removed: true})
}

// publish gives the object the next version, and publishes the event. The caller holds the lock.
func (s *Server) publish(e event) {
	s.version++
	e.version = s.version
	e.object.SetResourceVersion(strconv.Itoa(s.version))
	s.events = append(s.events, e)
	s.tell()
}
