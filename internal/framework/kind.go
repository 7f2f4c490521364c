package framework

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// Kind describes a kind of this project; internal/registry lists the kinds.
type Kind struct {
	// Group is its API group, Name its name, such as CloneSet, and Plural that of its resource.
	Group, Name, Plural string
	// Cluster means that it is cluster-scoped.
	Cluster bool
	// Version is the version in which the API server stores its objects and the manager reads them; empty
	// means v1beta1. A kind that is stored as v1alpha1 has no other version.
	Version string
	// Gates must be on. Otherwise the kind's controller does not run, and its objects are rejected with
	// OffCode; 0 means 403.
	Gates   Gates
	OffCode int32
	// Conversion converts between v1alpha1 and v1beta1. It is nil if both have the same schema; then the API
	// server converts by itself (OPS-070).
	Conversion Conversion
	// Webhooks returns the webhooks for its objects. It must not use what the environment points to, which is
	// nil when the shipped configurations are written.
	Webhooks func(*Environment) Webhooks
	// EntryName is the name of its entries in the webhook configurations, without what all have in common; empty
	// means the kind's name in small letters.
	EntryName string
	// Controller is the name of its controller in the flag --<controller>-workers, and Workers is the default
	// of the flag. Controller is empty if the controller of another kind handles it.
	Controller string
	Workers    int
	// Prepare makes what its webhooks and its controller share, on every replica, before any of them is set up.
	// It may be nil.
	Prepare func(context.Context, *Environment) error
	// Setup adds its controller as soon as the kind, and the kinds of its group in With, are served. It is nil if
	// the Setup of another kind does that.
	Setup func(context.Context, *Environment) error
	// Absent is called if these kinds are not served at the start, unless it is nil.
	Absent func(*Environment)
	// Rehearse returns what makes passes without a cluster, to predict what they would do. It is nil if the kind
	// does not plan for pods.
	Rehearse func(context.Context, *Environment, *rehearsal.Stage) (rehearsal.Player, error)
	// With lists the kinds of its group that must be served, too, before its controller is set up.
	With []string
	// Workload means that it owns pods, so that nothing is uninstalled while objects of it exist (OPS-116).
	Workload bool
	// Access is what the shipped roles let users do with its objects.
	Access Access
	// Finalizer is a finalizer that only the manager removes from its objects, so that an uninstallation must.
	Finalizer string
	// Beside lists kinds whose objects its controller reads in the install namespace, even if --namespace
	// restricts the caches.
	Beside []client.Object
}

// Access is what users with the roles view, edit and admin of Kubernetes may do with the objects of a kind
// (OPS-084).
type Access int

const (
	// NotForUsers is for objects that the manager makes itself.
	NotForUsers Access = iota
	// View is for objects that everybody may read, while writing them needs a role of its own: they change pods
	// in other namespaces, or run code in pods.
	View
	// Edit is for objects that whoever may edit workloads may write.
	Edit
	// Administer is for objects that may hold Secrets: only the role admin may read and write them.
	Administer
)

// Definition returns the name of the kind's CustomResourceDefinition.
func (k *Kind) Definition() string { return k.Plural + "." + k.Group }

// Stored returns the kind in the version in which its objects are stored.
func (k *Kind) Stored() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: cmp.Or(k.Version, V1beta1), Kind: k.Name}
}

// Versions returns all versions in which the kind is served.
func (k *Kind) Versions() []string {
	if k.Version == V1alpha1 {
		return []string{V1alpha1}
	}
	return []string{V1alpha1, V1beta1}
}

// Path returns the path of a webhook of the kind.
func (k *Kind) Path(verb string) string {
	return "/" + verb + "-" + strings.ReplaceAll(k.Group, ".", "-") + "-" + strings.ToLower(k.Name)
}

// Gates are lists of feature gates. At least one gate of each list must be on.
type Gates [][]featuregate.Feature

// Off returns the first list whose gates are all off, or nil if there is none.
func (g Gates) Off(gates *features.Gates) []featuregate.Feature {
	for _, list := range g {
		if !slices.ContainsFunc(list, gates.Enabled) {
			return list
		}
	}
	return nil
}

// Webhooks are the webhooks of a kind: Mutate and Validate handle creation and update. Each may be nil.
type Webhooks struct {
	Mutate, Validate admission.HandlerFunc
	// Protects is which objects with the label of protection may not be deleted.
	Protects Protection
	// Announces means that Validate writes which pods an object is about, unless the request is a dry run.
	Announces bool
}

// Protection is which objects of a kind may not be deleted, if a label of theirs asks for it (DP-012).
type Protection int

const (
	// Unprotected kinds have no protection.
	Unprotected Protection = iota
	// WithReplicas means that spec.replicas counts what a deletion would take along.
	WithReplicas
	// WithPodsOnNodes means that the pods on nodes count (ADS-033).
	WithPodsOnNodes
)
