package broadcastjob

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

var planTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a job with its pods and all nodes.
type world struct {
	t *testing.T
	Snapshot
}

// option changes a job.
type option func(*appsv1beta1.BroadcastJob)

// newWorld is a job that has begun, with nodes n1 to n<count>.
func newWorld(t *testing.T, count int, options ...option) *world {
	t.Helper()
	job := &appsv1beta1.BroadcastJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "check", UID: "job", ResourceVersion: "1"}}
	job.Spec.CompletionPolicy.Type, job.Spec.FailurePolicy.Type = appsv1beta1.CompletionAlways, appsv1beta1.FailurePolicyFailFast
	template(`{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"check:1"}]}}`)(job)
	begun := metav1.NewTime(planTime.Add(-time.Minute))
	job.Status = appsv1beta1.BroadcastJobStatus{Phase: appsv1beta1.BroadcastJobRunning, StartTime: &begun}
	for _, option := range options {
		option(job)
	}
	w := &world{t: t, Snapshot: Snapshot{Job: job, Snapshot: podplan.Snapshot{Now: planTime}}}
	for i := range count {
		w.node(fmt.Sprint("n", i+1))
	}
	return w
}

func template(document string) option {
	return func(job *appsv1beta1.BroadcastJob) {
		if err := job.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
			panic(err)
		}
	}
}

// onFailure is the template of pods whose containers are started again.
func onFailure(job *appsv1beta1.BroadcastJob) {
	template(`{"spec":{"restartPolicy":"OnFailure","containers":[{"name":"main","image":"check:1"}]}}`)(job)
}

func policy(of appsv1beta1.FailurePolicyType) option {
	return func(job *appsv1beta1.BroadcastJob) { job.Spec.FailurePolicy.Type = of }
}

func forever(job *appsv1beta1.BroadcastJob) {
	job.Spec.CompletionPolicy.Type = appsv1beta1.CompletionNever
}

func paused(job *appsv1beta1.BroadcastJob) { job.Spec.Paused = true }

func parallelism(value any) option {
	return func(job *appsv1beta1.BroadcastJob) {
		v := intstr.Parse(fmt.Sprint(value))
		job.Spec.Parallelism = &v
	}
}

func deadline(seconds int64) option {
	return func(job *appsv1beta1.BroadcastJob) { job.Spec.CompletionPolicy.ActiveDeadlineSeconds = &seconds }
}

func phase(of appsv1beta1.BroadcastJobPhase) option {
	return func(job *appsv1beta1.BroadcastJob) { job.Status.Phase = of }
}

// over is a job that has ended some time ago.
func over(of appsv1beta1.BroadcastJobPhase, ago time.Duration) option {
	return func(job *appsv1beta1.BroadcastJob) {
		at := metav1.NewTime(planTime.Add(-ago))
		job.Status.Phase, job.Status.CompletionTime = of, &at
		condition := map[appsv1beta1.BroadcastJobPhase]appsv1beta1.JobConditionType{appsv1beta1.BroadcastJobCompleted: appsv1beta1.JobComplete,
			appsv1beta1.BroadcastJobFailed: appsv1beta1.JobFailed}[of]
		job.Status.Conditions = []appsv1beta1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}
	}
}

func ttl(seconds int32) option {
	return func(job *appsv1beta1.BroadcastJob) { job.Spec.CompletionPolicy.TTLSecondsAfterFinished = &seconds }
}

func (w *world) node(name string, changes ...func(*corev1.Node)) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("10"), corev1.ResourceCPU: resource.MustParse("1")}}}
	for _, change := range changes {
		change(node)
	}
	w.Nodes = append(w.Nodes, node)
}

func cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

