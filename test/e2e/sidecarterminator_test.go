//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// markedSidecar is a container that runs until SIGTERM, then prints what its hook wrote and ends with the
// code; variables mark it.
func markedSidecar(name, code, variables string) string {
	return `
- name: ` + name + `
  image: "app:v1"
  imagePullPolicy: IfNotPresent
  command: ["sh", "-c", "trap 'cat /shared/` + name + `; ` + code + `' TERM; while true; do sleep 0.2; done"]
  lifecycle: {preStop: {exec: {command: ["sh", "-c", "echo hook >>/shared/` + name + `"]}}}
  volumeMounts: [{name: shared, mountPath: /shared}]
  env: [` + variables + `]`
}

const (
	marked  = `{name: KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT, value: "true"}`
	ignored = marked + `, {name: KRUISE_TERMINATE_SIDECAR_IGNORE_EXIT_CODE, value: "true"}`
)

// jobWith makes a Job with a main container that runs the script, and other containers.
func jobWith(t *testing.T, namespace, name, policy, script string, sidecars ...string) *batchv1.Job {
	t.Helper()
	return manifest(t, namespace, `
metadata: {name: `+name+`}
spec:
  backoffLimit: 3
  template:
    metadata: {labels: {app: `+name+`}}
    spec:
      restartPolicy: `+policy+`
      terminationGracePeriodSeconds: 60
      volumes: [{name: shared, emptyDir: {}}]
      containers:
      - {name: main, image: "app:v1", imagePullPolicy: IfNotPresent, command: ["sh", "-c", "`+script+`"], volumeMounts: [{name: shared, mountPath: /shared}]}
`+strings.ReplaceAll(strings.Join(sidecars, ""), "\n", "\n      "), &batchv1.Job{})
}

// jobEnded waits until the Job is complete, and returns its first pod, all of whose containers have ended.
func jobEnded(t *testing.T, j *batchv1.Job) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, "job "+j.Name, func(ctx context.Context) string {
		var pods corev1.PodList
		if err := kube.List(ctx, &pods, client.InNamespace(j.Namespace), client.MatchingLabels{"batch.kubernetes.io/job-name": j.Name}); err != nil {
			return err.Error()
		}
		if len(pods.Items) == 0 {
			return "no pod"
		}
		pod = &pods.Items[0]
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Terminated == nil {
				return fmt.Sprintf("container %s: %+v", s.Name, s.State)
			}
		}
		for _, c := range reread(t, j).Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return fmt.Sprintf("%+v", j.Status)
	})
	return pod
}

// hooks checks that the sidecar ended with the code, and that its hook had run exactly once before.
func hooks(t *testing.T, pod *corev1.Pod, container string, code int32) {
	t.Helper()
	if got := status(t, pod, container).State.Terminated.ExitCode; got != code {
		t.Errorf("%s ended with %d, not %d", container, got, code)
	}
	if log := logOf(t.Context(), t, pod.Namespace, pod.Name, container); log != "hook\n" {
		t.Errorf("%s: hooks %q", container, log)
	}
}

