//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/story"
)

// TestVerticalScaling: cpu and memory change without a restart, and the pod stays ready throughout
// (IPU-035 (part), IPU-112 (part), IPU-116 (part), IPU-136 (part), IPU-219 (part)).
func TestVerticalScaling(t *testing.T) {
	t.Parallel()
	if !served(t, "pods/resize") {
		t.Skip("the server has no pods/resize")
	}
	for name, sizes := range map[string][2]string{
		"burstable": {"{requests: {cpu: 10m, memory: 20Mi}, limits: {cpu: 100m, memory: 64Mi}}",
			"{requests: {cpu: 10m, memory: 20Mi}, limits: {cpu: 200m, memory: 96Mi}}"},
		"limits-alone": {"{limits: {cpu: 20m, memory: 64Mi}}", "{limits: {cpu: 40m, memory: 96Mi}}"},
	} {
		t.Run(name, func(t *testing.T) {
			sized := func(resources string) string {
				return `
replicas: 2
template:
  spec:
    containers:
    - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, resources: ` + resources + `}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`
			}
			w := create(t, name, sized(sizes[0]))
			events := watchPods(t, w.key.Namespace)
			w.change("spec:\n" + indent(sized(sizes[1])))
			w.settled()
			w.inPlace("nginx:1.26", 0)
			want := w.get().Spec.Template.Spec.Containers[0].Resources.Limits
			for name, pod := range w.pods() {
				limits := pod.Status.ContainerStatuses[0].Resources
				if limits == nil || limits.Limits.Cpu().Cmp(*want.Cpu()) != 0 || limits.Limits.Memory().Cmp(*want.Memory()) != 0 ||
					pod.Status.QOSClass != w.seen[name].Status.QOSClass {
					t.Errorf("pod %s has %v and class %s", name, limits, pod.Status.QOSClass)
				}
			}
			notBelow(t, events, 2, 2)
		})
	}
}

// TestResizeThatNeverFits: a resize that no node can carry out replaces the pod by one that says why it does
// not start (IPU-184 (part), IPU-315 (part)).
func TestResizeThatNeverFits(t *testing.T) {
	t.Parallel()
	if !served(t, "pods/resize") {
		t.Skip("the server has no pods/resize")
	}
	const sized = `
replicas: 1
template:
  spec:
    containers:
    - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: "%s", memory: 20Mi}}}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`
	w := create(t, "unfit", fmt.Sprintf(sized, "10m"))
	w.change("spec:\n" + indent(fmt.Sprintf(sized, "999")))
	eventually(t, "a new pod", func(context.Context) string {
		for name, pod := range w.pods() {
			if _, old := w.seen[name]; !old && pod.Spec.Containers[0].Resources.Requests.Cpu().Cmp(resource.MustParse("999")) == 0 {
				return ""
			}
		}
		return fmt.Sprint(len(w.pods()), " pods")
	})
	if !w.event("FailedUpdatePodInPlace", "SuccessfulUpdatePodReCreate") {
		t.Error("no event says why the pod was replaced")
	}
}

// TestNativeSidecar: the image of a restartable init container changes in place; the application goes on
// running (IPU-318 (part)).
func TestNativeSidecar(t *testing.T) {
	t.Parallel()
	const sidecar = `
replicas: 2
template:
  spec:
    initContainers:
    - {name: setup, image: "app:v1", command: ["true"], imagePullPolicy: IfNotPresent}
    - {name: proxy, image: "app:%s", restartPolicy: Always, imagePullPolicy: IfNotPresent, command: ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.2; done"]}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`
	w := create(t, "native", fmt.Sprintf(sidecar, "v1"))
	w.change("spec:\n" + indent(fmt.Sprintf(sidecar, "v2")))
	w.settled()
	w.inPlace("nginx:1.26", 0)
	for name, pod := range w.pods() {
		for _, status := range pod.Status.InitContainerStatuses {
			if status.Name == "proxy" && (!strings.HasSuffix(status.Image, "app:v2") || status.RestartCount != 1) {
				t.Errorf("pod %s: proxy runs %s after %d restarts", name, status.Image, status.RestartCount)
			}
			if status.Name == "setup" && status.RestartCount != 0 {
				t.Errorf("pod %s: setup ran again", name)
			}
		}
	}
}

// TestEnvironmentWithoutDaemon: if the environment from metadata changes and no daemon could restart the
// container, the pod is replaced (IPU-312 (part)).
func TestEnvironmentWithoutDaemon(t *testing.T) {
	const config = `
replicas: 1
template:
  metadata: {annotations: {config: %s}}
  spec:
    containers:
    - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, env: [{name: CONFIG, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['config']"}}}]}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`
	w := create(t, "environment", fmt.Sprintf(config, "a"))
	var daemons corev1.PodList
	if err := kube.List(t.Context(), &daemons, client.InNamespace("kruise-system"),
		client.MatchingLabels{"control-plane": "daemon"}); err != nil {
		t.Fatal(err)
	}
	if len(daemons.Items) > 0 {
		t.Skip("a node daemon watches the pod")
	}
	w.change("spec:\n" + indent(fmt.Sprintf(config, "b")))
	w.settled()
	for name, pod := range w.pods() {
		if _, old := w.seen[name]; old || pod.Annotations["config"] != "b" {
			t.Errorf("pod %s has config %q", name, pod.Annotations["config"])
		}
	}
}

// TestHookByLabel: a pod waits for the operator before its update, and again after it (IPU-150 to 152,
// IPU-155 (part), IPU-218 (part)).
func TestHookByLabel(t *testing.T) {
	t.Parallel()
	w := create(t, "hook", `
replicas: 1
lifecycle: {inPlaceUpdate: {labelsHandler: {traffic: "on"}, markPodNotReady: true}}
template: {metadata: {labels: {traffic: "on"}}}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`)
	w.image("nginx:1.27")
	w.state(pub.LifecycleStatePreparingUpdate, func(pod *corev1.Pod) string {
		if story.Ready(pod) {
			return "it is ready"
		}
		return ""
	})
	w.inPlace("nginx:1.26", 0)
	w.label("traffic", nil)
	w.state(pub.LifecycleStateUpdated, func(pod *corev1.Pod) string {
		if !story.Ready(pod) {
			return "it is not ready"
		}
		return ""
	})
	if s := w.get().Status; s.AvailableReplicas != 0 || s.UpdatedReplicas != 1 {
		t.Errorf("status %+v: the pod is updated and not available yet", s)
	}
	on := "on"
	w.label("traffic", &on)
	w.settled()
	w.inPlace("nginx:1.27", 1)
}
