package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
)

const fuzzedContainerRecreateRequest = `{"podName":"web-7","containers":[{"name":"plain"}],` +
	`"strategy":{"failurePolicy":"Fail","minStartedSeconds":5,"unreadyGracePeriodSeconds":3},"ttlSecondsAfterFinished":60}`

// FuzzWebhooks: what is added to ContainerRecreateRequests applies and is added once, every answer has a
// bound, and what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, ContainerRecreateRequest, nil, []client.Object{
		containerrecreatetest.Recreatable(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}},
	}, fuzzedContainerRecreateRequest)
}

// FuzzConversion: a ContainerRecreateRequest that was read and written in the other version stays what it
// is from then on.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzConversion[appsv1alpha1.ContainerRecreateRequest, appsv1beta1.ContainerRecreateRequest](f,
		ContainerRecreateRequest, webhooktest.Lossless, fuzzedContainerRecreateRequest)
}
