package inplace

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// begin applies the update to the pod, which gets a new generation as the API server gives it.
func begin(t *testing.T, pod *corev1.Pod, u *Update) *corev1.Pod {
	t.Helper()
	patch, err := u.Start(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	pod = applied(t, pod, patch)
	pod.Generation++
	return pod
}

// TestImageInTheMiddleIsNotTheLast: three images are asked for while the first is pulled. When the first or
// the second comes up, the update to the third is not complete, whether or not kubelet reports which
// generation of the pod it has seen (IPU-300 (part)).
func TestImageInTheMiddleIsNotTheLast(t *testing.T) {
	tests := map[string]struct {
		runs     string
		observed int64
		complete bool
	}{
		"the first, kubelet is behind":              {"nginx:2", 2, false},
		"the first, kubelet has seen all":           {"nginx:2", 4, false},
		"the first, kubelet does not tell":          {"nginx:2", 0, false},
		"the second, kubelet has seen all":          {"nginx:3", 4, false},
		"the last":                                  {"nginx:4", 4, true},
		"the last, kubelet does not tell":           {"nginx:4", 0, true},
		"the last under another name of its digest": {"docker.io/library/nginx:newest", 4, true},
		"another name, kubelet is behind":           {"docker.io/library/nginx:newest", 3, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := webPod()
			pod.Generation = 1
			for _, tag := range []string{"2", "3", "4"} {
				pod = begin(t, pod, to("web-"+tag, toImage("nginx:"+tag), 0))
			}
			pod.Status.ObservedGeneration = tt.observed
			pod.Status.ContainerStatuses[1] = runs("nginx", tt.runs, "sha-"+tt.runs, "c-2", noon.Add(time.Minute))
			status, err := Progress(pod, noon.Add(time.Minute))
			if err != nil {
				t.Errorf("runs %s, observed %d of %d: %v", tt.runs, tt.observed, pod.Generation, err)
			}
			if status.Complete != tt.complete {
				t.Errorf("runs %s, observed %d of %d: got %+v, want it complete: %t", tt.runs, tt.observed,
					pod.Generation, status, tt.complete)
			}
		})
	}
}

// TestImageTakenBackToOneThatNeverRan: the spec went from 1 to 2 to 3, image 2 came up, and now 3 becomes 4
// and 3 again. The container of image 2 is not mistaken for one of image 3, although the spec had 3 when the
// container was recorded (IPU-300 (part)).
func TestImageTakenBackToOneThatNeverRan(t *testing.T) {
	pod := webPod()
	for _, tag := range []string{"2", "3"} {
		pod = begin(t, pod, to("web-"+tag, toImage("nginx:"+tag), 0))
	}
	pod.Status.ContainerStatuses[1] = runs("nginx", "nginx:2", "sha-2", "c-2", noon.Add(time.Minute))
	for _, tag := range []string{"4", "3"} {
		pod = begin(t, pod, to("web-"+tag, toImage("nginx:"+tag), 0))
	}
	if status, err := Progress(pod, noon.Add(time.Minute)); err != nil {
		t.Errorf("runs nginx:2 instead of nginx:3: %v", err)
	} else if status.Complete {
		t.Errorf("runs nginx:2 instead of nginx:3: complete, want it under way: %+v", status)
	}
}

// TestOvertakenImagesAreBounded: after a hundred changes of a rollout the record still has a bounded size.
func TestOvertakenImagesAreBounded(t *testing.T) {
	pod := webPod()
	for i := range 100 {
		pod = begin(t, pod, to(fmt.Sprintf("web-%d", i), toImage(fmt.Sprintf("nginx:%d", i+2)), 0))
	}
	if n := len(pod.Annotations[pub.InPlaceUpdateState]); n > 1000 {
		t.Errorf("size of the record: got %d bytes, want 1000 at most: %s",
			n, pod.Annotations[pub.InPlaceUpdateState])
	}
}

