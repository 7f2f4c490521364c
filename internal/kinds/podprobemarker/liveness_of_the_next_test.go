package podprobemarker

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
)

// PPM-121: "no container is restarted for the one before it". The liveness probe of a container failed, and the request
// for its restart was made. Before its facts are filled in (CRR-035; the managers are being replaced, or their watches
// are behind, for up to a minute) the container crashes by itself and kubelet starts the next one. The request names
// restart 0 of the container: it is not filled in with the container of restart 1, which the daemon would stop, but completed
// with a reason.
func TestTheNextContainerIsNotRestartedForTheOneBefore(t *testing.T) {
	pod := func(id string, restarts int32) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"},
			Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "app"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", ContainerID: id,
				RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
	}
	before, after := pod("containerd://0", 0), pod("containerd://1", 1)
	restart := &Restart{Pod: before, Container: "app", Count: 0}
	if !restart.Meant(before) || restart.Meant(after) {
		t.Fatal("the restart is meant for the first container alone")
	}
	admitted, _, refusal := containerrecreate.Accept(restart.Request(), false, before)
	if refusal != nil {
		t.Fatal(refusal.Message)
	}
	if _, _, refusal := containerrecreate.Fill(admitted, before, nil); refusal != nil {
		t.Errorf("the container that failed: %s", refusal.Message)
	}
	if _, _, refusal := containerrecreate.Fill(admitted, after, nil); refusal == nil {
		t.Error("the request is filled in with the next container, which has not failed and will be stopped")
	}
}
