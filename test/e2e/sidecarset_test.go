//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// sidecars is a SidecarSet under test.
type sidecars struct {
	t    *testing.T
	name string
}

// createSidecars makes a SidecarSet for pods with that app label, and returns when pods get its containers.
func createSidecars(t *testing.T, app, spec string) *sidecars {
	t.Helper()
	set := &appsv1beta1.SidecarSet{}
	if err := yaml.Unmarshal(merge(t, "metadata: {name: "+app+"}\nspec: {selector: {matchLabels: {app: "+app+"}}}", "spec:\n"+indent(spec)),
		set); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(kube.Delete(context.Background(), set)); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "injection", func(ctx context.Context) string {
		pod := probePod(app)
		if err := kube.Create(ctx, pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		if pod.Annotations[pub.SidecarSetInjectedList] == "" {
			return "a pod gets no sidecars"
		}
		return ""
	})
	return &sidecars{t: t, name: app}
}

func probePod(app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe-" + app, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app:v1"}}}}
}

func (s *sidecars) get() *appsv1beta1.SidecarSet {
	s.t.Helper()
	set := &appsv1beta1.SidecarSet{}
	if err := kube.Get(s.t.Context(), client.ObjectKey{Name: s.name}, set); err != nil {
		s.t.Fatal(err)
	}
	return set
}

