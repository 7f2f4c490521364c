package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedResourceDistribution = `{"resource":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"b"}},` +
	`"targets":{"includedNamespaces":{"list":[{"name":"shop"}]},"namespaceLabelSelector":{"matchLabels":{"a":"b"}}}}`

// FuzzWebhooks: what is added to ResourceDistributions applies and is added once, every answer has a bound,
// and what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, ResourceDistribution, nil, nil, fuzzedResourceDistribution)
}

// FuzzConversion: a ResourceDistribution that was read and written in the other version stays what it is
// from then on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.ResourceDistribution, appsv1beta1.ResourceDistribution](f,
		ResourceDistribution, webhooktest.Lossless, fuzzedResourceDistribution)
}