func terminations(t *testing.T, pod *corev1.Pod) []appsv1beta1.ContainerRecreateRequest {
	t.Helper()
	var all appsv1beta1.ContainerRecreateRequestList
	if err := kube.List(t.Context(), &all, client.InNamespace(pod.Namespace), client.MatchingLabels{pub.RecreatePodUID: string(pod.UID)}); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

func toldOf(t *testing.T, namespace, reason, words string) {
	t.Helper()
	eventually(t, "event "+reason, func(ctx context.Context) string { return eventWith(ctx, namespace, reason, words) })
}

// TestSidecarsOfJobs: marked sidecars end with their main containers, hooks included, and their exit codes
// count as they say (JST-001 (part), JST-030 (part), JST-040 (part), JST-070 (part)).
func TestSidecarsOfJobs(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	counts := jobWith(t, ns, "counts", "Never", "sleep 1", markedSidecar("log", "exit 0", marked))
	ignores := jobWith(t, ns, "ignores", "Never", "sleep 1", markedSidecar("log", "exit 7", ignored))
	both := jobWith(t, ns, "both", "Never", "sleep 1", markedSidecar("first", "exit 0", marked), markedSidecar("second", "exit 9", ignored))
	again := jobWith(t, ns, "again", "OnFailure", "test -f /shared/once || { touch /shared/once; exit 3; }", markedSidecar("log", "exit 0", marked))
	stubborn := jobWith(t, ns, "stubborn", "OnFailure", "sleep 1", markedSidecar("log", "test -f /shared/once && exit 0; touch /shared/once; exit 143", marked))
	plain := jobWith(t, ns, "plain", "Never", "sleep 1", markedSidecar("log", "exit 0", `{name: KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT, value: "false"}`))

	pod := jobEnded(t, counts)
	hooks(t, pod, "log", 0)
	if all := terminations(t, pod); len(all) != 1 || all[0].Name != "sidecar-termination-"+string(pod.UID) {
		t.Errorf("%+v", all)
	} else {
		completed(t, &all[0]) // JST-074
		succeeded(t, &all[0])
		if grace := all[0].Spec.Strategy.TerminationGracePeriodSeconds; grace == nil || *grace != 60 { // JST-038, JST-072: and the hook ran
			t.Errorf("grace period %v", grace)
		}
	}
	toldOf(t, ns, "SidecarTerminator", "stopping sidecar log, by ContainerRecreateRequest")

	pod = jobEnded(t, ignores)
	hooks(t, pod, "log", 7)
	if all := terminations(t, pod); pod.Status.Phase != corev1.PodSucceeded || len(all) != 0 { // JST-041: kubelet stopped it, and the phase has stayed
		t.Errorf("%s, %+v", pod.Status.Phase, all)
	}

	pod = jobEnded(t, both)
	hooks(t, pod, "first", 0)
	hooks(t, pod, "second", 9)
	first, second := status(t, pod, "first").State.Terminated, status(t, pod, "second").State.Terminated
	if second.FinishedAt.Before(&first.FinishedAt) {
		t.Errorf("%s before %s", second.FinishedAt, first.FinishedAt)
	}

	pod = jobEnded(t, again)
	hooks(t, pod, "log", 0)
	if status(t, pod, "main").RestartCount != 1 || status(t, pod, "log").RestartCount != 0 {
		t.Errorf("%+v", pod.Status.ContainerStatuses)
	}

	pod = jobEnded(t, stubborn)
	if status(t, pod, "log").RestartCount == 0 {
		t.Errorf("%+v", pod.Status.ContainerStatuses)
	}
	toldOf(t, ns, "SidecarStartsAgain", "exit with 0")

	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace(ns), client.MatchingLabels{"app": plain.Name}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning || len(terminations(t, &pods.Items[0])) != 0 {
		t.Errorf("a sidecar that is not marked is stopped: %+v", pods.Items)
	}
}

// TestPhaseSetAheadIsSeenByKubelet: kubelet stops the sidecars of a pod whose phase was set ahead at once. It
// does not write its own phase over it again and again, as it does while its pod worker has not seen the phase
// (JST-041).
func TestPhaseSetAheadIsSeenByKubelet(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	pods := watchPods(t, ns)
	const count = 8
	for i := range count {
		jobWith(t, ns, fmt.Sprintf("ahead-%d", i), "Never", "sleep 1", markedSidecar("log", "exit 143", ignored))
	}

	last, overwritten, ended := map[string]corev1.PodPhase{}, map[string]int{}, map[string]bool{}
	limit := time.After(patience)
	for len(ended) < count {
		select {
		case <-limit:
			t.Fatalf("pods whose sidecar has ended: got %v, want %d", ended, count)
		case e, open := <-pods:
			pod, ok := e.Object.(*corev1.Pod)
			if !open || !ok {
				t.Fatalf("the watch of pods ended: %v", e)
			}
			if last[pod.Name] == corev1.PodSucceeded && pod.Status.Phase == corev1.PodRunning {
				overwritten[pod.Name]++
			}
			last[pod.Name] = pod.Status.Phase
			for _, s := range pod.Status.ContainerStatuses {
				if s.Name == "log" && s.State.Terminated != nil {
					ended[pod.Name] = true
				}
			}
		}
	}

	for name, times := range overwritten {
		if times > 2 { // a kubelet that wrote its status just then, perhaps a slow one
			t.Errorf("kubelet wrote Running over the phase of pod %s %d times, want at most twice", name, times)
		}
	}
}

// TestSidecarsOfFailedPods: a code that counts fails the pod, and so does a main container, whatever its
// sidecars say (JST-043 (part), JST-044 (part)).
func TestSidecarsOfFailedPods(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	of := func(name, script, sidecars string) *corev1.Pod {
		return manifest(t, ns, `
metadata: {name: `+name+`}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 60
  volumes: [{name: shared, emptyDir: {}}]
  containers:
  - {name: main, image: "app:v1", imagePullPolicy: IfNotPresent, command: ["sh", "-c", "`+script+`"]}
`+indent(sidecars), &corev1.Pod{})
	}
	signalled, failed := of("signalled", "sleep 1", markedSidecar("log", "exit 143", marked)), of("failed", "exit 3", markedSidecar("log", "exit 0", ignored))
	both := of("both", "exit 3", markedSidecar("log", "exit 0", marked))
	for _, pod := range []*corev1.Pod{signalled, failed, both} {
		eventually(t, "pod "+pod.Name, func(context.Context) string {
			reread(t, pod)
			for _, s := range pod.Status.ContainerStatuses {
				if s.State.Terminated == nil {
					return fmt.Sprintf("%+v", pod.Status)
				}
			}
			if pod.Status.Phase != corev1.PodFailed {
				return string(pod.Status.Phase)
			}
			return ""
		})
	}
	hooks(t, signalled, "log", 143)
	hooks(t, failed, "log", 0)
	hooks(t, both, "log", 0)
}

// TestInjectedSidecarOfAJob: the variables may stand in a SidecarSet (JST-015).
func TestInjectedSidecarOfAJob(t *testing.T) {
	t.Parallel()
	createSidecars(t, "reporting", `
containers:
- name: agent
  image: "app:v1"
  imagePullPolicy: IfNotPresent
  command: ["sh", "-c", "trap 'exit 5' TERM; while true; do sleep 0.2; done"]
  env: [`+ignored+`]
`)
	pod := jobEnded(t, jobWith(t, namespace(t), "reporting", "Never", "sleep 1"))
	if got := status(t, pod, "agent").State.Terminated.ExitCode; got != 5 {
		t.Errorf("it ended with %d", got)
	}
}

// TestSidecarOnAVirtualNode: where the label says that there is no daemon, the image that ends takes the
// place of the sidecar's (JST-012 (part), JST-025 (part), JST-036 (part)). The node is a real one.
func TestSidecarOnAVirtualNode(t *testing.T) {
	nodes := kubelets(t)
	node := &nodes[len(nodes)-1]
	label := func(value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"type":%s}}}`, value)
		if err := kube.Patch(context.WithoutCancel(t.Context()), node, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Error(err)
		}
	}
	label(`"virtual-kubelet"`)
	t.Cleanup(func() { label("null") })
	ns := namespace(t)
	pod := manifest(t, ns, `
metadata: {name: virtual}
spec:
  nodeName: `+node.Name+`
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: "app:v1", imagePullPolicy: IfNotPresent, command: ["sleep", "1"]}
  - name: log
    image: "app:v1"
    imagePullPolicy: IfNotPresent
    command: ["sh", "-c", "test $IMAGE = app:v1 || exit 0; trap 'exit 143' TERM; while true; do sleep 0.2; done"]
    env: [{name: KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT_WITH_IMAGE, value: "app:v2"}]
`, &corev1.Pod{})
	eventually(t, "the pod", func(context.Context) string {
		if reread(t, pod).Status.Phase == corev1.PodSucceeded {
			return ""
		}
		return fmt.Sprintf("%+v", pod.Status.ContainerStatuses)
	})
	if status(t, pod, "log").RestartCount != 1 || len(terminations(t, pod)) != 0 {
		t.Errorf("%+v", pod.Status.ContainerStatuses)
	}
	toldOf(t, ns, "SidecarTerminator", "by in-place update")
}
