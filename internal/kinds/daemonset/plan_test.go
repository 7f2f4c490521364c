package daemonset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

var planTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a set with its pods and all nodes.
type world struct {
	t *testing.T
	Snapshot
	// revisions are the names of the stored ones, by image.
	revisions map[string]string
}

// option changes a set.
type option func(*appsv1beta1.DaemonSet)

func rollingWith(change func(*appsv1beta1.RollingUpdateDaemonSet)) option {
	return func(set *appsv1beta1.DaemonSet) { change(set.Spec.UpdateStrategy.RollingUpdate) }
}

// amount is a number, or a percentage.
func amount(value any) *intstr.IntOrString {
	v := intstr.Parse(fmt.Sprint(value))
	return &v
}

func partition(value any) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Partition = amount(value) })
}

func maxUnavailable(value any) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.MaxUnavailable = amount(value) })
}

func maxSurge(value any) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.MaxSurge = amount(value) })
}

func inPlace(set *appsv1beta1.DaemonSet) {
	set.Spec.UpdateStrategy.RollingUpdate.Type = appsv1beta1.InPlaceIfPossibleRollingUpdateType
}

func paused(set *appsv1beta1.DaemonSet) { set.Spec.UpdateStrategy.RollingUpdate.Paused = true }

func onDelete(set *appsv1beta1.DaemonSet) {
	set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteDaemonSetStrategyType
}

// chosen has the rollout select nodes with label canary=yes.
func chosen(set *appsv1beta1.DaemonSet) {
	set.Spec.UpdateStrategy.RollingUpdate.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}
}

func partitioned(set *appsv1beta1.DaemonSet) {
	set.Spec.ScaleStrategy = &appsv1beta1.DaemonSetScaleStrategy{PartitionedScaling: true}
}

func burst(value any) option {
	return func(set *appsv1beta1.DaemonSet) { set.Spec.BurstReplicas = amount(value) }
}

func minReady(seconds int32) option {
	return func(set *appsv1beta1.DaemonSet) { set.Spec.MinReadySeconds = seconds }
}

func annotated(key, value string) option {
	return func(set *appsv1beta1.DaemonSet) {
		if set.Annotations == nil {
			set.Annotations = map[string]string{}
		}
		set.Annotations[key] = value
	}
}

func strictly(set *appsv1beta1.DaemonSet) { annotated(pub.DaemonSetStrictMaxUnavailable, "true")(set) }

// hooked has pods wait for the removal of label drain before they are deleted, and marks them as not ready.
func hooked(set *appsv1beta1.DaemonSet) {
	set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"drain": "yes"}, MarkPodNotReady: true}}
}

// template gives the set a template of one container, with further members of the pod spec, such as
// `"nodeName":"n1"`.
func template(set *appsv1beta1.DaemonSet, image string, members ...string) {
	document := fmt.Sprintf(`{"metadata":{"labels":{"app":"agent"}},"spec":{%s"containers":[{"name":"main","image":%q}]}}`,
		strings.Join(append(members, ""), ","), image)
	if err := set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		panic(err)
	}
}

// newWorld is a set named agent, and that many nodes, n1 and so on.
func newWorld(t *testing.T, count int, options ...option) *world {
	set := &appsv1beta1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "agent", UID: "set", Generation: 1}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	set.Spec.UpdateStrategy = appsv1beta1.DaemonSetUpdateStrategy{Type: appsv1beta1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1beta1.RollingUpdateDaemonSet{}}
	template(set, "a:1")
	for _, option := range options {
		option(set)
	}
	w := &world{t: t, revisions: map[string]string{}, Snapshot: Snapshot{Set: set}}
	w.Now, w.Known = planTime, &podplan.Knowledge{}
	for i := range count {
		w.node(fmt.Sprint("n", i+1))
	}
	return w
}

// place changes a node.
type nodeState func(*corev1.Node)

func labelled(key, value string) nodeState {
	return func(node *corev1.Node) { node.Labels[key] = value }
}

func canary(node *corev1.Node) { node.Labels["canary"] = "yes" }

