package inplace

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const noonText = `2026-01-01T12:00:00Z`

// runs returns the status of a container that runs the image since the time.
func runs(name, image, imageID, containerID string, since time.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Image: image, ImageID: imageID, ContainerID: containerID,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}}
}

// webPod runs nginx:1 and an injected sidecar at revision web-1, with the gate of in-place updates.
func webPod(options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "5",
			Labels:      map[string]string{"app": "web", pub.ControllerRevisionHash: "web-1", pub.PodTemplateHash: "1"},
			Annotations: map[string]string{"theirs": "x"}},
		Spec: corev1.PodSpec{NodeName: "n", ReadinessGates: []corev1.PodReadinessGate{{ConditionType: pub.InPlaceUpdateReady}},
			Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1"}, {Name: "injected", Image: "proxy:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			runs("injected", "proxy:1", "sha-p", "c-p", noon.Add(-time.Hour)),
			runs("nginx", "nginx:1", "sha-1", "c-1", noon.Add(-time.Hour))}},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func annotated(key, text string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = text }
}

func labelled(key, text string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = text }
}

// applied returns the pod after the patch.
func applied(t *testing.T, pod *corev1.Pod, patch *podpatch.Patch) *corev1.Pod {
	t.Helper()
	body, err := patch.JSON(pod)
	if err != nil {
		t.Fatal(err)
	}
	old, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(old, body, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.Pod{}
	if err := json.Unmarshal(merged, after); err != nil {
		t.Fatal(err)
	}
	return after
}

func toImage(image string) *Change {
	return &Change{Parts: Parts{Images: map[string]string{"nginx": image}}, Stops: []string{"nginx"}}
}

func to(revision string, change *Change, grace int32) *Update {
	return &Update{Revision: revision, Change: change, GraceSeconds: grace,
		RevisionLabels: map[string]string{pub.ControllerRevisionHash: revision, pub.PodTemplateHash: revision[len(revision)-1:]}}
}

// content is what an update may change of a pod.
type content struct {
	Labels, Annotations map[string]string
	Finalizers          []string
	Images              []string
}

func contentOf(pod *corev1.Pod) content {
	c := content{Labels: pod.Labels, Annotations: maps.Clone(pod.Annotations), Finalizers: pod.Finalizers}
	delete(c.Annotations, pub.InPlaceUpdateRestarts) // see TestRestartsAreCounted
	for i := range pod.Spec.Containers {
		c.Images = append(c.Images, pod.Spec.Containers[i].Image)
	}
	return c
}

func updatedLabels(revision string, more ...string) map[string]string {
	labels := map[string]string{"app": "web", pub.ControllerRevisionHash: revision, pub.PodTemplateHash: revision[len(revision)-1:],
		pub.LifecycleState: "Updating"}
	for i := 0; i < len(more); i += 2 {
		labels[more[i]] = more[i+1]
	}
	return labels
}

// inService are the labels of a pod that is updated without leaving service.
func inService(revision string, more ...string) map[string]string {
	labels := updatedLabels(revision, more...)
	delete(labels, pub.LifecycleState)
	return labels
}

// IPU-152 (part), IPU-308, CS-190 (part): a pod that waits for its preNormal hook goes on waiting when
// nothing but metadata changes.
func TestStartLeavesNewPodsToTheirHook(t *testing.T) {
	value := "2"
	patch, err := to("web-2", &Change{Annotations: map[string]*string{"theirs": &value}}, 0).
		Start(webPod(labelled(pub.LifecycleState, string(pub.LifecycleStatePreparingNormal))), noon)
	if err != nil {
		t.Fatal(err)
	}
	pod := webPod(labelled(pub.LifecycleState, string(pub.LifecycleStatePreparingNormal)))
	after := applied(t, pod, patch)
	if got, want := after.Labels[pub.LifecycleState], string(pub.LifecycleStatePreparingNormal); got != want {
		t.Errorf("lifecycle state: got %q, want %q", got, want)
	}
	if got := after.Labels[pub.ControllerRevisionHash]; got != "web-2" {
		t.Errorf("revision of the pod: got %q, want web-2", got)
	}
	if got := after.Annotations["theirs"]; got != "2" {
		t.Errorf("annotation of the user: got %q, want \"2\"", got)
	}
}

func TestStart(t *testing.T) {
	const record = `"nginx":{"imageID":"sha-1","containerID":"c-1","image":"nginx:1","runningImage":"nginx:1"}`
	const batch = `"containerBatchesRecord":[{"timestamp":"` + noonText + `","containers":["nginx"]}]`
	tests := map[string]struct {
		pod    *corev1.Pod
		update *Update
		want   content
	}{
		"IPU-060 (part), IPU-061 (part), IPU-062, IPU-063, IPU-067, IPU-082, IPU-109, IPU-150, IPU-170, IPU-180 an image": {
			webPod(), to("web-2", toImage("nginx:2"), 0),
			content{updatedLabels("web-2"), map[string]string{"theirs": "x", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText + `","lastContainerStatuses":{` + record +
					`},"updateImages":true,` + batch + `}`},
				nil, []string{"nginx:2", "proxy:1"}}},
		"IPU-063, IPU-308 annotations alone: nothing is recorded, the pod stays in service": {
			webPod(func(pod *corev1.Pod) { pod.Finalizers = []string{"theirs/f", "x/old"} }),
			to("web-2", &Change{Annotations: map[string]*string{"a": pointer("1")}, AddFinalizers: []string{"x/new"},
				RemoveFinalizers: []string{"x/old"}}, 30),
			content{inService("web-2"), map[string]string{"theirs": "x", "a": "1",
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText + `","lastContainerStatuses":null}`},
				[]string{"x/new", "theirs/f"}, []string{"nginx:1", "proxy:1"}}},
		"IPU-034, IPU-064, IPU-080, IPU-214 labels alone: the pod takes its turn, and no grace period": {
			webPod(), to("web-2", &Change{Labels: map[string]*string{"app": pointer("api"), "gone": nil}}, 30),
			content{updatedLabels("web-2", "app", "api"), map[string]string{"theirs": "x", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText +
					`","lastContainerStatuses":null,"updateLabels":true}`},
				nil, []string{"nginx:1", "proxy:1"}}},
		"IPU-042 no change at all: labels and record alone": {
			webPod(), to("web-2", &Change{}, 0),
			content{inService("web-2"), map[string]string{"theirs": "x",
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText + `","lastContainerStatuses":null}`},
				nil, []string{"nginx:1", "proxy:1"}}},
		"IPU-068, IPU-083, IPU-106 with a grace period the content waits in its annotation, the labels do not": {
			webPod(),
			to("web-2", &Change{Parts: Parts{Images: map[string]string{"nginx": "nginx:2"}}, Stops: []string{"nginx"},
				Labels: map[string]*string{"app": nil}}, 30),
			content{updatedLabels("web-2"), map[string]string{"theirs": "x", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText +
					`","lastContainerStatuses":null,"updateImages":true}`,
				// base64 of {"metadata":{"labels":{"app":null}}}
				pub.InPlaceUpdateGrace: `{"revision":"web-2","containerImages":{"nginx":"nginx:2"},"metaDataPatch":"eyJtZXRhZGF0YSI6eyJsYWJlbHMiOnsiYXBwIjpudWxsfX19","graceSeconds":30,"formerLabels":{"controller-revision-hash":"web-1","pod-template-hash":"1"}}`},
				nil, []string{"nginx:1", "proxy:1"}}},
		"IPU-087 a container without status has nothing recorded": {
			webPod(func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{Phase: corev1.PodPending} }), to("web-2", toImage("nginx:2"), 0),
			content{updatedLabels("web-2"), map[string]string{"theirs": "x", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText +
					`","lastContainerStatuses":null,"updateImages":true,` + batch + `}`},
				nil, []string{"nginx:2", "proxy:1"}}},
		"IPU-003 written already, as after a lost answer: nothing is recorded anew": {
			webPod(func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "nginx:2" }), to("web-2", toImage("nginx:2"), 0),
			content{updatedLabels("web-2"), map[string]string{"theirs": "x", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText +
					`","lastContainerStatuses":null,"updateImages":true}`},
				nil, []string{"nginx:2", "proxy:1"}}},
		"IPU-069 the legacy state goes": {
			webPod(annotated(pub.InPlaceUpdateStateLegacy, `{"revision":"web-0"}`)), to("web-2", toImage("nginx:2"), 0),
			content{updatedLabels("web-2"), map[string]string{"theirs": "x", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText + `","lastContainerStatuses":{` + record +
					`},"updateImages":true,` + batch + `}`},
				nil, []string{"nginx:2", "proxy:1"}}},
		"IPU-060, IPU-088 a further revision replaces the record of one that is complete": {
			webPod(annotated(pub.InPlaceUpdateState, `{"revision":"web-1","updateTimestamp":"2025-12-31T00:00:00Z","lastContainerStatuses":{"nginx":{"imageID":"sha-0"}},"updateImages":true}`)),
			to("web-2", &Change{Annotations: map[string]*string{"a": pointer("1")}}, 0),
			content{inService("web-2"), map[string]string{"theirs": "x", "a": "1",
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText + `","lastContainerStatuses":null}`},
				nil, []string{"nginx:1", "proxy:1"}}},
		"IPU-088 a pod is watched with its new labels, whatever comes before that is over": {
			webPod(labelled(pub.LifecycleState, "Updating"), annotated(pub.InPlaceUpdateState,
				`{"revision":"web-2","updateTimestamp":"2026-01-01T11:59:00Z","lastContainerStatuses":null,"updateLabels":true}`)),
			to("web-3", &Change{Annotations: map[string]*string{"a": pointer("1")}}, 0),
			content{updatedLabels("web-3"), map[string]string{"theirs": "x", "a": "1", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-3","updateTimestamp":"` + noonText +
					`","lastContainerStatuses":null,"updateLabels":true}`},
				nil, []string{"nginx:1", "proxy:1"}}},
		"IPU-150 metadata alone, the pod being updated still: the state's time is renewed": {
			webPod(labelled(pub.LifecycleState, "PreparingUpdate")),
			to("web-2", &Change{Annotations: map[string]*string{"a": pointer("1")}}, 0),
			content{updatedLabels("web-2"), map[string]string{"theirs": "x", "a": "1", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText + `","lastContainerStatuses":null}`},
				nil, []string{"nginx:1", "proxy:1"}}},
		"IPU-088 an update that overtakes another before kubelet acted remembers what really runs": {
			webPod(func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "nginx:2" }, annotated(pub.InPlaceUpdateState,
				`{"revision":"web-2","updateTimestamp":"2026-01-01T11:59:00Z","lastContainerStatuses":{`+record+`},"updateImages":true}`)),
			to("web-3", toImage("nginx:3"), 0),
			content{updatedLabels("web-3"), map[string]string{"theirs": "x", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-3","updateTimestamp":"` + noonText + `","lastContainerStatuses":{"nginx":{"imageID":"sha-1","containerID":"c-1","image":"nginx:2","runningImage":"nginx:1"}},"updateImages":true,` + batch + `}`},
				nil, []string{"nginx:3", "proxy:1"}}},
		"IPU-088 an update of metadata goes on waiting for the image of the one it overtakes": {
			webPod(labelled(pub.LifecycleState, "Updating"), func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "nginx:2" },
				annotated(pub.InPlaceUpdateState,
					`{"revision":"web-2","updateTimestamp":"2026-01-01T11:59:00Z","lastContainerStatuses":{`+record+
						`},"updateImages":true}`)),
			to("web-3", &Change{Annotations: map[string]*string{"a": pointer("1")}}, 0),
			content{updatedLabels("web-3"), map[string]string{"theirs": "x", "a": "1", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-3","updateTimestamp":"` + noonText + `","lastContainerStatuses":{` + record +
					`},"updateImages":true}`},
				nil, []string{"nginx:2", "proxy:1"}}},
		"IPU-304 a container replaced again records what runs at that moment": {
			webPod(func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Image = "nginx:2"
				pod.Status.ContainerStatuses[1] = runs("nginx", "nginx:2", "sha-2", "c-2", noon)
				pod.Status.ContainerStatuses[1].RestartCount = 3
			}, annotated(pub.InPlaceUpdateState, `{"revision":"web-2","updateTimestamp":"2026-01-01T11:59:00Z","lastContainerStatuses":{`+
				record+`},"updateImages":true}`)),
			to("web-3", toImage("nginx:3"), 0),
			content{updatedLabels("web-3"), map[string]string{"theirs": "x", pub.LifecycleTimestamp: noonText,
				pub.InPlaceUpdateState: `{"revision":"web-3","updateTimestamp":"` + noonText + `","lastContainerStatuses":{"nginx":{"imageID":"sha-2","containerID":"c-2","restartCount":3,"image":"nginx:2","runningImage":"nginx:2"}},"updateImages":true,` + batch + `}`},
				nil, []string{"nginx:3", "proxy:1"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			patch, err := tt.update.Start(tt.pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			if patch.Subresource() != "" {
				t.Error("the start writes no condition: the API server would drop it")
			}
			if diff := cmp.Diff(tt.want, contentOf(applied(t, tt.pod, patch))); diff != "" {
				t.Errorf("the pod after the start (-want +got):\n%s", diff)
			}
		})
	}
}

