package statefulset

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// rich is a template with something of everything that can differ.
const rich = `{"metadata":{"labels":{"app":"web"}},"spec":{"initContainers":[{"name":"init","image":"i:1"},
	{"name":"native","image":"n:1","restartPolicy":"Always"}],
	"containers":[{"name":"main","image":"a:1","resources":{"limits":{"cpu":"1","memory":"1Gi"},
	"requests":{"cpu":"500m","memory":"1Gi","ephemeral-storage":"1Gi"}}},{"name":"side","image":"s:1"}]}}`

// optedIn lets images of init containers change.
var optedIn = strings.Replace(rich, `"labels"`, `"annotations":{"apps.kruise.io/inplace-update-init-containers":"true"},"labels"`, 1)

// guaranteed is one whose pods are of the class Guaranteed, but for what a change makes of it.
const guaranteed = `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"a:1",
	"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}}]}}`

// stored stores the revision of a template under a key, and leaves the set with it.
func (w *world) stored(key, document string) {
	w.t.Helper()
	if err := w.Set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		w.t.Fatal(err)
	}
	revision := Make(w.Snapshot).NewRevision
	if revision == nil {
		w.t.Fatal("no new revision for", key)
	}
	w.Revisions, w.revisions[key] = append(w.Revisions, revision), revision.Name
}

// made is a pod with the containers of a template.
func made(t *testing.T, document string) state {
	var template corev1.PodTemplateSpec
	if err := json.Unmarshal([]byte(document), &template); err != nil {
		t.Fatal(err)
	}
	return func(pod *corev1.Pod) {
		pod.Spec.Containers, pod.Spec.InitContainers = template.Spec.Containers, template.Spec.InitContainers
	}
}

// TestWhatQualifies shows ASTS-170: what the pod's own revision and the update revision differ in decides
// alone, whatever else is in the pod (ASTS-183). A pod that is not updated in place is recreated.
func TestWhatQualifies(t *testing.T) {
	const inPlace, recreated = "~0", "-0"
	for name, tt := range map[string]struct {
		template, old, new string
		resize             bool
		want               string
	}{
		"a label":                         {rich, `"app":"web"`, `"app":"web","tier":"x"`, false, inPlace},
		"an annotation":                   {rich, `"labels"`, `"annotations":{"note":"1"},"labels"`, false, inPlace},
		"a finalizer":                     {rich, `"labels"`, `"finalizers":["a/b"],"labels"`, false, inPlace},
		"an init container, if it may be": {optedIn, "i:1", "i:2", false, inPlace},
		"an image":                        {rich, "a:1", "a:2", false, inPlace},
		"the other image":                 {rich, "s:1", "s:2", false, inPlace},
		"an image of a native sidecar":    {rich, "n:1", "n:2", false, inPlace},
		"a limit of cpu":                  {rich, `"cpu":"1"`, `"cpu":"2"`, true, inPlace},
		"a request of cpu":                {rich, `"500m"`, `"600m"`, true, inPlace},
		"both of memory":                  {rich, `"memory":"1Gi"`, `"memory":"2Gi"`, true, inPlace},
		"a limit of cpu, and no gate":     {rich, `"cpu":"1"`, `"cpu":"2"`, false, recreated},
		"a limit that was not":            {rich, `"image":"s:1"`, `"image":"s:1","resources":{"limits":{"cpu":"1"}}`, true, recreated},
		"a limit less":                    {rich, `"cpu":"1",`, ``, true, recreated},
		"no requests": {rich, `,` + "\n\t" + `"requests":{"cpu":"500m","memory":"1Gi","ephemeral-storage":"1Gi"}`, ``,
			true, recreated},
		"another resource":                 {rich, `"ephemeral-storage":"1Gi"`, `"ephemeral-storage":"2Gi"`, true, recreated},
		"cpu, and the class stays":         {guaranteed, `"cpu":"1"`, `"cpu":"2"`, true, inPlace},
		"cpu, and the class changes":       {guaranteed, `"requests":{"cpu":"1"`, `"requests":{"cpu":"500m"`, true, recreated},
		"an init container":                {rich, "i:1", "i:2", false, recreated},
		"an environment":                   {rich, `"image":"s:1"`, `"image":"s:1","env":[{"name":"A"}]`, false, recreated},
		"a command":                        {rich, `"image":"s:1"`, `"image":"s:1","command":["x"]`, false, recreated},
		"a container more":                 {rich, `"image":"s:1"}`, `"image":"s:1"},{"name":"more","image":"m:1"}`, false, recreated},
		"a container less":                 {rich, `,{"name":"side","image":"s:1"}`, ``, false, recreated},
		"another name":                     {rich, `"name":"side"`, `"name":"other"`, false, recreated},
		"a node selector":                  {rich, `"initContainers"`, `"nodeSelector":{"a":"b"},"initContainers"`, false, recreated},
		"an image, and something else too": {rich, `"image":"a:1"`, `"image":"a:2","command":["x"]`, false, recreated},
	} {
		for more, states := range map[string][]state{"": nil, ", injected containers": {func(pod *corev1.Pod) {
			pod.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "p:1"}}, pod.Spec.Containers...)
			pod.Spec.Containers[1].Env = append(pod.Spec.Containers[1].Env, corev1.EnvVar{Name: "INJECTED", Value: "1"})
			pod.Spec.NodeSelector = map[string]string{"injected": "1"}
		}}} {
			t.Run(name+more, func(t *testing.T) {
				if !strings.Contains(tt.template, tt.old) {
					t.Fatal("nothing is replaced")
				}
				w := newWorld(t, 1, policy(possible))
				w.Features.InPlace.Resize = tt.resize
				w.stored("other", `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"other","image":"o:1"}]}}`)
				w.Set.Status.CurrentRevision = w.revisions["other"] // which is not the pod's
				w.stored("old", tt.template)
				w.stored("new", strings.ReplaceAll(tt.template, tt.old, tt.new))
				w.pod(0, "old", append([]state{made(t, tt.template)}, states...)...)
				w.expect(tt.want)
				if v := Make(w.Snapshot).Verdicts[0]; v.Update != nil {
					if names := v.Update.Change.Names(); slices.Contains(names, "proxy") {
						t.Errorf("%v are changed", names)
					}
				}
			})
		}
	}
}

