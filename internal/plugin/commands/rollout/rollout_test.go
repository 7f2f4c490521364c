package rollout_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/plugin/commands/rollout"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// command is the command as the plugin has it, while nobody explains.
func command(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return rollout.New(f, streams, nil)
}

// kind is a kind of workload that has revisions.
type kind struct{ apiVersion, kind, plural, named string }

// kinds are those that the commands know, in one version of ours.
func kinds(version string) []kind {
	ours := "apps.kruise.io/" + version
	return []kind{
		{"apps/v1", "Deployment", "deployments", "deployment.apps/web"}, {"apps/v1", "StatefulSet", "statefulsets.apps", "statefulset.apps/web"},
		{"apps/v1", "DaemonSet", "daemonsets.apps", "daemonset.apps/web"}, {ours, "CloneSet", "clonesets", "cloneset.apps.kruise.io/web"},
		{ours, "StatefulSet", "statefulsets.apps.kruise.io", "statefulset.apps.kruise.io/web"},
		{ours, "DaemonSet", "daemonsets.apps.kruise.io", "daemonset.apps.kruise.io/web"},
	}
}

// present is the pod template of the workload, which is that of no revision.
const present = `
      metadata: {labels: {app: web, added: later}, annotations: {added: later}}
      spec:
        hostNetwork: true
        containers:
        - {name: app, image: "nginx:3", args: [added], env: [{name: ADDED, value: later}], newField: {added: later}}
        - {name: added, image: "log:1"}
`

// past is the pod template of a revision.
func past(n int) string {
	return fmt.Sprintf("{metadata: {labels: {app: web}}, spec: {futureField: [kept], containers: [{name: app, image: 'nginx:%d', env: "+
		"[{name: NUMBER, value: '%d'}]}]}}", n, n)
}

// document is the workload.
func (k kind) document() string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: web, uid: web-%s, annotations: {deployment.kubernetes.io/revision: '3', "+
		"mine: kept}}\n"+
		"spec:\n    replicas: 3\n    selector: {matchLabels: {app: web}}\n    template:%s", k.apiVersion, k.kind, k.plural, present)
}

// stored is what holds revision n of the workload.
func (k kind) stored(t *testing.T, n int, template, annotations string) string {
	t.Helper()
	owner := fmt.Sprintf("ownerReferences: [{apiVersion: %s, kind: %s, name: web, uid: web-%s, controller: true}]", k.apiVersion, k.kind,
		k.plural)
	name := fmt.Sprintf("web-%s-%d", strings.ReplaceAll(k.plural, ".", "-"), n)
	if k.kind == "Deployment" {
		withHash := strings.Replace(template, "app: web", fmt.Sprintf("app: web, pod-template-hash: h%d", n), 1)
		return fmt.Sprintf("{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: %s, uid: rs-%d, labels: {app: web}, annotations: "+
			"{deployment.kubernetes.io/revision: '%d', %s}, %s}, spec: {template: %s}}",
			name, n, n, strings.Trim(annotations, "{}"), owner, withHash)
	}
	encoded, err := yaml.YAMLToJSON([]byte(template))
	if err != nil {
		t.Fatal(err)
	}
	data, err := revision.Data(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("{apiVersion: apps/v1, kind: ControllerRevision, revision: %d, metadata: {name: %s, labels: {app: web}, "+
		"annotations: %s, %s}, data: %s}",
		n, name, annotations, owner, data)
}

// server has the workload of each kind with revisions 1 to 3, of which 3 is the present one.
func server(t *testing.T, version string) *plugintest.Server {
	t.Helper()
	var all []string
	for _, k := range kinds(version) {
		all = append(all, k.document(), k.stored(t, 2, past(2), "{}"),
			k.stored(t, 1, past(1), `{kubernetes.io/change-cause: kubectl create, apps.kruise.io/cloneset-volumeclaimtemplates: '[]'}`),
			k.stored(t, 3, asFlow(t, present), "{kubernetes.io/change-cause: the last one}"),
			strings.Replace(k.stored(t, 9, past(9), "{}"), "uid: web-", "uid: another-", 1), // of another workload with the same selector
		)
	}
	return plugintest.New(t, version, all...)
}

// asFlow is a document on one line.
func asFlow(t *testing.T, text string) string {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// Names of objects are completed.
func TestNamesOfObjectsAreCompleted(t *testing.T) {
	s := server(t, "v1beta1")
	for _, of := range []string{"status", "history", "undo", "pause", "resume", "restart"} {
		if result := s.Run(t, command, "__complete", "rollout", of, "cloneset/"); !strings.HasPrefix(result.Out, "cloneset/web\n") {
			t.Errorf("output: got %q, want it to begin with %q\n%v", result.Out, "cloneset/web\n", result)
		}
	}
}