// IPU-080, IPU-134, IPU-137, IPU-308: a pod is taken out of service first if the update restarts a container,
// and only then.
func TestHoldBeforeStart(t *testing.T) {
	metadata := &Change{Labels: map[string]*string{"a": nil}}
	tests := map[string]struct {
		pod    *corev1.Pod
		update *Update
		want   string
	}{
		"an image":                      {webPod(), to("web-2", toImage("nginx:2"), 0), "InPlaceUpdateReady=False"},
		"an image, with a grace period": {webPod(), to("web-2", toImage("nginx:2"), 30), "InPlaceUpdateReady=False"},
		"metadata":                      {webPod(), to("web-2", metadata, 0), ""},
		"metadata, with a grace period": {webPod(), to("web-2", metadata, 30), ""},
		"a pod without the gate": {webPod(func(pod *corev1.Pod) { pod.Spec.ReadinessGates = nil }),
			to("web-2", toImage("nginx:2"), 0), ""},
		"held already": {webPod(func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: pub.InPlaceUpdateReady, Status: corev1.ConditionFalse}}
		}), to("web-2", toImage("nginx:2"), 0), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hold, err := tt.update.Hold(tt.pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, hold.String()); diff != "" {
				t.Errorf("what takes the pod out of service, in words (-want +got):\n%s", diff)
			}
		})
	}
}

