package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedDaemonSet = `{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"app:1"}]}},` +
	`"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"rollingUpdateType":"Surging","maxUnavailable":1,"maxSurge":"10%","selector":{"matchLabels":{"a":"b"}}}}}`

// FuzzWebhooks: what is added to DaemonSets applies and is added once, every answer has a bound, and what
// may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, DaemonSet, nil, nil, fuzzedDaemonSet)
}

// FuzzConversion: a DaemonSet that was read and written in the other version stays what it is from then on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.DaemonSet, appsv1beta1.DaemonSet](f, DaemonSet,
		webhooktest.Settling, fuzzedDaemonSet)
}