// TestFurtherRevisionKeepsTheOrder: a further revision comes while agent, which has to be up before main, is
// being replaced. Nothing of main is written before agent is up (IPU-103 (part), IPU-327 (part)).
func TestFurtherRevisionKeepsTheOrder(t *testing.T) {
	value := "x"
	cpu := map[string]corev1.ResourceRequirements{"main": {Limits: quantities("cpu", "2")}}
	tests := map[string]*Update{
		"that changes an annotation":    to("web-3", &Change{Annotations: map[string]*string{"note": &value}}, 0),
		"that changes the size of main": to("web-3", &Change{Parts: Parts{Resources: cpu}}, 0),
		"with a grace period": to("web-3",
			&Change{Parts: Parts{Images: map[string]string{"main": "main:3"}}, Stops: []string{"main"}}, 10),
		"of what stands between them": to("web-3",
			&Change{Parts: Parts{Images: map[string]string{"proxy": "proxy:3"}}, Stops: []string{"proxy"}}, 0),
		"of a container without priority": to("web-3",
			&Change{Parts: Parts{Images: map[string]string{"logs": "logs:3"}}, Stops: []string{"logs"}}, 0),
		"that restarts main, not only now": to("web-3", &Change{Parts: Parts{Restarts: []string{"main"}}, Stops: []string{"main"}}, 0),
	}
	for name, further := range tests {
		t.Run(name, func(t *testing.T) {
			pod := prioritized()
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "logs", Image: "logs:1"})
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
				runs("logs", "logs:1", "sha-l", "c-l", noon.Add(-time.Hour)))
			pod.Status.ContainerStatuses[len(pod.Status.ContainerStatuses)-1].Ready = true
			pod = begin(t, pod,
				to("web-2", &Change{Parts: Parts{Images: map[string]string{"main": "main:2", "agent": "agent:2"}},
					Stops: []string{"agent", "main"}}, 0))
			resize, err := further.Resize(pod, noon)
			if err != nil {
				t.Errorf("resize before agent is up: %v", err)
			}
			if !resize.Empty() {
				t.Errorf("resized before agent is up: %s", resize)
			}
			pod = begin(t, pod, further)
			if InGrace(pod) {
				if resize, err = ContinueResize(pod, noon); err != nil {
					t.Errorf("resize in the grace period, before agent is up: %v", err)
				} else if !resize.Empty() {
					t.Errorf("resized in the grace period, before agent is up: %s", resize)
				}
				patch, err := Continue(pod, noon.Add(10*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				pod = applied(t, pod, patch)
			}
			image := func(name string) string { return containerOf(pod, name).Image }
			if got := image("main"); got != "main:1" {
				t.Errorf("main has %s, although agent of a higher priority has not been replaced", got)
			}
			if got := image("proxy"); got != "proxy:1" {
				t.Errorf("proxy has %s, although agent of a higher priority has not been replaced", got)
			}
			if _, asked := further.Change.Images["logs"]; asked && image("logs") != "logs:3" {
				t.Errorf("image of logs, which has no priority: got %s, want logs:3", image("logs"))
			}
			status, err := Progress(pod, noon)
			if err != nil {
				t.Errorf("progress before agent is up: %v", err)
			}
			if status.Next {
				t.Errorf("the next batch is due before agent is up: %+v", status)
			}
			if status.Complete {
				t.Errorf("the update is complete before agent is up: %+v", status)
			}
			for range 5 { // agent comes up, and the others follow one after another
				pod = kubelet(pod)
				if status, _ := Progress(pod, noon.Add(time.Minute)); status.Next {
					patch, err := Continue(pod, noon.Add(time.Minute))
					if err != nil {
						t.Fatal(err)
					}
					pod = applied(t, pod, patch)
				}
			}
			want := "main:2"
			if further.Change.Images["main"] != "" {
				want = "main:3"
			}
			if image("main") != want {
				t.Errorf("image of main at the end: got %s, want %s", image("main"), want)
			}
		})
	}
}