// change is a JSON patch.
func (s *sidecars) change(patch string) {
	s.t.Helper()
	if err := kube.Patch(s.t.Context(), s.get(), client.RawPatch("application/json-patch+json", []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

// image gives the container at the path a new image.
func (s *sidecars) image(path, image string) {
	s.t.Helper()
	s.change(fmt.Sprintf(`[{"op":"replace","path":"/spec/%s/image","value":%q}]`, path, image))
}

// settled waits until all pods are updated and ready (SS-265 (part)).
func (s *sidecars) settled(pods int32) {
	s.t.Helper()
	eventually(s.t, "the upgrade", func(context.Context) string {
		set := s.get()
		if st := set.Status; st.ObservedGeneration == set.Generation && st.MatchedPods == pods && st.UpdatedPods == pods &&
			st.UpdatedReadyPods == pods {
			return ""
		}
		return fmt.Sprintf("%+v", set.Status)
	})
}

func containerStatus(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if s.Name == name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// untouched checks that the pods are those seen first and that the application's container was not restarted.
func (w *workload) untouched() {
	w.t.Helper()
	const container = "nginx"
	pods := w.pods()
	if len(pods) != len(w.seen) {
		w.t.Errorf("%d pods, %d before", len(pods), len(w.seen))
	}
	for name, before := range w.seen {
		after := pods[name]
		was, is := containerStatus(&before, container), containerStatus(&after, container)
		if before.UID != after.UID || before.Status.PodIP != after.Status.PodIP || was.ContainerID != is.ContainerID ||
			was.RestartCount != is.RestartCount {
			w.t.Errorf("pod %s, container %s: %s %s restarts %d, then %s %s restarts %d", name, container, before.UID, was.ContainerID,
				was.RestartCount, after.UID, is.ContainerID, is.RestartCount)
		}
	}
}

// restarted checks that a sidecar runs the image after so many restarts since the pods were seen first.
func (w *workload) restarted(container, image string, restarts int32) {
	w.t.Helper()
	for name, after := range w.pods() {
		before := w.seen[name]
		was, is := containerStatus(&before, container), containerStatus(&after, container)
		if !strings.HasSuffix(is.Image, image) || is.RestartCount != was.RestartCount+restarts {
			w.t.Errorf("pod %s: container %s runs %s after %d restarts", name, container, is.Image, is.RestartCount-was.RestartCount)
		}
	}
}

// TestSidecarInPlace: images of sidecars change one pod at a time; pods, addresses and application containers
// stay, and a pod takes at most two writes (SS-002 (part), SS-003 (part), SS-219 (part), SS-225 (part),
// SS-228 (part), SS-260 (part)).
func TestSidecarInPlace(t *testing.T) {
	t.Parallel()
	s := createSidecars(t, "cold", `
containers: [{name: agent, image: "app:v1", imagePullPolicy: IfNotPresent, args: [sh, -c, "while true; do sleep 0.2; done"]}]
`)
	w := create(t, "cold", "replicas: 3")
	s.settled(3)
	since := time.Now()
	s.image("containers/0", "app:v2")
	s.settled(3)
	w.untouched()
	w.restarted("agent", "app:v2", 1)
	for pod := range w.seen {
		tookAtMost(t, 2, pod, since)
	}
	s.change(`[{"op":"add","path":"/spec/containers/0/env","value":[{"name":"A","value":"b"}]},{"op":"replace","path":"/spec/containers/0/image","value":"app:v3"}]`)
	eventually(t, "pods that cannot be upgraded", func(context.Context) string { // SS-211 (part)
		for name, pod := range w.pods() {
			if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == pub.SidecarSetUpgradable && c.Status == corev1.ConditionFalse && c.Message == `{"cold":false}`
			}) {
				return "pod " + name + " does not say so"
			}
		}
		return ""
	})
	w.restarted("agent", "app:v2", 1)
}

// TestNativeSidecarSet: native sidecars change in place like others (SS-W01 (part)).
func TestNativeSidecarSet(t *testing.T) {
	t.Parallel()
	s := createSidecars(t, "nativeset", `
initContainers: [{name: net, image: "app:v1", restartPolicy: Always, imagePullPolicy: IfNotPresent, args: [sh, -c, "while true; do sleep 0.2; done"]}]
`)
	w := create(t, "nativeset", "replicas: 2")
	s.settled(2)
	s.image("initContainers/0", "app:v2")
	s.settled(2)
	w.untouched()
	w.restarted("net", "app:v2", 1)
}

// Each version of a hot-upgrade pair serves on its own port, and the new one writes in its hook that it is
// the active one. The application sends requests all the time.
const hotPair = `
containers:
- name: proxy
  image: "app:v1"
  imagePullPolicy: IfNotPresent
  upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: "nginx:perl"}
  args: [sh, -c, 'case "$IMAGE" in app:v1) p=8081;; app:v2) p=8082;; app:v3) p=8083;; *) while true; do sleep 0.2; done;; esac; exec httpd -f -p $p -h /usr/share/nginx/html']
  volumeMounts: [{name: handover, mountPath: /handover}]
  lifecycle: {postStart: {exec: {command: [sh, -c, 'case "$IMAGE" in app:v1) p=8081;; app:v2) p=8082;; app:v3) p=8083;; *) exit 0;; esac; until wget -q -O /dev/null 127.0.0.1:$p; do sleep 0.1; done; echo $p > /handover/$p; mv /handover/$p /handover/active']}}}
volumes: [{name: handover, emptyDir: {}}]
`

// asking calls its sidecar by address, because kubelet rewrites /etc/hosts whenever it starts a container of
// the pod.
const asking = `
replicas: 2
template:
  spec:
    volumes: [{name: handover, emptyDir: {}}]
    containers:
    - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, volumeMounts: [{name: handover, mountPath: /handover}],
       args: [sh, -c, 'until [ -f /handover/active ]; do sleep 0.1; done; while true; do p=$(cat /handover/active); wget -q -O - 127.0.0.1:$p || [ $p != $(cat /handover/active) ] || echo FAILED $p; sleep 0.05; done']}
`

// TestHotUpgradeKeepsAnswering: while the image of a hot-upgrade sidecar changes twice, from one of its
// containers to the other and back, no request fails (SS-125 (part), SS-240 (part) to SS-244 (part)).
func TestHotUpgradeKeepsAnswering(t *testing.T) {
	t.Parallel()
	s := createSidecars(t, "hotset", hotPair)
	w := create(t, "hotset", asking)
	s.settled(2)
	w.seen = w.pods()
	for _, image := range []string{"app:v2", "app:v3"} {
		s.image("containers/0", image)
		s.settled(2)
		eventually(t, "answers of "+image, func(ctx context.Context) string {
			for name := range w.pods() {
				if log := logOf(ctx, t, w.key.Namespace, name, "nginx"); !strings.Contains(log, image) {
					return "pod " + name + " has not seen it"
				}
			}
			return ""
		})
	}
	w.untouched()
	for name, pod := range w.pods() {
		log := logOf(t.Context(), t, w.key.Namespace, name, "nginx")
		if strings.Contains(log, "FAILED") || !strings.Contains(log, "app:v1") {
			t.Errorf("pod %s: failed requests among %d lines:\n%s", name, strings.Count(log, "\n"), log)
		}
		if pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer] != `{"proxy":"proxy-1"}` ||
			pod.Annotations[pub.SidecarSetVersionPrefix+"proxy-2"] != "0" {
			t.Errorf("pod %s: %v", name, pod.Annotations)
		}
	}
}

func logOf(ctx context.Context, t *testing.T, namespace, pod, container string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	log, err := clients.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// TestSharedVolumes: a sidecar sees what the application writes to its volumes, before and after its upgrade
// (SS-116 (part)).
func TestSharedVolumes(t *testing.T) {
	t.Parallel()
	s := createSidecars(t, "sharing", `
containers:
- {name: reader, image: "app:v1", imagePullPolicy: IfNotPresent, shareVolumePolicy: {type: enabled},
   args: [sh, -c, 'until [ -f /data/word ]; do sleep 0.1; done; echo $IMAGE reads $(cat /data/word); while true; do sleep 0.2; done']}
`)
	w := create(t, "sharing", `
replicas: 1
template:
  spec:
    volumes: [{name: data, emptyDir: {}}]
    containers:
    - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, volumeMounts: [{name: data, mountPath: /data}], args: [sh, -c, 'echo hello > /data/word; while true; do sleep 0.2; done']}
`)
	s.settled(1)
	for _, image := range []string{"app:v1", "app:v2"} {
		s.image("containers/0", image)
		s.settled(1)
		eventually(t, "the sidecar's word", func(ctx context.Context) string {
			for name := range w.pods() {
				if log := logOf(ctx, t, w.key.Namespace, name, "reader"); !strings.Contains(log, image+" reads hello") {
					return log
				}
			}
			return ""
		})
	}
	w.untouched()
}

// TestSidecarsBesideCloneSet: a CloneSet and a SidecarSet update the same pods in place, one after the other
// in either order, and at the same time, resources included; neither changes what belongs to the other
// (SS-229 (part), SS-250 (part), SS-255 (part), SS-D01 (part)).
func TestSidecarsBesideCloneSet(t *testing.T) {
	t.Parallel()
	resize := served(t, "pods/resize")
	const sized = `{spec: {template: {spec: {containers: [{name: nginx, image: "nginx:%s", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: %s, memory: 20Mi}}}]}}}}`
	s := createSidecars(t, "beside", `
containers: [{name: agent, image: "app:v1", imagePullPolicy: IfNotPresent, args: [sh, -c, "while true; do sleep 0.2; done"]}]
updateStrategy: {maxUnavailable: 2}
`)
	w := create(t, "beside", `
replicas: 3
template: {spec: {containers: [{name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 20Mi}}}]}}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}
`)
	s.settled(3)
	w.seen = w.pods()
	cpu := func(value string) string {
		if resize {
			return value
		}
		return "10m"
	}
	w.change(fmt.Sprintf(sized, "1.27", cpu("20m"))) // the workload first
	w.settled()
	s.image("containers/0", "app:v2")
	s.settled(3)
	s.image("containers/0", "app:v3") // the sidecar first
	s.settled(3)
	w.change(fmt.Sprintf(sized, "1.28", cpu("30m")))
	w.settled()
	s.image("containers/0", "app:v1") // both at once
	w.change(fmt.Sprintf(sized, "1.26", cpu("40m")))
	w.settled()
	s.settled(3)
	w.restarted("agent", "app:v1", 3)
	w.restarted("nginx", "nginx:1.26", 3)
	for name, before := range w.seen {
		after := w.pods()[name]
		if after.UID != before.UID || len(after.Spec.Containers) != 2 {
			t.Errorf("pod %s was replaced, or has %d containers", name, len(after.Spec.Containers))
		}
	}
}

// TestInjectionOrder: containers are placed before or after those of the application, init containers by name
// (SS-100 to SS-102).
func TestInjectionOrder(t *testing.T) {
	t.Parallel()
	createSidecars(t, "injection-order", `
containers:
- {name: zeta, image: "app:v1", imagePullPolicy: IfNotPresent}
- {name: behind, image: "app:v1", imagePullPolicy: IfNotPresent, podInjectPolicy: AfterAppContainer}
- {name: alpha, image: "app:v1", imagePullPolicy: IfNotPresent}
initContainers:
- {name: second, image: "app:v1", args: ["true"], imagePullPolicy: IfNotPresent}
- {name: first, image: "app:v1", args: ["true"], imagePullPolicy: IfNotPresent}
`)
	pod := probePod("injection-order")
	if err := kube.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, " "); got != "zeta alpha main behind first second" {
		t.Errorf("order %s", got)
	}
}

// TestWebhookDown: without the manager, pods that a SidecarSet selects are refused or created without
// sidecars, as the shipped configuration says, and no pod gets only some of its sidecars (SS-020 (part),
// SS-094 (part)).
func TestWebhookDown(t *testing.T) {
	createSidecars(t, "down", `
containers: [{name: agent, image: "app:v1", imagePullPolicy: IfNotPresent}]
`)
	var configuration admissionv1.MutatingWebhookConfiguration
	if err := kube.Get(t.Context(), client.ObjectKey{Name: "kruise-mutating-webhook-configuration"}, &configuration); err != nil {
		t.Fatal(err)
	}
	fails := false
	for _, webhook := range configuration.Webhooks {
		if webhook.Name == "mpod-all.kb.io" {
			fails = webhook.FailurePolicy == nil || *webhook.FailurePolicy == admissionv1.Fail
		}
	}
	manager := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: "kruise-system", Name: "kruise-controller-manager"}
	if err := kube.Get(t.Context(), key, manager); err != nil {
		t.Fatal(err)
	}
	replicas := *manager.Spec.Replicas
	scale := func(ctx context.Context, n int32) {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		if err := kube.Patch(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
			patch); err != nil {
			t.Error(err)
		}
	}
	scale(t.Context(), 0)
	t.Cleanup(func() { scale(context.Background(), replicas) })
	eventually(t, "the end of the manager", func(ctx context.Context) string {
		if err := kube.Get(ctx, key, manager); err != nil {
			return err.Error()
		}
		var list corev1.PodList
		if err := kube.List(ctx, &list, client.InNamespace(key.Namespace),
			client.MatchingLabels(manager.Spec.Selector.MatchLabels)); err != nil {
			return err.Error()
		}
		if n := len(list.Items); n > 0 {
			return fmt.Sprint(n, " pods")
		}
		return ""
	})
	eventually(t, "the policy "+map[bool]string{true: "Fail", false: "Ignore"}[fails], func(ctx context.Context) string {
		pod := probePod("down")
		err := kube.Create(ctx, pod, client.DryRunAll)
		switch {
		case fails && err == nil:
			return "the pod is accepted"
		case !fails && err != nil:
			return err.Error()
		case err == nil && len(pod.Spec.Containers) != 1:
			return "the pod has sidecars"
		}
		return ""
	})
	scale(t.Context(), replicas)
	eventually(t, "injection", func(ctx context.Context) string {
		pod := probePod("down")
		if err := kube.Create(ctx, pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		if len(pod.Spec.Containers) != 2 {
			return "no sidecar"
		}
		return ""
	})
}
