package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedAdvancedCronJob = `{"schedule":"0 1 * * *","timeZone":"Europe/Berlin","template":{"broadcastJobTemplate":{"spec":{"template":{"metadata":{"labels":{"app":"web"}},"spec":{"restartPolicy":"Never","containers":[{"name":"app","image":"app:1"}]}}}}}}`

// FuzzWebhooks: what is added to AdvancedCronJobs applies and is added once, every answer has a bound, and
// what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, AdvancedCronJob, nil, nil, fuzzedAdvancedCronJob, `{"schedule":"@daily","template":{"imageListPullJobTemplate":{"spec":{"images":["a:1"],"completionPolicy":{"type":"Always"}}}}}`)
}

// FuzzConversion: a AdvancedCronJob that was read and written in the other version stays what it is from
// then on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.AdvancedCronJob, appsv1beta1.AdvancedCronJob](f, AdvancedCronJob, webhooktest.Lossless, fuzzedAdvancedCronJob, `{"schedule":"@daily","template":{"imageListPullJobTemplate":{"spec":{"images":["a:1"],"completionPolicy":{"type":"Always"}}}}}`)
}
