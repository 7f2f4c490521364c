package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/afloat-project/afloat/internal/admission/protection"
)

// Whoever reaches the port can send a review, and not all networks keep others than the API server from it.
// What a review claims of an object is therefore checked once, for all webhooks, before any of them looks at
// it: names that are no names would become parts of expressions, paths and messages (OPS-068).

// subject is what a webhook is asked about.
type subject struct {
	group, resource, kind string
	// cluster says that its objects are in no namespace.
	cluster bool
}

var podSubject = subject{resource: "pods", kind: "Pod"}

// subjects are those of all paths that have handlers.
func (e *Environment) subjects() map[string]subject {
	all := map[string]subject{}
	for i := range e.Kinds {
		k := &e.Kinds[i]
		of := subject{k.Group, k.Plural, k.Name, k.Cluster}
		all[k.path("mutate")], all[k.path("validate")] = of, of
	}
	for _, kind := range protection.Kinds {
		all[kind.Path] = subject{kind.Group, kind.Resource, kind.Name, kind.Cluster}
	}
	for _, path := range podPaths {
		all[path] = podSubject
	}
	return all
}

// checked hands over reviews whose claims may be true, and refuses the others.
func (s subject) checked(handler admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		if resource := request.Resource; resource.Group != s.group || resource.Resource != s.resource ||
			request.SubResource == "" && (request.Kind.Group != s.group || request.Kind.Kind != s.kind) {
			return refused(http.StatusBadRequest,
				fmt.Sprintf("this webhook is for %s of group %q, and not for what was sent", s.resource,
					s.group))
		}
		if problem := s.place(&request); problem != "" {
			return refused(http.StatusBadRequest, problem)
		}
		errs := nameErrors(identity{Name: request.Name})
		for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
			id, err := identityOf(raw)
			if err != nil {
				return undecodable(&request, err)
			}
			if id.Namespace != "" && id.Namespace != request.Namespace {
				return refused(http.StatusBadRequest, "the object is in another namespace than the request")
			}
			if len(errs) == 0 {
				errs = nameErrors(id)
			}
		}
		if len(errs) > 0 {
			request.Name = "" // it is in the errors
			return invalid(&request, causesOf(errs))
		}
		return handler.Handle(ctx, request)
	})
}

// place tells what is wrong with the namespace of a request; empty if nothing is. A request about a namespace
// is in that namespace.
func (s subject) place(request *admission.Request) string {
	switch namespace := request.Namespace; {
	case namespace == "" && !s.cluster:
		return s.resource + " are in namespaces, and the request is in none"
	case namespace != "" && s.cluster && (s.resource != "namespaces" || namespace != request.Name):
		return s.resource + " are in no namespace, and the request is in one"
	case namespace != "" && len(apivalidation.ValidateNamespaceName(namespace, false)) > 0:
		return "the namespace of the request is no name of a namespace"
	}
	return ""
}

// identity is how an object is told from others.
type identity struct {
	Name         string `json:"name"`
	GenerateName string `json:"generateName"`
	Namespace    string `json:"namespace"`
}

// identityOf reads the identity of an object, of which there may be none. Readers of JSON differ in what they
// make of a field that is there twice, or in another spelling, so that such an object could have one name
// here and another one later.
func identityOf(raw []byte) (id identity, err error) {
	if len(raw) == 0 {
		return id, nil
	}
	var object struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := readOnce(raw, &object, "metadata"); err != nil || len(object.Metadata) == 0 {
		return id, err
	}
	if string(object.Metadata) == "null" { // what is added to it would be added to nothing
		return id, errors.New("reading the object: its metadata are null")
	}
	err = readOnce(object.Metadata, &id, "name", "generateName", "namespace")
	return id, err
}

// readOnce decodes a document, in which each of the fields is at most once.
func readOnce(raw []byte, into any, fields ...string) error {
	if repeated, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowDuplicateFields); err != nil {
		return err
	} else if len(repeated) > 0 {
		return fmt.Errorf("reading the object: %w", repeated[0])
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return fmt.Errorf("reading the object: %w", err)
	}
	for key := range members {
		for _, name := range fields {
			if key != name && strings.EqualFold(key, name) {
				return fmt.Errorf("reading the object: %s is written as %q", name, key)
			}
		}
	}
	return nil
}

// nameErrors are those of a name, with the fields and words of the API server. All kinds have names that are
// at least names of DNS.
func nameErrors(id identity) (errs field.ErrorList) {
	at := field.NewPath("metadata")
	for path, given := range map[*field.Path]struct {
		text   string
		prefix bool
	}{at.Child("name"): {id.Name, false}, at.Child("generateName"): {id.GenerateName, true}} {
		if given.text == "" {
			continue
		}
		for _, problem := range apivalidation.NameIsDNSSubdomain(given.text, given.prefix) {
			errs = append(errs, field.Invalid(path, shortened(given.text), problem))
		}
	}
	return errs
}

// shortened is a text that may be of any length.
func shortened(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// namespaces tells which namespaces there are.
type namespaces struct {
	cached, live client.Reader
	// looks bounds how often is looked live: who sends reviews chooses the names.
	looks *rate.Limiter
}

func newNamespaces(cached, live client.Reader) *namespaces {
	return &namespaces{cached, live, rate.NewLimiter(looksASecond, looksAtOnce)}
}

// looksASecond and looksAtOnce bound live looks for namespaces, which are for those that are too new for the
// cache.
const looksASecond, looksAtOnce = 10, 50

// exist tells whether there is the namespace. Nil knows of none that is missing.
func (n *namespaces) exist(ctx context.Context, name string) bool {
	if n == nil {
		return true
	}
	look := func(from client.Reader) bool {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		return from.Get(ctx, types.NamespacedName{Name: name}, found) == nil
	}
	return look(n.cached) || n.looks.Allow() && look(n.live)
}
