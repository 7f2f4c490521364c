package slim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

var (
	cpu   = corev1.ResourceList{"cpu": resource.MustParse("1")}
	reads = corev1.EnvVar{Name: "APP",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}}
)

// fat is a pod as the API server sends it.
func fat(ownerVersion string) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "5", Generation: 3, GenerateName: "web-",
			CreationTimestamp: metav1.NewTime(noon), DeletionTimestamp: &metav1.Time{Time: noon},
			Labels: map[string]string{"app": "web", pub.ControllerRevisionHash: "web-2"}, Finalizers: []string{"f"},
			Annotations: map[string]string{pub.PodDeletionCost: "7",
				pub.InPlaceUpdateState: `{"revision":"web-2","updateTimestamp":"2026-01-01T11:00:00Z",` +
					`"lastContainerStatuses":{"nginx":{"imageID":"sha-1","containerID":"c-1","image":"nginx:1","runningImage":"nginx:1"}},"updateImages":true}`},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Spec: corev1.PodSpec{NodeName: "n", ServiceAccountName: "sa", Volumes: []corev1.Volume{{Name: "v"}},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: pub.InPlaceUpdateReady}},
			InitContainers: []corev1.Container{{Name: "init"},
				{Name: "native", Image: "native:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
			Containers: []corev1.Container{{Name: "nginx", Image: "nginx:2", Env: []corev1.EnvVar{{Name: "SECRET", Value: "x"}, reads},
				Resources: corev1.ResourceRequirements{Limits: cpu, Claims: []corev1.ResourceClaim{{Name: "gpu"}}}},
				{Name: "side", Image: "side:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ObservedGeneration: 3, Message: "m",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(noon)},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "nginx", Image: "nginx:2", ImageID: "sha-2", ContainerID: "c-2",
				RestartCount: 4}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "init"}, {Name: "native", Image: "native:1"}}},
	}
	if ownerVersion != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: ownerVersion, Kind: "X", Name: "x", UID: "x", Controller: &yes}}
	}
	return pod
}

