package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedSidecarSet = `{"selector":{"matchLabels":{"app":"web"}},"containers":[{"name":"side","image":"side:1","podInjectPolicy":"BeforeAppContainer","shareVolumePolicy":{"type":"enabled"},` +
	`"transferEnv":[{"sourceContainerName":"app","envName":"a"}],"upgradeStrategy":{"upgradeType":"ColdUpgrade"}}],` +
	`"patchPodMetadata":[{"annotations":{"a":"b"},"patchPolicy":"MergePatchJson"}],"updateStrategy":{"type":"RollingUpdate","partition":"10%"}}`

// FuzzWebhooks: what is added to SidecarSets applies and is added once, every answer has a bound, and what
// may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, SidecarSet, nil, nil, fuzzedSidecarSet)
}

// FuzzConversion: a SidecarSet that was read and written in the other version stays what it is from then
// on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.SidecarSet, appsv1beta1.SidecarSet](f, SidecarSet,
		webhooktest.Lossless, fuzzedSidecarSet)
}
