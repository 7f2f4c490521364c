// Package controller wires up PodCounters, which docs/develop/adding-a-kind.md shows.
package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter/v1alpha1"
)

// PodCounter describes the kind.
var PodCounter = framework.Kind{
	Group:      "apps.kruise.io",
	Name:       "PodCounter",
	Plural:     "podcounters",
	Version:    "v1alpha1",
	Webhooks:   webhooks,
	Controller: "podcounter",
	Workers:    3,
	Access:     framework.Edit,
	Setup:      setUp,
}

func setUp(_ context.Context, e *framework.Environment) error {
	options := e.Controller("podcounter")
	c := New(options.API(e.Manager))
	list := func() client.ObjectList { return &v1alpha1.PodCounterList{} }
	pods := reconcile.SelectedPods(c.API, list, podcounter.Matters, podcounter.Selects)
	return c.Complete("podcounter", options, ctrl.NewControllerManagedBy(e.Manager).
		For(&v1alpha1.PodCounter{}).Watches(&corev1.Pod{}, pods))
}
