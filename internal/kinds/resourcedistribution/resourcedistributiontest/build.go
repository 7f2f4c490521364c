// Package resourcedistributiontest builds ResourceDistributions for tests.
package resourcedistributiontest

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Option changes a ResourceDistribution.
type Option func(*appsv1beta1.ResourceDistribution)

// Secret is the resource that is distributed if nothing else is said.
const Secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"login","labels":{"purpose":"pull"}},"data":{"key":"YQ=="}}`

// Distribution returns a ResourceDistribution of [Secret] to no namespace.
func Distribution(name string, options ...Option) *appsv1beta1.ResourceDistribution {
	rd := &appsv1beta1.ResourceDistribution{ObjectMeta: metav1.ObjectMeta{Name: name,
		UID: types.UID("uid-of-" + name), Generation: 1},
		Spec: appsv1beta1.ResourceDistributionSpec{Resource: runtime.RawExtension{Raw: []byte(Secret)}}}
	for _, option := range options {
		option(rd)
	}
	return rd
}

// Resource sets what is distributed.
func Resource(text string) Option {
	return func(rd *appsv1beta1.ResourceDistribution) { rd.Spec.Resource.Raw = []byte(text) }
}

// Document sets what is distributed from a value.
func Document(value any) Option {
	return func(rd *appsv1beta1.ResourceDistribution) {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		rd.Spec.Resource.Raw = raw
	}
}

func list(names []string) (list appsv1beta1.ResourceDistributionTargetNamespaces) {
	for _, name := range names {
		list.List = append(list.List, appsv1beta1.ResourceDistributionNamespace{Name: name})
	}
	return list
}

// To includes namespaces.
func To(names ...string) Option {
	return func(rd *appsv1beta1.ResourceDistribution) { rd.Spec.Targets.IncludedNamespaces = list(names) }
}

// Not excludes namespaces.
func Not(names ...string) Option {
	return func(rd *appsv1beta1.ResourceDistribution) { rd.Spec.Targets.ExcludedNamespaces = list(names) }
}

// All selects all namespaces.
func All(rd *appsv1beta1.ResourceDistribution) { rd.Spec.Targets.AllNamespaces = true }

// Labelled selects namespaces by a label.
func Labelled(key, value string) Option {
	return func(rd *appsv1beta1.ResourceDistribution) {
		rd.Spec.Targets.NamespaceSelector = metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}
