package podprobemarker

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/fuzzing"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// fuzzedNode is what FuzzMarks reads: a node with what it reports, its pods and the PodProbeMarkers.
type fuzzedNode struct {
	Node    *corev1.Node                   `json:"node"`
	List    *appsv1alpha1.NodePodProbe     `json:"list"`
	Pods    []*corev1.Pod                  `json:"pods"`
	Markers []*appsv1alpha1.PodProbeMarker `json:"markers"`
}

// own returns the conditions, labels and annotations that the PodProbeMarkers of a namespace may write.
func (f *fuzzedNode) own(namespace string) (conditions map[string]bool, labels, annotations map[string][]string) {
	conditions, labels, annotations = map[string]bool{}, map[string][]string{}, map[string][]string{}
	for _, marker := range f.Markers {
		for i := range marker.Spec.Probes {
			if probe := &marker.Spec.Probes[i]; marker.Namespace == namespace {
				conditions[probe.PodConditionType] = true
				for j := range probe.MarkerPolicy {
					for key, value := range probe.MarkerPolicy[j].Labels {
						labels[key] = append(labels[key], value)
					}
					for key, value := range probe.MarkerPolicy[j].Annotations {
						annotations[key] = append(annotations[key], value)
					}
				}
			}
		}
	}
	return conditions, labels, annotations
}

// FuzzMarks: whatever a node reports, pods get only conditions, labels and annotations that PodProbeMarkers of
// their namespace ask for, never a condition that others write, and messages have a bound. The patches apply,
// and no others follow unless other PodProbeMarkers select the pod then. Only containers with a liveness
// probe are restarted, each once. The list for the node is about its pods, and has a bound.
func FuzzMarks(f *testing.F) {
	live := given.Pod("live", func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", Controller: new(true)})
		p.Annotations = map[string]string{pub.LivenessProbes: `[{"name":"app","livenessProbe":{"exec":{"command":["/live"]},"failureThreshold":1}}]`}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: 2,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
	web := given.Pod("web", func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/idle", Status: corev1.ConditionTrue})
	})
	list := &appsv1alpha1.NodePodProbe{}
	list.Name = "n"
	list.Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{
		given.Results(web, given.Result("m#idle", appsv1alpha1.ProbeSucceeded, "yes"), given.Result("z#warm", appsv1alpha1.ProbeUnknown, "")),
		given.Results(live, given.Result("live-app", appsv1alpha1.ProbeFailed, "no"), given.Result("m#idle", appsv1alpha1.ProbeFailed, "no"))}
	seed := fuzzing.JSON(fuzzedNode{given.Node("n"), list, []*corev1.Pod{web, live}, []*appsv1alpha1.PodProbeMarker{
		given.Marker("m", given.Probe("idle")), given.Marker("z", given.Probe("warm"), given.Probe("idle"))}})
	f.Add(seed, []byte{}, false)
	f.Add(seed, []byte("\x00\x03\x01\x02\x01\x03\x02"), true)
	f.Add(seed, []byte("the node reports what nobody asked for"), true)
	f.Fuzz(func(t *testing.T, text string, changes []byte, replaced bool) {
		text = fuzzing.Edit(text, changes, "podProbeStatuses", "probeStates", "state", "message", "lastTransitionTime", "lastProbeTime",
			"uid", "name", "labels", "annotations", "conditions", "podConditionType", "markerPolicy", "selector", "livenessProbe",
			"containerStatuses", "deletionTimestamp", "Ready", pub.LivenessProbes, pub.PodProbeMarkers, pub.NodeType)
		var read fuzzedNode
		if json.Unmarshal([]byte(text), &read) != nil || slices.Contains(read.Pods, nil) || slices.Contains(read.Markers, nil) {
			return
		}
		for _, pod := range read.Pods { // as an API server stores them
			types := map[corev1.PodConditionType]bool{"": true}
			pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				again := types[c.Type]
				types[c.Type] = true
				return again
			})
		}
		slices.SortFunc(read.Pods, func(a, b *corev1.Pod) int { return len(a.UID) - len(b.UID) })
		read.Pods = slices.CompactFunc(read.Pods, func(a, b *corev1.Pod) bool { return a.UID == b.UID })
		s := newScene(read.Pods, read.Markers...)
		s.Node, s.List, s.replaced, s.Serverless, s.Liveness = read.Node, read.List, replaced, true, true

		plan := PlanNode(&s.Snapshot)
		probes := 0
		for _, entry := range plan.List {
			if probes += len(entry.Probes); !slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool {
				return string(p.UID) == entry.UID && p.Name == entry.Name && p.Namespace == entry.Namespace
			}) {
				t.Errorf("%s: the node is to probe %+v", text, entry)
			}
		}
		if probes > MostListed || len(fuzzing.JSON(plan.List)) > MostListBytes {
			t.Errorf("the list has %d probes and %d bytes", probes, len(fuzzing.JSON(plan.List)))
		}
		for i := range plan.Restarts {
			r := &plan.Restarts[i]
			if r.Pod.Annotations[pub.LivenessProbes] == "" || !r.Meant(r.Pod) || slices.ContainsFunc(plan.Restarts[:i],
				func(o Restart) bool { return o.Name() == r.Name() }) {
				t.Errorf("%s: restart of container %s of pod %s", text, r.Container, r.Pod.Name)
			}
		}
		for i := range plan.Pods {
			of := &plan.Pods[i]
			conditions, labels, annotations := read.own(of.Pod.Namespace)
			for _, c := range of.Conditions {
				if !conditions[string(c.Type)] || slices.Contains(reserved, string(c.Type)) || len(c.Message) > mostMessage ||
					c.Status != corev1.ConditionTrue && c.Status != corev1.ConditionFalse {
					t.Errorf("%s: pod %s gets condition %+v", text, of.Pod.Name, c)
				}
			}
			for _, pairs := range []struct {
				set   map[string]*string
				asked map[string][]string
			}{{of.Labels, labels}, {of.Annotations, annotations}} {
				for key, value := range pairs.set {
					if values, asked := pairs.asked[key]; !asked || value != nil && !slices.Contains(values, *value) {
						t.Errorf("%s: pod %s gets %s", text, of.Pod.Name, key)
					}
				}
			}
		}

		same := true
		for i := range plan.Pods {
			of := &plan.Pods[i]
			at, before := slices.Index(s.Pods, of.Pod), s.selectedBy(of.Pod)
			after := applied(t, of.Pod, of.Status(of.Pod), of.Metadata(of.Pod))
			same = same && slices.Equal(before, s.selectedBy(after)) && after.Annotations[pub.LivenessProbes] == of.Pod.Annotations[pub.LivenessProbes] &&
				after.Annotations[pub.PodProbeMarkers] == of.Pod.Annotations[pub.PodProbeMarkers]
			s.Pods[at] = after
		}
		if again := PlanNode(&s.Snapshot); same && len(again.Pods) > 0 {
			of := &again.Pods[0]
			t.Errorf("%s: pod %s is changed again: %s; %s", text, of.Pod.Name, of.Status(of.Pod), of.Metadata(of.Pod))
		}
	})
}

