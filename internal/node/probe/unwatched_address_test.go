package probe

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// oneContainer is a runtime with one running container.
type oneContainer struct{ runtime.Container }

func (c *oneContainer) Containers(context.Context, string) ([]runtime.Container, error) {
	return []runtime.Container{c.Container}, nil
}

func (c *oneContainer) Status(context.Context, string) (runtime.Status, error) {
	return runtime.Status{Container: c.Container, StartedAt: c.CreatedAt}, nil
}

// PPM-089, where pods are not watched (ND-056): the sandbox of a pod was made anew, so that the pod has another address
// and another container, and its former address is given to a pod of somebody else. The manager is away and has not
// changed the NodePodProbe. A pod's address that was read counts for a minute; after that nothing is sent to the former
// one, and what the other pod answers is no result.
func TestAnAddressThatThePodHadOnceIsNotProbed(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-0", UID: "pod"}, Status: corev1.PodStatus{PodIP: "10.0.0.1"}}
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	now := noon
	box := &oneContainer{runtime.Container{ID: "containerd://a", Name: "app", PodNamespace: "db", PodName: "pg-0", PodUID: "pod",
		Running: true, CreatedAt: noon.Add(-time.Hour)}}
	containers := newContainers(box, c, false, func() time.Time { return now })
	d := definition(func(p *appsv1alpha1.ContainerProbe) {
		p.Probe.Exec = nil
		p.Probe.HTTPGet = &appsv1alpha1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80), Scheme: "HTTP"}
	})
	known := ""
	reachable := func() bool {
		t.Helper()
		f, err := containers.meet(t.Context(), &d, func(id string) bool { return id == known }, false)
		if err != nil {
			t.Fatal(err)
		}
		known = f.ID
		return f.reachable
	}
	if !reachable() {
		t.Fatal("the address of the pod is not probed")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.PodIP = "10.0.0.2"
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	now = noon.Add(time.Hour)
	box.ID, box.RestartCount, box.CreatedAt = "containerd://b", 1, noon.Add(time.Second)
	if reachable() {
		t.Errorf("an hour later probes go to 10.0.0.1, which the pod has no more: its container is %s, its address %s", known, pod.Status.PodIP)
	}
}
