package admission

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Kind is what the webhooks know of a kind of our group; internal/registry lists the kinds.
type Kind struct {
	// Name is that of the kind, Plural that of its resource.
	Name, Plural string
	// Conversion converts between v1alpha1 and v1beta1; nil where they are alike, and the API server asks nobody (OPS-070).
	Conversion *Conversion
	// Webhooks makes what admits its objects.
	Webhooks func(*Environment) Webhooks
}

// Definition is the name of the kind's CustomResourceDefinition.
func (k *Kind) Definition() string { return k.Plural + "." + appsv1beta1.GroupVersion.Group }

// path is that of a webhook of the kind (OPS-060).
func (k *Kind) path(verb string) string {
	return "/" + verb + "-" + strings.ReplaceAll(appsv1beta1.GroupVersion.Group, ".", "-") + "-" + strings.ToLower(k.Name)
}

// Webhooks change and judge the objects of a kind. Nil is none.
type Webhooks struct{ Mutate, Validate admission.HandlerFunc }

// Environment is what the webhooks of kinds are made with.
type Environment struct {
	Options
	judge TemplateJudge
	// cached reads what the manager's caches have, live from the API server.
	cached, live client.Reader
	mapper       meta.RESTMapper
	announcer    announcer
}
