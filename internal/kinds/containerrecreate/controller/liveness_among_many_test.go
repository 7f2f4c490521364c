package controller

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
)

// PPM-121 (part), CRR-164 (part): ten requests of users, without activeDeadlineSeconds, wait for a container that is never ready, such as
// a sidecar whose readiness probe stands for something else. The liveness probe of another container fails: the request
// for its restart is admitted, or it hangs until somebody deletes those of the users.
func TestManyRequestsForAContainerDoNotKeepTheLivenessProbeOfAnotherFromRestartingIt(t *testing.T) {
	var others []runtime.Object
	for i := range 10 {
		others = append(others, &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("open-%d", i),
			Labels: map[string]string{"crr.apps.kruise.io/active": "true", "crr.apps.kruise.io/pod-uid": "pod-1"}},
			Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "web-7",
				Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "never-ready"}}}})
	}
	response := webhooktest.Review(t, webhooktest.Handler(recreateHandler(t, containerrecreatetest.Recreatable(), others...).mutate), admissionv1.Create,
		crr("v1beta1", `,"annotations":{"crr.apps.kruise.io/after-restarts":"2"}`,
			`{"podName":"web-7","containers":[{"name":"plain"}],"activeDeadlineSeconds":600}`), "")
	if !response.Allowed {
		t.Errorf("the request for the restart is refused: %s", response.Result.Message)
	}
}
