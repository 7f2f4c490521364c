package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedWorkloadSpread = `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"},` +
	`"subsets":[{"name":"s","maxReplicas":"30%","patch":{"metadata":{"labels":{"zone":"a"}}},"tolerations":[{"key":"a"}]},{"name":"t"}],` +
	`"scheduleStrategy":{"type":"Adaptive","adaptive":{"rescheduleCriticalSeconds":30}}}`

// FuzzWebhooks: what is added to WorkloadSpreads applies and is added once, every answer has a bound, and
// what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, WorkloadSpread, func(e *framework.Environment) { Listing.Set(e, &Listed{}) }, nil,
		fuzzedWorkloadSpread)
}

// FuzzConversion: a WorkloadSpread that was read and written in the other version stays what it is from
// then on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.WorkloadSpread, appsv1beta1.WorkloadSpread](f, WorkloadSpread,
		webhooktest.Lossless, fuzzedWorkloadSpread)
}
