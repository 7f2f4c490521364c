package workloadspread

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/engine/subset"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// WS-045, WS-048, WS-094: a patch whose merge keys are no scalars is an error; the library panics.
func TestOddMergeKeys(t *testing.T) {
	const pod = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}`
	whole, err := subset.Object([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	for _, patch := range []string{`{"spec":{"containers":[{"name":{}}]}}`, `{"spec":{"containers":[{"name":["c"]}]}}`} {
		if err := tryPatch([]byte(patch)); err == nil {
			t.Error("trying the patch: got nil, want an error")
		} else if !strings.Contains(err.Error(), "cannot be applied") {
			t.Errorf("trying the patch: got %q, want it to contain %q", err.Error(), "cannot be applied")
		}
		subset := workloadspreadtest.Subset("a", nil, workloadspreadtest.Patches(patch))
		if _, err := Inject([]byte(pod), &subset, pub.Placement{Name: "ws", Subset: "a"}); err == nil {
			t.Error("injected")
		}
		if unchanged(whole, []byte(patch)) {
			t.Error("it cannot be applied")
		}
	}
}

// TestAPatchOfALongListDoesNotHoldUpTheWebhook: the library merges lists with an effort by the square, 2.5
// minutes for 20,000 variables that fit into a pod. Whoever may create pods and WorkloadSpreads in one
// namespace could so keep the webhooks from answering for all others. Such a patch is refused, with the list;
// one of other fields is none (WS-045, WS-094).
func TestAPatchOfALongListDoesNotHoldUpTheWebhook(t *testing.T) {
	const count = 8_000
	variables := make([]string, count)
	for i := range variables {
		variables[i] = fmt.Sprintf(`{"name":"V%d"}`, i)
	}
	env := `"env":[` + strings.Join(variables, ",") + `]`
	pod := `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c",` + env + `}]}}`
	whole, err := subset.Object([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	spent := cputime.Start(t)
	for name, patch := range map[string]string{
		"one variable": `{"spec":{"containers":[{"name":"c","env":[{"name":"A"}]}]}}`,
		"an order":     `{"spec":{"containers":[{"name":"c","$setElementOrder/env":[{"name":"V1"}]}]}}`,
		"as many":      `{"spec":{"containers":[{"name":"c",` + env + `}]}}`,
	} {
		subset := workloadspreadtest.Subset("a", nil, workloadspreadtest.Patches(patch))
		if _, err := Inject([]byte(pod), &subset, pub.Placement{Name: "ws", Subset: "a"}); err == nil {
			t.Errorf("%s: error: got nil, want an error", name)
		} else if !strings.Contains(err.Error(), "spec.containers.env") {
			t.Errorf("%s: error: got %q, want it to contain %q", name, err.Error(), "spec.containers.env")
		}
		if unchanged(whole, []byte(patch)) {
			t.Errorf("%s: it is merged", name)
		}
		if err := tryPatch([]byte(patch)); (name == "as many") != (err != nil) {
			t.Errorf("%s: as many: got %t, want %t\n%.200v", name, name == "as many", err != nil, err)
		}
	}
	subset := workloadspreadtest.Subset("a", nil, workloadspreadtest.Patches(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}],"initContainers":[{"name":"c","env":[]}]}}`))
	if changes, err := Inject([]byte(pod), &subset, pub.Placement{Name: "ws", Subset: "a"}); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, changes)
	} else if len(changes) == 0 {
		t.Errorf("changes: got none, want some\n%v\n%v", changes, err)
	}
	if took := spent(); took > 10*time.Second { // some 0.1 s, or minutes
		t.Errorf("injection took %s, want 10s at most", took)
	}
}

// WS-094 (part): patches that fit into a WorkloadSpread took a minute and more for each pod of its namespace,
// in the manager of all.
func TestPatchesThatTakeTooLongAreRefused(t *testing.T) {
	list := func(n int, item string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(item, i)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	env := func(item string) string {
		return `{"name":"c%d","env":` + strings.ReplaceAll(list(499, item), "%", "%%") + `}`
	}
	aliases := list(5000, `{"ip":"%d"}`)
	for name, test := range map[string]struct{ pod, patch, list string }{
		"lists of many containers": {`{"spec":{"containers":` + list(40, env(`{"name":"a%d"}`)) + `}}`, `{"spec":{"containers":` +
			list(40, env(`{"name":"b%d"}`)) + `}}`, "spec.containers.env"},
		"the order of a list": {`{"spec":{}}`, `{"spec":{"hostAliases":` + aliases + `,"$setElementOrder/hostAliases":` +
			aliases + `}}`, "spec.hostAliases"},
		"the order of a container's": {`{"spec":{"containers":[{"name":"a"}]}}`,
			`{"spec":{"containers":[{"name":"a","ports":[],"$setElementOrder/ports":` + list(5000, `{"containerPort":%d}`) +
				`}]}}`, "spec.containers.ports"},
		"an empty list of the pod": {`{"spec":{"hostAliases":[]}}`, `{"spec":{"hostAliases":` + aliases + `}}`, "spec.hostAliases"},
		"a long list of the pod": {`{"spec":{"hostAliases":` + aliases + `}}`, `{"spec":{"hostAliases":[{"ip":"x"}]}}`,
			"spec.hostAliases"},
		"what is deleted from the list": {`{"metadata":{"finalizers":` + list(900, `"a%d"`) + `}}`,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":` + list(900, `"b%d"`) + `}}`, "metadata.finalizers"},
	} {
		if _, err := mergedText([]byte(test.pod), []byte(test.patch)); err == nil {
			t.Errorf("%s: error: got nil, want an error", name)
		} else if !strings.Contains(err.Error(), test.list+":") {
			t.Errorf("%s: error: got %q, want it to contain %q", name, err.Error(), test.list+":")
		}
	}
	some := strings.ReplaceAll(list(100, `{"name":"a%d"}`), "%", "%%")
	pod := `{"spec":{"containers":` + list(40, `{"name":"c%d","env":`+some+`}`) + `}}`
	if _, err := mergedText([]byte(pod), []byte(`{"spec":{"containers":[{"name":"c1","env":[{"name":"x"},{"name":"y"}]}]}}`)); err != nil {
		t.Errorf("two variables more for one of many containers: %v", err)
	}
}
