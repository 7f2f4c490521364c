package controller

import (
	"testing"

	policyv1alpha1 "github.com/afloat-project/afloat/api/policy/v1alpha1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedPodUnavailableBudget = `{"selector":{"matchLabels":{"app":"web"}},"maxUnavailable":1,"protectOperations":["DELETE"],"ignoredPodSelector":{"matchLabels":{"a":"b"}}}`

// FuzzWebhooks: what is added to PodUnavailableBudgets applies and is added once, every answer has a bound,
// and what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, PodUnavailableBudget, nil, nil, fuzzedPodUnavailableBudget)
}

// FuzzConversion: a PodUnavailableBudget that was read and written in the other version stays what it is
// from then on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[policyv1alpha1.PodUnavailableBudget, policyv1beta1.PodUnavailableBudget](f,
		PodUnavailableBudget, webhooktest.Settling, fuzzedPodUnavailableBudget)
}
