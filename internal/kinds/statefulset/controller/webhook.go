package controller

import (
	"context"
	"fmt"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// statefulSetWebhooks admits StatefulSets of both versions.
type statefulSetWebhooks struct {
	framework.Templates
	gates statefulset.Gates
	// live lists storage classes, which are not cached for this.
	live client.Reader
}

// Storage classes are listed when the size of a claim template changes (ASTS-054).
//
// +kubebuilder:rbac:groups=storage.k8s.io,roleName=kruise-manager-storage-role,resources=storageclasses,verbs=list

// StatefulSets returns the webhooks of the kind.
func StatefulSets(e *framework.Environment) framework.Webhooks {
	w := &statefulSetWebhooks{Templates: framework.NewTemplates(e), gates: Gates(e), live: e.APIReader}
	return framework.Webhooks{
		Mutate:   w.mutate,
		Validate: w.validate,
		Protects: framework.WithReplicas,
	}
}

// Gates returns the gates that change what is valid in a StatefulSet.
func Gates(e *framework.Environment) statefulset.Gates {
	return statefulset.Gates{
		AutoDeletePVC: e.Gates.Enabled(features.StatefulSetAutoDeletePVC),
		AutoResizePVC: e.Gates.Enabled(features.StatefulSetAutoResizePVCGate),
		StartOrdinal:  e.Gates.Enabled(features.StatefulSetStartOrdinal),
		InPlace:       e.InPlace,
	}
}

// mutate adds defaults. The API server itself clears the status.
func (w *statefulSetWebhooks) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := framework.Documents(&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	operations, err := statefulset.Default(statefulset.DefaultRequest{
		Request: w.Defaulting(ctx, request.Namespace, updated, old),
		Gates:   w.gates,
		Version: framework.WrittenVersion(updated, &request),
		New:     updated,
		Old:     old,
	})
	return framework.Defaulted(operations, err, old)
}

// validate validates StatefulSets.
func (w *statefulSetWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	return framework.ValidateWorkload(ctx, w.Templates, &request, statefulset.WrittenInV1alpha1,
		statefulset.WrittenInV1beta1, func(updated, old *statefulset.Written) field.ErrorList {
			return statefulset.Validate(updated, old, w.gates, Classes(ctx, w.live))
		}, nil)
}

// Classes returns a function that finds storage classes. They are listed at most once, however many claim
// templates there are.
func Classes(ctx context.Context, live client.Reader) statefulset.Classes {
	list := sync.OnceValues(func() ([]storagev1.StorageClass, error) {
		var all storagev1.StorageClassList
		if err := live.List(ctx, &all); err != nil {
			return nil, fmt.Errorf("listing storage classes: %w", err)
		}
		return all.Items, nil
	})
	return func(name string) (*storagev1.StorageClass, error) {
		all, err := list()
		if err != nil || name == "" {
			return statefulset.DefaultClass(all), err
		}
		for i := range all {
			if all[i].Name == name {
				return &all[i], nil
			}
		}
		return nil, nil //nolint:nilnil // there is none
	}
}

// StatefulSetConversion converts StatefulSets (ASTS-320 to ASTS-322).
func StatefulSetConversion() framework.Conversion {
	return framework.WithV1beta1Fields[appsv1beta1.StatefulSetOptions](
		framework.Between((*appsv1alpha1.StatefulSet).ToV1beta1, appsv1alpha1.StatefulSetFromV1beta1, nil))
}