// updating is a pod in the midst of its update in place: what ran before is recorded, and still runs.
func updating(image string, states ...state) state {
	return func(pod *corev1.Pod) {
		pod.Labels[pub.LifecycleState] = string(pub.LifecycleStateUpdating)
		pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"` + pod.Labels[pub.ControllerRevisionHash] +
			`","updateTimestamp":"2026-01-02T03:04:00Z","lastContainerStatuses":{"main":{"imageID":"sha-old","image":"old","runningImage":"old","containerID":"old"}},"updateImages":true}`}
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: pub.InPlaceUpdateReady}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: pub.InPlaceUpdateReady, Status: corev1.ConditionFalse},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
		runs("sha-old", "old", "old")(pod)
		pod.Spec.Containers[0].Image = image
		for _, state := range states {
			state(pod)
		}
	}
}

// runs is what kubelet reports of the container main.
func runs(imageID, image, containerID string) state {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true, ImageID: imageID, Image: image,
			ContainerID: containerID, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
				StartedAt: metav1.NewTime(planTime)}}}}
	}
}

// TestAnUpdateUnderWay shows ASTS-182: a pod on its way to a:2 is judged anew when the template is another
// one, by what a:2 and that differ in; until an update is complete it counts as unavailable.
func TestAnUpdateUnderWay(t *testing.T) {
	const env = `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"a:2","env":[{"name":"A"}]}]}}`
	for name, tt := range map[string]struct {
		policy appsv1beta1.StatefulSetPodUpdatePolicy
		next   func(*world)
		want   []string
	}{
		"nothing new":             {possible, func(*world) {}, nil},
		"another image":           {possible, func(w *world) { w.at("a:3") }, []string{"~1"}},
		"the former image":        {possible, func(w *world) { w.at("a:1") }, []string{"~1"}},
		"what cannot be in place": {possible, func(w *world) { w.stored("env", env) }, []string{"-1"}},
		"nor is it to be":         {only, func(w *world) { w.stored("env", env) }, nil},
		"another policy":          {appsv1beta1.ReCreateStatefulSetPodUpdatePolicy, func(w *world) { w.at("a:3") }, []string{"-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, policy(tt.policy))
			w.at("a:1")
			w.at("a:2")
			w.pod(0, "a:1")
			w.pod(1, "a:2", updating("a:2"))
			tt.next(w)
			w.expect(tt.want...) // web-0 waits all the time
			if status := Make(w.Snapshot).Status; status.AvailableReplicas != 1 {
				t.Errorf("%d are available", status.AvailableReplicas)
			}
		})
	}
}

