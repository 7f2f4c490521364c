package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/framework"
)

// Anyone who can reach the port can send a review, and not every network keeps out callers other than the API
// server. Therefore what a review claims about an object is checked once for all webhooks, before any of them
// sees it: invalid names would become parts of expressions, paths and messages (OPS-068).

// subject is the resource that a webhook is for.
type subject struct {
	group, resource, kind string
	// cluster means that the resource is cluster-scoped.
	cluster bool
}

var podSubject = subject{resource: "pods", kind: "Pod"}

// subjects returns the subjects of all paths that have handlers.
func (o Options) subjects() map[string]subject {
	all := map[string]subject{}
	for i := range o.Kinds {
		k := &o.Kinds[i]
		of := subject{k.Group, k.Plural, k.Name, k.Cluster}
		all[k.Path("mutate")], all[k.Path("validate")] = of, of
	}

	for _, kind := range protection.Kinds {
		all[kind.Path] = subject{kind.Group, kind.Resource, kind.Name, kind.Cluster}
	}

	for _, path := range podPaths {
		all[path] = podSubject
	}

	return all
}

// checked passes on reviews with plausible claims, and rejects the others.
func (s subject) checked(handler admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		if resource := request.Resource; resource.Group != s.group || resource.Resource != s.resource ||
			request.SubResource == "" && (request.Kind.Group != s.group || request.Kind.Kind != s.kind) {
			return framework.Refuse(http.StatusBadRequest,
				fmt.Sprintf("this webhook is for %s of group %q, and not for what was sent",
					s.resource, s.group))
		}

		if problem := s.place(&request); problem != "" {
			return framework.Refuse(http.StatusBadRequest, problem)
		}

		errs := nameErrors(identity{Name: request.Name})
		for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
			id, err := identityOf(raw)
			if err != nil {
				return framework.Undecodable(&request, err)
			}
			if id.Namespace != "" && id.Namespace != request.Namespace {
				return framework.Refuse(http.StatusBadRequest, "the object is in another namespace than the request")
			}
			if len(errs) == 0 {
				errs = nameErrors(id)
			}
		}

		if len(errs) > 0 {
			request.Name = "" // it is in the errors
			return framework.Invalid(&request, framework.Causes(errs))
		}

		return handler.Handle(ctx, request)
	})
}

// place returns what is wrong with the namespace of a request, or "". A request about a namespace is in that
// namespace.
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

// identity identifies an object.
type identity struct {
	Name         string `json:"name"`
	GenerateName string `json:"generateName"`
	Namespace    string `json:"namespace"`
}

// identityOf reads the identity of an object, which may be missing. JSON parsers differ in how they treat a
// repeated field, or one in another spelling, so that such an object could have one name here and another
// name later.
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
	if string(object.Metadata) == "null" { // additions to it would be lost
		return id, errors.New("reading the object: its metadata are null")
	}

	err = readOnce(object.Metadata, &id, "name", "generateName", "namespace")
	return id, err
}

// readOnce decodes a document in which each of the fields occurs at most once.
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

// nameErrors returns the errors of a name, with the fields and messages of the API server. All kinds have
// names that are at least DNS subdomain names.
func nameErrors(id identity) (errs field.ErrorList) {
	at := field.NewPath("metadata")
	for path, given := range map[*field.Path]struct {
		text   string
		prefix bool
	}{
		at.Child("name"):         {id.Name, false},
		at.Child("generateName"): {id.GenerateName, true},
	} {
		if given.text == "" {
			continue
		}
		for _, problem := range apivalidation.NameIsDNSSubdomain(given.text, given.prefix) {
			errs = append(errs, field.Invalid(path, shortened(given.text), problem))
		}
	}
	return errs
}

// shortened truncates a text of any length.
func shortened(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// protects returns the handler of deletions, or nil.
func (o Options) protects(name string, by framework.Protection) admission.HandlerFunc {
	switch by {
	case framework.WithReplicas:
		return o.guard.Handler(protection.Scaled(name))
	case framework.WithPodsOnNodes:
		return o.guard.Handler(protection.OnNodes(name))
	case framework.Unprotected:
	}
	return nil
}