// pod is a pod of the job on a node, named after it.
func (w *world) pod(node string, phase corev1.PodPhase, changes ...func(*corev1.Pod)) *corev1.Pod {
	yes, number := true, len(w.Pods)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "on-" + node, UID: types.UID(fmt.Sprint("pod-", number)),
		ResourceVersion: "1", CreationTimestamp: metav1.NewTime(planTime.Add(-time.Minute).Add(time.Duration(number) * time.Second)),
		Labels: map[string]string{pub.BroadcastJobName: "check", pub.BroadcastJobUID: "job"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "BroadcastJob", Name: "check", UID: "job",
			Controller: &yes, BlockOwnerDeletion: &yes}}},
		Spec:   corev1.PodSpec{NodeName: node, RestartPolicy: w.Job.Spec.Template.Spec.RestartPolicy},
		Status: corev1.PodStatus{Phase: phase}}
	for _, change := range changes {
		change(pod)
	}
	w.Pods = append(w.Pods, pod)
	return pod
}

// unbound is a pod that is not scheduled yet.
func unbound(pod *corev1.Pod) {
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: nodes.Only(pod.Spec.NodeName)}}
	pod.Spec.NodeName = ""
}

func leaving(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: planTime.Add(time.Minute)} }

func restarted(times ...int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i, n := range times {
			list := &pod.Status.ContainerStatuses
			if i > 0 {
				list = &pod.Status.InitContainerStatuses
			}
			*list = append(*list, corev1.ContainerStatus{RestartCount: n})
		}
	}
}

func named(name string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Name = name } }

// deleted are the pods that a plan deletes.
func deleted(plan *Plan) (names []string) {
	for _, v := range plan.Verdicts {
		if v.Action == podplan.Delete {
			names = append(names, v.Pod.Name)
		}
	}
	return names
}

// created are the nodes for which a plan creates pods.
func created(plan *Plan) (names []string) {
	for _, c := range plan.Create {
		names = append(names, c.Node)
	}
	return names
}

// sums are active, succeeded, failed and desired.
func sums(status *appsv1beta1.BroadcastJobStatus) string {
	return fmt.Sprintf("%d active, %d succeeded, %d failed of %d", status.Active, status.Succeeded, status.Failed, status.Desired)
}

// expect checks what a plan does: the nodes that get a pod, the pods that go, the phase and the numbers.
func (w *world) expect(name string, creates, deletes string, phase appsv1beta1.BroadcastJobPhase, numbers string) *Plan {
	w.t.Helper()
	before := w.Job.DeepCopy()
	plan := Make(w.Snapshot)
	status, _ := plan.FinalStatus(len(plan.Create), nil)
	got := fmt.Sprintf("creates %v deletes %v, %s: %s", created(plan), deleted(plan), status.Phase, sums(status))
	want := fmt.Sprintf("creates %v deletes %v, %s: %s", strings.Fields(creates), strings.Fields(deletes), phase, numbers)
	if got != want {
		w.t.Errorf("%s:\n got %s\nwant %s\n%s", name, got, want, plan)
	}
	if diff := cmp.Diff(before, w.Job); diff != "" {
		w.t.Errorf("%s: the job was changed: %s", name, diff)
	}
	for _, pod := range w.Pods {
		if !slices.ContainsFunc(plan.Verdicts, func(v *podplan.Verdict) bool { return v.Pod == pod && v.Message != "" }) {
			w.t.Errorf("%s: nothing is said of pod %s", name, pod.Name)
		}
	}
	return plan
}

const (
	running   = appsv1beta1.BroadcastJobRunning
	isPaused  = appsv1beta1.BroadcastJobPaused
	completed = appsv1beta1.BroadcastJobCompleted
	failed    = appsv1beta1.BroadcastJobFailed
)

