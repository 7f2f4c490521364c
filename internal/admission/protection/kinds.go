// Package protection refuses the deletion of objects with label policy.kruise.io/delete-protection
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

// Kind is a kind of objects that can be protected.
type Kind struct {
	Name string
	// Group, Resource and Cluster, which is for objects in no namespace, are those of kinds with a webhook of
	// their own.
	Group, Resource string
	Cluster         bool
	// Path is that of its webhook. It is empty for our own kinds, whose validating webhooks judge deletions
	// too.
	Path string
	// Contents says what keeps an object with the value Cascading. If it is nil, the value has no effect.
	Contents contents
}

// Kinds are the protected kinds of others. A kind is added by a line here and an entry in
// config/webhook/validating.yaml (DP-012, DP-D4).
var Kinds = []Kind{
	{"Deployment", "apps", "deployments", false, "/validate-apps-deployment", replicas},
	{"ReplicaSet", "apps", "replicasets", false, "/validate-apps-replicaset", replicas},
	{"StatefulSet", "apps", "statefulsets", false, "/validate-apps-statefulset", replicas},
	{
		"CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions", true,
		"/validate-customresourcedefinition", customResources,
	}, {"Namespace", "", "namespaces", true, "/validate-namespace", podsAndClaims}, {
		"Service", "", "services", false, "/validate-service", nil,
	}, {"Ingress", "networking.k8s.io", "ingresses", false, "/validate-ingress", nil}}

// Scaled returns one of our own kinds, which have replicas.
func Scaled(name string) Kind { return Kind{Name: name, Contents: replicas} }

// OnNodes returns one of our own kinds, which have pods on nodes instead (ADS-033).
func OnNodes(name string) Kind { return Kind{Name: name, Contents: scheduled} }

// object is what is read of a protected object.
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

// version is one of a CustomResourceDefinition.
type version struct {
	Name    string `json:"name"`
	Served  bool   `json:"served"`
	Storage bool   `json:"storage"`
}

// content is a number of things that keep an object, and what a user can do about them.
type content struct {
	what   string
	number int64
	remedy string
}

// contents says what keeps an object; the number is 0 if nothing does.
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

// errNoName is what comes of names that would lead elsewhere as parts of a path: anybody who reaches the port
// can send them.
var errNoName = errors.New("it has names that are none")

// podsAndClaims counts active pods of a namespace, and if there are none, its bound claims. Of pods the
// metadata are enough, since the API server selects by their phase; it does not for claims.
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

// customResources counts the objects of a definition in its storage version, or, if that is not served, in
// another one.
func customResources(ctx context.Context, g *Guard, o *object) (content, error) {
	served := slices.DeleteFunc(slices.Clone(o.Spec.Versions), func(v version) bool { return !v.Served })
	if len(served) == 0 {
		return content{},
			errors.New("no version is served, so that nobody can tell whether there are objects")
	}
	at := max(0, slices.IndexFunc(served, func(v version) bool { return v.Storage }))
	if len(validation.IsDNS1123Subdomain(o.Spec.Group))+len(validation.IsDNS1035Label(served[at].Name))+len(
		validation.IsDNS1035Label(o.Spec.Names.Plural),
	) > 0 {
		return content{}, errNoName
	}
	path := fmt.Sprintf("/apis/%s/%s/%s", o.Spec.Group, served[at].Name, o.Spec.Names.Plural)
	number, err := g.counter.count(ctx, list{path: path, bare: true})
	if apierrors.IsForbidden(err) { // it has no such right unless an administrator gives it
		err = fmt.Errorf(
			"the manager needs the right to list them, see its manual on deletion protection: %w", err,
		)
	}
	return content{"active CRs", number, empty}, err
}
