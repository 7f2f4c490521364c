package resourcedistribution

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// never are the namespaces that are no targets, by no rule.
var never = map[string]bool{metav1.NamespaceSystem: true, metav1.NamespacePublic: true}

// Targets say which namespaces get a copy.
type Targets struct {
	all                bool
	included, excluded map[string]bool
	selector           labels.Selector
	// own are the namespaces of the manager.
	own []string
}

// TargetsOf reads the targets of a ResourceDistribution. The manager's own namespaces are none: what it goes
// by itself stands there (RD-044).
func TargetsOf(distribution *appsv1beta1.ResourceDistribution, own ...string) (*Targets, error) {
	of := &distribution.Spec.Targets
	t := &Targets{own: own, all: of.AllNamespaces, included: set(of.IncludedNamespaces),
		excluded: set(of.ExcludedNamespaces), selector: labels.Nothing()}
	if len(of.NamespaceSelector.MatchLabels)+len(of.NamespaceSelector.MatchExpressions) == 0 {
		return t, nil // an empty one selects nothing
	}
	selector, err := metav1.LabelSelectorAsSelector(&of.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.targets.namespaceSelector: %w", err)
	}
	t.selector = selector
	return t, nil
}

func set(of appsv1beta1.ResourceDistributionTargetNamespaces) map[string]bool {
	names := make(map[string]bool, len(of.List))
	for i := range of.List {
		if name := of.List[i].Name; name != "" {
			names[name] = true
		}
	}
	return names
}

// Wants tells whether a namespace is a target; existing, if it has these labels (RD-040 to RD-044).
func (t *Targets) Wants(name string, exists bool, has map[string]string) bool {
	return !slices.Contains(t.own, name) && t.names(name, exists, has)
}

// Leaves tells whether a copy stays as it is in a namespace that would be a target if it were not the
// manager's: the images of the manager may be pulled by it (RD-044).
func (t *Targets) Leaves(name string, has map[string]string) bool {
	return slices.Contains(t.own, name) && t.names(name, true, has)
}

func (t *Targets) names(name string, exists bool, has map[string]string) bool {
	switch {
	case t.excluded[name] || never[name]:
		return false
	case t.all:
		return exists
	case t.included[name]:
		return true
	}
	return exists && t.selector.Matches(labels.Set(has))
}

// Included are the namespaces that are listed, and so may be targets though they do not exist.
func (t *Targets) Included() map[string]bool {
	if t.all {
		return nil
	}
	return t.included
}
