package inplace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// updating is a pod whose container nginx was updated to the image at noon; status is that container's
// status, if any.
func updating(to, record string, status *corev1.ContainerStatus, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := webPod(labelled(pub.ControllerRevisionHash, "web-2"),
		annotated(pub.InPlaceUpdateState, `{"revision":"web-2","updateTimestamp":"`+noonText+`","lastContainerStatuses":{"nginx":`+record+
			`},"updateImages":true}`))
	pod.Spec.Containers[0].Image = to
	pod.Status.ContainerStatuses = pod.Status.ContainerStatuses[:1]
	if status != nil {
		status.Name = "nginx"
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, *status)
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func seen(image, imageID, containerID string, since time.Time) *corev1.ContainerStatus {
	status := runs("", image, imageID, containerID, since)
	return &status
}

func awaiting(reason string) *corev1.ContainerStatus {
	return &corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// observing: kubelet reports that it has observed this generation of the spec; the pod's generation is 3.
func observing(generation int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Generation, pod.Status.ObservedGeneration = 3, generation }
}

func TestProgress(t *testing.T) {
	var (
		longAgo   = noon.Add(-time.Hour)
		afterward = noon.Add(time.Minute)
	)
	const (
		recorded    = `{"imageID":"sha-1","containerID":"c-1","image":"nginx:1","runningImage":"nginx:1"}`
		byReference = `{"imageID":"sha-1"}`
		overtaken   = `{"imageID":"sha-1","containerID":"c-1","image":"nginx:2","runningImage":"nginx:1"}`
	)
	done := Status{Complete: true}
	not := func(image string) Status { return Status{Waiting: "container nginx does not run " + image + " yet"} }
	tests := map[string]struct {
		pod  *corev1.Pod
		want Status
	}{
		"IPU-121 never updated in place": {webPod(), done},
		"IPU-121 updated, but no image": {
			webPod(annotated(pub.InPlaceUpdateState, `{"revision":"web-2","updateTimestamp":"`+noonText+`","lastContainerStatuses":null}`)),
			done},
		"IPU-069 the legacy state is read": {updating("nginx:2", recorded,
			seen("nginx:1", "sha-1", "c-1", longAgo), legacyState), not("nginx:2")},
		"IPU-127 nothing happened yet": {updating("nginx:2", recorded,
			seen("nginx:1", "sha-1", "c-1", longAgo)), not("nginx:2")},
		"IPU-127 another image runs": {updating("nginx:2", recorded,
			seen("nginx:2", "sha-2", "c-2", afterward)), done},
		"IPU-127 a recorded container, no status": {updating("nginx:2", recorded, nil),
			Status{Waiting: "container nginx has no status yet"}},
		"IPU-180, IPU-181, IPU-182 containers that are not recorded": {updating("nginx:2", recorded,
			seen("nginx:2", "sha-2", "c-2", afterward), injectedCrashes), done},
		"a container that is gone from the pod": {updating("nginx:2", recorded, nil,
			func(pod *corev1.Pod) { pod.Spec.Containers = pod.Spec.Containers[1:] }), done},
		"a container that terminated meanwhile": {updating("nginx:2", recorded,
			&corev1.ContainerStatus{Image: "nginx:2", ImageID: "sha-2", ContainerID: "c-2",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}), done},
		"the image cannot be pulled": {updating("nginx:2", recorded,
			withWaiting(seen("nginx:1", "sha-1", "c-1", longAgo), "ImagePullBackOff")),
			Status{Waiting: "container nginx does not run nginx:2 yet (ImagePullBackOff)"}},
		"IPU-103 the image cannot be pulled, and the next batch brings another": {updating("nginx:2", recorded,
			withWaiting(seen("nginx:1", "sha-1", "c-1", longAgo), "ImagePullBackOff"),
			annotated(pub.InPlaceUpdateState, `{"revision":"web-3","updateTimestamp":"`+noonText+`","lastContainerStatuses":{"nginx":`+
				recorded+`},"nextContainerImages":{"nginx":"nginx:3"}}`)), Status{Remaining: true, Next: true}},

		"IPU-300 another tag of the same digest: the old container": {
			updating("nginx:alpine", recorded, seen("nginx:alpine", "sha-1", "c-1", longAgo)), not("nginx:alpine")},
		"IPU-300 another tag of the same digest: a new container": {
			updating("nginx:alpine", recorded, seen("nginx:alpine", "sha-1", "c-2", afterward)), done},
		"IPU-300 another spelling of the same image": {
			updating("docker.io/library/nginx:1", recorded, seen("nginx:1", "sha-1", "c-2", afterward)), done},
		"IPU-300 the runtime reports another of the digest's names, kubelet has taken up the spec": {
			updating("nginx:alpine", recorded, seen("nginx:1", "sha-1", "c-2", afterward), observing(3)), done},
		"IPU-300 the same, kubelet has not taken it up: the container crashed and came back": {
			updating("nginx:alpine", recorded, seen("nginx:1", "sha-1", "c-2", afterward), observing(2)), not("nginx:alpine")},
		"IPU-300 the same, an old kubelet, which does not tell": {
			updating("nginx:alpine", recorded, seen("nginx:1", "sha-1", "c-2", afterward)), done},
		"IPU-300 a digest under a name that the runtime reports as a tag": {
			updating("nginx@sha256:"+digest, recorded, seen("docker.io/library/nginx:2", "sha-2", "c-2", afterward)), done},

		"IPU-300 recorded by the reference: another image runs": {
			updating("nginx:2", byReference, seen("nginx:2", "sha-2", "c-2", afterward)), done},
		"IPU-300 recorded by the reference: nothing happened yet": {
			updating("nginx:2", byReference, seen("nginx:1", "sha-1", "c-1", longAgo)), not("nginx:2")},
		"IPU-300 recorded by the reference: the same digest, started since": {
			updating("nginx:alpine", byReference, seen("nginx:alpine", "sha-1", "c-2", afterward)), done},
		"IPU-300 recorded by the reference: the same digest, started before": {
			updating("nginx:alpine", byReference, seen("nginx:alpine", "sha-1", "c-1", longAgo)), not("nginx:alpine")},
		"IPU-300 recorded by the reference: crashed before kubelet acted": {
			updating("nginx:2", byReference, seen("nginx:1", "sha-1", "c-2", afterward)), not("nginx:2")},

		"IPU-088 overtaken: the image of the first update runs": {
			updating("nginx:3", overtaken, seen("nginx:2", "sha-2", "c-2", afterward)), not("nginx:3")},
		"IPU-088 overtaken: the image of the second runs": {
			updating("nginx:3", overtaken, seen("nginx:3", "sha-3", "c-3", afterward)), done},
		"IPU-088 taken back before kubelet acted: what runs goes on, as kubelet tells": {
			updating("nginx:1", overtaken, seen("nginx:1", "sha-1", "c-1", longAgo), observing(3)), done},
		"IPU-088 taken back, kubelet has not seen it": {
			updating("nginx:1", overtaken, seen("nginx:1", "sha-1", "c-1", longAgo), observing(2)), not("nginx:1")},
		"IPU-088 taken back, an old kubelet": {
			updating("nginx:1", overtaken, seen("nginx:1", "sha-1", "c-1", longAgo)), done},
		"IPU-088 taken back after kubelet had acted": {
			updating("nginx:1", overtaken, seen("nginx:2", "sha-2", "c-2", afterward)), not("nginx:1")},

		"IPU-328 never created, though the pod runs": {
			updating("nginx:2", `{}`, awaiting("ImagePullBackOff")),
			Status{Waiting: "container nginx has not been created with nginx:2 yet (ImagePullBackOff)"}},
		"IPU-328 never created, the status names the new image already": {
			updating("nginx:2", `{}`, &corev1.ContainerStatus{Image: "nginx:2"}),
			Status{Waiting: "container nginx has not been created with nginx:2 yet"}},
		"IPU-328 created since": {
			updating("nginx:2", `{"image":"nginx:1","runningImage":"nginx:1"}`, seen("nginx:2", "sha-2", "c-1", afterward)), done},
		"IPU-328 created since, but still with the old image": {
			updating("nginx:2", `{"image":"nginx:1","runningImage":"nginx:1"}`, seen("nginx:1", "sha-1", "c-1", afterward)),
			not("nginx:2")},
		"IPU-087, IPU-328 the pod does not run at all": {
			updating("nginx:2", `{}`, awaiting("ContainerCreating"), inPhase(corev1.PodPending)), done},

		"IPU-107 grace: time left, rounded up to whole seconds": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"), startedBefore(20*time.Second-time.Millisecond),
				annotated(pub.InPlaceUpdateGrace, `{"revision":"web-2","graceSeconds":30}`)),
			Status{InGrace: true, GraceEnd: noon.Add(10*time.Second + time.Millisecond), After: 11 * time.Second, Waiting: "grace period of 30 s, 11 s left"}},
		"IPU-107 grace: over to the second": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"), startedBefore(30*time.Second),
				annotated(pub.InPlaceUpdateGrace, `{"revision":"web-2","graceSeconds":30}`)),
			Status{InGrace: true, GraceEnd: noon}},
		"IPU-107 grace: the pod carries another revision, to be dropped at once": {
			webPod(startedBefore(time.Second), annotated(pub.InPlaceUpdateGrace, `{"revision":"web-2","graceSeconds":30}`)),
			Status{InGrace: true}},
		"IPU-107 grace without state: over": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"),
				annotated(pub.InPlaceUpdateGrace, `{"revision":"web-2","graceSeconds":30}`)),
			Status{InGrace: true}},
		"IPU-069 legacy keys of both": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"), startedBefore(10*time.Second), legacyState,
				annotated(pub.InPlaceUpdateGraceLegacy, `{"revision":"web-2","graceSeconds":30}`)),
			Status{InGrace: true, GraceEnd: noon.Add(20 * time.Second), After: 20 * time.Second, Waiting: "grace period of 30 s, 20 s left"}},
		"IPU-108, IPU-121 in grace the pod is not complete, whatever runs": {
			updating("nginx:2", recorded, seen("nginx:2", "sha-2", "c-2", afterward),
				annotated(pub.InPlaceUpdateGrace, `{"revision":"web-2","graceSeconds":0}`)),
			Status{InGrace: true, GraceEnd: noon}},
		"IPU-070 unknown members": {
			webPod(annotated(pub.InPlaceUpdateState, `{"revision":"web-1","future":{"a":[1]},"updateTimestamp":"`+noonText+
				`","lastContainerStatuses":{}}`)), done},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Progress(tt.pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("progress of the update (-want +got):\n%s", diff)
			}
		})
	}
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func legacyState(pod *corev1.Pod) {
	pod.Annotations[pub.InPlaceUpdateStateLegacy] = pod.Annotations[pub.InPlaceUpdateState]
	delete(pod.Annotations, pub.InPlaceUpdateState)
}

