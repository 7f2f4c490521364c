package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedStatefulSet = `{"replicas":1,"serviceName":"web","selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"app:1"}]}},` +
	`"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0,"podUpdatePolicy":"InPlaceIfPossible","unorderedUpdate":{"priorityStrategy":{"orderPriority":[{"orderedKey":"a"}]}}}},` +
	`"reserveOrdinals":[1,"3-5"],"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}`

// FuzzWebhooks: what is added to StatefulSets applies and is added once, every answer has a bound, and what
// may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, StatefulSet, nil, nil, fuzzedStatefulSet)
}

// FuzzConversion: a StatefulSet that was read and written in the other version stays what it is from then
// on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.StatefulSet, appsv1beta1.StatefulSet](f, StatefulSet,
		webhooktest.Lossless, fuzzedStatefulSet)
}