// TestAPodIsJudgedByItself shows BJ-050, BJ-051 and BJ-052: what a pod is to its job, by itself alone.
func TestAPodIsJudgedByItself(t *testing.T) {
	limit := func(n int32) option {
		return func(job *appsv1beta1.BroadcastJob) { job.Spec.FailurePolicy.RestartLimit = n }
	}
	for name, test := range map[string]struct {
		options []option
		phase   corev1.PodPhase
		changes []func(*corev1.Pod)
		want    State
	}{
		"pending":                             {nil, corev1.PodPending, nil, Active},
		"of no phase":                         {nil, "", nil, Active},
		"unknown":                             {nil, corev1.PodUnknown, nil, Active},
		"running":                             {nil, corev1.PodRunning, nil, Active},
		"succeeded":                           {nil, corev1.PodSucceeded, nil, Succeeded},
		"failed":                              {nil, corev1.PodFailed, nil, Failed},
		"restarted without a limit":           {[]option{onFailure}, corev1.PodRunning, []func(*corev1.Pod){restarted(1)}, Restarting},
		"as often as the limit":               {[]option{onFailure, limit(3)}, corev1.PodRunning, []func(*corev1.Pod){restarted(2, 1)}, Active},
		"more often, with init containers":    {[]option{onFailure, limit(3)}, corev1.PodRunning, []func(*corev1.Pod){restarted(2, 1, 1)}, Restarting},
		"restarted, and succeeded in the end": {[]option{onFailure}, corev1.PodSucceeded, []func(*corev1.Pod){restarted(9)}, Succeeded},
		"restarted, and being deleted":        {[]option{onFailure}, corev1.PodRunning, []func(*corev1.Pod){restarted(9), leaving}, Leaving},
		"a limit below zero, which is none at all": {[]option{onFailure, limit(-4)}, corev1.PodRunning, nil, Active},
		"Never has no limit":                       {nil, corev1.PodRunning, []func(*corev1.Pod){restarted(9)}, Active},
		"killed":                                   {nil, corev1.PodFailed, []func(*corev1.Pod){leaving}, Leaving},
		"told to go, and gone well":                {nil, corev1.PodSucceeded, []func(*corev1.Pod){leaving}, Leaving},
		"being deleted":                            {nil, corev1.PodRunning, []func(*corev1.Pod){leaving}, Leaving},
	} {
		w := newWorld(t, 1, test.options...)
		if got := StateOf(w.Job, w.pod("n1", test.phase, test.changes...)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	w := newWorld(t, 2, onFailure, limit(3), policy(appsv1beta1.FailurePolicyContinue)) // the limit is not of the sum
	w.pod("n1", corev1.PodRunning, restarted(2))
	w.pod("n2", corev1.PodRunning, restarted(2))
	w.expect("two pods below the limit", "", "", running, "2 active, 0 succeeded, 0 failed of 2")
}

// TestEligibleNodesAreFound shows BJ-030, BJ-031, BJ-032, BJ-033, BJ-034, BJ-035, BJ-036 and BJ-037: which
// nodes get a pod.
func TestEligibleNodesAreFound(t *testing.T) {
	spec := func(more string) option {
		return template(`{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"a"}]` + more + `}}`)
	}
	ssd := func(node *corev1.Node) { node.Labels = map[string]string{"disk": "ssd"} }
	affinity := func(operator string) option {
		return spec(`,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[` +
			`{"key":"disk","operator":"` + operator + `"}]}]}}}`)
	}
	notReady := func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	}
	asks := func(container, more string) option {
		return template(`{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"a","resources":{"requests":{` + container + `}}}]` + more + `}}`)
	}
	for name, test := range map[string]struct {
		job  option
		node func(*corev1.Node)
		want bool
	}{
		"any":                                    {spec(""), ssd, true},
		"not ready, without a taint":             {spec(""), notReady, true},
		"a virtual one":                          {spec(""), func(n *corev1.Node) { n.Labels = map[string]string{"type": "virtual-kubelet"} }, true},
		"a virtual one, as they come":            {spec(""), tainted("virtual-kubelet.io/provider", corev1.TaintEffectNoSchedule), false},
		"selected":                               {spec(`,"nodeSelector":{"disk":"ssd"}`), ssd, true},
		"not selected":                           {spec(`,"nodeSelector":{"disk":"hdd"}`), ssd, false},
		"affinity":                               {affinity("Exists"), ssd, true},
		"no affinity":                            {affinity("DoesNotExist"), ssd, false},
		"preferred affinity is a wish":           {spec(`,"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":[{"key":"disk","operator":"DoesNotExist"}]}}]}}`), ssd, true},
		"pod anti-affinity is the scheduler's":   {spec(`,"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{}}]}}`), ssd, true},
		"a taint":                                {spec(""), tainted("k", corev1.TaintEffectNoSchedule), false},
		"a taint against running":                {spec(""), tainted("k", corev1.TaintEffectNoExecute), false},
		"a taint that is a wish":                 {spec(""), tainted("k", corev1.TaintEffectPreferNoSchedule), true},
		"a taint that is tolerated":              {spec(`,"tolerations":[{"key":"k","operator":"Exists"}]`), tainted("k", corev1.TaintEffectNoExecute), true},
		"cordoned":                               {spec(""), cordoned, false},
		"cordoned, tolerated":                    {spec(`,"tolerations":[{"key":"node.kubernetes.io/unschedulable","operator":"Exists","effect":"NoSchedule"}]`), cordoned, true},
		"of the control plane":                   {spec(""), tainted("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule), false},
		"not ready, with its taint":              {spec(""), tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), false},
		"all tolerated":                          {spec(`,"tolerations":[{"operator":"Exists"}]`), tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), true},
		"as large as the node":                   {asks(`"cpu":"1"`, ""), ssd, true},
		"larger than the node":                   {asks(`"cpu":"1001m"`, ""), ssd, false},
		"its init container is larger":           {asks(`"cpu":"1"`, `,"initContainers":[{"name":"i","image":"a","resources":{"requests":{"cpu":"2"}}}]`), ssd, false},
		"its overhead is too much":               {asks(`"cpu":"1"`, `,"overhead":{"cpu":"1m"}`), ssd, false},
		"a resource that the node does not have": {asks(`"example.com/gpu":"1"`, ""), ssd, false},
		"a node that takes no pods":              {spec(""), func(n *corev1.Node) { delete(n.Status.Allocatable, corev1.ResourcePods) }, false},
		"the node that is named":                 {spec(`,"nodeName":"n1"`), ssd, true},
		"another node is named":                  {spec(`,"nodeName":"n2"`), ssd, false},
	} {
		w := newWorld(t, 0, test.job)
		w.node("n1", test.node)
		plan := Make(w.Snapshot)
		got := len(plan.Create) == 1 && plan.Status.Desired == 1
		if got != test.want {
			t.Errorf("%s: one pod is created and desired: got %t, want %t\n%s", name, got, test.want, plan)
		}
		if !got && len(plan.Sentences) == 0 {
			t.Errorf("%s: sentences: got none, want some\n%s", name, plan)
		}
	}
	w := newWorld(t, 1)
	w.pod("n1", corev1.PodRunning, func(pod *corev1.Pod) { pod.OwnerReferences, pod.Labels = nil, nil })
	w.Pods = slices.DeleteFunc(w.Pods, func(pod *corev1.Pod) bool { return !Mine(w.Job, pod) })
	w.expect("a pod of somebody else there", "n1", "", running, "1 active, 0 succeeded, 0 failed of 1")
}

// TestMine shows BJ-043: the controller makes a pod the job's, whatever became of its labels.
func TestMine(t *testing.T) {
	w := newWorld(t, 0)
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"both":      {func(*corev1.Pod) {}, true},
		"of nobody": {func(pod *corev1.Pod) { pod.OwnerReferences = nil }, false},
		"of an earlier job": {func(pod *corev1.Pod) {
			pod.OwnerReferences[0].UID, pod.Labels[pub.BroadcastJobUID] = "before", "before"
		}, false},
		"of an earlier job, labels changed":   {func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "before" }, false},
		"an owner that is no controller":      {func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil }, false},
		"without the name":                    {func(pod *corev1.Pod) { delete(pod.Labels, pub.BroadcastJobName) }, true},
		"without the UID":                     {func(pod *corev1.Pod) { delete(pod.Labels, pub.BroadcastJobUID) }, true},
		"in another namespace, forged by all": {func(pod *corev1.Pod) { pod.Namespace = "evil" }, false},
	} {
		if got := Mine(w.Job, w.pod("n1", corev1.PodRunning, test.change)); got != test.want {
			t.Errorf(`%s: the pod is one of the job: got %t, want %t`, name, got, test.want)
		}
	}
}

