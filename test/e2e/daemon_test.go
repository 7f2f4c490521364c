//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/story"
)

// runForever is the command of a container that runs until SIGTERM.
const runForever = `command: ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.2; done"]`

// manifest makes an object from YAML in the namespace.
func manifest[T client.Object](t *testing.T, namespace, text string, object T) T {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	object.SetNamespace(namespace)
	if err := kube.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// pod makes a pod of containers, as YAML, and waits until it is ready.
func pod(t *testing.T, namespace, containers string) *corev1.Pod {
	t.Helper()
	p := manifest(t, namespace, "metadata: {name: app}\nspec:\n  terminationGracePeriodSeconds: 2\n  containers:\n"+indent(containers),
		&corev1.Pod{})
	eventually(t, "the pod", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err.Error()
		}
		if !story.Ready(p) {
			return fmt.Sprintf("%+v", p.Status)
		}
		return ""
	})
	return p
}

func reread[T client.Object](t *testing.T, object T) T {
	t.Helper()
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// status returns the status of a container of the pod.
func status(t *testing.T, p *corev1.Pod, container string) corev1.ContainerStatus {
	t.Helper()
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container {
			return s
		}
	}
	t.Fatalf("pod %s has no status of %s: %+v", p.Name, container, p.Status.ContainerStatuses)
	return corev1.ContainerStatus{}
}

// recreated makes a request for the pod and waits until it is completed.
func recreated(t *testing.T, p *corev1.Pod, name, spec string) *appsv1beta1.ContainerRecreateRequest {
	t.Helper()
	r := manifest(t, p.Namespace, "metadata: {name: "+name+"}\nspec:\n  podName: "+p.Name+"\n"+indent(spec),
		&appsv1beta1.ContainerRecreateRequest{})
	completed(t, r)
	return r
}

func completed(t *testing.T, requests ...*appsv1beta1.ContainerRecreateRequest) {
	t.Helper()
	for _, r := range requests {
		eventually(t, "request "+r.Name, func(context.Context) string {
			if reread(t, r).Status.CompletionTime != nil {
				return ""
			}
			return fmt.Sprintf("%+v", r.Status)
		})
	}
}

// succeeded checks that the request recreated its containers.
func succeeded(t *testing.T, r *appsv1beta1.ContainerRecreateRequest) {
	t.Helper()
	if len(r.Status.ContainerRecreateStates) != len(r.Spec.Containers) || r.Status.Message != "" {
		t.Errorf("request %s: %+v", r.Name, r.Status)
	}
	for _, state := range r.Status.ContainerRecreateStates {
		if state.Phase != appsv1beta1.ContainerRecreateRequestSucceeded {
			t.Errorf("request %s: container %s is %s: %s", r.Name, state.Name, state.Phase, state.Message)
		}
	}
}

// restarted checks that the pod is the same and that its containers restarted that many times.
func restarted(t *testing.T, before *corev1.Pod, times map[string]int32) *corev1.Pod {
	t.Helper()
	after := reread(t, before.DeepCopy())
	if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP || after.Spec.NodeName != before.Spec.NodeName {
		t.Errorf("pod %s: UID %s to %s, IP %s to %s", before.Name, before.UID, after.UID, before.Status.PodIP, after.Status.PodIP)
	}
	for _, s := range before.Status.ContainerStatuses {
		next := status(t, after, s.Name)
		if next.RestartCount != s.RestartCount+times[s.Name] {
			t.Errorf("container %s restarted %d times, not %d", s.Name, next.RestartCount-s.RestartCount, times[s.Name])
		}
		if (next.ContainerID != s.ContainerID) != (times[s.Name] > 0) {
			t.Errorf("container %s: ID %s to %s", s.Name, s.ContainerID, next.ContainerID)
		}
	}
	return after
}

const two = `
- {name: first, image: "app:v1", imagePullPolicy: IfNotPresent, ` + runForever + `}
- {name: second, image: "app:v1", imagePullPolicy: IfNotPresent, ` + runForever + `}
`