// IPU-108 (part): an update that a grace period holds back is taken back, so that the pod is as it was before; not one that another revision has overtaken,
// nor one of OpenKruise, of which nobody knows what was before.
func TestWithdraw(t *testing.T) {
	before := webPod(func(pod *corev1.Pod) { delete(pod.Labels, pub.PodTemplateHash) })
	update := to("web-2", toImage("nginx:2"), 30)
	patch, err := update.Start(before, noon)
	if err != nil {
		t.Fatal(err)
	}
	pod := applied(t, before, patch)
	if !InGrace(pod) || pod.Labels[pub.ControllerRevisionHash] != "web-2" {
		t.Fatalf("the update has not begun: %v", pod.ObjectMeta)
	}
	overtaken, foreign := pod.DeepCopy(), pod.DeepCopy()
	overtaken.Labels[pub.ControllerRevisionHash] = "web-3"
	foreign.Annotations[pub.InPlaceUpdateGrace] = `{"revision":"web-2","containerImages":{"nginx":"nginx:2"},"graceSeconds":30}`
	for name, pod := range map[string]*corev1.Pod{"overtaken": overtaken, "of OpenKruise": foreign, "none": before} {
		if patch := Withdraw(pod); !patch.Empty() {
			t.Errorf("%s: got %s, want nothing", name, patch)
		}
	}
	pod = applied(t, pod, Withdraw(pod))
	pod.Labels = maps.Clone(pod.Labels)
	delete(pod.Labels, pub.LifecycleState)
	if diff := cmp.Diff(before.Labels, pod.Labels); InGrace(pod) || diff != "" {
		t.Errorf("in grace %t, labels (-want +got):\n%s", InGrace(pod), diff)
	}
}