// TestNewPodsKeepUnknownFieldsAndFindTheirNode shows BJ-040, BJ-041 and BJ-042: what a pod looks like, fields
// that nobody here knows included, and that its node is found.
func TestNewPodsKeepUnknownFieldsAndFindTheirNode(t *testing.T) {
	w := newWorld(t, 1, template(`{"metadata":{"labels":{"app":"check","broadcastjob-name":""},"annotations":{"note":"n"},"finalizers":["example.org/f"],"name":"x"},
		"spec":{"restartPolicy":"Never","future":{"field":1},"containers":[{"name":"main","image":"a:1"}],
		"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone"}]},"podAntiAffinity":{"a":1},
		"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{}}],
		"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}]}}}}}`))
	name := nodes.PodName("check", "job", "n1", 0)
	metadata := map[string]any{"name": name, "generateName": "check-", "namespace": "ops", "finalizers": []any{"example.org/f"},
		"labels":      map[string]any{"app": "check", "broadcastjob-name": "check", "broadcastjob-controller-uid": "job"},
		"annotations": map[string]any{"note": "n", pub.BroadcastJobPlacement: "(a hash)"},
		"ownerReferences": []any{map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "BroadcastJob", "name": "check", "uid": "job",
			"controller": true, "blockOwnerDeletion": true}}}
	for _, binds := range []bool{false, true} {
		w.Binds = binds
		plan := Make(w.Snapshot)
		if len(plan.Create) != 1 {
			t.Fatalf("number created: got %d, want 1\n%v", len(plan.Create), plan)
		}
		pod := plan.Create[0].Pod
		annotations := pod["metadata"].(map[string]any)["annotations"].(map[string]any)
		if annotations[pub.BroadcastJobPlacement] == "" {
			t.Error("no hash")
		}
		annotations[pub.BroadcastJobPlacement] = "(a hash)"
		if diff := cmp.Diff(metadata, pod["metadata"]); diff != "" {
			t.Errorf("metadata of the pod (-want +got):\n%s", diff)
		}
		spec := pod["spec"].(map[string]any)
		affinity := spec["affinity"].(map[string]any)
		ofNode := affinity["nodeAffinity"].(map[string]any)
		required := ofNode["requiredDuringSchedulingIgnoredDuringExecution"]
		pinned := map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchFields": []any{map[string]any{"key": "metadata.name",
			"operator": "In", "values": []any{"n1"}}}}}}
		if got := cmp.Equal(required, any(pinned)); got == binds {
			t.Errorf("the pod is pinned to its node: got %t, want another value; binds %t: %v, required %v", got, binds, spec["nodeName"],
				required)
		}
		if (spec["nodeName"] == "n1") != binds {
			t.Errorf(`the node is n1: got %t, want %t; binds %t: %v, required %v`, spec["nodeName"] == "n1", binds, binds,
				spec["nodeName"], required)
		}
		if affinity["podAffinity"] == nil {
			t.Errorf(`affinity podAffinity: got nil, want a value; what is lost of %v`, spec)
		} else if affinity["podAntiAffinity"] == nil {
			t.Errorf(`affinity podAntiAffinity: got nil, want a value; what is lost of %v`, spec)
		} else if len(ofNode) != 2 {
			t.Errorf("fields of the node: got %d, want 2; what is lost of %v", len(ofNode), spec)
		} else if spec["future"] == nil {
			t.Errorf(`spec future: got nil, want a value; what is lost of %v`, spec)
		}
	}
	got := string(w.Job.Spec.Template.Raw())
	if strings.Contains(got, "metadata.name") {
		t.Errorf("the template was changed: template of the job: got %q, want it not to contain %q", got, "metadata.name")
	}
	if strings.Contains(got, `"check","broadcastjob-controller`) {
		t.Errorf("the template was changed: template of the job: got %q, want it not to contain %q", got,
			`"check","broadcastjob-controller`)
	}
	pod := w.pod("n1", corev1.PodPending, unbound)
	if nodes.Target(pod) != "n1" {
		t.Error("the node of a pod that is not bound")
	}
	pod.Spec.NodeName = "n2"
	if nodes.Target(pod) != "n2" {
		t.Error("the node of a pod that is bound")
	}
	w.Pods = nil
	taken := name
	w.Taken = func(pod string) bool { return pod == taken }
	w.Binds = false
	if got := Make(w.Snapshot).Create[0].Name; got == name {
		t.Errorf("name of the first created pod: got %q, want another value; %s, and somebody else has %s", got, got, name)
	} else if !strings.HasPrefix(got, "check-") {
		t.Errorf("name of the first created pod: got %q, want it to begin with %q; %s, and somebody else has %s", got, "check-", got, name)
	}
}