// TestWhenAnUpdateIsComplete shows ASTS-178 and ASTS-179 (part): the pod comes back into service when the
// containers run what was written.
func TestWhenAnUpdateIsComplete(t *testing.T) {
	const back = "0: InPlaceUpdateReady=True, label lifecycle.apps.kruise.io/state=Normal, annotation lifecycle.apps.kruise.io/timestamp"
	annotated := func(key, text string) state { return func(pod *corev1.Pod) { pod.Annotations[key] = text } }
	record := func(more string) state {
		return func(pod *corev1.Pod) {
			text := pod.Annotations[pub.InPlaceUpdateState]
			pod.Annotations[pub.InPlaceUpdateState] = text[:len(text)-1] + "," + more + "}"
		}
	}
	reported := func(container, plain, env string) state {
		return annotated(pub.RuntimeContainersMeta, `{"containers":[{"name":"main","containerID":"`+container+
			`","hashes":{"plainHash":`+plain+`,"extractedEnvFromMetadataHash":`+env+`}}]}`)
	}
	reads := func(value string) state {
		return func(pod *corev1.Pod) {
			pod.Labels["tier"] = value
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "e2", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['tier']"}}}}
		}
	}
	sized := func(spec, has string) state {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources = cpu(spec)
			pod.Status.ContainerStatuses[0].Resources = new(corev1.ResourceRequirements)
			*pod.Status.ContainerStatuses[0].Resources = cpu(has)
		}
	}
	const resized = `"updateResources":true,"resizedContainers":{"main":{"limits":{"cpu":"2"}}}`
	for name, tt := range map[string]struct {
		states []state
		want   string
	}{
		"the old one runs":      {nil, ""},
		"a new one runs":        {[]state{runs("sha-new", "docker.io/library/a:2", "new")}, back},
		"another digest":        {[]state{runs("sha-new", "a:2", "new")}, back},
		"the image of the spec": {[]state{runs("sha-old", "a:2", "new")}, back},
		"an image that was overtaken": {[]state{runs("sha-mid", "a:mid", "mid"), func(pod *corev1.Pod) {
			pod.Annotations[pub.InPlaceUpdateState] = strings.Replace(pod.Annotations[pub.InPlaceUpdateState], `"containerID":"old"`,
				`"containerID":"old","overtaken":["a:mid"]`, 1)
		}}, ""},
		"no status":                     {[]state{func(pod *corev1.Pod) { pod.Status.ContainerStatuses = nil }}, ""},
		"the daemon says so":            {[]state{runs("sha-old", "?", "old"), reported("old", plainHash("a:2"), "0")}, back},
		"it says so of another":         {[]state{runs("sha-old", "?", "old"), reported("gone", plainHash("a:2"), "0")}, ""},
		"another container has its say": {[]state{runs("sha-old", "?", "old"), reported("old", plainHash("a:1"), "0")}, ""},
		"in its grace period": {[]state{runs("sha-new", "a:2", "new"),
			annotated(pub.InPlaceUpdateGrace, `{"revision":"REVISION","graceSeconds":3600}`)}, ""},
		"more is to come": {[]state{runs("sha-new", "a:2", "new"), record(`"nextContainerImages":{"side":"s:2"}`),
			func(pod *corev1.Pod) {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side"})
			}}, "continue update 0"},
		"its environment is old": {[]state{runs("sha-new", "a:2", "new"), reads("foo"), reported("new", plainHash("a:2"), "1"),
			record(`"updateEnvFromMetadata":true,"envContainers":{"main":"old"}`)}, ""},
		"its environment is new": {[]state{runs("sha-new", "a:2", "new"), reads("foo"), reported("new", plainHash("a:2"), "2053173458"),
			record(`"updateEnvFromMetadata":true,"envContainers":{"main":"old"}`)}, back},
		"its size is old": {[]state{runs("sha-new", "a:2", "new"), sized("2", "1"), record(resized)}, ""},
		"its size is new": {[]state{runs("sha-new", "a:2", "new"), sized("2", "2"), record(resized)}, back},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, policy(possible))
			w.at("a:2")
			w.pod(0, "a:2", updating("a:2", tt.states...), func(pod *corev1.Pod) {
				if text, ok := pod.Annotations[pub.InPlaceUpdateGrace]; ok {
					pod.Annotations[pub.InPlaceUpdateGrace] = strings.ReplaceAll(text, "REVISION", w.revisions["a:2"])
				}
			})
			if tt.want == "" {
				w.expect()
				return
			}
			w.expect(tt.want)
		})
	}
}