func startedBefore(d time.Duration) func(*corev1.Pod) {
	return annotated(pub.InPlaceUpdateState, `{"revision":"web-2","updateTimestamp":"`+noon.Add(-d).Format(time.RFC3339Nano)+
		`","lastContainerStatuses":null}`)
}

func injectedCrashes(pod *corev1.Pod) {
	pod.Status.ContainerStatuses[0] = *awaiting("CrashLoopBackOff")
	pod.Status.ContainerStatuses[0].Name = "injected"
}

func withWaiting(status *corev1.ContainerStatus, reason string) *corev1.ContainerStatus {
	status.State = awaiting(reason).State
	return status
}

// IPU-301, IPU-300: image references are parsed, not cut at colons.
func TestSameImage(t *testing.T) {
	tests := map[string]struct {
		a, b string
		want bool
	}{
		"equal":                          {"nginx:1", "nginx:1", true},
		"no tag is latest":               {"nginx", "nginx:latest", true},
		"registry and library prefix":    {"nginx:1", "docker.io/library/nginx:1", true},
		"another registry":               {"nginx:1", "quay.io/library/nginx:1", false},
		"another tag":                    {"nginx:1", "nginx:2", false},
		"a registry port is no tag":      {"host:5000/app", "host:5000/app:latest", true},
		"a registry port and a tag":      {"host:5000/app:1", "host:5000/app:latest", false},
		"a digest":                       {"nginx@sha256:" + digest, "docker.io/library/nginx@sha256:" + digest, true},
		"a tag beside a digest is moot":  {"nginx:1@sha256:" + digest, "nginx@sha256:" + digest, true},
		"a digest and a tag":             {"nginx@sha256:" + digest, "nginx:latest", false},
		"what is no reference":           {"NGINX", "nginx", false},
		"what is no reference but equal": {"sha256:zz", "sha256:zz", true},
		"empty":                          {"", "nginx", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := SameImage(tt.a, tt.b); got != tt.want {
				t.Errorf("%q and %q are the same image: got %t, want %t", tt.a, tt.b, got, tt.want)
			}
			if got := SameImage(tt.b, tt.a); got != tt.want {
				t.Errorf("%q and %q are the same image: got %t, want %t", tt.b, tt.a, got, tt.want)
			}
		})
	}
}

