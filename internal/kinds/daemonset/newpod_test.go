package daemonset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
)

// TestNewPod shows ADS-081, ADS-112 and ADS-114: what a new pod has, that the template said and that it did
// not.
func TestNewPod(t *testing.T) {
	w := newWorld(t, 1, annotated(pub.DaemonSetTemplateGeneration, "3"))
	document := `{"metadata":{"labels":{"app":"agent","tier":"db"},"annotations":{"note":"n"},"finalizers":["example.org/drain"]},
		"spec":{"schedulerName":"mine","tolerations":[{"key":"mine","operator":"Exists","future":1},
		{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":60}],
		"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone"}]},
		"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{}}],
		"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}]}}},
		"containers":[{"name":"main","image":"a:1","future":{"field":true}}]}}`
	if err := w.Set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		t.Fatal(err)
	}
	plan := w.plan()
	pod := created(t, plan)[0]
	yes := true
	want := metav1.ObjectMeta{Namespace: "ops", Name: nodes.PodName("agent", "set", "n1", 0), GenerateName: "agent-",
		Finalizers: []string{"example.org/drain"}, Annotations: map[string]string{"note": "n"},
		Labels: map[string]string{"app": "agent", "tier": "db", "pod-template-generation": "3",
			"controller-revision-hash": strings.TrimPrefix(plan.NewRevision.Name, "agent-")},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "DaemonSet", Name: "agent", UID: "set",
			Controller: &yes, BlockOwnerDeletion: &yes}}}
	if diff := cmp.Diff(want, pod.ObjectMeta); diff != "" {
		t.Errorf("metadata of the pod (-want +got):\n%s", diff)
	}
	var tolerated []string
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Operator != corev1.TolerationOpExists {
			t.Errorf("operator of the toleration: got %q, want %q\n%+v", toleration.Operator,
				corev1.TolerationOpExists, toleration)
		}
		if toleration.TolerationSeconds != nil {
			t.Errorf("seconds of toleration of the toleration: got a value, want nil\n%+v", toleration)
		}
		tolerated = append(tolerated, strings.TrimPrefix(toleration.Key, "node.kubernetes.io/")+":"+string(toleration.Effect))
	}
	if diff := cmp.Diff([]string{"mine:", "not-ready:NoExecute", "unreachable:NoExecute", "disk-pressure:NoSchedule",
		"memory-pressure:NoSchedule", "pid-pressure:NoSchedule", "unschedulable:NoSchedule"}, tolerated); diff != "" {
		t.Errorf("tolerated (-want +got):\n%s", diff)
	}
	affinity := pod.Spec.Affinity
	if diff := cmp.Diff(nodes.Only("n1"), affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution); diff != "" {
		t.Errorf("node affinity (-want +got):\n%s", diff)
	}
	if len(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("number of required pod affinities: got %d, want 1\n%+v",
			len(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution), pod.Spec)
	}
	if len(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("number of preferred node affinities: got %d, want 1\n%+v",
			len(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution), pod.Spec)
	}
	if pod.Spec.SchedulerName != "mine" {
		t.Errorf("scheduler name of the pod: got %q, want %q\n%+v", pod.Spec.SchedulerName, "mine", pod.Spec)
	}
	if pod.Spec.NodeName != "" {
		t.Errorf("node of the pod: got %q, want %q\n%+v", pod.Spec.NodeName, "", pod.Spec)
	}
	container := plan.Create[0].Pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	if diff := cmp.Diff(map[string]any{"field": true}, container["future"]); diff != "" { // which our types do not know
		t.Errorf("the field that our types do not know (-want +got):\n%s", diff)
	}
	if toleration := plan.Create[0].Pod["spec"].(map[string]any)["tolerations"].([]any)[0].(map[string]any); toleration["future"] == nil {
		t.Errorf("toleration future: got nil, want a value\n%v", toleration)
	}
	w.Features.Binds = true
	if pod = created(t, w.plan())[0]; pod.Spec.NodeName != "n1" {
		t.Errorf("node of the pod: got %q, want %q; bound to %q by %q", pod.Spec.NodeName, "n1", pod.Spec.NodeName,
			pod.Spec.SchedulerName)
	} else if pod.Spec.SchedulerName != "kubernetes.io/daemonset-controller" {
		t.Errorf("scheduler name of the pod: got %q, want %q; bound to %q by %q", pod.Spec.SchedulerName,
			"kubernetes.io/daemonset-controller",
			pod.Spec.NodeName, pod.Spec.SchedulerName)
	}
	for _, none := range []string{"", "many", "-1", "+1", "1 2"} {
		w.Set.Annotations[pub.DaemonSetTemplateGeneration] = none
		if label, ok := created(t, w.plan())[0].Labels[pub.PodTemplateGeneration]; ok {
			t.Errorf("generation %q from %q", label, none)
		}
	}
	w.at("a:1", `"hostNetwork":true`)
	if pod = created(t, w.plan())[0]; pod.Spec.Tolerations[6].Key != corev1.TaintNodeNetworkUnavailable {
		t.Errorf("key of the seventh toleration of the pod: got %q, want %q\n%+v", pod.Spec.Tolerations[6].Key,
			corev1.TaintNodeNetworkUnavailable,
			pod.Spec.Tolerations)
	} else if pod.Spec.Tolerations[6].Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("effect of the seventh toleration of the pod: got %q, want %q\n%+v",
			pod.Spec.Tolerations[6].Effect, corev1.TaintEffectNoSchedule,
			pod.Spec.Tolerations)
	}
}

