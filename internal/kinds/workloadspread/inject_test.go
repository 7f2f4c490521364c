package workloadspread

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

var rewrite = flag.Bool("update-pods", false, "write the golden pods of injection anew")

// injected is the document of the pod after the operations, which are read as an API server reads them.
func injected(t *testing.T, raw []byte, subset *appsv1beta1.WorkloadSpreadSubset, placement pub.Placement) ([]byte, error) {
	t.Helper()
	changes, err := Inject(raw, subset, placement)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(raw)
	if err != nil {
		t.Fatalf("applying the patch %s: %v", text, err)
	}
	return after, nil
}

// WS-017, WS-090 to WS-097: pods before and after, with the operations that lead there.
func TestInject(t *testing.T) {
	files, err := filepath.Glob("testdata/inject/*.yaml")
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	} else if len(files) == 0 {
		t.Fatalf("files: got none, want some\n%v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var test struct {
				Subset appsv1beta1.WorkloadSpreadSubset `json:"subset"`
				UID    string                           `json:"uid"`
				Pod    json.RawMessage                  `json:"pod"`
			}
			if err := yaml.UnmarshalStrict(text, &test); err != nil {
				t.Fatal(err)
			}
			subset := test.Subset.DeepCopy()
			placement := pub.Placement{Name: "ws", Subset: subset.Name, UID: test.UID}
			changes, err := Inject(test.Pod, subset, placement)
			if !reflect.DeepEqual(subset, &test.Subset) { // WS-097
				t.Errorf("the subset was changed")
			}
			got := ""
			if err != nil {
				got = "error: " + err.Error() + "\n"
			} else {
				for _, change := range changes {
					line, err := json.Marshal(change)
					if err != nil {
						t.Fatal(err)
					}
					got += "# " + string(line) + "\n"
				}
				after, err := injected(t, test.Pod, subset, placement)
				if err != nil {
					t.Fatal(err)
				}
				shown, err := yaml.JSONToYAML(after)
				if err != nil {
					t.Fatal(err)
				}
				got += string(shown)
				if again, _ := injected(t, test.Pod, subset, placement); string(again) != string(after) {
					t.Error("it is not always the same")
				}
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// WS-094: documents that are no pods are errors.
func TestInjectHostilePods(t *testing.T) {
	subset := &appsv1beta1.WorkloadSpreadSubset{Name: "a"}
	if err := yaml.Unmarshal([]byte(`{requiredNodeSelector: {matchExpressions: [{key: a, operator: Exists}]}, tolerations: [{key: a}]}`),
		subset); err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{``, `null`, `[]`, `{"spec":7}`, `{"spec":{"tolerations":{}}}`, `{"spec":{"affinity":[]}}`,
		`{"spec":{"affinity":{"nodeAffinity":1}}}`, `{"metadata":[]}`,
		`{"metadata":{"annotations":"x"}}`, `{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[1]}}}}}`} {
		if changes, err := Inject([]byte(raw), subset, pub.Placement{Name: "ws", Subset: "a"}); err == nil {
			t.Errorf("injection into %s: got %v, want an error", raw, changes)
		}
	}
}

// WS-001, WS-090, WS-091, WS-092, WS-093: tolerations and preferred terms come behind the pod's own,
// requirements into each of its required terms, and nothing comes where the subset has nothing.
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
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}