// reporting adds what the node daemon reports of container nginx.
func reporting(containerID, plain, env string) func(*corev1.Pod) {
	return annotated(pub.RuntimeContainersMeta,
		`{"containers":[{"name":"other","containerID":"c-1","restartCount":0,"hashes":{"plainHash":1}},{"name":"nginx","containerID":"`+
			containerID+`","restartCount":1,"hashes":{"plainHash":`+plain+`,"extractedEnvFromMetadataHash":`+env+`}}],"future":1}`)
}

// TestProgressOfParts: completion of environment, restarts, resizes, and by the daemon's hashes. Its report
// is read in the form in which it is written (IPU-123, ND-093), by the names of containers, in any order
// (IPU-311).
func TestProgressOfParts(t *testing.T) {
	since := noon.Add(time.Minute)
	readsA := func(pod *corev1.Pod) {
		pod.Annotations["a"] = "foo"
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "e2",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}}}}
	}
	state := func(members string) func(*corev1.Pod) {
		return annotated(pub.InPlaceUpdateState, `{"revision":"web-1","updateTimestamp":"`+noonText+`",`+members+`}`)
	}
	nginx := func(status corev1.ContainerStatus) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[1] = status }
	}
	sized := func(cpu string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits = quantities("cpu", "2", "memory", "1Gi")
			pod.Status.ContainerStatuses[1].Resources = &corev1.ResourceRequirements{Limits: quantities("cpu", cpu, "memory", "2Gi")}
			pod.Status.ContainerStatuses[0].Resources = nil // an injected sidecar without resources
		}
	}
	pending := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
					Reason: reason, Message: "node is full", LastTransitionTime: metav1.NewTime(noon)})
		}
	}
	const resize = `"resizedContainers":{"nginx":{"limits":{"cpu":"2"}}},"updateResources":true`
	const byEnv = `"envContainers":{"nginx":"c-1"},"updateEnvFromMetadata":true`
	silent := noon.Add(5*time.Minute + 30*time.Second)
	notYet := Status{Waiting: "container nginx has not been restarted with its new environment yet", SilentFrom: silent}
	later := notYet
	later.SilentFrom = noon.Add(65 * time.Minute)
	tests := map[string]struct {
		pod  *corev1.Pod
		want Status
	}{
		"IPU-126 the daemon reports the new environment": {webPod(readsA, state(byEnv), reporting("c-1", "1", "2053173458")),
			Status{Complete: true}},
		"IPU-126 the daemon reports the old one": {webPod(readsA, state(byEnv), reporting("c-1", "1", "5")), notYet},
		"IPU-124, IPU-312 the daemon reports another container": {webPod(readsA, state(byEnv), reporting("c-0", "1", "2053173458")),
			Status{Waiting: "container nginx: the node daemon has not reported its environment yet", SilentFrom: silent}},
		"IPU-312 its container may take an hour to end": {webPod(readsA, state(byEnv), reporting("c-1", "1", "5"),
			func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(3600)) }), later},
		"IPU-312 it crashed, and kubelet starts it": {webPod(readsA, state(byEnv), reporting("c-1", "1", "5"),
			nginx(corev1.ContainerStatus{Name: "nginx", ContainerID: "c-1"})), Status{Waiting: notYet.Waiting}},
		"IPU-312 no report, but a new container": {webPod(readsA, state(byEnv), nginx(runs("nginx", "nginx:1", "sha-1", "c-2", since))),
			Status{Complete: true}},
		"IPU-122 a new container with the old environment": {
			webPod(readsA, state(byEnv), nginx(runs("nginx", "nginx:1", "sha-1", "c-2", since)), reporting("c-2", "1", "5")), notYet},
		"IPU-087 it does not run": {webPod(readsA, state(byEnv), nginx(corev1.ContainerStatus{Name: "nginx"})),
			Status{Complete: true}},
		"IPU-122 written by the reference: the daemon says": {webPod(readsA, state(`"updateEnvFromMetadata":true`),
			reporting("c-1", "1", "5")), notYet},
		"IPU-122 written by the reference: nothing is read": {webPod(state(`"updateEnvFromMetadata":true`)), Status{Complete: true}},
		"IPU-322 not restarted": {webPod(state(`"restartContainers":{"nginx":"c-1"}`)),
			Status{Waiting: "container nginx has not been restarted yet", NoDaemonSince: noon}},
		"IPU-322 restarted": {webPod(state(`"restartContainers":{"nginx":"c-1"}`),
			nginx(runs("nginx", "nginx:1", "sha-1", "c-2", since))), Status{Complete: true}},
		"IPU-128, IPU-314 resized, whatever others have": {webPod(state(resize), sized("2000m")), Status{Complete: true}},
		"IPU-128 not resized": {webPod(state(resize), sized("1")),
			Status{Waiting: "container nginx is not resized to limits cpu 2 yet"}},
		"IPU-128 a status without resources": {webPod(state(resize), sized("1"),
			func(pod *corev1.Pod) { pod.Status.ContainerStatuses[1].Resources = nil }), Status{Complete: true}},
		"IPU-128 somebody else has resized it to other ones": {webPod(state(resize), sized("1"),
			func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }), Status{Complete: true}},
		"IPU-315 infeasible": {webPod(state(resize), sized("1"), pending("Infeasible")),
			Status{Waiting: "container nginx is not resized to limits cpu 2 yet: Infeasible: node is full",
				Resize: &PendingResize{Infeasible: true, Message: "Infeasible: node is full", Since: noon,
					NotBefore: noon.Add(resizePatience)}}},
		"IPU-315 kubelet failed to resize it": {webPod(state(resize), sized("1"), func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue,
					Reason: corev1.PodReasonError, Message: "memory limit below usage"})
		}), Status{Waiting: "container nginx is not resized to limits cpu 2 yet: Error: memory limit below usage"}},
		"IPU-315 kubelet resizes it": {webPod(state(resize), sized("1"), func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue})
		}), Status{Waiting: "container nginx is not resized to limits cpu 2 yet"}},
		"IPU-315 deferred": {webPod(state(resize), sized("1"), pending("Deferred")),
			Status{Waiting: "container nginx is not resized to limits cpu 2 yet: Deferred: node is full",
				Resize: &PendingResize{Message: "Deferred: node is full", Since: noon, NotBefore: noon.Add(resizePatience)}}},
		"IPU-315 an older server": {webPod(state(resize), sized("1"),
			func(pod *corev1.Pod) { pod.Status.Resize = corev1.PodResizeStatusInfeasible }),
			Status{Waiting: "container nginx is not resized to limits cpu 2 yet: Infeasible",
				Resize: &PendingResize{Infeasible: true, Message: "Infeasible", NotBefore: noon.Add(resizePatience)}}},
		"IPU-122 the daemon's plain hash settles doubtful image names": {updating("nginx:alpine", `{"imageID":"sha-1","containerID":"c-1"}`,
			seen("nginx:1", "sha-1", "c-2", since), observing(2), reporting("c-2", PlainHash("nginx", "nginx:alpine"), "0")),
			Status{Complete: true}},
		"IPU-318 a native sidecar": {webPod(state(`"restartContainers":{"side":"c-s"}`), func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "side"}}
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{runs("side", "side:1", "sha", "c-s", noon)}
		}), Status{Waiting: "container side has not been restarted yet", NoDaemonSince: noon}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Progress(tt.pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("progress of the update (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRestartsAreCounted: users can tell restarts caused by updates from crashes (IPU-320).
func TestRestartsAreCounted(t *testing.T) {
	for name, tt := range map[string]struct{ before, want string }{
		"the first":        {"", `{"nginx":1}`},
		"one more":         {`{"nginx":2,"old":1}`, `{"nginx":3,"old":1}`},
		"what is no count": {`junk`, `{"nginx":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := webPod(annotated(pub.InPlaceUpdateRestarts, tt.before))
			patch, err := to("web-2", toImage("nginx:2"), 0).Start(pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, applied(t, pod, patch).Annotations[pub.InPlaceUpdateRestarts]); diff != "" {
				t.Errorf("restarts by updates (-want +got):\n%s", diff)
			}
		})
	}
}

// IPU-300 (part): if kubelet reports no generation, another image under a name that cannot be compared
// completes the update. If kubelet reports an older generation, it does not.
func TestKubeletsThatReportNoGeneration(t *testing.T) {
	before := ContainerRecord{Image: "nginx:0", ImageID: "sha-0", ContainerID: "c-0"}
	for observed, done := range map[int64]bool{0: true, 1: false, 2: true} {
		pod := webPod(func(pod *corev1.Pod) {
			pod.Generation, pod.Status.ObservedGeneration = 2, observed
			pod.Status.ContainerStatuses[1].Image = "mirror/web:x"
		})
		if got := Replaced(pod, "nginx", before, noon); (got == "") != done {
			t.Errorf("observed generation %d: waits because of %q, want it replaced: %t", observed, got, done)
		}
	}
}