func TestContinue(t *testing.T) {
	const state = `{"revision":"web-2","updateTimestamp":"2026-01-01T11:59:00Z","lastContainerStatuses":null,"updateImages":true}`
	const stateAfter = `{"revision":"web-2","updateTimestamp":"2026-01-01T11:59:00Z","lastContainerStatuses":{"nginx":{"imageID":"sha-1","containerID":"c-1","image":"nginx:1","runningImage":"nginx:1"}},"updateImages":true,` +
		`"containerBatchesRecord":[{"timestamp":"` + noonText + `","containers":["nginx"]}]}`
	const grace = `{"revision":"web-2","containerImages":{"nginx":"nginx:2"},"metaDataPatch":"eyJtZXRhZGF0YSI6eyJsYWJlbHMiOnsiYXBwIjpudWxsfX19","graceSeconds":30}`
	labels := func(revision string, more ...string) map[string]string {
		l := map[string]string{pub.ControllerRevisionHash: revision, pub.PodTemplateHash: "1"}
		for i := 0; i < len(more); i += 2 {
			l[more[i]] = more[i+1]
		}
		return l
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		want content
	}{
		"IPU-107 images and metadata are written, the annotation goes, the start of the update stays": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"), annotated(pub.InPlaceUpdateState, state),
				annotated(pub.InPlaceUpdateGrace, grace)),
			content{labels("web-2"), map[string]string{"theirs": "x", pub.InPlaceUpdateState: stateAfter}, nil,
				[]string{"nginx:2", "proxy:1"}}},
		"IPU-107 the pod carries another revision: dropped": {
			webPod(annotated(pub.InPlaceUpdateState, state), annotated(pub.InPlaceUpdateGrace, grace)),
			content{labels("web-1", "app", "web"), map[string]string{"theirs": "x", pub.InPlaceUpdateState: state}, nil,
				[]string{"nginx:1", "proxy:1"}}},
		"IPU-069 both grace keys go": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"), annotated(pub.InPlaceUpdateState, state),
				annotated(pub.InPlaceUpdateGrace, grace), annotated(pub.InPlaceUpdateGraceLegacy, "junk")),
			content{labels("web-2"), map[string]string{"theirs": "x", pub.InPlaceUpdateState: stateAfter}, nil,
				[]string{"nginx:2", "proxy:1"}}},
		"IPU-069 the legacy key alone is read": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"), annotated(pub.InPlaceUpdateState, state),
				annotated(pub.InPlaceUpdateGraceLegacy, grace)),
			content{labels("web-2"), map[string]string{"theirs": "x", pub.InPlaceUpdateState: stateAfter}, nil,
				[]string{"nginx:2", "proxy:1"}}},
		"CS-051 the label in the short style is the same revision": {
			webPod(labelled(pub.ControllerRevisionHash, "2"), annotated(pub.InPlaceUpdateState, state),
				annotated(pub.InPlaceUpdateGrace, grace)),
			content{labels("2"), map[string]string{"theirs": "x", pub.InPlaceUpdateState: stateAfter}, nil,
				[]string{"nginx:2", "proxy:1"}}},
		"IPU-070 unknown members, and templates that the reference tolerates": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"),
				annotated(pub.InPlaceUpdateState, state[:len(state)-1]+`,"future":{"x":1}}`),
				annotated(pub.InPlaceUpdateGrace, grace[:len(grace)-1]+`,"oldTemplate":{"spec":{}},"newTemplate":null,"future":[]}`)),
			content{labels("web-2"), map[string]string{"theirs": "x", pub.InPlaceUpdateState: stateAfter}, nil,
				[]string{"nginx:2", "proxy:1"}}},
		"IPU-107 the state is gone: it is made anew": {
			webPod(labelled(pub.ControllerRevisionHash, "web-2"),
				annotated(pub.InPlaceUpdateGrace, `{"revision":"web-2","containerImages":{"nginx":"nginx:2"},"graceSeconds":30}`)),
			content{labels("web-2", "app", "web"), map[string]string{"theirs": "x", pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"` + noonText + `","lastContainerStatuses":{"nginx":{"imageID":"sha-1","containerID":"c-1","image":"nginx:1","runningImage":"nginx:1"}},"updateImages":true,` +
				`"containerBatchesRecord":[{"timestamp":"` + noonText + `","containers":["nginx"]}]}`}, nil,
				[]string{"nginx:2", "proxy:1"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			patch, err := Continue(tt.pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, contentOf(applied(t, tt.pod, patch))); diff != "" {
				t.Errorf("the pod after the grace period (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no grace period: nothing", func(t *testing.T) {
		if patch, err := Continue(webPod(), noon); err != nil {
			t.Errorf("continuing without a grace period: %v", err)
		} else if !patch.Empty() {
			t.Errorf("continuing without a grace period: got %s, want nothing", patch)
		}
	})
}

// IPU-068: what Start stores for the grace period is what Continue writes, finalizers included.
func TestGraceKeepsTheWholeChange(t *testing.T) {
	change := &Change{Parts: Parts{Images: map[string]string{"nginx": "nginx:2"}}, Stops: []string{"nginx"},
		Labels:      map[string]*string{"app": nil, `l"/~1`: pointer("v")},
		Annotations: map[string]*string{"theirs": nil, "a": pointer("\"\n")}, AddFinalizers: []string{"x/new"},
		RemoveFinalizers: []string{"x/old"}}
	pod := webPod(func(pod *corev1.Pod) { pod.Finalizers = []string{"x/old", "theirs/f"} })
	start := func(grace int32) *corev1.Pod {
		patch, err := to("web-2", change, grace).Start(pod, noon)
		if err != nil {
			t.Fatal(err)
		}
		return applied(t, pod, patch)
	}
	atOnce := start(0)
	waiting := start(30)
	patch, err := Continue(waiting, noon)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contentOf(atOnce), contentOf(applied(t, waiting, patch))); diff != "" {
		t.Errorf("a pod after its grace period and one without (-want +got):\n%s", diff)
	}
}

