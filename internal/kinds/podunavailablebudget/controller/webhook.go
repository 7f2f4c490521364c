package controller

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	policyv1alpha1 "github.com/afloat-project/afloat/api/policy/v1alpha1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
)

// budgetWebhook admits PodUnavailableBudgets of both versions.
type budgetWebhook struct{ cached client.Reader }

// PodUnavailableBudgets returns the webhook of the kind.
func PodUnavailableBudgets(e *framework.Environment) framework.Webhooks {
	return framework.Webhooks{Validate: (&budgetWebhook{e.Cache}).validate}
}

// +kubebuilder:rbac:groups=policy.kruise.io,roleName=kruise-manager-budget-role,resources=podunavailablebudgets,verbs=get;list;watch

func (w *budgetWebhook) validate(ctx context.Context, request admission.Request) admission.Response {
	if framework.BeingDeleted(&request) {
		return admission.Allowed("")
	}

	budget, old, err := framework.Compare(&request, (*policyv1alpha1.PodUnavailableBudget).ToV1beta1)
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	var others policyv1beta1.PodUnavailableBudgetList
	if request.Operation == admissionv1.Create {
		if err := w.cached.List(ctx, &others, client.InNamespace(request.Namespace),
			client.UnsafeDisableDeepCopy); err != nil {
			return framework.Refuse(http.StatusInternalServerError,
				fmt.Sprintf("listing PodUnavailableBudgets: %v", err))
		}
	}

	if len(others.Items) >= podunavailablebudget.MaxBudgets {
		return framework.Refuse(http.StatusForbidden,
			fmt.Sprintf("namespace %s has %d PodUnavailableBudgets, and may not have more: each of them is looked at for "+
				"each pod; one with a selector can protect the pods of many workloads",
				request.Namespace, len(others.Items)))
	}

	causes := framework.Causes(podunavailablebudget.Validate(budget, old, others.Items))
	if len(causes) > 0 && old != nil {
		causes = framework.NewCauses(causes, framework.Causes(podunavailablebudget.Validate(old, nil, nil)))
	}
	if len(causes) > 0 {
		return framework.Invalid(&request, causes)
	}

	return admission.Allowed("").WithWarnings(podunavailablebudget.Warnings(budget)...)
}