// TestAFreshPod gets the conditions of its gates when its node has reported of it (ASTS-179 (part)).
func TestAFreshPod(t *testing.T) {
	w := newWorld(t, 1, policy(possible))
	w.at("a:1")
	w.pod(0, "a:1", func(pod *corev1.Pod) {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: pub.InPlaceUpdateReady}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	})
	w.expect("0: InPlaceUpdateReady=True") // Ready is left to kubelet
	w.Pods[0].Spec.ReadinessGates = nil
	w.expect()
}

// TestTheUpdateGoesOnWhenTheGracePeriodIsOver shows ASTS-175 (part): the update goes on when the period is
// over since its start, rounded up to whole seconds.
func TestTheUpdateGoesOnWhenTheGracePeriodIsOver(t *testing.T) {
	inGrace := func(started string) state {
		return func(pod *corev1.Pod) {
			updating("a:1")(pod)
			revision := pod.Labels[pub.ControllerRevisionHash]
			pod.Annotations = map[string]string{
				pub.InPlaceUpdateState: `{"revision":"` + revision + `","updateTimestamp":"` + started + `","updateImages":true}`,
				pub.InPlaceUpdateGrace: `{"revision":"` + revision + `","containerImages":{"main":"a:2"},"graceSeconds":30}`}
		}
	}
	for name, tt := range map[string]struct {
		started string
		want    []string
		after   time.Duration
	}{
		"the half of it": {planTime.Add(-15 * time.Second).Format(time.RFC3339), nil, 15 * time.Second},
		"a part of a second is left": {planTime.Add(-29*time.Second - 100*time.Millisecond).Format(time.RFC3339Nano), nil,
			time.Second},
		"it is over": {planTime.Add(-30 * time.Second).Format(time.RFC3339), []string{"continue update 0"}, 0},
	} {
		w := newWorld(t, 1, policy(possible))
		w.at("a:1")
		w.at("a:2")
		w.pod(0, "a:2", inGrace(tt.started))
		w.expect(tt.want...)
		if after := Make(w.Snapshot).After; after != tt.after {
			t.Errorf("%s: again after %s", name, after)
		}
		w.at("a:3") // what comes meanwhile waits until the content is written
		w.expect(tt.want...)
		w.Pods[0].Labels[pub.ControllerRevisionHash] = w.revisions["a:1"] // the content is not that of its revision any more
		w.expect("continue update 0")
	}
}

func plainHash(image string) string { return inplace.PlainHash("main", image) }

// cpu is a limit of cpu.
func cpu(amount string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}}
}

