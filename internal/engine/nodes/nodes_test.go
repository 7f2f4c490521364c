package nodes

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"disk": "ssd"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"),
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), "example.com/gpu": resource.MustParse("1")}}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func template(changes ...func(*corev1.PodSpec)) *corev1.PodSpec {
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}
	for _, change := range changes {
		change(spec)
	}
	return spec
}

func tolerates(key string, effect corev1.TaintEffect) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
	}
}

func asks(name corev1.ResourceName, amount string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse(amount)}
	}
}

func selects(value string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"disk": value} }
}

// needs is a required node affinity to the label.
func needs(operator corev1.NodeSelectorOperator, values ...string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "disk", Operator: operator, Values: values}}}}}}}
	}
}

func limits(name corev1.ResourceName, amount string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(amount)}
	}
}

// TestALimitIsARequest shows BJ-034 (part): a node that lacks what a container has as a limit alone, such as
// a GPU, gets no pod that stays pending for ever.
func TestALimitIsARequest(t *testing.T) {
	for name, tt := range map[string]struct {
		spec *corev1.PodSpec
		fits bool
	}{
		"a GPU that it has":            {template(limits("example.com/gpu", "1")), true},
		"more GPUs than it has":        {template(limits("example.com/gpu", "2")), false},
		"a GPU of another sort":        {template(limits("example.com/tpu", "1")), false},
		"more memory":                  {template(limits(corev1.ResourceMemory, "64Gi")), false},
		"a smaller request":            {template(limits(corev1.ResourceCPU, "8"), asks(corev1.ResourceCPU, "1")), true},
		"a request for something else": {template(limits(corev1.ResourceCPU, "8"), asks(corev1.ResourceMemory, "1Gi")), false},
		"an init container's": {template(func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("8")}}}}
		}), false},
		"the pod's": {template(func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}}
		}), false},
		"the pod's, and a container asks for less": {template(asks(corev1.ResourceCPU, "1"), func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}}
		}), true},
	} {
		verdict := ForJob(tt.spec).Judge(node())
		if verdict.Eligible != tt.fits {
			t.Errorf("%s: the pod fits: got %+v, want %t", name, verdict, tt.fits)
		}
		if !verdict.Tolerable {
			t.Errorf("%s: the pod may not stay: %+v", name, verdict)
		}
	}
}