// The daemon reports a container whose environment it cannot read (ND-106). The update is complete as soon as
// the container that had the old environment is replaced by another one, and not before (IPU-126 (part)).
func TestAnUnreadableEnvironmentDoesNotHoldTheUpdate(t *testing.T) {
	const recorded = `"lastContainerStatuses":null,"envContainers":{"nginx":"c-1"},"updateEnvFromMetadata":true`
	const byReference = `"lastContainerStatuses":null,"updateEnvFromMetadata":true`
	tests := map[string]struct {
		record, runs string
		since        time.Time
		complete     bool
	}{
		"the container is another one":                         {recorded, "c-2", noon.Add(time.Minute), true},
		"it is still the former one":                           {recorded, "c-1", noon.Add(-time.Hour), false},
		"recorded by the reference, started since":             {byReference, "c-2", noon.Add(time.Minute), true},
		"recorded by the reference, started before the update": {byReference, "c-1", noon.Add(-time.Hour), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := webPod(annotated("a", "foo"),
				annotated(pub.InPlaceUpdateState, `{"revision":"web-1","updateTimestamp":"`+noonText+`",`+tt.record+`}`),
				annotated(pub.RuntimeContainersMeta, `{"containers":[{"name":"nginx","containerID":"`+tt.runs+
					`","restartCount":1,"hashes":{"plainHash":1}}]}`))
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "e",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}}}}
			pod.Status.ContainerStatuses[1] = runs("nginx", "nginx:1", "sha-1", tt.runs, tt.since)
			if status, err := Progress(pod, noon.Add(24*time.Hour)); err != nil {
				t.Errorf("progress after a day: %v", err)
			} else if status.Complete != tt.complete {
				t.Errorf("progress after a day: got %+v, want it complete: %t", status, tt.complete)
			}
		})
	}
}

// For a template that has only limits, the API server sets equal requests in the pod. A changed limit changes
// its request too, so that the pod keeps its QoS class. Requests that the template has, and those of
// unchanged limits, stay (IPU-035, IPU-037).
func TestAChangedLimitChangesItsRequestToo(t *testing.T) {
	template := func(resources string) []byte {
		return []byte(`{"spec":{"containers":[{"name":"nginx","image":"nginx:1","resources":` + resources + `}]}}`)
	}
	tests := map[string]struct {
		old, new string
		have     corev1.ResourceRequirements
		want     string
	}{
		"limits alone": {`{"limits":{"cpu":"1","memory":"1Gi"}}`, `{"limits":{"cpu":"2","memory":"1Gi"}}`,
			corev1.ResourceRequirements{Limits: quantities("cpu", "1", "memory", "1Gi"), Requests: quantities("cpu", "1", "memory", "1Gi")},
			`{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}`},
		"a request of one of them": {`{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m"}}`,
			`{"limits":{"cpu":"2","memory":"2Gi"},"requests":{"cpu":"500m"}}`,
			corev1.ResourceRequirements{Limits: quantities("cpu", "1", "memory", "1Gi"),
				Requests: quantities("cpu", "500m", "memory", "1Gi")},
			`{"limits":{"cpu":"2","memory":"2Gi"},"requests":{"memory":"2Gi"}}`},
		"what an autoscaler changed meanwhile": {`{"limits":{"cpu":"1","memory":"1Gi"}}`, `{"limits":{"cpu":"1","memory":"2Gi"}}`,
			corev1.ResourceRequirements{Limits: quantities("cpu", "3", "memory", "1Gi"), Requests: quantities("cpu", "3", "memory", "1Gi")},
			`{"limits":{"memory":"2Gi"},"requests":{"memory":"2Gi"}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			change, blockers, err := Compare(template(tt.old), template(tt.new), everything)
			if err != nil {
				t.Fatalf("comparing the templates: %v", err)
			}
			if len(blockers) > 0 {
				t.Fatalf("what blocks the change: got %v, want nothing", blockers)
			}
			pod := webPod(func(pod *corev1.Pod) {
				pod.Spec.Containers = pod.Spec.Containers[:1]
				pod.Spec.Containers[0].Resources = tt.have
			})
			before := QualityOfService(&pod.Spec)
			patch, err := to("web-2", change, 0).Resize(pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			body, err := patch.JSON(pod)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"metadata":{"resourceVersion":"5","uid":"u"},"spec":{"containers":[{"name":"nginx","resources":` + tt.want + `}]}}`
			if diff := cmp.Diff(want, string(body)); diff != "" {
				t.Errorf("the patch (-want +got):\n%s", diff)
			}
			if after := QualityOfService(&applied(t, pod, patch).Spec); after != before {
				t.Errorf("the class changes from %s to %s, which the API server refuses", before, after)
			}
		})
	}
}

