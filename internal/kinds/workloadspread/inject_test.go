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
		t.Fatalf("%s: %v", text, err)
	}
	return after, nil
}

// WS-017, WS-090 to WS-097: pods before and after, with the operations that lead there.
func TestInject(t *testing.T) {
	files, err := filepath.Glob("testdata/inject/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
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
				t.Error(diff)
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
			t.Errorf("%s: %v", raw, changes)
		}
	}
}
