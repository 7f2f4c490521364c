package workloadspread

import (
	"fmt"
	"strings"
	"testing"
)

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
		if _, err := mergedText([]byte(test.pod), []byte(test.patch)); err == nil || !strings.Contains(err.Error(), test.list+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
	some := strings.ReplaceAll(list(100, `{"name":"a%d"}`), "%", "%%")
	pod := `{"spec":{"containers":` + list(40, `{"name":"c%d","env":`+some+`}`) + `}}`
	if _, err := mergedText([]byte(pod), []byte(`{"spec":{"containers":[{"name":"c1","env":[{"name":"x"},{"name":"y"}]}]}}`)); err != nil {
		t.Errorf("two variables more for one of many containers: %v", err)
	}
}