// TestOrdinaryInitContainersAreNotWaitedFor: the new image of an init container that has ended is for the
// next start of the pod. The next batch does not wait for the container, since it does not run, and caches do
// not keep its status (IPU-103 (part), IPU-318 (part)).
func TestOrdinaryInitContainersAreNotWaitedFor(t *testing.T) {
	pod := prioritized()
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "setup:1"}}
	pod = begin(t, pod,
		to("web-2", &Change{Parts: Parts{Images: map[string]string{"setup": "setup:2", "main": "main:2", "agent": "agent:2"}},
			Stops: []string{"agent", "main"}}, 0))
	state, err := StateOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"agent"}, state.PreCheckBeforeNext.ContainersRequiredReady); diff != "" {
		t.Errorf("containers that the next batch waits for (-want +got):\n%s", diff)
	}
	pod = kubelet(pod)
	if status, err := Progress(pod, noon); err != nil {
		t.Errorf("progress after agent was replaced: %v", err)
	} else if !status.Next {
		t.Errorf("the next batch is not due after agent was replaced: %+v", status)
	}
	state.PreCheckBeforeNext.ContainersRequiredReady = []string{"agent", "setup"} // as another controller wrote it
	encoded, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[pub.InPlaceUpdateState] = string(encoded)
	if status, err := Progress(pod, noon); err != nil {
		t.Errorf("a record that names the init container: %v", err)
	} else if !status.Next {
		t.Errorf("a record that names the init container: the next batch is not due: %+v", status)
	}
}

// TestConditionOfAnEarlierSize: a size that did not fit was corrected. What kubelet reported about the former
// size does not count for the new one. If kubelet does not say which size it means, its report counts after
// it had time to look again (IPU-315 (part)).
func TestConditionOfAnEarlierSize(t *testing.T) {
	pending := func(generation, observed int64) *corev1.Pod {
		pod := webPod(annotated(pub.InPlaceUpdateState, `{"revision":"web-1","updateTimestamp":"`+noonText+
			`","lastContainerStatuses":null,"resizedContainers":{"nginx":{"limits":{"cpu":"3"}}},"updateResources":true}`))
		pod.Spec.Containers[0].Resources.Limits = quantities("cpu", "3")
		pod.Generation = generation
		pod.Status.ContainerStatuses[1].Resources = &corev1.ResourceRequirements{}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
			Reason:             corev1.PodReasonInfeasible,
			ObservedGeneration: observed, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}}
		return pod
	}
	tests := map[string]struct {
		pod       *corev1.Pod
		after     time.Duration
		told      bool
		notBefore time.Time
	}{
		"of this generation":                   {pending(5, 5), time.Second, true, time.Time{}},
		"of the generation before":             {pending(5, 4), time.Hour, false, time.Time{}},
		"kubelet does not tell which, at once": {pending(5, 0), time.Second, true, noon.Add(resizePatience)},
		"kubelet does not tell which, later":   {pending(5, 0), time.Hour, true, noon.Add(resizePatience)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, err := Progress(tt.pod, noon.Add(tt.after))
			if err != nil {
				t.Fatalf("progress: %v", err)
			}
			if status.Complete {
				t.Fatalf("the update is complete while the size does not fit: %+v", status)
			}
			if told := status.Resize != nil; told != tt.told {
				t.Fatalf("the resize is told as held up: got %t, want %t: %+v", told, tt.told, status)
			}
			if tt.told && !status.Resize.NotBefore.Equal(tt.notBefore) {
				t.Errorf("the report counts from %s on, want from %s", status.Resize.NotBefore, tt.notBefore)
			}
		})
	}
}