func tainted(key string, effect corev1.TaintEffect) nodeState {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

var (
	evicting = tainted("broken", corev1.TaintEffectNoExecute)
	closed   = tainted("closed", corev1.TaintEffectNoSchedule)
)

func cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

// downFor has the node be not ready for as long.
func downFor(d time.Duration) nodeState {
	return func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
			LastTransitionTime: metav1.NewTime(planTime.Add(-d))}}
	}
}

// node adds a node, or changes it.
func (w *world) node(name string, states ...nodeState) {
	i := slices.IndexFunc(w.Nodes, func(node *corev1.Node) bool { return node.Name == name })
	if i < 0 {
		i = len(w.Nodes)
		w.Nodes = append(w.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	for _, state := range states {
		state(w.Nodes[i])
	}
}

// at stores the revision of an image. The set has the image from now on.
func (w *world) at(image string, members ...string) {
	w.t.Helper()
	template(w.Set, image, members...)
	if w.revisions[image] == "" {
		w.store(image)
	}
}

// store stores the revision of the set's template under that name.
func (w *world) store(image string) {
	w.t.Helper()
	stored := w.plan().NewRevision
	if stored == nil {
		w.t.Fatal("no new revision for", image)
	}
	stored.UID, stored.ResourceVersion = types.UID("revision-"+image), "1"
	w.Revisions, w.revisions[image] = append(w.Revisions, stored), stored.Name
}

// hash is what pods of the image are labelled with.
func (w *world) hash(image string) string { return revision.ShortHash(w.revisions[image]) }

// state changes a pod.
type state func(*corev1.Pod)

func readyFor(d time.Duration) state {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions[:0:0], corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(planTime.Add(-d))})
	}
}

func notReadyPod(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

func failed(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed; notReadyPod(pod) }

func succeeded(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded; notReadyPod(pod) }

func terminating(pod *corev1.Pod) {
	end := metav1.NewTime(planTime)
	pod.DeletionTimestamp = &end
}

func specified(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }

func draining(pod *corev1.Pod) { pod.Labels["drain"] = "yes" }

func preparing(pod *corev1.Pod) {
	pod.Labels[pub.LifecycleState] = string(pub.LifecycleStatePreparingDelete)
}

func gated(pod *corev1.Pod) {
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: pub.InPlaceUpdateReady}}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.InPlaceUpdateReady, Status: corev1.ConditionTrue})
}

// unscheduled has the pod be meant for its node, and not there yet.
func unscheduled(pod *corev1.Pod) {
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: nodes.Only(
		pod.Spec.NodeName)}}
	pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
}

func named(name string) state {
	return func(pod *corev1.Pod) { pod.Name, pod.UID = "agent-"+name, types.UID(name) }
}

func born(ago time.Duration) state {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(planTime.Add(-ago)) }
}

// pod adds an available pod of the image. The first one on a node is named after it, the second n1-2.
func (w *world) pod(node, image string, states ...state) *corev1.Pod {
	name := node
	for n := 2; slices.ContainsFunc(w.Pods, func(pod *corev1.Pod) bool { return pod.Name == "agent-"+name }); n++ {
		name = fmt.Sprintf("%s-%d", node, n)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "agent-" + name, UID: types.UID(name), ResourceVersion: "1",
		CreationTimestamp: metav1.NewTime(planTime.Add(-time.Hour)),
		OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(w.Set, appsv1beta1.GroupVersion.WithKind(kind))},
		Labels:            map[string]string{"app": "agent", pub.ControllerRevisionHash: w.hash(image)}}}
	pod.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: image}}}
	pod.Status.Phase = corev1.PodRunning
	readyFor(time.Hour)(pod)
	for _, state := range states {
		state(pod)
	}
	w.Pods = append(w.Pods, pod)
	return pod
}

// on adds available pods of the image, with these states, on nodes such as "n1 n3".
func (w *world) on(list, image string, states ...state) {
	for node := range strings.FieldsSeq(list) {
		w.pod(node, image, states...)
	}
}