// TestATemplateCopiedFromAPodGivesNoPodTheIdentityOfAnother shows IPU-082 (part): labels by which one pod is
// found, and notes that webhooks make on it, are neither set nor taken away by an update.
func TestATemplateCopiedFromAPodGivesNoPodTheIdentityOfAnother(t *testing.T) {
	const plain = `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"a:1"}]}}`
	const copied = `{"metadata":{"labels":{"app":"web","statefulset.kubernetes.io/pod-name":"web-0","apps.kubernetes.io/pod-index":"0"},
		"annotations":{"apps.kruise.io/matched-workloadspread":"{}","kruise.io/sidecarset-hash":"{}","kruise.io/sidecarset-injected-list":"a"}},
		"spec":{"containers":[{"name":"main","image":"a:2"}]}}`
	for name, templates := range map[string][2]string{"copied": {plain, copied}, "mended": {copied, plain}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, policy(possible))
			w.stored("old", templates[0])
			w.Set.Status.CurrentRevision = w.revisions["old"]
			w.pod(0, "old", made(t, templates[0]))
			w.pod(1, "old", made(t, templates[0]))
			w.stored("new", templates[1])
			v := Make(w.Snapshot).Verdicts[1]
			if v.Update == nil {
				t.Fatalf("update: got nil, want a value\n%v", Make(w.Snapshot))
			}
			patch, err := v.Update.Start(v.Pod, planTime)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{"pod-name", "pod-index", "workloadspread", "sidecarset"} {
				if strings.Contains(patch.String(), word) {
					t.Errorf("patch: got %q, want it not to contain %q", patch.String(), word)
				}
			}
		})
	}
}

// TestUnderOnDeleteNoPodIsMadeAnewToFinishAnUpdate shows ASTS-165 (part): an update that was under way when
// the user chose OnDelete, and that its node cannot finish, is told of. The same holds if the API server
// refuses to let it go on.
func TestUnderOnDeleteNoPodIsMadeAnewToFinishAnUpdate(t *testing.T) {
	begun := func(record string) state {
		return func(pod *corev1.Pod) {
			pod.Labels[pub.LifecycleState] = string(pub.LifecycleStateUpdating)
			pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"` + pod.Labels[pub.ControllerRevisionHash] +
				`","updateTimestamp":"2026-01-02T03:00:00Z",` + record + `}`}
		}
	}
	resize := func(pod *corev1.Pod) {
		begun(`"updateResources":true,"resizedContainers":{"main":{"limits":{"cpu":"2"}}}`)(pod)
		pod.Spec.Containers[0].Resources = cpu("2")
		runs("sha", "a:1", "c")(pod)
		was := cpu("1")
		pod.Status.ContainerStatuses[0].Resources = &was
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending,
			Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "too big"})
	}
	for name, tt := range map[string]struct {
		options []option
		want    podplan.Action
	}{
		"on delete":      {[]option{deletedByHand}, podplan.Wait},
		"paused":         {[]option{policy(possible), paused}, podplan.Wait},
		"rolling update": {[]option{policy(possible)}, podplan.Recreate},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, tt.options...)
			w.Features.InPlace.Resize = true
			w.at("a:1")
			w.pod(0, "a:1", resize)
			plan := Make(w.Snapshot)
			v := plan.Verdicts[0]
			if v.Action != tt.want {
				t.Errorf("action: got %q, want %q\n%v", v.Action, tt.want, plan)
			}
			if v.Action == podplan.Wait && plan.UpdateError == "" {
				t.Errorf("update error: got nothing, want some text\n%v", plan)
			}
			w.Pods = nil
			w.pod(0, "a:1", begun(`"updateImages":true`), func(pod *corev1.Pod) {
				pod.Annotations[pub.InPlaceUpdateGrace] = `{"revision":"` + w.revisions["a:1"] + `","graceSeconds":1}`
				notReady(pod)
			})
			if v := Make(w.Snapshot).Verdicts[0]; v.Action == podplan.Continue && v.MayRecreate != (name != "on delete") {
				t.Errorf("%s: the pod may be recreated: got %t, want %t\n%+v", name, v.MayRecreate, name != "on delete",
					v)
			}
		})
	}
}