// TestTheReadinessGate shows ADS-113: new pods get it under InPlaceIfPossible, once, after those of the
// template.
func TestTheReadinessGate(t *testing.T) {
	const own = `{"conditionType":"example.org/warm"}`
	for name, tt := range map[string]struct {
		gates   string
		options []option
		want    string
	}{
		"Standard":          {"", nil, ""},
		"in place":          {"", []option{inPlace}, "InPlaceUpdateReady"},
		"beside another":    {own, []option{inPlace}, "example.org/warm InPlaceUpdateReady"},
		"written already":   {`{"conditionType":"InPlaceUpdateReady"}`, []option{inPlace}, "InPlaceUpdateReady"},
		"OnDelete":          {own, []option{inPlace, onDelete}, "example.org/warm"},
		"written, Standard": {`{"conditionType":"InPlaceUpdateReady"}`, nil, "InPlaceUpdateReady"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, tt.options...)
			if tt.gates != "" {
				template(w.Set, "a:1", `"readinessGates":[`+tt.gates+`]`)
			}
			var got []string
			for _, gate := range created(t, w.plan())[0].Spec.ReadinessGates {
				got = append(got, string(gate.ConditionType))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%q, not %q", got, tt.want)
			}
		})
	}
}

// TestNamesOfPods shows ADS-112 (part): among ten thousand nodes no two have a pod of the same name, and each
// name can be that of a host. Who finds a node empty chooses the same name as another who does.
func TestNamesOfPods(t *testing.T) {
	for _, set := range []string{"agent", "a", strings.Repeat("long-name-", 20), strings.Repeat("dots.in-", 8)} {
		names := map[string]string{}
		for i := range 10000 {
			node := fmt.Sprintf("ip-10-0-%d-%d.eu-west-1.compute.internal", i/256, i%256)
			name := nodes.PodName(set, "2b1d0f1c", node, 0)
			if other, ok := names[name]; ok {
				t.Fatalf("nodes %s and %s get pod %s", node, other, name)
			}
			errs := validation.IsDNS1123Subdomain(name)
			if len(errs) > 0 {
				t.Fatalf("%s: faults of the name: got %q, want none", name, errs)
			}
			if len(name) > validation.DNS1123LabelMaxLength {
				t.Fatalf("%s: length of the name: got %d, want at most %d", name, len(name),
					validation.DNS1123LabelMaxLength)
			}
			if again := nodes.PodName(set, "2b1d0f1c", node, 0); again != name {
				t.Fatalf("%s, then %s", name, again)
			}
			names[name] = node
		}
		if nodes.PodName(set, "another", "n1", 0) == nodes.PodName(set, "2b1d0f1c", "n1", 0) {
			t.Error("a set of the same name that came later has the same pods")
		}
	}
	w, other := newWorld(t, 3), newWorld(t, 3)
	for i, creation := range w.plan().Create {
		name := other.plan().Create[i].Name
		if name != creation.Name {
			t.Errorf("name of the created pod: got %q, want %q", name, creation.Name)
		}
		if !strings.HasPrefix(name, "agent-") {
			t.Errorf("name of the created pod: got %q, want it to begin with %q; two managers make %s and %s", name,
				"agent-", creation.Name,
				name)
		}
		if len(name) != len("agent-")+8 {
			t.Errorf("length of the name: got %d, want %d; two managers make %s and %s", len(name), len("agent-")+8,
				creation.Name, name)
		}
	}
}

// TestNamesThatAreTaken shows what becomes of a name that another pod has: the next one is taken
// (ADS-112 (part)).
func TestNamesThatAreTaken(t *testing.T) {
	name := func(n int) string { return nodes.PodName("agent", "set", "n1", n) }
	w := newWorld(t, 1, maxSurge(1))
	w.at("a:1")
	w.pod("n1", "a:1", terminating).Name = name(0)
	w.Taken = func(pod string) bool { return pod == name(1) }
	if got := w.plan().Create[0].Name; got != name(2) {
		t.Errorf("%s, not %s", got, name(2))
	}
}
