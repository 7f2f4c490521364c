package takeover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// oldest is the oldest release of Kubernetes that supports the manifests.
const oldest = "1.30.0"

// asking holds the requests to the API server that are not about objects.
type asking struct {
	// version returns the release of the API server.
	version func() (string, error)
	// may reports whether the user has a permission.
	may func(context.Context, *authorizationv1.ResourceAttributes) (bool, error)
}

func newAsking(config *rest.Config) (asking, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return asking{}, fmt.Errorf("making a client: %w", err)
	}

	return asking{version: func() (string, error) {
		info, err := clients.Discovery().ServerVersion()
		if err != nil {
			return "", fmt.Errorf("asking for the API server's version: %w", err)
		}
		return info.GitVersion, nil
	}, may: func(ctx context.Context, what *authorizationv1.ResourceAttributes) (bool, error) {
		review, err := clients.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what}},
			metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking what you may do: %w", err)
		}
		return review.Status.Allowed, nil
	}}, nil
}

// preflight finds what would make a takeover fail, while the other manager still runs: the release of the API
// server, missing permissions, and manifests that it would reject. It returns what would happen to each
// manifest.
func (t *takeover) preflight(ctx context.Context) (verbs map[reference]string, err error) {
	var errs []error
	if t.ask.version != nil {
		if errs = append(errs, t.oldEnough()); errs[0] != nil {
			return nil, errs[0] // all further errors would follow from it
		}
	}

	verbs = map[reference]string{}
	for _, object := range t.manifests {
		r := referenceTo(object)
		live, err := t.get(ctx, r)
		if err != nil {
			return nil, err
		}
		verbs[r] = "created"
		if live != nil {
			verbs[r] = "changed"
		}
		if t.dryRun == dry {
			continue
		}

		switch err := t.try(ctx, live, object); {
		case apierrors.IsInvalid(err) && live != nil && slices.Contains(replaced, object.GetKind()):
			verbs[r] = "made anew"
		case err != nil && !missingNamespace(err) &&
			!strings.Contains(err.Error(), "does not support dry run"):
			errs = append(errs, fmt.Errorf("applying %s: %w", installation.Of(object), err))
		}
	}

	return verbs, errors.Join(append(errs, t.rights(ctx))...)
}

func (t *takeover) oldEnough() error {
	text, err := t.ask.version()
	if err != nil {
		return err
	}

	is, err := version.ParseGeneric(text)
	if err != nil {
		return fmt.Errorf("the API server's version %q: %w", text, err)
	}
	if is.LessThan(version.MustParseGeneric(oldest)) {
		return fmt.Errorf("the API server is of release %s, and Afloat needs Kubernetes %s or newer", text,
			strings.TrimSuffix(oldest, ".0"))
	}

	return nil
}

// rights returns an error that names the permissions which a takeover or the way back needs and the user
// lacks.
func (t *takeover) rights(ctx context.Context) error {
	if t.ask.may == nil {
		return nil
	}

	needed := []authorizationv1.ResourceAttributes{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
			Subresource: "status", Verb: "update"}}
	for _, of := range []struct {
		group, resource string
		verbs           []string
	}{{"", "pods", []string{"list", "create", "delete"}},
		{"coordination.k8s.io", "leases", []string{"get", "create", "update", "patch", "delete"}},
		{"apps", "replicasets", []string{"get"}}} {
		for _, verb := range of.verbs {
			needed = append(needed,
				authorizationv1.ResourceAttributes{Group: of.group, Resource: of.resource,
					Namespace: t.choice.Namespace, Verb: verb})
		}
	}

	for _, object := range t.manifests {
		kind := object.GroupVersionKind()
		mapping, err := t.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			continue // reported by the dry run
		}
		if err != nil {
			return fmt.Errorf("looking for %s: %w", kind, err)
		}
		for _, verb := range []string{"get", "create", "patch", "update", "delete"} {
			needed = append(needed,
				authorizationv1.ResourceAttributes{Group: kind.Group, Version: kind.Version,
					Resource: mapping.Resource.Resource, Namespace: object.GetNamespace(), Verb: verb})
		}
	}

	asked := map[authorizationv1.ResourceAttributes]bool{}
	var missing []string
	for _, attributes := range needed {
		if asked[attributes] {
			continue
		}
		asked[attributes] = true
		may, err := t.ask.may(ctx, &attributes)
		if err != nil {
			return err
		}
		if !may {
			missing = append(missing,
				attributes.Verb+" "+strings.Trim(attributes.Resource+"/"+attributes.Subresource, "/")+
					cmp.Or(strings.TrimSuffix("."+attributes.Group, "."), "")+
					inNamespace(attributes.Namespace))
		}
	}

	if len(missing) > 0 {
		return fmt.Errorf("you may not: %s", most(missing))
	}

	return nil
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// sayManifests prints what would happen to each manifest.
func (t *takeover) sayManifests(verbs map[reference]string) {
	for _, object := range t.manifests {
		if verb := verbs[referenceTo(object)]; verb != "" {
			t.say("%s would be %s", installation.Of(object), verb)
		}
	}
}
