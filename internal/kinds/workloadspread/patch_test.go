package workloadspread

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// WS-045, WS-048, WS-094: a patch whose merge keys are no scalars is an error; the library panics.
func TestOddMergeKeys(t *testing.T) {
	const pod = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}`
	for _, patch := range []string{`{"spec":{"containers":[{"name":{}}]}}`, `{"spec":{"containers":[{"name":["c"]}]}}`} {
		if err := tryPatch([]byte(patch)); err == nil || !strings.Contains(err.Error(), "cannot be applied") {
			t.Error(err)
		}
		subset := workloadspreadtest.Subset("a", nil, workloadspreadtest.Patches(patch))
		if _, err := Inject([]byte(pod), &subset, pub.Placement{Name: "ws", Subset: "a"}); err == nil {
			t.Error("injected")
		}
		if unchanged([]byte(pod), []byte(patch)) {
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
	began := time.Now()
	for name, patch := range map[string]string{
		"one variable": `{"spec":{"containers":[{"name":"c","env":[{"name":"A"}]}]}}`,
		"an order":     `{"spec":{"containers":[{"name":"c","$setElementOrder/env":[{"name":"V1"}]}]}}`,
		"as many":      `{"spec":{"containers":[{"name":"c",` + env + `}]}}`,
	} {
		subset := workloadspreadtest.Subset("a", nil, workloadspreadtest.Patches(patch))
		if _, err := Inject([]byte(pod), &subset, pub.Placement{Name: "ws", Subset: "a"}); err == nil ||
			!strings.Contains(err.Error(), "spec.containers.env") {
			t.Errorf("%s: %.200v", name, err)
		}
		if unchanged([]byte(pod), []byte(patch)) {
			t.Errorf("%s: it is merged", name)
		}
		if err := tryPatch([]byte(patch)); (name == "as many") != (err != nil) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	subset := workloadspreadtest.Subset("a", nil, workloadspreadtest.Patches(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}],"initContainers":[{"name":"c","env":[]}]}}`))
	if changes, err := Inject([]byte(pod), &subset, pub.Placement{Name: "ws", Subset: "a"}); err != nil || len(changes) == 0 {
		t.Errorf("%v, %v", changes, err)
	}
	if took := time.Since(began); took > 10*time.Second { // some 0.1 s, or minutes
		t.Error(took)
	}
}