func transformed(t *testing.T, transform toolscache.TransformFunc, object any) any {
	t.Helper()
	out, err := transform(object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPodOfOurs(t *testing.T) {
	for _, version := range []string{"apps.kruise.io/v1beta1", "apps.kruise.io/v1alpha1"} { // CS-043: owners of either version
		want := fat(version)
		want.ManagedFields = nil
		want.Spec = corev1.PodSpec{NodeName: "n", ReadinessGates: want.Spec.ReadinessGates,
			InitContainers: []corev1.Container{{Name: "init"},
				{Name: "native", Image: "native:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
			Containers: []corev1.Container{{Name: "nginx", Image: "nginx:2", Env: []corev1.EnvVar{reads},
				Resources: corev1.ResourceRequirements{Limits: cpu}},
				{Name: "side", Image: "side:1"}}}
		want.Status.Message, want.Status.InitContainerStatuses = "", want.Status.InitContainerStatuses[1:]
		if diff := cmp.Diff(want, transformed(t, Pod, fat(version))); diff != "" {
			t.Errorf("%s: what is kept of a pod (-want +got):\n%s", version, diff)
		}
	}
}

// Every decision about a pod is the same for the slim pod and the whole one.
func TestDecisionsNeedNoMoreThanTheSlimPod(t *testing.T) {
	whole := fat("apps.kruise.io/v1beta1")
	thin := transformed(t, Pod, fat("apps.kruise.io/v1beta1")).(*corev1.Pod)
	decisions := func(pod *corev1.Pod) []any {
		available, after := readiness.Available(pod, 30, noon.Add(10*time.Second))
		progress, err := inplace.Progress(pod, noon)
		if err != nil {
			t.Fatal(err)
		}
		value := "v"
		update := inplace.Update{Revision: "web-3", Change: &inplace.Change{Stops: []string{"nginx"}, Parts: inplace.Parts{
			Images:    map[string]string{"nginx": "nginx:3", "native": "native:2", "init": "init:2"},
			Refs:      map[string]inplace.RefMetadata{"nginx": {Labels: map[string]*string{"app": &value}}},
			Resources: map[string]corev1.ResourceRequirements{"nginx": {Limits: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}}}
		admit := &podpatch.Patch{}
		readiness.Release(admit, pod, noon)
		patches := []*podpatch.Patch{admit}
		for _, step := range []func(*corev1.Pod, time.Time) (*podpatch.Patch, error){update.Hold, update.Resize, update.Start} {
			patch, err := step(pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			patches = append(patches, patch)
		}
		out := []any{readiness.Ready(pod), available, after, progress, rollout.DeletionCost(pod),
			inplace.EnvHash(pod, &pod.Spec.Containers[0])}
		for _, patch := range patches {
			body, err := patch.JSON(pod)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(body))
		}
		other := rollout.Candidate{Pod: &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}}}
		return append(out, rollout.ByRemoval(rollout.Candidate{Pod: pod}, other), rollout.ByUpdate(rollout.Candidate{Pod: pod}, other))
	}
	if diff := cmp.Diff(decisions(whole), decisions(thin)); diff != "" {
		t.Errorf("decisions about the whole pod and the slim one (-whole +slim):\n%s", diff)
	}
}

// ND-101, IPU-126: a variable that a later one overrides does not count as reading metadata, for the manager
// and for the daemon.
func TestAnOverriddenVariableDoesNotReadMetadata(t *testing.T) {
	pod := func() *corev1.Pod {
		whole := fat("apps.kruise.io/v1beta1")
		reads := corev1.EnvVar{Name: "A",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['x']"}}}
		whole.Spec.Containers[0].Env = []corev1.EnvVar{reads, {Name: "B", Value: "x"}, {Name: "A", Value: "literal"}}
		return whole
	}
	whole, thin := pod(), transformed(t, Pod, pod()).(*corev1.Pod)
	a, b := inplace.EnvHash(whole, &whole.Spec.Containers[0]), inplace.EnvHash(thin, &thin.Spec.Containers[0])
	if a != b {
		t.Errorf("hash of the environment: got %v of what is kept, want %v as of the whole pod", b, a)
	}
	if env := thin.Spec.Containers[0].Env; len(env) != 2 {
		t.Errorf("variables that are kept: got %+v, want 2", env)
	}
}

func TestPodOfOthers(t *testing.T) {
	for name, owner := range map[string]string{"no owner": "", "another group": "apps/v1",
		"a group that ends like ours": "x.apps.kruise.io/v1", "unreadable": "a/b/c"} {
		t.Run(name, func(t *testing.T) {
			want := fat(owner)
			want.ManagedFields, want.Annotations = nil, map[string]string{pub.PodDeletionCost: "7"}
			want.Spec, want.Status = corev1.PodSpec{NodeName: "n"}, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Message: "sum",
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
			got := transformed(t, Pod, fat(owner)).(*corev1.Pod)
			before := got.Status.Message
			got.Status.Message = "sum"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what is kept of a pod (-want +got):\n%s", diff)
			}
			for what, change := range map[string]func(*corev1.PodStatus){ // CRR-055
				"":                 func(s *corev1.PodStatus) { s.Message = "other" },
				"readiness":        func(s *corev1.PodStatus) { s.ContainerStatuses[0].Ready = !s.ContainerStatuses[0].Ready },
				"a restart":        func(s *corev1.PodStatus) { s.ContainerStatuses[0].RestartCount++ },
				"a container":      func(s *corev1.PodStatus) { s.ContainerStatuses[0].ContainerID = "c-3" },
				"a native sidecar": func(s *corev1.PodStatus) { s.InitContainerStatuses[1].RestartCount++ },
			} {
				pod := fat(owner)
				change(&pod.Status)
				if changed := transformed(t, Pod, pod).(*corev1.Pod).Status.Message != before; changed != (what != "") {
					t.Errorf("a change of %q shows in the sum: got %t, want %t", what, changed, !changed)
				}
			}
		})
	}
}

// CRR-087, ND-135: pods that are not ours keep what shows that their readiness gate or launch barrier is to
// be opened.
func TestPodOfOthersWithGateAndBarrier(t *testing.T) {
	pod := fat("apps/v1")
	barrier := corev1.EnvVar{Name: pub.ContainerBarrierEnv,
		ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "p_1"}}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0}}
	gates := []corev1.PodReadinessGate{{ConditionType: pub.KruisePodReady}}
	pod.Spec.ReadinessGates = append([]corev1.PodReadinessGate{{ConditionType: "Own"}}, gates...)
	pod.Spec.RestartPolicy, pod.Spec.Containers[0].Env = corev1.RestartPolicyNever, append(pod.Spec.Containers[0].Env, barrier)
	again := []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}
	pod.Spec.Containers[0].RestartPolicy, pod.Spec.Containers[0].RestartPolicyRules = new(corev1.ContainerRestartPolicyNever), again
	pod.Status.ContainerStatuses[0].State = ended
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.KruisePodReady, Status: "True"})
	pod.Annotations[pub.LaunchCompleted] = "true"
	want := pod.DeepCopy()
	want.ManagedFields, want.Annotations = nil, map[string]string{pub.LaunchCompleted: "true", pub.PodDeletionCost: "7"}
	want.Spec = corev1.PodSpec{NodeName: "n", ReadinessGates: gates, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "nginx", Env: []corev1.EnvVar{barrier},
			RestartPolicy: new(corev1.ContainerRestartPolicyNever), RestartPolicyRules: again}}}
	want.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1",
		Conditions: []corev1.PodCondition{{Type: pub.KruisePodReady, Status: "True"},
			{Type: corev1.ContainersReady, Status: "True"}, {Type: corev1.PodReady, Status: "True"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "nginx", State: ended, RestartCount: 4}}}
	got := transformed(t, Pod, pod).(*corev1.Pod)
	want.Status.Message = got.Status.Message
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is kept of a pod (-want +got):\n%s", diff)
	}
}

