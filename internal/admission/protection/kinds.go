// Package protection rejects the deletion of objects with label policy.kruise.io/delete-protection
// (docs/spec/protection.md).
package protection

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Kind is a kind whose objects can be protected.
type Kind struct {
	Name string
	// Group, Resource and Cluster are set for kinds with a webhook of their own. Cluster means that the kind
	// is cluster-scoped.
	Group, Resource string
	Cluster         bool
	// Path is the path of its webhook. It is empty for kinds of this project, whose validating webhooks also
	// check deletions.
	Path string
	// Contents returns what blocks the deletion of an object with the value Cascading. If it is nil, the
	// value has no effect.
	Contents contents
}

// Kinds are the protected kinds of other projects. Adding a kind takes a line here and an entry in
// config/webhook/validating.yaml (DP-012, DP-D4).
var Kinds = []Kind{
	{"Deployment", "apps", "deployments", false, "/validate-apps-deployment", replicas},
	{"ReplicaSet", "apps", "replicasets", false, "/validate-apps-replicaset", replicas},
	{"StatefulSet", "apps", "statefulsets", false, "/validate-apps-statefulset", replicas},
	{
		"CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions", true,
		"/validate-customresourcedefinition", customResources,
	},
	{"Namespace", "", "namespaces", true, "/validate-namespace", podsAndClaims},
	{"Service", "", "services", false, "/validate-service", nil},
	{"Ingress", "networking.k8s.io", "ingresses", false, "/validate-ingress", nil},
}

// Scaled returns a kind of this project whose objects have replicas.
func Scaled(name string) Kind { return Kind{Name: name, Contents: replicas} }

// OnNodes returns a kind of this project whose objects have pods on nodes instead (ADS-033).
func OnNodes(name string) Kind { return Kind{Name: name, Contents: scheduled} }

// object holds the fields of a protected object that are read.
type object struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Replicas int64  `json:"replicas"`
		Group    string `json:"group"`
		Names    struct {
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []version `json:"versions"`
	} `json:"spec"`
	Status struct {
		CurrentNumberScheduled int64 `json:"currentNumberScheduled"`
	} `json:"status"`
}

// version is a version of a CustomResourceDefinition.
type version struct {
	Name    string `json:"name"`
	Served  bool   `json:"served"`
	Storage bool   `json:"storage"`
}

// content is the number of things that block a deletion, and what a user can do about them.
type content struct {
	what   string
	number int64
	remedy string
}

// contents returns what blocks the deletion of an object; the number is 0 if nothing does.
type contents func(context.Context, *Guard, *object) (content, error)

func replicas(_ context.Context, _ *Guard, o *object) (content, error) {
	return content{"replicas", o.Spec.Replicas, "scale to 0"}, nil
}

func scheduled(_ context.Context, _ *Guard, o *object) (content, error) {
	return content{
		"currentNumberScheduled", o.Status.CurrentNumberScheduled,
		"give its template a nodeSelector that no node has",
	}, nil
}

const empty = "delete them"

// errNoName is the error for invalid names, which would change the path that contains them: anyone who can
// reach the port can send them.
var errNoName = errors.New("it has names that are none")

// podsAndClaims counts the active pods of a namespace and, if there are none, its bound claims. Metadata are
// sufficient for pods, because the API server selects them by phase; it cannot do this for claims.
func podsAndClaims(ctx context.Context, g *Guard, o *object) (content, error) {
	if len(validation.IsDNS1123Label(o.Metadata.Name)) > 0 {
		return content{}, errNoName
	}
	namespace := "/api/v1/namespaces/" + o.Metadata.Name
	pods, err := g.counter.count(ctx,
		list{path: namespace + "/pods", fields: "status.phase!=Succeeded,status.phase!=Failed", bare: true})
	if pods > 0 || err != nil {
		return content{"active pods", pods, empty}, err
	}
	claims, err := g.counter.count(ctx, list{path: namespace + "/persistentvolumeclaims", phase: "Bound"})
	return content{"Bound pvc", claims, empty}, err
}

// customResources counts the objects of a definition in its storage version or, if that is not served, in
// another one.
func customResources(ctx context.Context, g *Guard, o *object) (content, error) {
	served := slices.DeleteFunc(slices.Clone(o.Spec.Versions), func(v version) bool { return !v.Served })
	if len(served) == 0 {
		return content{},
			errors.New("no version is served, so that nobody can tell whether there are objects")
	}

	at := max(0, slices.IndexFunc(served, func(v version) bool { return v.Storage }))
	if len(validation.IsDNS1123Subdomain(o.Spec.Group))+len(validation.IsDNS1035Label(served[at].Name))+
		len(validation.IsDNS1035Label(o.Spec.Names.Plural)) > 0 {
		return content{}, errNoName
	}

	path := fmt.Sprintf("/apis/%s/%s/%s", o.Spec.Group, served[at].Name, o.Spec.Names.Plural)
	number, err := g.counter.count(ctx, list{path: path, bare: true})
	if apierrors.IsForbidden(err) { // the manager only has this right if an administrator grants it
		err = fmt.Errorf(
			"the manager needs the right to list them, see its manual on deletion protection: %w", err,
		)
	}

	return content{"active CRs", number, empty}, err
}