// TestParallelismBoundsHowManyPodsAreCreated shows BJ-070, BJ-071, BJ-072 and BJ-075: how many pods are
// created, and for which nodes.
func TestParallelismBoundsHowManyPodsAreCreated(t *testing.T) {
	for name, test := range map[string]struct {
		limit   any
		pods    map[string]corev1.PodPhase
		creates string
		told    bool
	}{
		"no limit":                        {nil, nil, "n1 n2 n3 n4 n5", false},
		"a number":                        {2, nil, "n1 n2", false},
		"more than there are":             {9, nil, "n1 n2 n3 n4 n5", false},
		"none":                            {0, nil, "", false},
		"none, with one that runs":        {0, map[string]corev1.PodPhase{"n1": corev1.PodRunning}, "", true},
		"a percentage, rounded up":        {"41%", nil, "n1 n2 n3", false},
		"a percentage of nothing":         {"0%", nil, "", false},
		"of which one is active":          {2, map[string]corev1.PodPhase{"n3": corev1.PodPending}, "n1", false},
		"as many as are active":           {1, map[string]corev1.PodPhase{"n3": corev1.PodRunning}, "", false},
		"failed pods free their slot":     {1, map[string]corev1.PodPhase{"n1": corev1.PodFailed, "n2": corev1.PodSucceeded}, "n3", false},
		"lowered below what is active":    {1, map[string]corev1.PodPhase{"n1": corev1.PodRunning, "n2": corev1.PodRunning}, "", true},
		"a percentage of all that counts": {"40%", map[string]corev1.PodPhase{"n1": corev1.PodSucceeded, "n5": corev1.PodRunning}, "n2", false},
	} {
		w := newWorld(t, 5, policy(appsv1beta1.FailurePolicyContinue))
		slices.Reverse(w.Nodes)
		if test.limit != nil {
			parallelism(test.limit)(w.Job)
		}
		for node, phase := range test.pods {
			w.pod(node, phase)
		}
		plan := Make(w.Snapshot)
		if got := strings.Join(created(plan), " "); got != test.creates || len(deleted(plan)) > 0 {
			t.Errorf("%s: creates %q, want %q, and nothing deleted\n%s", name, got, test.creates, plan)
		}
		if told := plan.Tell[ToldTooMany]; (told.Type == corev1.EventTypeWarning) != test.told {
			t.Errorf("%s: tells %v", name, plan.Tell)
		}
		if missing := 5 - len(test.pods) - len(plan.Create); (missing > 0) != (plan.Hold != "") {
			t.Errorf("%s: %d nodes wait, because %q", name, missing, plan.Hold)
		}
	}
	w := newWorld(t, 5, policy(appsv1beta1.FailurePolicyContinue)) // a node that no pod can be created for does not hold up the others
	w.FailedNodes = map[string]time.Time{"n1": planTime}
	parallelism(2)(w.Job)
	w.expect("n1 failed before", "n2 n3", "", running, "2 active, 0 succeeded, 0 failed of 5")
	w.CreationError, w.CreationHeldUntil = "no quota", planTime.Add(time.Minute)
	w.expect("another node is tried", "n5", "", running, "1 active, 0 succeeded, 0 failed of 5")
	for i, node := range w.Nodes {
		w.FailedNodes[node.Name] = planTime.Add(-time.Duration(i) * time.Second)
	}
	plan := w.expect("held back", "", "", running, "0 active, 0 succeeded, 0 failed of 5")
	if plan.After != time.Minute {
		t.Errorf("time to the next pass: got %v, want %v; after %s: %v, %q", plan.After, time.Minute, plan.After, plan.Waiting, plan.Hold)
	} else if plan.Waiting == nil {
		t.Errorf("waiting: got nil, want a value; after %s: %v, %q", plan.After, plan.Waiting, plan.Hold)
	} else if !strings.Contains(plan.Hold, "no quota") {
		t.Errorf("held: got %q, want it to contain %q; after %s: %v, %q", plan.Hold, "no quota", plan.After, plan.Waiting, plan.Hold)
	}
	w.CreationHeldUntil = planTime
	w.expect("the one that failed first tries", "n5", "", running, "1 active, 0 succeeded, 0 failed of 5")
}