// IPU-312 (part): how long a container may take to end is kept of all pods where it is longer than usual.
func TestLongGracePeriodsAreKept(t *testing.T) {
	for given, kept := range map[int64]bool{7: false, 30: false, 3600: true} {
		pod := fat("apps.kruise.io/v1beta1")
		pod.Spec.TerminationGracePeriodSeconds = new(given)
		got := transformed(t, Pod, pod).(*corev1.Pod).Spec.TerminationGracePeriodSeconds
		if (got != nil) != kept {
			t.Errorf("grace period of %ds: got %v, want it kept: %t", given, got, kept)
		} else if kept && *got != given {
			t.Errorf("grace period that is kept: got %ds, want %ds", *got, given)
		}
	}
}

// JST-010, JST-022: of a pod that runs to completion with marked sidecars all is kept that their end is
// decided from, whoever owns it; of others the variables cost nothing.
func TestPodWithMarkedSidecars(t *testing.T) {
	marks := []corev1.EnvVar{{Name: pub.TerminateSidecarEnv, Value: "true"}, {Name: pub.TerminateSidecarIgnoreExitEnv, Value: "true"},
		{Name: pub.TerminateSidecarImageEnv, Value: "exit:1"}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
	for _, owner := range []string{"", "batch/v1", "apps.kruise.io/v1beta1"} {
		pod := func(policy corev1.RestartPolicy) *corev1.Pod {
			whole := fat(owner)
			whole.Spec.RestartPolicy, whole.Spec.TerminationGracePeriodSeconds = policy, new(int64(7))
			whole.Spec.Containers[1].Env = append([]corev1.EnvVar{{Name: "SECRET", Value: "x"}}, marks...)
			whole.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
			whole.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}
			whole.Status.ContainerStatuses[0].State = ended
			whole.Status.Conditions = append(whole.Status.Conditions, corev1.PodCondition{Type: pub.SidecarTerminated, Status: "True"})
			return whole
		}
		whole, thin := pod(corev1.RestartPolicyNever), transformed(t, Pod, pod(corev1.RestartPolicyNever)).(*corev1.Pod)
		end := slices.ContainsFunc(thin.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == pub.SidecarTerminated })
		kept := []any{thin.Spec.RestartPolicy, *thin.Spec.TerminationGracePeriodSeconds, len(thin.Spec.Containers), thin.Spec.Containers[1].Env,
			thin.Spec.Containers[1].Image, thin.Spec.Containers[0].RestartPolicy, thin.Spec.Containers[0].RestartPolicyRules,
			thin.Status.ContainerStatuses[0].State, thin.Status.ContainerStatuses[0].RestartCount, end, thin.DeletionTimestamp}
		if diff := cmp.Diff([]any{corev1.RestartPolicyNever, int64(7), 2, marks, "side:1", whole.Spec.Containers[0].RestartPolicy,
			whole.Spec.Containers[0].RestartPolicyRules, ended, int32(4), true, whole.DeletionTimestamp}, kept); diff != "" {
			t.Errorf("owner %q: what is kept of a pod (-want +got):\n%s", owner, diff)
		}
		always := transformed(t, Pod, pod(corev1.RestartPolicyAlways)).(*corev1.Pod)
		for i := range always.Spec.Containers {
			for _, env := range always.Spec.Containers[i].Env {
				if slices.Contains(terminating, env.Name) {
					t.Errorf("%q: %s is kept of a pod that does not end", owner, env.Name)
				}
			}
		}
		if always.Spec.TerminationGracePeriodSeconds != nil {
			t.Errorf("%q: the grace period is kept", owner)
		}
	}
}