// selectedBy returns the PodProbeMarkers that select a pod.
func (s *scene) selectedBy(pod *corev1.Pod) (names []string) {
	s.matched(pod, func(m *Marker) { names = append(names, m.Name) })
	return names
}

// applied returns a pod as patches make it.
func applied(t *testing.T, pod *corev1.Pod, patches ...*podpatch.Patch) *corev1.Pod {
	t.Helper()
	for _, patch := range patches {
		if patch.Empty() {
			continue
		}
		text, err := patch.JSON(pod)
		if err != nil {
			t.Fatalf("%s cannot be written: %v", patch, err)
		}
		after, err := strategicpatch.StrategicMergePatch([]byte(fuzzing.JSON(pod)), text, corev1.Pod{})
		if err != nil {
			t.Fatalf("%s does not apply to %s: %v", text, fuzzing.JSON(pod), err)
		}
		pod = &corev1.Pod{}
		if err := json.Unmarshal(after, pod); err != nil {
			t.Fatalf("%s makes no pod: %v", text, err)
		}
	}
	return pod
}

// FuzzTravelling: the probes that a new pod takes along can be read, are of its containers, have a bound and
// write each condition once; liveness probes that are moved can be read again, and each is moved once.
func FuzzTravelling(f *testing.F) {
	pod := given.Pod("web", func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", Controller: new(true)})
		p.Annotations = map[string]string{pub.UsingEnhancedLiveness: "true"}
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/live"}}}}
	})
	seed := fuzzing.JSON(fuzzedNode{Pods: []*corev1.Pod{pod}, Markers: []*appsv1alpha1.PodProbeMarker{
		given.Marker("m", given.Probe("idle")), given.Marker("z", given.Probe("warm"), given.Probe("idle"))}})
	f.Add(seed, []byte{})
	f.Add(seed, []byte("\x01\x02\x00\x01\x03"))
	f.Fuzz(func(t *testing.T, text string, changes []byte) {
		text = fuzzing.Edit(text, changes, "labels", "containerName", "podConditionType", "probe", "exec", "httpGet", "tcpSocket", "livenessProbe",
			"selector", "restartPolicy", pub.UsingEnhancedLiveness, pub.LivenessProbes)
		var read fuzzedNode
		if json.Unmarshal([]byte(text), &read) != nil || len(read.Pods) == 0 || read.Pods[0] == nil || slices.Contains(read.Markers, nil) {
			return
		}
		pod := read.Pods[0]
		probes, names := Travelling(pod, read.Markers)
		var took []appsv1alpha1.PodContainerProbe
		if probes != "" {
			if err := json.Unmarshal([]byte(probes), &took); err != nil {
				t.Fatalf("%s takes along %s: %v", text, probes, err)
			}
		}
		if (len(took) == 0) != (probes == "") || probes == "" && names != "" || len(probes) > mostTravelling+len(took)+1 {
			t.Errorf("%s takes along %s of %q", text, probes, names)
		}
		conditions := map[string]bool{}
		for i := range took {
			if of := took[i].PodConditionType; of == "" || conditions[of] || !runs(pod, took[i].ContainerName) || Fault(&took[i].Probe) != "" {
				t.Errorf("%s takes along %+v", text, took[i])
			}
			conditions[took[i].PodConditionType] = true
		}

		context, moved := Moved(pod)
		if len(moved) == 0 {
			return
		}
		after := pod.DeepCopy()
		after.Annotations = maps.Clone(pod.Annotations)
		after.Annotations[pub.LivenessProbes] = context
		var entries []stored
		if err := json.Unmarshal([]byte(context), &entries); err != nil || len(entries) < len(moved) || len(entries) > len(pod.Spec.Containers) {
			t.Fatalf("the liveness probes of %s are %s, %v", text, context, err)
		}
		for _, at := range moved {
			if !slices.ContainsFunc(entries, func(e stored) bool { return e.Name == pod.Spec.Containers[at].Name && Fault(&e.Probe) == "" }) {
				t.Errorf("the liveness probes of %s are %s, without container %d", text, context, at)
			}
			after.Spec.Containers[at].LivenessProbe = nil
		}
		if _, again := Moved(after); len(again) > 0 {
			t.Errorf("the liveness probes of containers %v of %s are moved again", again, text)
		}
	})
}
