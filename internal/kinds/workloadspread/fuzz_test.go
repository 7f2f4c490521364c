package workloadspread

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzPatched: a patch of a subset makes a pod or has an error, makes the same of its own result if it only
// sets fields, and changes neither the workload nor itself.
func FuzzPatched(f *testing.F) {
	for _, patch := range []string{`{"metadata":{"labels":{"zone":"a"}}}`, `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"1"}}}]}}`,
		`{"spec":{"containers":[{"$patch":"replace"},{"name":"b"}],"tolerations":null}}`, `{"spec":{"$retainKeys":["containers"],"$setElementOrder/containers":[{"name":"x"}]}}`,
		`[]`, `null`, `{"spec":5}`, `{"spec":{"containers":[null]}}`} {
		f.Add(patch, []byte{})
		f.Add(patch, []byte("\x01\x00\x02\x03\x01\x05"))
	}
	const text = `{"spec":{"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"i","future":1}],"tolerations":[{"key":"a"}]}},"volumeClaimTemplates":[{"metadata":{"name":"data"}}]}}`
	f.Fuzz(func(t *testing.T, patch string, changes []byte) {
		patch = fuzzing.Edit(patch, changes, "$patch", "$retainKeys", "$setElementOrder/containers",
			"$deleteFromPrimitiveList/finalizers", "name", "spec", "containers")
		var workload map[string]any
		if err := json.Unmarshal([]byte(text), &workload); err != nil {
			t.Fatal(err)
		}
		before := fuzzing.JSON(workload)
		patched, err := Patched(workload, []byte(patch))
		if after := fuzzing.JSON(workload); after != before {
			t.Errorf("%s changed the workload into %s", patch, after)
		}
		if err != nil {
			return
		}
		made := fuzzing.JSON(patched)
		if err := json.Unmarshal([]byte(made), &corev1.Pod{}); err != nil {
			t.Errorf("%s made %s, which is no pod: %v", patch, made, err)
		}
		if again, err := Patched(workload, []byte(patch)); err != nil || fuzzing.JSON(again) != made {
			t.Errorf("%s made %s, and then %s, %v", patch, made, fuzzing.JSON(again), err)
		}
		if len(made) > 4*(len(text)+len(patch))+1000 {
			t.Errorf("a patch of %d bytes made a pod of %d bytes", len(patch), len(made))
		}
	})
}

// FuzzFields: numbers in workloads of other projects, ordinals in names, ranges and percentages are read
// exactly or not at all.
func FuzzFields(f *testing.F) {
	for _, text := range []string{"web-0", "web--1", "a-2147483648", "3-5", "5-3", "-", "50%", "101%", "+5%",
		"spec.replicas", "spec.sets.0.replicas", "spec.sets.-1", ""} {
		f.Add(text, []byte(text))
	}
	f.Fuzz(func(t *testing.T, text string, list []byte) {
		if n, ok := ordinalOf(text); ok && n < 0 {
			t.Errorf("%q has the ordinal %d", text, n)
		}
		if r, ok := ordinals(text); ok && (r.First < 0 || r.Last < r.First) {
			t.Errorf("%q is the range %v", text, r)
		}
		if p, err := Percent(text); err == nil && (p < 0 || p > 100) {
			t.Errorf("%q is %d percent", text, p)
		}
		object := map[string]any{"spec": map[string]any{"replicas": int64(3),
			"sets": []any{map[string]any{"replicas": int64(1) << 40}, nil, "5"}}}
		if n, err := integerAt(object, text); err == nil && (text != "spec.replicas" || n != 3) {
			t.Errorf("at %q there is %d", text, n)
		}
		if allowed, err := ParseAllowList(string(list)); err == nil {
			for _, kind := range allowed.Workloads {
				if kind.Kind != "" && !allowed.Known(kind.GroupKind()) {
					t.Errorf("%s lists %v, which is not known", list, kind)
				}
			}
		}
	})
}