func TestClaim(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "c", UID: "u", ResourceVersion: "1", Labels: map[string]string{pub.CloneSetInstanceID: "abcde"},
		OwnerReferences: []metav1.OwnerReference{{UID: "x"}}, DeletionTimestamp: &metav1.Time{Time: noon}, Finalizers: []string{"f"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	claim.Annotations, claim.ManagedFields = map[string]string{"a": "b"}, []metav1.ManagedFieldsEntry{{}}
	if diff := cmp.Diff(&corev1.PersistentVolumeClaim{ObjectMeta: meta}, transformed(t, Claim, claim)); diff != "" {
		t.Errorf("what is kept of a claim (-want +got):\n%s", diff)
	}
}

func TestMetadata(t *testing.T) {
	want := fat("")
	want.ManagedFields = nil
	if diff := cmp.Diff(want, transformed(t, Metadata, fat(""))); diff != "" {
		t.Errorf("what is kept of a pod (-want +got):\n%s", diff)
	}
}

// A watch may deliver objects that are not of the kind: they are kept unchanged.
func TestOtherObjectsPass(t *testing.T) {
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "ns/p"}
	for name, transform := range map[string]toolscache.TransformFunc{"Pod": Pod, "Claim": Claim, "Metadata": Metadata} {
		if diff := cmp.Diff(any(tombstone), transformed(t, transform, tombstone)); diff != "" {
			t.Errorf("%s: what is kept of another object (-want +got):\n%s", name, diff)
		}
	}
}

// A pod that is not ours but is in a subset keeps what counting, ranking and rescheduling read (WS-150,
// WS-162, WS-171).
func TestPodOfOthersInASubset(t *testing.T) {
	pod := fat("apps/v1")
	pod.Annotations[pub.MatchedWorkloadSpread] = `{"name":"ws","subset":"a"}`
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}
	pod.Status.Conditions = append(pod.Status.Conditions, scheduled)
	want := pod.DeepCopy()
	want.ManagedFields, want.Annotations = nil,
		map[string]string{pub.PodDeletionCost: "7", pub.MatchedWorkloadSpread: `{"name":"ws","subset":"a"}`}
	want.Spec = corev1.PodSpec{NodeName: "n"}
	want.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{scheduled, want.Status.Conditions[0]},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "nginx", RestartCount: 4}}}
	got := transformed(t, Pod, pod).(*corev1.Pod)
	want.Status.Message = got.Status.Message
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is kept of a pod in a subset (-want +got):\n%s", diff)
	}
}

// IMG-050, IMG-053, IMG-098, WS-142: the cache keeps of a node its labels, its taints, whether it is cordoned
// (ADS-083), its size (BJ-034 (part)) and whether it is ready.
func TestNode(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"pool": "web"},
		Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
		Spec: corev1.NodeSpec{ProviderID: "p", Unschedulable: true,
			Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{}}, Allocatable: cpu, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"pool": "web"}},
		Spec:   corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{Allocatable: cpu, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	got, err := Node(node)
	if err != nil {
		t.Errorf("slimming the node: %v", err)
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("what is kept of a node (-want +got):\n%s", diff)
	}
}

