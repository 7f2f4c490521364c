package resourcedistribution

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Action is what is to be done in a namespace.
type Action string

// Actions.
const (
	Keep     Action = "keep"
	Create   Action = "create"
	Update   Action = "update"
	Recreate Action = "recreate"
	Delete   Action = "delete"
)

// Namespace is what is known of one.
type Namespace struct {
	Name                string
	Exists, Terminating bool
	Labels              map[string]string
}

// Outcome is how a namespace is.
type Outcome struct {
	// Target: it should have a copy; else it should have none.
	Target bool
	// Failure is the condition that the namespace is named in, empty if it is as it should be, or Pending.
	// Reason says what failed.
	Failure appsv1beta1.ResourceDistributionConditionType
	Reason  string
}

// Pending is the failure of a namespace that has not been looked at since the spec changed: it is in no
// condition.
const Pending appsv1beta1.ResourceDistributionConditionType = "Pending"

// Verdict is what is decided about a namespace: the outcome is that before the action.
type Verdict struct {
	Action Action
	Outcome
}

// Texts of failures (RD-093).
const (
	missing = "namespace was not found, or is terminating"
	tokens  = "Kubernetes makes tokens of Secrets of types " +
		string(corev1.SecretTypeServiceAccountToken) + " and " + string(corev1.SecretTypeBootstrapToken) +
		": none can be distributed"
	conflicting = "target has an object of the same namespace, group, version, kind and name"
)

// token tells whether Kubernetes makes tokens of Secrets of a type: a copy would be a right that the manager
// gives away.
func token(of corev1.SecretType) bool {
	return of == corev1.SecretTypeServiceAccountToken || of == corev1.SecretTypeBootstrapToken
}

// Ended is the outcome of a target that turned out to be gone, or going.
func Ended() Outcome {
	return Outcome{true, appsv1beta1.ResourceDistributionNamespaceNotExists, missing}
}

// heldBy says what holds a copy that is being deleted.
func heldBy(copied *Copy) string {
	return fmt.Sprintf("the former copy is being deleted, and its finalizers hold it: %s",
		strings.Join(copied.Finalizers, ", "))
}

// Snapshot is what a decision about one namespace is made from.
type Snapshot struct {
	Resource *Resource
	Targets  *Targets
	// Owner is the UID of the ResourceDistribution.
	Owner     types.UID
	Namespace Namespace
	// Copy is the object of the kind and name in the namespace; nil if there is none.
	Copy *Copy
}

// Decide decides what is to be done in one namespace (RD-050, RD-070).
func Decide(s *Snapshot) Verdict {
	ns, copied := &s.Namespace, s.Copy
	mine := copied != nil && copied.Owner == s.Owner
	there := ns.Exists && !ns.Terminating
	if !s.Targets.Wants(ns.Name, there, ns.Labels) { // one that ends takes its copy with it, and needs none
		switch {
		case there && mine && !copied.Deleting && !s.Targets.Leaves(ns.Name, ns.Labels):
			return Verdict{Action: Delete}
		case there && mine && len(copied.Finalizers) > 0: // whoever may read there reads it still
			return Verdict{Keep, Outcome{false, appsv1beta1.ResourceDistributionDeleteResourceFailed,
				heldBy(copied)}}
		}
		return Verdict{Action: Keep}
	}

	keep := func(failure appsv1beta1.ResourceDistributionConditionType, reason string) Verdict {
		return Verdict{Keep, Outcome{true, failure, reason}}
	}

	switch {
	case !there:
		return Verdict{Keep, Ended()}
	case token(s.Resource.Type) && (copied == nil || mine && !s.Resource.Same(copied)):
		return keep(appsv1beta1.ResourceDistributionCreateResourceFailed, tokens)
	case copied == nil:
		return Verdict{Create, Outcome{true, Pending, ""}}
	case !mine:
		return keep(appsv1beta1.ResourceDistributionConflictOccurred, conflicting)
	case copied.Deleting:
		return keep(appsv1beta1.ResourceDistributionCreateResourceFailed, heldBy(copied))
	case s.Resource.Same(copied):
		return keep("", "")
	case copied.Type != s.Resource.Type, copied.Immutable && copied.Content != s.Resource.Content:
		return Verdict{Recreate, Outcome{true, Pending, ""}}
	}

	return Verdict{Update, Outcome{true, Pending, ""}}
}

// Failed is the condition that an action belongs to.
func (a Action) Failed() appsv1beta1.ResourceDistributionConditionType {
	switch a {
	case Create:
		return appsv1beta1.ResourceDistributionCreateResourceFailed
	case Delete:
		return appsv1beta1.ResourceDistributionDeleteResourceFailed
	case Update, Recreate:
		return appsv1beta1.ResourceDistributionUpdateResourceFailed
	}
	return appsv1beta1.ResourceDistributionGetResourceFailed
}
