package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedUnitedDeployment = `{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"cloneSetTemplate":{"metadata":{"labels":{"app":"web"}},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"app:1"}]}}}}},` +
	`"topology":{"subsets":[{"name":"a","replicas":"50%","patch":{"metadata":{"labels":{"zone":"a"}}}},{"name":"b","maxReplicas":5}]}}`

// FuzzWebhooks: what is added to UnitedDeployments applies and is added once, every answer has a bound, and
// what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, UnitedDeployment, nil, nil, fuzzedUnitedDeployment)
}

// FuzzConversion: a UnitedDeployment that was read and written in the other version stays what it is from
// then on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.UnitedDeployment, appsv1beta1.UnitedDeployment](f,
		UnitedDeployment, webhooktest.Lossless, fuzzedUnitedDeployment)
}
