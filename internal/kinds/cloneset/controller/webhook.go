package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
)

// cloneSetWebhooks admits CloneSets of both versions.
type cloneSetWebhooks struct {
	framework.Templates
	// pods reads pods; a cache is sufficient for warnings.
	pods client.Reader
	// inPlace defines what may change under InPlaceOnly.
	inPlace inplace.Options
}

// CloneSets returns the webhooks of the kind.
func CloneSets(e *framework.Environment) framework.Webhooks {
	w := &cloneSetWebhooks{Templates: framework.NewTemplates(e), pods: e.Cache, inPlace: e.InPlace}
	return framework.Webhooks{
		Mutate:   w.mutate,
		Validate: w.validate,
		Protects: framework.WithReplicas,
	}
}

// mutate adds defaults.
func (w *cloneSetWebhooks) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := framework.Documents(&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	operations, err := cloneset.Default(cloneset.DefaultRequest{
		Request: w.Defaulting(ctx, request.Namespace, updated, old),
		Version: framework.WrittenVersion(updated, &request),
		New:     updated,
		Old:     old,
	})
	return framework.Defaulted(operations, err, old)
}

// validate validates CloneSets.
func (w *cloneSetWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	return framework.ValidateWorkload(ctx, w.Templates, &request, cloneset.WrittenInV1alpha1, cloneset.WrittenInV1beta1,
		func(updated, old *cloneset.Written) field.ErrorList {
			return cloneset.Validate(updated, old, w.inPlace)
		},
		func(updated, old *cloneset.Written) []string {
			return w.podsToDelete(ctx, request.Namespace, updated, old)
		})
}

func (w *cloneSetWebhooks) podsToDelete(
	ctx context.Context, namespace string, updated, old *cloneset.Written,
) []string {
	var before *appsv1beta1.CloneSet
	if old != nil {
		before = old.CloneSet()
	}

	unknown := false
	warnings := cloneset.PodsToDeleteWarnings(updated.CloneSet(), before, func(name string) *corev1.Pod {
		pod := &corev1.Pod{}
		if err := w.pods.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod); err != nil {
			unknown = unknown || !apierrors.IsNotFound(err)
			return nil
		}
		return pod
	})
	if unknown {
		return nil // better no warning than a wrong one
	}

	return warnings
}

// MovedInCloneSets returns the path in one version of a CloneSet for a path in the other. Fields below
// updateStrategy.rollingUpdate in v1beta1 are directly below updateStrategy in v1alpha1 (CS-253). In turn,
// fields directly below updateStrategy in v1beta1 go below rollingUpdate in v1alpha1, so that every field
// returns to its place.
func MovedInCloneSets(path []string) []string {
	const strategy, rolling = "updateStrategy", "rollingUpdate"
	switch {
	case len(path) < 3 || path[0] != "spec" || path[1] != strategy:
		return path
	case len(path) > 3 && path[2] == rolling:
		return append([]string{"spec", strategy}, path[3:]...)
	}
	return append([]string{"spec", strategy, rolling}, path[2:]...)
}
