package explain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// Why tells of a UnitedDeployment what each subset is given, what is there, and what it waits for, by the
// manager's own plan.
func TestWhyOfUnitedDeployments(t *testing.T) {
	const template = `{metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: a}]}}`
	owned := func(kind, uid string) string {
		version := map[string]string{"UnitedDeployment": "apps.kruise.io/v1beta1", "Deployment": "apps/v1", "ReplicaSet": "apps/v1"}[kind]
		return fmt.Sprintf(`ownerReferences: [{apiVersion: %s, kind: %s, name: x, uid: %s, controller: true}]`, version, kind, uid)
	}
	child := func(name, owner string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-` + name + `, namespace: shop, uid: ` + name + `, generation: 1, labels: {app: web, apps.kruise.io/subset-name: ` + name + `}, ` + owner + `},
  spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: ` + template + `}, status: {replicas: 2, readyReplicas: 1, observedGeneration: 1}}`
	}
	pod := func(name, owner string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, namespace: shop, uid: ` + name + `, labels: {app: web, apps.kruise.io/subset-name: a}, ` + owned("ReplicaSet", owner) + `}, spec: {containers: [{name: a, image: a}]}, status: {phase: Pending}}`
	}
	for _, version := range []string{"v1beta1"} {
		united := func(replicas string) string {
			return `{apiVersion: apps.kruise.io/` + version + `, kind: UnitedDeployment, metadata: {name: web, namespace: shop, uid: ud}, spec: {replicas: ` + replicas + `, selector: {matchLabels: {app: web}},
  template: {deploymentTemplate: {metadata: {labels: {app: web}}, spec: {template: ` + template + `}}}, topology: {subsets: [{name: a, replicas: 3}, {name: b}]}}}`
		}
		s := plugintest.NewIn(t, "shop", "v1beta1", united("5"), child("a", owned("UnitedDeployment", "ud")), child("gone", owned("UnitedDeployment", "ud")), child("stranger", owned("UnitedDeployment", "other")),
			`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-a-1, namespace: shop, uid: rs, `+owned("Deployment", "a")+`}, spec: {selector: {matchLabels: {app: web}}, template: `+template+`}}`,
			pod("one", "rs"), pod("two", "nobody"))
		out, err := s.Run(t, NewWhy, "why", "ud/web", "-n", "shop").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"UnitedDeployment shop/web:", "Update revision: web-", "subset a: 3 wanted, 1 there, 1 ready; update: ", "replicas 3 instead of 2", "subset b: 2 wanted, 0 there; create",
			"Deployment web-gone is deleted: there is no subset gone any more"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s\nlacks %s", out, want)
			}
		}
		if strings.Contains(out, "stranger") {
			t.Errorf("the output has what belongs to somebody else: %s", out)
		}
		// UD-173 (part): numbers that do not fit are a problem, and nothing is done.
		s = plugintest.NewIn(t, "shop", "v1beta1", united("2"))
		if out, err = s.Run(t, NewWhy, "why", "ud/web", "-n", "shop").Output(); err != nil {
			t.Errorf("why: %v", err)
		}
		for _, want := range []string{"Problem: ", "hold"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s\nlacks %s", out, want)
			}
		}
	}
}
