package plugintest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Request is a request for objects that the server received, whether or not it changed anything.
type Request struct {
	// Method, Path and Query are those of the HTTP request. Body is its body, and Type the content type of
	// the body.
	Method, Path, Query, Body, Type string
	// Resource is the plural name of the resource, followed by its group unless that is the core group. Name
	// is the name of the object, empty for lists and watches.
	Resource, Name string
}

// request returns the request of a client.
func (t target) request(r *http.Request, body []byte) Request {
	request := Request{
		Method:   r.Method,
		Path:     r.URL.Path,
		Query:    r.URL.RawQuery,
		Body:     strings.TrimSpace(string(body)),
		Type:     r.Header.Get("Content-Type"),
		Resource: t.groupResource().String(),
		Name:     t.name,
	}
	if r.Method == http.MethodPost {
		sent := &unstructured.Unstructured{}
		_ = json.Unmarshal(body, &sent.Object)
		request.Name = sent.GetName()
	}
	return request
}

// verbs are the verbs of Kubernetes by HTTP method.
var verbs = map[string]string{
	http.MethodPost:   "create",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// String returns a write in one line. It sorts the operations of a JSON patch by their paths, because they
// are created in random order.
func (r Request) String() string {
	body := r.Body
	var operations []operation
	if r.Type == string(types.JSONPatchType) && json.Unmarshal([]byte(body), &operations) == nil {
		slices.SortStableFunc(operations, func(a, b operation) int { return strings.Compare(a.Path, b.Path) })
		sorted, _ := json.Marshal(operations)
		body = string(sorted)
	}

	return fmt.Sprintf("%s %s/%s?%s %s", verbs[r.Method], r.Resource, r.Name, r.Query, body)
}

// Requests returns the writes that the server received, including dry runs, and forgets them.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// Patches returns the JSON patches that the server received, and forgets them. Each consists of its path and
// its operations, sorted by their paths, without the resourceVersion that must guard it. Other writes are
// returned with their method, path and body.
func (s *Server) Patches(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, r := range s.Requests() {
		var operations []json.RawMessage
		if r.Type != string(types.JSONPatchType) {
			all = append(all, r.Method+" "+r.Path+" "+r.Body)
			continue
		}

		if err := json.Unmarshal([]byte(r.Body), &operations); err != nil || len(operations) == 0 ||
			!strings.HasPrefix(string(operations[0]), `{"op":"replace","path":"/metadata/resourceVersion","value":`) {
			t.Errorf("a patch that is not guarded: %v", r)
			continue
		}

		slices.SortFunc(operations, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
		text := ""
		for _, operation := range operations {
			if !strings.Contains(string(operation), `"/metadata/resourceVersion"`) {
				text += " " + string(operation)
			}
		}

		all = append(all, r.Path+text)
	}
	return all
}