// A pod with injected sidecars is kept like one of ours, no matter who controls it: its annotations, the
// marks of injected containers, images, resources and statuses (SS-106, SS-200, SS-215, SS-256, SS-W02).
func TestPodWithSidecars(t *testing.T) {
	pod := fat("apps/v1")
	pod.Annotations[pub.SidecarSetInjectedList], pod.Annotations[corev1.LastAppliedConfigAnnotation] = "mesh", "long"
	marked := corev1.EnvVar{Name: pub.SidecarInjectedEnv, Value: "true"}
	pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "SECRET", Value: "x"}, marked}
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: cpu}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	got := transformed(t, Pod, pod.DeepCopy()).(*corev1.Pod)
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation)
	want := []any{pod.Annotations, pod.Labels, pod.Spec.Resources, pod.Spec.RestartPolicy, []corev1.EnvVar{marked}, cpu,
		pod.Status.ContainerStatuses,
		pod.Status.InitContainerStatuses[1:], pod.Status.Conditions, pod.Status.Phase, pod.Generation}
	kept := []any{got.Annotations, got.Labels, got.Spec.Resources, got.Spec.RestartPolicy, got.Spec.Containers[1].Env,
		got.Spec.Containers[0].Resources.Limits, got.Status.ContainerStatuses,
		got.Status.InitContainerStatuses, got.Status.Conditions, got.Status.Phase, got.Generation}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("what is kept of a pod with sidecars (-want +got):\n%s", diff)
	}
}

// Of a pod of a BroadcastJob it is kept how often init containers restarted, too (BJ-050 (part)).
func TestPodOfAJob(t *testing.T) {
	pod := fat("apps.kruise.io/v1beta1")
	pod.OwnerReferences[0].Kind = "BroadcastJob"
	pod.Status.InitContainerStatuses[0].RestartCount = 3
	got := transformed(t, Pod, pod).(*corev1.Pod)
	if kept := got.Status.InitContainerStatuses; len(kept) != 2 {
		t.Errorf("statuses of init containers that are kept: got %+v, want 2", kept)
	} else if kept[0].RestartCount != 3 {
		t.Errorf("restarts of the first init container: got %d, want 3", kept[0].RestartCount)
	}
}

// TestAPodWithManyVariables: the time for a pod does not grow with the square of its variables. Otherwise one
// pod of a user would delay the caches for all.
func TestAPodWithManyVariables(t *testing.T) {
	const count = 60_000 // twice what the API server accepts, so that the difference is clear
	for name, transform := range map[string]toolscache.TransformFunc{"manager": Pod, "daemon": NodePod} {
		pod := fat("apps.kruise.io/v1beta1")
		env := make([]corev1.EnvVar, 0, 2*count+1)
		for i := range count {
			variable := reads
			variable.Name = fmt.Sprintf("READS_%d", i)
			env = append(env, variable)
		}
		for i := range count {
			env = append(env, corev1.EnvVar{Name: fmt.Sprintf("PLAIN_%d", i)})
		}
		pod.Spec.Containers[0].Env = append(env, corev1.EnvVar{Name: "READS_7", Value: "overrides it"})
		spent := cputime.Start(t)
		if _, err := transform(pod); err != nil {
			t.Fatal(err)
		}
		if took := spent(); took > 5*time.Second { // about 10 ms; half a minute if the time grew with the square
			t.Errorf("%s: a pod with many variables took %s, want 5s at most", name, took)
		}
		if name == "daemon" { // which keeps nothing of a pod so large
			if len(pod.Spec.Containers) > 0 {
				t.Errorf("containers that the daemon keeps: got %d, want 0", len(pod.Spec.Containers))
			}
			continue
		}
		if kept := pod.Spec.Containers[0].Env; len(kept) != count+1 {
			t.Errorf("%s: variables that are kept: got %d, want %d", name, len(kept), count+1)
		} else if kept[count].Value != "overrides it" {
			t.Errorf("%s: the last variable that is kept: got %+v, want the one that overrides",
				name, kept[count])
		}
	}
}

