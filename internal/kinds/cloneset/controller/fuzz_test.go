package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedSpec = `{"replicas":1,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},` +
	`"spec":{"containers":[{"name":"app","image":"app:1"}]}},"scaleStrategy":{"podsToDelete":["a"]},` +
	`"updateStrategy":{"partition":"20%","maxSurge":1,"scatterStrategy":[{"key":"a","value":"b"}],"rollingUpdate":{"partition":1,"podUpdatePolicy":"InPlaceIfPossible"}}}`

// FuzzWebhooks: defaults apply, are added once, and every answer has a bound.
func FuzzWebhooks(f *testing.F) { webhooktest.Fuzz(f, CloneSet, nil, nil, fuzzedSpec) }

// FuzzConversion: objects are the same after they were read and written in the other version.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.CloneSet, appsv1beta1.CloneSet](f, CloneSet, webhooktest.Lossless,
		fuzzedSpec)
}
