package controller

import (
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedNodeImage = `{"images":{"a":{"pullSecrets":[{"namespace":"shop","name":"s"}],"tags":[{"tag":"1","pullPolicy":{"backoffLimit":3}}]}}}`

const fuzzedImagePullJob = `{"image":"registry.example.com:5000/a/b:1","parallelism":"10%","selector":{"names":["a"]},` +
	`"pullPolicy":{"timeoutSeconds":5},"completionPolicy":{"type":"Always","activeDeadlineSeconds":9}}`

const fuzzedImageListPullJob = `{"images":["a:1","b@sha256:0123"],"completionPolicy":{"type":"Never"}}`

// FuzzWebhooksOfNodeImages: what is added to NodeImages applies and is added once, every answer has a
// bound, and what may be created may be updated without a change.
func FuzzWebhooksOfNodeImages(f *testing.F) {
	webhooktest.Fuzz(f, NodeImage, nil, nil, fuzzedNodeImage)
}

// FuzzConversionOfNodeImages: a NodeImage that was read and written in the other version stays what it is
// from then on.
func FuzzConversionOfNodeImages(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.NodeImage, appsv1beta1.NodeImage](f, NodeImage,
		webhooktest.Lossless, fuzzedNodeImage)
}

// FuzzWebhooksOfImagePullJobs: what is added to ImagePullJobs applies and is added once, every answer has a
// bound, and what may be created may be updated without a change.
func FuzzWebhooksOfImagePullJobs(f *testing.F) {
	webhooktest.Fuzz(f, ImagePullJob, nil, nil, fuzzedImagePullJob)
}

// FuzzWebhooksOfImageListPullJobs: what is added to ImageListPullJobs applies and is added once, every
// answer has a bound, and what may be created may be updated without a change.
func FuzzWebhooksOfImageListPullJobs(f *testing.F) {
	webhooktest.Fuzz(f, ImageListPullJob, nil, nil, fuzzedImageListPullJob)
}
