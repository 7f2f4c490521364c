package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter/v1alpha1"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=podcounters,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=podcounters/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch

// Controller makes passes. Between them it keeps nothing of a PodCounter, which would stand in the struct.
type Controller = reconcile.Controller[*v1alpha1.PodCounter, struct{}]

// New returns the controller.
func New(api *reconcile.API) *Controller { return &Controller{API: api, Pass: pass} }

func pass(
	ctx context.Context, s *reconcile.Session[*v1alpha1.PodCounter, struct{}],
) (done reconcile.Outcome, err error) {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(s.Name.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return done, fmt.Errorf("listing pods: %w", err)
	}
	status := podcounter.Make(s.Object, pods.Items)
	done.After, err = s.WriteStatus(ctx, &s.Object.Status, &status, true)
	return done, err
}