// completes completes a template as an API server would that has three defaults.
func completes(document []byte) []byte {
	var object map[string]any
	if err := json.Unmarshal(document, &object); err != nil {
		panic(err)
	}
	spec, _ := object["spec"].(map[string]any)
	for key, value := range map[string]any{"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": map[string]any{}} {
		if spec[key] == nil {
			spec[key] = value
		}
	}
	completed, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return completed
}

// plan makes a plan, for which templates are completed as it asks.
func (w *world) plan() *Plan {
	w.t.Helper()
	for range 3 {
		plan := Make(w.Snapshot)
		if !plan.Incomplete() {
			return plan
		}
		for _, document := range plan.Templates {
			if err := w.Known.Completed(document, completes(document)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.t.Fatal("templates are asked for again and again")
	return nil
}

// created are the pods to be made.
func created(t *testing.T, plan *Plan) (pods []*corev1.Pod) {
	t.Helper()
	for _, creation := range plan.Create {
		text, err := json.Marshal(creation.Pod)
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		if err := json.Unmarshal(text, pod); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	return pods
}

// words are what a plan does, in short: creations with their node and image, and what happens to pods; those
// that are kept or only wait are left out.
func (w *world) words(plan *Plan) []string {
	w.t.Helper()
	words := []string{}
	for _, pod := range created(w.t, plan) {
		words = append(words, "+"+nodes.Target(pod)+" "+pod.Spec.Containers[0].Image)
	}
	for _, v := range plan.Verdicts {
		name := strings.TrimPrefix(v.Pod.Name, "agent-")
		switch {
		case v.Action == podplan.Keep || v.Action == podplan.Wait:
		case v.Action == podplan.Delete:
			words = append(words, "-"+name)
		case v.Action == podplan.UpdateInPlace:
			words = append(words, "~"+name)
		case v.Prepares != "":
			words = append(words, "prepare "+name)
		default:
			words = append(words, fmt.Sprintf("%s %s", v.Action, name))
		}
	}
	return words
}

// expect expects what a plan does, such as "-n1 +n2 a:1", without regard to the order.
func (w *world) expect(want ...string) *Plan {
	w.t.Helper()
	plan := w.plan()
	got := w.words(plan)
	slices.Sort(got)
	want = append([]string{}, want...)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("(-want +got):\n%s\n%s", diff, plan)
	}
	return plan
}

// does expects what a plan does with pods and nodes, in words such as "-n1 ~n2 +n3".
func (w *world) does(want string) *Plan {
	w.t.Helper()
	plan := w.plan()
	got := w.words(plan)
	for i := range got {
		got[i], _, _ = strings.Cut(strings.ReplaceAll(got[i], "prepare ", "prepare:"), " ")
	}
	slices.Sort(got)
	expected := strings.Fields(want)
	slices.Sort(expected)
	if !slices.Equal(got, expected) {
		w.t.Errorf("%q, not %q\n%s", got, expected, plan)
	}
	return plan
}

// why is what a plan says of a pod: action, reason and message.
func why(plan *Plan, name string) (podplan.Action, podplan.Reason, string) {
	for _, v := range plan.Verdicts {
		if v.Pod.Name == "agent-"+name {
			return v.Action, v.Reason, v.Message
		}
	}
	return "", "", ""
}

// holds expects that pods, such as "n1 n2", are left alone, for that reason.
func (w *world) holds(plan *Plan, list string, reason podplan.Reason) {
	w.t.Helper()
	for name := range strings.FieldsSeq(list) {
		action, got, words := why(plan, name)
		if action != podplan.Keep && action != podplan.Wait {
			w.t.Errorf("what is done, and why: got %q, want %q; pod %s: %s %s: %s, and should be held by %s", action,
				podplan.Wait, name, action, got,
				words, reason)
		}
		if got != reason {
			w.t.Errorf("got %q, want %q; pod %s: %s %s: %s, and should be held by %s", got, reason, name, action, got, words, reason)
		}
		if words == "" {
			w.t.Errorf("words: got nothing, want some text; pod %s: %s %s: %s, and should be held by %s", name, action, got, words, reason)
		}
	}
}