// TestJudge shows what a node is to a pod of a DaemonSet (ADS-080 (part), ADS-082 (part), ADS-083 (part)) and
// of a BroadcastJob (BJ-031 (part), BJ-032 (part), BJ-033 (part), BJ-034 (part), BJ-035 (part),
// BJ-036 (part)): e may run there, t may stay there, neither is empty.
func TestJudge(t *testing.T) {
	for name, tt := range map[string]struct {
		node        *corev1.Node
		spec        *corev1.PodSpec
		daemon, job string
	}{
		"any node":                 {node(), template(), "e", "e"},
		"another node is named":    {node(), template(func(s *corev1.PodSpec) { s.NodeName = "n2" }), "", ""},
		"this node is named":       {node(), template(func(s *corev1.PodSpec) { s.NodeName = "n1" }), "e", "e"},
		"the selector matches":     {node(), template(selects("ssd")), "e", "e"},
		"the selector does not":    {node(), template(selects("hdd")), "", ""},
		"the affinity matches":     {node(), template(needs(corev1.NodeSelectorOpIn, "hdd", "ssd")), "e", "e"},
		"the affinity does not":    {node(), template(needs(corev1.NodeSelectorOpNotIn, "ssd")), "", ""},
		"the affinity is no rule":  {node(), template(needs("Near", "ssd")), "", ""},
		"a taint against running":  {node(tainted("bad", corev1.TaintEffectNoExecute)), template(), "", ""},
		"a taint against new pods": {node(tainted("bad", corev1.TaintEffectNoSchedule)), template(), "t", "t"},
		"a taint that is a wish":   {node(tainted("bad", corev1.TaintEffectPreferNoSchedule)), template(), "e", "e"},
		"a tolerated taint": {node(tainted("bad", corev1.TaintEffectNoExecute)), template(tolerates("bad", corev1.TaintEffectNoExecute)),
			"e", "e"},
		"tolerated for new pods alone": {node(tainted("bad", corev1.TaintEffectNoExecute)), template(tolerates("bad",
			corev1.TaintEffectNoSchedule)), "", ""},
		"both sorts of taints": {node(tainted("a", corev1.TaintEffectNoSchedule), tainted("b", corev1.TaintEffectNoExecute)), template(), "", ""},
		"not ready":            {node(tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)), template(), "e", ""},
		"short of memory":      {node(tainted(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)), template(), "e", "t"},
		"cordoned":             {node(cordoned), template(), "e", "t"},
		"cordoned and tainted": {node(cordoned, tainted(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)), template(), "e", "t"},
		"cordoned, tolerated": {node(cordoned), template(tolerates(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)),
			"e", "e"},
		"no network": {node(tainted(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)), template(), "t", "t"},
		"no network, which it brings": {node(tainted(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)),
			template(func(s *corev1.PodSpec) { s.HostNetwork = true }), "e", "t"},
		"lost: unreachable": {node(tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)), template(), "t", "t"},
		"lost: not ready, too": {node(tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule), tainted(corev1.TaintNodeNotReady,
			corev1.TaintEffectNoSchedule)), template(), "t", "t"},
		"lost: shut down": {node(tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule), tainted(taintNodeShutdown,
			corev1.TaintEffectNoSchedule)), template(), "t", "t"},
		"lost, and more": {node(tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule), tainted("bad",
			corev1.TaintEffectNoSchedule)), template(), "t", "t"},
		"as large as the node":  {node(), template(asks(corev1.ResourceCPU, "2")), "e", "e"},
		"larger than the node":  {node(), template(asks(corev1.ResourceCPU, "2001m")), "e", "t"},
		"what the node has not": {node(), template(asks("example.com/tpu", "1")), "e", "t"},
		"with its init container larger": {node(), template(func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("5Gi")}}}}
		}), "e", "t"},
		"with its overhead larger": {node(), template(asks(corev1.ResourceCPU, "2"), func(s *corev1.PodSpec) {
			s.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
		}), "e", "t"},
		"the node takes no pods": {node(func(n *corev1.Node) { n.Status.Allocatable = nil }), template(), "e", "t"},
	} {
		t.Run(name, func(t *testing.T) {
			for what, rules := range map[string]*Rules{"daemon": ForDaemon(tt.spec), "job": ForJob(tt.spec)} {
				want, before := map[string]string{"daemon": tt.daemon, "job": tt.job}[what], tt.node.DeepCopy()
				got := rules.Judge(tt.node)
				is := map[Verdict]string{{Eligible: true, Tolerable: true}: "e",
					{Tolerable: true}: "t"}[Verdict{Eligible: got.Eligible, Tolerable: got.Tolerable}]
				if is != want {
					t.Errorf("verdict for a %s: got %q, want %q: %+v", what, is, want, got)
				}
				if lost := strings.HasPrefix(name, "lost: "); got.Lost != lost {
					t.Errorf("verdict for a %s: lost: got %t, want %t", what, got.Lost, lost)
				}
				if (got.Why == "") != got.Eligible {
					t.Errorf("verdict for a %s: eligible %t for the reason %q", what, got.Eligible, got.Why)
				}
				if diff := cmp.Diff(before, tt.node); diff != "" {
					t.Errorf("the node was changed: %s", diff)
				}
			}
		})
	}
}

// TestDaemonTolerations shows ADS-081 (part): what pods of a node tolerate, for however long; nothing twice,
// and the template stays as it is.
func TestDaemonTolerations(t *testing.T) {
	spec := template(tolerates("mine", corev1.TaintEffectNoSchedule), tolerates(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute))
	minute := int64(60)
	spec.Tolerations[1].TolerationSeconds = &minute
	before := spec.DeepCopy()
	var got []string
	for _, toleration := range DaemonTolerations(spec) {
		if toleration.Operator != corev1.TolerationOpExists {
			t.Errorf("operator of the toleration of %s: got %q, want %q", toleration.Key,
				toleration.Operator, corev1.TolerationOpExists)
		}
		if toleration.TolerationSeconds != nil {
			t.Errorf("toleration of %s: ends after %ds, want never",
				toleration.Key, *toleration.TolerationSeconds)
		}
		got = append(got, toleration.Key+":"+string(toleration.Effect))
	}
	want := []string{"mine:NoSchedule", "node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoExecute",
		"node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/memory-pressure:NoSchedule",
		"node.kubernetes.io/pid-pressure:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tolerations of a daemon's pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, spec); diff != "" {
		t.Errorf("the template was changed (-want +got):\n%s", diff)
	}
	spec.HostNetwork = true
	if n := len(DaemonTolerations(spec)); n != len(want)+1 {
		t.Errorf("tolerations with the network of the host: got %d, want %d", n, len(want)+1)
	}
}
