package workloadspread

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/simulation"
)

// WS-001, WS-090, WS-091, WS-092, WS-093: tolerations and preferred terms come behind the pod's own, requirements into each of its
// required terms, and nothing comes where the subset has nothing.
func TestWhereTheRulesOfASubsetGo(t *testing.T) {
	const mine, yours = `{key: mine, operator: Exists}`, `{key: yours, operator: Equal, value: x, effect: NoSchedule}`
	const light, heavy = `{weight: 1, preference: {matchExpressions: [{key: light, operator: Exists}]}}`, `{weight: 9, preference: {matchFields: [{key: metadata.name, operator: In, values: [n9]}]}}`
	const zone, node = `{key: zone, operator: In, values: [a]}`, `{key: metadata.name, operator: In, values: [n1]}`
	const disk, arch = `{key: disk, operator: Exists}`, `{key: arch, operator: In, values: [x]}`
	affinity := func(members string) string { return `affinity: {nodeAffinity: {` + members + `}}` }
	required := func(terms string) string {
		return `requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [` + terms + `]}`
	}
	preferred := func(terms string) string { return `preferredDuringSchedulingIgnoredDuringExecution: [` + terms + `]` }
	for name, test := range map[string]struct{ subset, pod, want string }{
		"tolerations of a pod without": {`tolerations: [` + mine + `, ` + yours + `]`, ``, `tolerations: [` + mine + `, ` +
			yours + `]`},
		"tolerations behind those of the pod": {`tolerations: [` + mine + `]`, `tolerations: [` + yours + `, ` + mine + `]`,
			`tolerations: [` + yours + `, ` + mine + `, ` + mine + `]`},
		"no tolerations": {`tolerations: []`, ``, ``},
		"preferred terms of a pod without": {`preferredNodeSelector: [` + light + `, ` + heavy + `]`, ``, affinity(preferred(light +
			`, ` + heavy))},
		"preferred terms behind those of the pod": {`preferredNodeSelector: [` + light + `]`, affinity(preferred(heavy)),
			affinity(preferred(heavy + `, ` + light))},
		"preferred terms beside required ones": {`preferredNodeSelector: [` + light + `]`, affinity(required(`{matchExpressions: [` +
			disk + `]}`)), affinity(required(`{matchExpressions: [`+disk+`]}`) + `, ` + preferred(light))},
		"a required term of a pod without": {`requiredNodeSelector: {matchExpressions: [` + zone + `], matchFields: [` + node + `]}`,
			``, affinity(required(`{matchExpressions: [` + zone + `], matchFields: [` + node + `]}`))},
		"a required term of a pod without terms": {`requiredNodeSelector: {matchExpressions: [` + zone + `]}`, affinity(required(``)),
			affinity(required(`{matchExpressions: [` + zone + `]}`))},
		"a required term beside other affinity": {`requiredNodeSelector: {matchFields: [` + node + `]}`, `affinity: {podAffinity: {}}`,
			`affinity: {podAffinity: {}, nodeAffinity: {` + required(`{matchFields: [`+node+`]}`) + `}}`},
		"requirements in every term, behind its own": {`requiredNodeSelector: {matchExpressions: [` + zone + `], matchFields: [` + node +
			`]}`, affinity(required(`{matchExpressions: [` + disk + `]}, {matchExpressions: [` + arch + `, ` + disk +
			`]}, {matchFields: [` + node + `]}`)),
			affinity(required(`{matchExpressions: [` + disk + `, ` + zone + `], matchFields: [` + node + `]}, {matchExpressions: [` + arch +
				`, ` + disk + `, ` + zone + `], matchFields: [` + node + `]}, {matchExpressions: [` + zone + `], matchFields: [` + node +
				`, ` + node + `]}`))},
		"neither selector":                      {`tolerations: [` + mine + `]`, ``, `tolerations: [` + mine + `]`},
		"neither selector, with affinity":       {`maxReplicas: 1`, `affinity: {}`, `affinity: {}`},
		"selectors that are empty":              {`preferredNodeSelector: [], requiredNodeSelector: {}`, ``, ``},
		"preferred terms make no required ones": {`preferredNodeSelector: [` + light + `]`, ``, affinity(preferred(light))},
		"required terms make no preferred ones": {`requiredNodeSelector: {matchExpressions: [` + zone + `]}`, ``,
			affinity(required(`{matchExpressions: [` + zone + `]}`))},
	} {
		t.Run(name, func(t *testing.T) {
			var subset appsv1beta1.WorkloadSpreadSubset
			if err := yaml.UnmarshalStrict([]byte(`{name: a, `+test.subset+`}`), &subset); err != nil {
				t.Fatal(err)
			}
			raw, err := yaml.YAMLToJSON([]byte(`{metadata: {name: p}, spec: {` + test.pod + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			after, err := injected(t, raw, &subset, pub.Placement{Name: "ws", Subset: "a"})
			if err != nil {
				t.Fatal(err)
			}
			var got struct{ Spec map[string]any }
			if err := json.Unmarshal(after, &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			if err := yaml.Unmarshal([]byte(`{`+test.want+`}`), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Spec); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// WS-001: pods of a workload that was there before fill the subsets in their order as they are created, and leave those behind
// first when there are to be fewer. The workload is not written; of pods only annotations are, and their cost is what steers it.
// The rules that bring a pod to its nodes are shown by TestWhereTheRulesOfASubsetGo.
func TestWhatAWorkloadSpreadIsFor(t *testing.T) {
	s := simulate(1, makeSpread(makeSubset("a", 2, zone("a")), makeSubset("b", 1, zone("b")), makeSubset("c", nil, zone("c"))), 0)
	s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		switch now, isPod := after.(*corev1.Pod); {
		case w.Key.Kind == "WorkloadSpread" && w.Subresource == "status":
		case !isPod:
			t.Errorf("written was %+v", w)
		default:
			was := before.(*corev1.Pod).DeepCopy()
			was.Annotations, was.ResourceVersion = now.Annotations, now.ResourceVersion
			sameSecond := cmp.Comparer(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() }) // as patches write them
			if diff := cmp.Diff(was, now, sameSecond); diff != "" {
				t.Errorf("of pod %s more than annotations: %s", now.Name, diff)
			}
		}
	}
	spread := func(when string, want map[string]int) {
		t.Helper()
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		got, highest := map[string]int{}, map[string]int{}
		for _, pod := range s.active() {
			placed, _ := pub.ParsePlacement(pod.Annotations)
			got[placed.Subset]++
			if pod.Spec.NodeName != "node-"+placed.Subset {
				t.Errorf("%s: pod %s of %s is on %s", when, pod.Name, placed.Subset, pod.Spec.NodeName)
			}
			highest[placed.Subset] = costOf(pod)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
		for _, pair := range [][2]string{{"a", "b"}, {"b", "c"}, {"a", "c"}} {
			if got[pair[0]] > 0 && got[pair[1]] > 0 && highest[pair[0]] <= highest[pair[1]] {
				t.Errorf("%s: pods of %s cost %d, those of %s %d", when, pair[0], highest[pair[0]], pair[1], highest[pair[1]])
			}
		}
	}
	s.scale(1)
	spread("one", map[string]int{"a": 1})
	s.scale(5)
	spread("five", map[string]int{"a": 2, "b": 1, "c": 2})
	s.scale(3)
	spread("three", map[string]int{"a": 2, "b": 1})
	s.scale(2)
	spread("two", map[string]int{"a": 2})
	s.scale(4)
	spread("four", map[string]int{"a": 2, "b": 1, "c": 1})
}

// WS-107: a pod that ends by itself, which no request announces, is counted out by its phase, and its place is free again. That
// the end of a pod gives reason to count is shown by TestPodEvents.
func TestAPodThatEndsByItselfMakesRoom(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		s := simulate(1, makeSpread(makeSubset("a", 2, zone("a")), makeSubset("b", nil, zone("b"))), 0)
		s.scale(2)
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		subset := func() appsv1beta1.WorkloadSpreadSubsetStatus { return s.spread().Status.SubsetStatuses[0] }
		if subset().Replicas != 2 || subset().MissingReplicas != 0 {
			t.Fatalf("%+v", subset())
		}
		ended := s.active()[0].Name
		s.Change(podKey(ended), func(o client.Object) { o.(*corev1.Pod).Status.Phase = phase })
		// Nothing but the controller acts: the workload has not replaced it yet.
		for range 20 {
			s.Events(1 << 20)
			s.Manage()
		}
		if got := subset(); got.Replicas != 1 || got.MissingReplicas != 1 || len(got.DeletingPods) > 0 {
			t.Errorf("%s: %+v", phase, got)
		}
	}
}
