package workloadspread

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

func requires(terms ...corev1.NodeSelectorTerm) workloadspreadtest.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func nodesIn(values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn,
		Values: values}}}
}

func TestFits(t *testing.T) {
	subsets := func(all ...appsv1beta1.WorkloadSpreadSubset) []appsv1beta1.WorkloadSpreadSubset { return all }
	taint := corev1.Taint{Key: "burst", Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "disk", Effect: corev1.TaintEffectNoExecute}
	soft := corev1.Taint{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	limits := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
	}
	for name, test := range map[string]struct {
		subsets []appsv1beta1.WorkloadSpreadSubset
		pod     *corev1.Pod
		node    *corev1.Node
		raw     string // added to the document of the pod
		want    []Fit
	}{
		"WS-142 no selector fits any node": {subsets: subsets(workloadspreadtest.Subset("a", nil)), node: workloadspreadtest.Node("x"),
			want: []Fit{{0, 0}}},
		"WS-142 the selector alone": {subsets: subsets(workloadspreadtest.Subset("a", nil, workloadspreadtest.Zone("x")),
			workloadspreadtest.Subset("b", nil,
				workloadspreadtest.Zone("y"))), node: workloadspreadtest.Node("y"), want: []Fit{{1, 0}}},
		"WS-142 a selector without requirements is none": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			func(s *appsv1beta1.WorkloadSpreadSubset) { s.RequiredNodeSelector = &corev1.NodeSelectorTerm{} })), node: workloadspreadtest.Node("x"),
			want: []Fit{{0, 0}}},
		"WS-142 taints": {subsets: subsets(workloadspreadtest.Subset("a", nil),
			workloadspreadtest.Subset("b", nil, workloadspreadtest.Tolerates("burst"))),
			node: workloadspreadtest.Node("x", taint), want: []Fit{{1, 0}}},
		"WS-142 tolerated by pod and subset together": {subsets: subsets(workloadspreadtest.Subset("b", nil,
			workloadspreadtest.Tolerates("burst"))), node: workloadspreadtest.Node("x",
			taint, other), pod: workloadspreadtest.Pod("p", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "disk", Operator: corev1.TolerationOpExists}}
		}), want: []Fit{{0, 0}}},
		"WS-142 one taint too many": {subsets: subsets(workloadspreadtest.Subset("b", nil, workloadspreadtest.Tolerates("burst"))),
			node: workloadspreadtest.Node("x", taint, other)},
		"WS-142 soft taints and cordons do not count": {subsets: subsets(workloadspreadtest.Subset("a", nil)),
			node: workloadspreadtest.Node("x", soft, cordon),
			want: []Fit{{0, 0}}},
		"WS-142 each of the pod's own terms with the subset": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Zone("x"))), node: workloadspreadtest.Node("x"),
			pod: workloadspreadtest.Pod("p", requires(nodesIn("y"), nodesIn("x", "z"))), want: []Fit{{0, 0}}},
		"WS-142 no term is fulfilled together with it": {subsets: subsets(workloadspreadtest.Subset("a", nil, workloadspreadtest.Zone("x"))),
			node: workloadspreadtest.Node("x"),
			pod:  workloadspreadtest.Pod("p", requires(nodesIn("y")))},
		"WS-142 own terms alone do not count": {subsets: subsets(workloadspreadtest.Subset("a", nil)), node: workloadspreadtest.Node("x"),
			pod: workloadspreadtest.Pod("p", requires(nodesIn("y"))), want: []Fit{{0, 0}}},
		"WS-142 fields too": {subsets: subsets(workloadspreadtest.Subset("a", nil, func(s *appsv1beta1.WorkloadSpreadSubset) {
			s.RequiredNodeSelector = &corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name",
				Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}}
		})), node: workloadspreadtest.Node("x"), pod: workloadspreadtest.Pod("p", requires(nodesIn("x"))), want: []Fit{{0, 0}}},
		"WS-143 weights of the preferred terms that match": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Prefers(3, "x"), workloadspreadtest.Prefers(4, "x"),
			workloadspreadtest.Prefers(50, "y"))), node: workloadspreadtest.Node("x"), want: []Fit{{0, 700}}},
		"WS-143 a patch that changes nothing": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Patches(`{"metadata":{"labels":{"app":"web"},"annotations":{"k":"v"}}}`))), node: workloadspreadtest.Node("x"),
			want: []Fit{{0, 10}}},
		"WS-143 a patch that changes a label": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Patches(`{"metadata":{"labels":{"app":"api"}}}`))), node: workloadspreadtest.Node("x"), want: []Fit{{0, 0}}},
		"WS-143 the same quantity in other words": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Patches(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"1000m"}}}]}}`))),
			node: workloadspreadtest.Node("x"), pod: workloadspreadtest.Pod("p", limits), want: []Fit{{0, 10}}},
		"WS-143 another quantity": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Patches(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"2"}}}]}}`))),
			node: workloadspreadtest.Node("x"), pod: workloadspreadtest.Pod("p", limits), want: []Fit{{0, 0}}},
		"WS-143 a field that our types do not know": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Patches(`{"spec":{"future":1}}`))),
			node: workloadspreadtest.Node("x"), want: []Fit{{0, 0}}},
		"WS-143 and one that the pod has": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Patches(`{"spec":{"future":1}}`))),
			node: workloadspreadtest.Node("x"), raw: `"future":1,`, want: []Fit{{0, 10}}},
		"WS-143 a patch that cannot be applied": {subsets: subsets(workloadspreadtest.Subset("a", nil,
			workloadspreadtest.Patches(`{"spec":{"containers":[{"image":"x"}]}}`))), node: workloadspreadtest.Node("x"), want: []Fit{{0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := test.pod
			if pod == nil {
				pod = workloadspreadtest.Pod("p")
			}
			document, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			document = bytes.Replace(document, []byte(`"spec":{`), []byte(`"spec":{`+test.raw), 1)
			got, err := Fits(test.subsets, document, test.node)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err != nil {
				t.Errorf("unexpected error: %v", err)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	for name, test := range map[string]struct {
		fits []Fit
		room []int
		want int
	}{
		"WS-143 none":                              {nil, nil, -1},
		"WS-143 the highest score":                 {[]Fit{{0, 100}, {2, 300}, {3, 200}}, nil, 2},
		"WS-143 the earlier of equals":             {[]Fit{{1, 100}, {2, 100}}, nil, 1},
		"WS-143 room decides between equals":       {[]Fit{{1, 100}, {2, 100}}, []int{2}, 2},
		"WS-143 room counts less than a patch":     {[]Fit{{1, 10}, {2, 0}}, []int{2}, 1},
		"WS-145 a subset without room is one, too": {[]Fit{{1, 0}}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := choose(test.fits, func(subset int) bool { return slices.Contains(test.room, subset) })
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			if ok != (test.want >= 0) {
				t.Errorf("ok: got %t, want %t", ok, test.want >= 0)
			}
		})
	}
}

func TestAdoptedMetadata(t *testing.T) {
	placed := `{"name":"ws","subset":"a"}`
	for name, test := range map[string]struct {
		patch, ignore string
		want          map[string]any
	}{
		"WS-144 no patch": {"", "", map[string]any{"annotations": map[string]any{pub.MatchedWorkloadSpread: placed}}},
		"WS-144 the patch's metadata alone": {`{"metadata":{"labels":{"pool":"a"},"annotations":{"k":"v"}},"spec":{"priority":3}}`, "",
			map[string]any{"labels": map[string]any{"pool": "a"}, "annotations": map[string]any{"k": "v",
				pub.MatchedWorkloadSpread: placed}}},
		"WS-144 no guard of the write": {`{"metadata":{"uid":"x","resourceVersion":null,"$patch":"replace","finalizers":["f"]}}`, "",
			map[string]any{"finalizers": []any{"f"}, "annotations": map[string]any{pub.MatchedWorkloadSpread: placed}}},
		"WS-144 WS-096 its annotation loses": {`{"metadata":{"annotations":{"` + pub.MatchedWorkloadSpread + `":"x"}}}`, "",
			map[string]any{"annotations": map[string]any{pub.MatchedWorkloadSpread: placed}}},
		"WS-144 left as it is": {`{"metadata":{"labels":{"pool":"a"}}}`, "True",
			map[string]any{"annotations": map[string]any{pub.MatchedWorkloadSpread: placed}}},
		"WS-144 any other value": {`{"metadata":{"labels":{"pool":"a"}}}`, "yes",
			map[string]any{"labels": map[string]any{"pool": "a"}, "annotations": map[string]any{pub.MatchedWorkloadSpread: placed}}},
	} {
		t.Run(name, func(t *testing.T) {
			subset := workloadspreadtest.Subset("a", nil, workloadspreadtest.Patches(test.patch))
			spread := workloadspreadtest.Spread(subset)
			spread.Annotations = map[string]string{pub.IgnorePatchExistingPods: test.ignore}
			got, err := adoptedMetadata(spread, &subset)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err != nil {
				t.Errorf("unexpected error: %v", err)
			}
		})
	}
	if _, err := adoptedMetadata(workloadspreadtest.Spread(),
		&appsv1beta1.WorkloadSpreadSubset{WorkloadSpreadSubsetRest: workloadspreadtest.Subset("", nil,
			workloadspreadtest.Patches(`[`)).WorkloadSpreadSubsetRest}); err == nil {
		t.Error("a patch that cannot be read is none")
	}
}