// TestLargePlansGoOnInTheNextOne shows that a plan makes no more documents than there is room for, and goes
// on with the next one.
func TestLargePlansGoOnInTheNextOne(t *testing.T) {
	w := newWorld(t, mostAtOnce+5)
	plan := Make(w.Snapshot)
	if len(plan.Create) != mostAtOnce {
		t.Errorf("number created: got %d, want %d", len(plan.Create), mostAtOnce)
	}
	if !plan.More {
		t.Error("more to do: got false, want true")
	}
	if plan.Status.Desired != mostAtOnce+5 {
		t.Errorf("desired: got %d, want %d", plan.Status.Desired, mostAtOnce+5)
	}
	template(`{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 3<<20) + `"}},"spec":{"restartPolicy":"Never"}}`)(w.Job)
	if plan := Make(w.Snapshot); len(plan.Create) != 2 {
		t.Errorf("number created: got %d, want 2; %d large pods, more %t", len(plan.Create), len(plan.Create), plan.More)
	} else if !plan.More {
		t.Errorf("more to do: got false, want true; %d large pods, more %t", len(plan.Create), plan.More)
	}
}

// TestANodeIsServedOnce shows BJ-003 (part), BJ-053 and BJ-063: a node whose pod is done is not served again
// while that is there, and counts; once the pod is deleted the node is served again. What is desired is
// counted from the nodes that there are.
func TestANodeIsServedOnce(t *testing.T) {
	w := newWorld(t, 4, policy(appsv1beta1.FailurePolicyContinue))
	w.pod("n1", corev1.PodSucceeded)
	w.pod("n2", corev1.PodFailed)
	w.pod("n3", corev1.PodRunning)
	w.expect("one is free", "n4", "", running, "2 active, 1 succeeded, 1 failed of 4")
	leaving(w.Pods[0])
	w.expect("a finished pod goes", "n4", "", running, "2 active, 0 succeeded, 1 failed of 4")
	w.Pods = w.Pods[1:]
	w.expect("it is gone", "n1 n4", "", running, "3 active, 0 succeeded, 1 failed of 4")
	cordoned(w.Nodes[1])
	w.expect("a node with a failed pod does not fit any more", "n1 n4", "", running, "3 active, 0 succeeded, 1 failed of 4")
	w.Nodes = w.Nodes[:3]
	w.expect("a node is gone", "n1", "", running, "2 active, 0 succeeded, 1 failed of 3")
	w.Nodes = append(w.Nodes[:1], w.Nodes[2:]...)
	w.expect("a node with a failed pod is gone", "n1", "", running, "2 active, 0 succeeded, 0 failed of 2")
	w.Job.DeletionTimestamp = &metav1.Time{Time: planTime}
	if plan := Make(w.Snapshot); len(plan.Create)+len(deleted(plan)) > 0 { // BJ-064
		t.Errorf("a job that is being deleted: got %s, want nothing created or deleted", plan)
	}
}
