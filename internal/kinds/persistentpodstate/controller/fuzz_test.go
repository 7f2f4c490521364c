package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
)

const fuzzedPersistentPodState = `{"targetRef":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"x"},` +
	`"preferredPersistentTopology":[{"weight":1,"preference":{"keys":["zone"]}}],"requiredPersistentTopology":{"keys":["host"]}}`

// FuzzWebhooks: what is added to PersistentPodStates applies and is added once, every answer has a bound,
// and what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, PersistentPodState, func(e *framework.Environment) {
		Listing.Set(e, &workloadspreadcontroller.Listed{})
	}, nil, fuzzedPersistentPodState)
}

// FuzzConversion: a PersistentPodState that was read and written in the other version stays what it is from
// then on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.PersistentPodState, appsv1beta1.PersistentPodState](f,
		PersistentPodState, webhooktest.Settling, fuzzedPersistentPodState)
}
