package chart_test

import (
	"fmt"
	"strings"
	"testing"
)

// A namespace that has the name of the other one in it is not mistaken for it.
func TestNamespacesWithNamesOfEachOther(t *testing.T) {
	for values, want := range map[string]string{
		"installation: {namespace: afloat, daemonConfigNamespace: kruise-system-pull}":              "kruise-system-pull",
		"installation: {namespace: kruise-daemon-config-not, daemonConfigNamespace: kruise-system}": "kruise-system",
	} {
		rendered := mustRender(t, few(load(t)), values)
		for _, key := range []string{"Namespace " + want, "Role " + want + " kruise-daemon-secret-role", "Role " + want + " kruise-pull-secrets-role"} {
			if rendered[key] == nil {
				t.Errorf("%s: there is no %s", values, key)
			}
		}
	}
}

// Variables of the user come instead of those of the chart: none is there twice, which API servers refuse.
func TestVariablesOfTheUserAreThereOnce(t *testing.T) {
	rendered := mustRender(t, few(load(t)), "manager: {webhook: {port: 9443}, extraEnvs: [{name: GOMEMLIMIT, value: 1GiB}, {name: WEBHOOK_PORT, value: '9444'}]}")
	object := rendered["Deployment kruise-system kruise-controller-manager"]
	pod := object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	var names []string
	for _, variable := range pod["containers"].([]any)[0].(map[string]any)["env"].([]any) {
		v := variable.(map[string]any)
		names = append(names, fmt.Sprint(v["name"], "=", v["value"]))
	}
	if got := strings.Join(names, " "); got != "POD_NAMESPACE=<nil> GOMEMLIMIT=1GiB WEBHOOK_PORT=9444" {
		t.Error(got)
	}
}