// EJ-018 (part), EJ-036 (part), EJ-055 (part): of ephemeral containers the caches keep names and marks, and
// the states of those of EphemeralJobs, for pods of ours and of others; other pods cost nothing more.
func TestEphemeralContainersKeepNamesMarksAndStates(t *testing.T) {
	for _, pod := range []*corev1.Pod{fat("apps.kruise.io/v1beta1"), fat("apps/v1")} {
		container := func(name string, env ...corev1.EnvVar) corev1.EphemeralContainer {
			return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "i", Env: env}}
		}
		mark := corev1.EnvVar{Name: pub.EphemeralJobEnv, Value: "job"}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{container("a", corev1.EnvVar{Name: "SECRET", Value: "s"},
			corev1.EnvVar{Name: pub.EphemeralJobEnv, Value: "earlier"}, mark), container("b", mark), container("c", mark), container("shell")}
		status := func(name string, state corev1.ContainerState) corev1.ContainerStatus {
			return corev1.ContainerStatus{Name: name, Image: "i", ImageID: "sha", State: state}
		}
		pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{
			status("a", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Message: "long", FinishedAt: metav1.NewTime(noon)}}),
			status("b", corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}),
			status("c", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "r", Message: "long"}}),
			status("shell", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})}
		if _, err := Pod(pod); err != nil {
			t.Fatal(err)
		}
		kept := func(name string, env ...corev1.EnvVar) corev1.EphemeralContainer {
			return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Env: env}}
		}
		if diff := cmp.Diff([]corev1.EphemeralContainer{kept("a", mark), kept("b", mark), kept("c", mark), kept("shell")}, pod.Spec.EphemeralContainers); diff != "" {
			t.Errorf("ephemeral containers that are kept (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]corev1.ContainerStatus{{Name: "a", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}}},
			{Name: "b", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "r"}}}}, pod.Status.EphemeralContainerStatuses); diff != "" {
			t.Errorf("statuses of ephemeral containers that are kept (-want +got):\n%s", diff)
		}
	}
}

// What a pod of a user with many ephemeral containers costs grows with their number, not with its square:
// their statuses are slimmed at each event of the pod, on every replica, and hold up the events of all other
// pods meanwhile.
func TestManyEphemeralContainers(t *testing.T) {
	took := func(n int) time.Duration {
		best := time.Hour
		for range 5 {
			pod := &corev1.Pod{}
			for i := range n {
				name := fmt.Sprintf("tool-%d", i)
				pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
					Name: name, Env: []corev1.EnvVar{{Name: pub.EphemeralJobEnv, Value: "job"}}}})
				pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: name,
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
			}
			begin := time.Now()
			if _, err := Pod(pod); err != nil {
				t.Fatalf("slimming the pod: %v", err)
			}
			if kept := len(pod.Status.EphemeralContainerStatuses); kept != n {
				t.Fatalf("statuses of ephemeral containers that are kept: got %d, want %d", kept, n)
			}
			best = min(best, time.Since(begin))
		}
		return best
	}
	if few, many := took(500), took(8000); many > 90*few && many > 100*time.Millisecond {
		t.Errorf("8000 containers take %s, 500 of them %s", many, few)
	}
}

// What PodProbeMarkers need of pods of any owner is kept: conditions that they may have written (PPM-069),
// and whether one that does not run yet is initialized (PPM-040).
func TestWhatPodProbeMarkersNeedIsKept(t *testing.T) {
	of := func(phase corev1.PodPhase) []corev1.PodConditionType {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: "example.com/idle", Status: corev1.ConditionTrue}}}}
		if _, err := Pod(p); err != nil {
			t.Fatal(err)
		}
		var types []corev1.PodConditionType
		for _, c := range p.Status.Conditions {
			types = append(types, c.Type)
		}
		return types
	}
	if got := of(corev1.PodRunning); !slices.Equal(got, []corev1.PodConditionType{"example.com/idle", corev1.PodReady}) {
		t.Errorf("conditions of a pod that runs: got %v, want example.com/idle and Ready", got)
	}
	if got := of(corev1.PodPending); !slices.Equal(got, []corev1.PodConditionType{corev1.PodInitialized, "example.com/idle", corev1.PodReady}) {
		t.Errorf("conditions of a pod that does not run yet: got %v, want Initialized, example.com/idle and Ready",
			got)
	}
	if Whole(&corev1.Pod{}) {
		t.Error("annotations of pods of others are not kept")
	}
}
