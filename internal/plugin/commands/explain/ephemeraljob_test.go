package explain

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

const ejobManifest = `{apiVersion: apps.kruise.io/v1alpha1, kind: EphemeralJob, metadata: {name: dump, namespace: shop, uid: job},
  spec: {selector: {matchLabels: {app: web}}, template: {ephemeralContainers: [{name: dump, image: a}]}}}`

// Why explains an EphemeralJob pod by pod, as its planner does.
func TestWhyOfEphemeralJobs(t *testing.T) {
	pod := func(name, more string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, namespace: shop, uid: ` + name + `, labels: {app: web}}, spec: {nodeName: one, containers: [{name: a, image: a}]` + more + `}, status: {phase: Running}}`
	}
	s := plugintest.NewIn(t, "shop", "v1beta1", ejobManifest, pod("a", `, ephemeralContainers: [{name: dump, image: a, env: [{name: KRUISE_EJOB_ID, value: job}]}]`), pod("b", ""),
		pod("c", `, ephemeralContainers: [{name: dump, image: a}]`))
	out, err := s.Run(t, NewWhy, "why", "ejob/dump", "-n", "shop", "-o", "wide").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"EphemeralJob shop/dump", "of 2 pods 0 succeeded", "the kubelet has not reported about container dump",
		"1 pod has unfinished containers, spec.parallelism is 1", "NameTaken"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nlacks %s", out, want)
		}
	}
}