// IPU-070: an unreadable annotation is an error, never a silent success. IPU-305 (part): the next update
// replaces it.
func TestAnUnreadableAnnotationIsAnError(t *testing.T) {
	const good = `{"revision":"web-1","graceSeconds":3}`
	tests := map[string]struct {
		options                   []func(*corev1.Pod)
		startFails, continueFails bool
	}{
		"state":        {[]func(*corev1.Pod){annotated(pub.InPlaceUpdateState, `{`)}, false, true},
		"legacy state": {[]func(*corev1.Pod){annotated(pub.InPlaceUpdateStateLegacy, `[]`)}, false, true},
		"state, during a grace": {[]func(*corev1.Pod){annotated(pub.InPlaceUpdateState, ``), annotated(pub.InPlaceUpdateGrace, good)},
			false, true},
		"grace":        {[]func(*corev1.Pod){annotated(pub.InPlaceUpdateGrace, `"x"`)}, false, true},
		"legacy grace": {[]func(*corev1.Pod){annotated(pub.InPlaceUpdateGraceLegacy, `{"graceSeconds":"x"}`)}, false, true},
		"grace, its patch not base64": {[]func(*corev1.Pod){annotated(pub.InPlaceUpdateGrace, `{"revision":"web-1","metaDataPatch":"?"}`)},
			false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := webPod(tt.options...)
			if status, err := Progress(pod, noon); err == nil {
				t.Errorf("the progress of an unreadable record: got %+v, want an error", status)
			}
			if _, err := to("web-2", toImage("nginx:2"), 0).Start(pod, noon); (err != nil) != tt.startFails {
				t.Errorf("starting with an unreadable record: got error %v, want one: %t", err, tt.startFails)
			}
			if _, err := Continue(pod, noon); (err != nil) != tt.continueFails {
				t.Errorf("continuing with an unreadable record: got error %v, want one: %t",
					err, tt.continueFails)
			}
		})
	}
	t.Run("a metadata patch that is no document", func(t *testing.T) {
		pod := webPod(annotated(pub.InPlaceUpdateGrace, `{"revision":"web-1","metaDataPatch":"W10="}`))
		if _, err := Continue(pod, noon); err == nil {
			t.Error("accepted")
		}
	})
}