// TestRecreate: one container restarts, its neighbour, the pod and its address stay; a request with force
// restarts what has already restarted, one without does not (CRR-001 (part), CRR-003 (part), CRR-004 (part),
// CRR-113 (part), CRR-114 (part), CRR-128 (part)). Labels, the frozen facts and the clean-up after the end:
// CRR-035 (part), CRR-037 (part), CRR-057 (part), CRR-058 (part).
func TestRecreate(t *testing.T) {
	t.Parallel()
	p := pod(t, namespace(t), two)
	begin := time.Now()
	r := recreated(t, p, "plain", `containers: [{name: first}]`)
	t.Logf("restarted and ready after %.1f s", time.Since(begin).Seconds())
	succeeded(t, r)
	after := restarted(t, p, map[string]int32{"first": 1})
	if context := r.Spec.Containers[0].StatusContext; context == nil || context.ContainerID != status(t, p, "first").ContainerID {
		t.Errorf("frozen %+v", context)
	}
	eventually(t, "the label of live requests goes",
		func(context.Context) string { return reread(t, r).Labels["crr.apps.kruise.io/active"] })
	forced := recreated(t, after, "forced", `
containers: [{name: first}, {name: second}]
strategy: {forceRecreate: true, terminationGracePeriodSeconds: 1}
ttlSecondsAfterFinished: 8
`)
	succeeded(t, forced)
	restarted(t, after, map[string]int32{"first": 1, "second": 1})
	eventually(t, "the request goes", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(forced), forced); err == nil {
			return "it is there"
		}
		return ""
	})
}

// TestRecreateOrdered: the second container is stopped when the first is back and has run for a while
// (CRR-117 to CRR-122).
func TestRecreateOrdered(t *testing.T) {
	t.Parallel()
	p := pod(t, namespace(t), two)
	r := recreated(t, p, "ordered", `
containers: [{name: second}, {name: first}]
strategy: {orderedRecreate: true, minStartedSeconds: 2}
`)
	succeeded(t, r)
	after := restarted(t, p, map[string]int32{"first": 1, "second": 1})
	second, first := status(t, after, "second").State.Running.StartedAt, status(t, after, "first").State.Running.StartedAt
	if first.Sub(second.Time) < 2*time.Second {
		t.Errorf("second started at %s, first at %s", second, first)
	}
}

// TestRecreateQueue: requests for one pod are carried out one after the other; those without force are
// satisfied by any restart after their creation (CRR-091 to CRR-095, CRR-128 (part), CRR-160 (part)).
// Kubelet's own back-off makes each further restart wait longer (CRR-107 (part)).
func TestRecreateQueue(t *testing.T) {
	t.Parallel()
	p := pod(t, namespace(t), two)
	var requests []*appsv1beta1.ContainerRecreateRequest
	for i := range 4 {
		requests = append(requests,
			manifest(t, p.Namespace,
				fmt.Sprintf("metadata: {name: queue-%d}\nspec: {podName: %s, containers: [{name: first}], strategy: {forceRecreate: %t}}",
					i, p.Name, i < 2),
				&appsv1beta1.ContainerRecreateRequest{}))
	}
	completed(t, requests...)
	for _, r := range requests {
		succeeded(t, r)
	}
	restarted(t, p, map[string]int32{"first": 2})
}

// TestRecreateHook: a preStop hook that fails is reported and does not prevent the restart (CRR-103 (part),
// CRR-105 (part)).
func TestRecreateHook(t *testing.T) {
	t.Parallel()
	p := pod(t, namespace(t), `
- name: first
  image: "app:v1"
  imagePullPolicy: IfNotPresent
  `+runForever+`
  lifecycle: {preStop: {exec: {command: ["sh", "-c", "exit 3"]}}}
`)
	succeeded(t, recreated(t, p, "hook", `containers: [{name: first}]`))
	restarted(t, p, map[string]int32{"first": 1})
	eventually(t, "events", func(ctx context.Context) string {
		var events corev1.EventList
		if err := kube.List(ctx, &events, client.InNamespace(p.Namespace)); err != nil {
			return err.Error()
		}
		seen := map[string]bool{}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == p.Name && e.Source.Component == "kruise-daemon-crr" {
				seen[e.Reason] = true
			}
		}
		if seen["Killing"] && seen["FailedPreStopHook"] {
			return ""
		}
		return fmt.Sprint(seen)
	})
}

// TestRecreateCrashLoop: a container that does not come back ends at the deadline, with that reason
// (CRR-061 (part), CRR-066 (part), CRR-118 (part), CRR-162 (part)).
func TestRecreateCrashLoop(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := manifest(t, ns, `
metadata: {name: app}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: first, image: "app:v1", imagePullPolicy: IfNotPresent, command: ["sh", "-c", "sleep 1; exit 1"]}]}
`, &corev1.Pod{})
	eventually(t, "a restart", func(context.Context) string {
		if s := reread(t, p).Status.ContainerStatuses; len(s) == 0 || s[0].RestartCount == 0 || s[0].ContainerID == "" {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	r := recreated(t, p, "loop", "containers: [{name: first}]\nstrategy: {minStartedSeconds: 5}\nactiveDeadlineSeconds: 6")
	if r.Status.Message != "recreating has exceeded the activeDeadlineSeconds" || len(r.Status.ContainerRecreateStates) != 1 ||
		r.Status.ContainerRecreateStates[0].Phase != appsv1beta1.ContainerRecreateRequestFailed {
		t.Errorf("%+v", r.Status)
	}
}

// TestRecreateUnready: the pod of a workload is out of service for the grace time before its container stops
// (CRR-080 to CRR-086).
func TestRecreateUnready(t *testing.T) {
	t.Parallel()
	w := create(t, "drained", "replicas: 1")
	events := watchPods(t, w.key.Namespace)
	for _, p := range w.pods() {
		succeeded(t, recreated(t, &p, "drained", "containers: [{name: nginx}]\nstrategy: {unreadyGracePeriodSeconds: 3}"))
	}
	var down, stopped time.Time
	for len(events) > 0 && stopped.IsZero() {
		p, ok := (<-events).Object.(*corev1.Pod)
		if !ok {
			continue
		}
		if !story.Ready(p) && down.IsZero() {
			down = time.Now()
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady {
					down = c.LastTransitionTime.Time
				}
			}
		}
		if s := p.Status.ContainerStatuses; len(s) == 1 && s[0].RestartCount == 1 && s[0].LastTerminationState.Terminated != nil {
			stopped = s[0].LastTerminationState.Terminated.FinishedAt.Time
		}
	}
	if down.IsZero() || stopped.Sub(down) < 2*time.Second { // times have whole seconds
		t.Errorf("out of service at %s, stopped at %s", down, stopped)
	}
	w.settled()
	w.inPlace("nginx:1.26", 1)
}

// TestRecreateDaemonKilled: a daemon that dies while a hook runs is followed by one that finishes the
// request, with one restart (CRR-130 (part), ND-003 (part)).
func TestRecreateDaemonKilled(t *testing.T) {
	p := pod(t, namespace(t), `
- name: first
  image: "app:v1"
  imagePullPolicy: IfNotPresent
  `+runForever+`
  lifecycle: {preStop: {exec: {command: ["sleep", "3"]}}}
`)
	r := manifest(t, p.Namespace,
		"metadata: {name: killed}\nspec: {podName: app, containers: [{name: first}], strategy: {terminationGracePeriodSeconds: 20}}",
		&appsv1beta1.ContainerRecreateRequest{})
	eventually(t, "the request runs", func(context.Context) string {
		if reread(t, r).Status.Phase == appsv1beta1.ContainerRecreateRequestRecreating {
			return ""
		}
		return string(r.Status.Phase)
	})
	var daemons corev1.PodList
	if err := kube.List(t.Context(), &daemons, client.InNamespace("kruise-system"),
		client.MatchingLabels{"control-plane": "daemon"}); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for i := range daemons.Items {
		if d := &daemons.Items[i]; d.Spec.NodeName == p.Spec.NodeName {
			killed++
			if err := kube.Delete(t.Context(), d, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if killed != 1 {
		t.Fatalf("%d daemons on the node", killed)
	}
	completed(t, r)
	succeeded(t, r)
	restarted(t, p, map[string]int32{"first": 1})
}

const config = `
replicas: 2
template:
  metadata: {annotations: {config: %s}}
  spec:
    containers:
    - {name: nginx, image: "%s", imagePullPolicy: IfNotPresent, env: [{name: CONFIG, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['config']"}}}]}
    - {name: other, image: "app:v1", imagePullPolicy: IfNotPresent, ` + runForever + `}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1%s}}
`

// TestEnvironmentInPlace: a changed annotation that the environment reads restarts the container once, pod
// after pod as the strategy says; together with a new image there is one restart too (ND-110 (part),
// ND-116 (part), ND-194 (part), IPU-023 (part), IPU-312 (part)).
func TestEnvironmentInPlace(t *testing.T) {
	t.Parallel()
	w := create(t, "environment", fmt.Sprintf(config, "a", "nginx:1.26", ""))
	w.reported()
	w.seen = w.pods()
	events := watchPods(t, w.key.Namespace)
	begin := time.Now()
	w.change("spec:\n" + indent(fmt.Sprintf(config, "b", "nginx:1.26", ", partition: 1")))
	w.settled()
	t.Logf("one pod restarted and in service after %.1f s", time.Since(begin).Seconds())
	w.change("spec:\n" + indent(fmt.Sprintf(config, "b", "nginx:1.26", ", partition: 0")))
	w.settled()
	w.inPlace("nginx:1.26", 1)
	for _, p := range w.pods() {
		if status(t, &p, "other").RestartCount != 0 {
			t.Errorf("pod %s: the other container restarted", p.Name)
		}
	}
	notBelow(t, events, 2, 1)
	w.reported()
	w.seen = w.pods()
	w.change("spec:\n" + indent(fmt.Sprintf(config, "c", "nginx:1.27", ", partition: 0")))
	w.settled()
	w.inPlace("nginx:1.27", 1)
}

// reported waits until the node daemons have reported all containers.
func (w *workload) reported() {
	w.t.Helper()
	eventually(w.t, "runtime metadata", func(context.Context) string {
		for _, p := range w.pods() {
			report := p.Annotations[pub.RuntimeContainersMeta]
			for _, s := range p.Status.ContainerStatuses {
				if !strings.Contains(report, s.ContainerID) {
					return p.Name + " " + report
				}
			}
		}
		return ""
	})
}

// pulled makes a job and waits until it is completed.
func pulled(t *testing.T, namespace, text string) *appsv1beta1.ImagePullJob {
	t.Helper()
	job := manifest(t, namespace, text, &appsv1beta1.ImagePullJob{})
	eventually(t, "job "+job.Name, func(context.Context) string {
		if reread(t, job).Status.CompletionTime != nil {
			return ""
		}
		return fmt.Sprintf("%+v", job.Status)
	})
	return job
}

// TestImagePullJob: an image of a private repository is pulled on every node with the secret of the job's
// namespace. Without the secret, and for an image that does not exist, every node counts as failed
// (IMG-002 (part), IMG-110 (part), IMG-137 (part), IMG-141 (part)).
func TestImagePullJob(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	manifest(t, ns, `
metadata: {name: account}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"registry.example.com":{"username":"afloat","password":"let-me-in"}}}'}
`, &corev1.Secret{})
	const job = `
metadata: {name: %s}
spec: {image: "%s", parallelism: 10, imagePullPolicy: Always, pullPolicy: {backoffLimit: 0, timeoutSeconds: 60}, completionPolicy: {type: Always}%s}
`
	n := int32(len(kubelets(t)))
	// All tags of an image share its secrets, so the job without a secret runs first.
	if s := pulled(t, ns, fmt.Sprintf(job, "denied", "registry.example.com/private/app:v2", "")).Status; s.Failed != n ||
		int32(len(s.FailedNodes)) != n {
		t.Errorf("without a secret: %+v", s)
	}
	begin := time.Now()
	if s := pulled(t, ns, fmt.Sprintf(job, "private", "registry.example.com/private/app:v1", ", pullSecrets: [account]")).
		Status; s.Succeeded != n || s.Desired != n {
		t.Errorf("with a secret: %+v", s)
	}
	t.Logf("on %d nodes after %.1f s", n, time.Since(begin).Seconds())
	if s := pulled(t, ns, fmt.Sprintf(job, "missing", "app:never-made", "")).Status; s.Failed != n {
		t.Errorf("an image that does not exist: %+v", s)
	}
	eventually(t, "copies of secrets go", func(ctx context.Context) string {
		var copies corev1.SecretList
		if err := kube.List(ctx, &copies, client.InNamespace("kruise-daemon-config")); err != nil {
			return err.Error()
		}
		for _, s := range copies.Items {
			if s.Annotations["imagepulljobs.kruise.io/source-key"] == ns+"/account" {
				return s.Name
			}
		}
		return ""
	})
}

// TestPreDownload: before an update in place goes on, its image is pulled by a job on the nodes of the pods
// (CS-200 (part), CS-205 (part), IMG-190 (part), IMG-191 (part)).
func TestPreDownload(t *testing.T) {
	t.Parallel()
	w := create(t, "ahead", `
replicas: 4
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1, partition: 3}}
`)
	w.image("nginx:1.28")
	if !w.event("CreatedImagePullJob") {
		t.Error("no event tells of the job")
	}
	eventually(t, "the job", func(ctx context.Context) string {
		var jobs appsv1beta1.ImagePullJobList
		if err := kube.List(ctx, &jobs, client.InNamespace(w.key.Namespace)); err != nil {
			return err.Error()
		}
		for _, job := range jobs.Items {
			if job.Spec.Image == "nginx:1.28" && job.Status.CompletionTime != nil && job.Status.Succeeded == job.Status.Desired &&
				job.Status.Desired > 0 {
				return ""
			}
		}
		return fmt.Sprintf("%+v", jobs.Items)
	})
	w.change(`spec: {updateStrategy: {rollingUpdate: {partition: 0}}}`)
	w.settled()
	w.inPlace("nginx:1.28", 1)
	eventually(t, "the jobs go", func(ctx context.Context) string {
		var jobs appsv1beta1.ImagePullJobList
		if err := kube.List(ctx, &jobs, client.InNamespace(w.key.Namespace)); err != nil {
			return err.Error()
		}
		if len(jobs.Items) > 0 {
			return fmt.Sprintf("%d jobs", len(jobs.Items))
		}
		return ""
	})
}

// TestLaunchPriority: containers start when those of higher priority are ready, and equal priorities need no
// barrier (ND-120 to ND-122, ND-129 (part), ND-136 to ND-138).
func TestLaunchPriority(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	// The second container of the list has the higher priority and takes a while to be ready.
	p := pod(t, ns, `
- {name: last, image: "app:v1", imagePullPolicy: IfNotPresent, `+runForever+`}
- name: first
  image: "app:v1"
  imagePullPolicy: IfNotPresent
  command: ["sh", "-c", "trap 'exit 0' TERM; sleep 2; touch /tmp/ready; while true; do sleep 0.2; done"]
  readinessProbe: {exec: {command: ["test", "-e", "/tmp/ready"]}, periodSeconds: 1}
  env: [{name: KRUISE_CONTAINER_PRIORITY, value: "5"}]
`)
	first, last := status(t, p, "first").State.Running.StartedAt, status(t, p, "last").State.Running.StartedAt
	if last.Sub(first.Time) < time.Second {
		t.Errorf("first started at %s, last at %s", first, last)
	}
	var barriers corev1.ConfigMapList
	count := func() (n int) {
		if err := kube.List(t.Context(), &barriers, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		for _, b := range barriers.Items {
			if strings.HasSuffix(b.Name, "-barrier") {
				n++
			}
		}
		return n
	}
	if n := count(); n != 1 {
		t.Errorf("%d barriers", n)
	}
	if err := kube.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the barrier goes with its pod", func(context.Context) string {
		if n := count(); n > 0 {
			return fmt.Sprint(n)
		}
		return ""
	})
	pod(t, ns, `
- {name: a, image: "app:v1", imagePullPolicy: IfNotPresent, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "5"}], `+runForever+`}
- {name: b, image: "app:v1", imagePullPolicy: IfNotPresent, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "5"}], `+runForever+`}
`)
	if n := count(); n != 0 {
		t.Errorf("%d barriers for containers of one priority", n)
	}
}
