package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

// OPS-144: the revisions of each kind in their order with their causes, the template of one, an unknown one,
// and none.
func TestHistory(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		s, results := server(t, version), []plugintest.Result(nil)
		for _, k := range kinds(version) {
			result := s.Run(t, command, "rollout", "history", k.named)
			want := k.named + "\nREVISION  CHANGE-CAUSE\n1         kubectl create\n2         <none>\n3         the last one\n"
			if result.Out != want {
				t.Errorf("output: got %q, want %q\n%v", result.Out, want, result)
			}
			if result.Err != nil {
				t.Errorf("error: unexpected error: %v\n%v", result.Err, result)
			}
			result = s.Run(t, command, "rollout", "history", k.named, "--revision=2")
			if !strings.HasPrefix(result.Out, k.named+" with revision #2\nPod Template:\n  Labels:\tapp=web\n") {
				t.Errorf("output: got %q, want it to begin with %q\n%v", result.Out,
					k.named+" with revision #2\nPod Template:\n  Labels:\tapp=web\n", result)
			}
			if !strings.Contains(result.Out, "Image:\tnginx:2\n") {
				t.Errorf("output: got %q, want it to contain %q\n%v", result.Out, "Image:\tnginx:2\n", result)
			}
			if result.Err != nil {
				t.Errorf("error: unexpected error: %v\n%v", result.Err, result)
			}
			results = append(results, s.Run(t, command, "rollout", "history", k.named, "--revision=7"),
				s.Run(t, command, "rollout", "history", k.named, "--revision=2", "-o",
					"jsonpath={.kind} {.metadata.name} {.spec.template.spec}{'\\n'}"),
				s.Run(t, command, "rollout", "history", k.named, "-o", "jsonpath={.kind} {.spec.template.spec.containers[*].image}{'\\n'}"))
			s.Put(t, strings.Replace(strings.ReplaceAll(k.document(), "app: web", "app: new"), "name: web, uid: web-", "name: new, uid: new-", 1))
			results = append(results, s.Run(t, command, "rollout", "history", strings.Replace(k.named, "web", "new", 1)))
		}
		results = append(results, s.Run(t, command, "rollout", "history", "clone/web", "--revision=3"),
			s.Run(t, command, "rollout", "history", "clone/web", "--revision=1", "-o", "yaml"),
			s.Run(t, command, "rollout", "history", "clone/web", "--revision=-1"),
			s.Run(t, command, "rollout", "history", "clone/web", "clone/none", "deploy/new"))
		golden.Compare(t, "history-"+version, plugintest.Transcript(results...))
	}
}

// OPS-145: the template becomes exactly that of the revision, of all kinds, which is the one before the
// latest or the one that is named; what is there now and was not there is gone. Revisions that are not there,
// and a single one, are errors; what matches already is said; dry runs write nothing, and that of the client
// prints the template.
func TestUndo(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		s, results := server(t, version), []plugintest.Result(nil)
		for _, k := range kinds(version) {
			run := func(args ...string) plugintest.Result {
				return s.Run(t, command, append([]string{"rollout", "undo", k.named}, args...)...)
			}
			expect := func(result plugintest.Result, out string, n int) {
				t.Helper()
				if result.Out != k.named+" "+out+"\n" {
					t.Errorf("output: got %q, want %q\n%v", result.Out, k.named+" "+out+"\n", result)
				}
				if result.Err != nil {
					t.Errorf("error: unexpected error: %v\n%v", result.Err, result)
				}
				var want any
				if err := yaml.Unmarshal([]byte(past(n)), &want); err != nil {
					t.Fatal(err)
				}
				got, _, _ := unstructured.NestedFieldNoCopy(s.Get(t, k.plural, "web").Object, "spec", "template")
				if diff := cmp.Diff(want, withoutEmpty(got)); diff != "" {
					t.Errorf("result without what is empty (-want +got):\n%s\n%q\n%q", diff, version, k.named)
				}
			}
			if k.kind == "StatefulSet" || k.kind == "DaemonSet" {
				results = append(results, run("--to-revision=-1"), run("--to-revision=9"))
			}
			results = append(results, run("--dry-run=client"), run("--dry-run=client", "-o", "name", "--to-revision=1"), run("--dry-run=server"))
			for _, r := range s.Requests() {
				if r.Query != "dryRun=All&fieldManager=kubectl-afloat" {
					t.Error("a dry run that writes", r)
				}
			}
			expect(run(), "rolled back", 2)
			if k.kind == "CloneSet" && version == "v1beta1" {
				golden.Compare(t, "undo-patch", strings.Join(s.Patches(t), "\n")+"\n")
			}
			expect(run("--to-revision=1"), "rolled back", 1)
			s.Requests()
			expect(run("--to-revision=1"), "skipped rollback (current template already matches revision 1)", 1)
			if wrote := s.Requests(); len(wrote) > 0 {
				t.Error("what matches is written", wrote)
			}
			annotations := s.Get(t, k.plural, "web").GetAnnotations()
			wanted := map[string]string{"deployment.kubernetes.io/revision": "3", "mine": "kept"}
			if k.kind == "Deployment" { // as kubectl does
				wanted = map[string]string{"deployment.kubernetes.io/revision": "3", "kubernetes.io/change-cause": "kubectl create",
					"apps.kruise.io/cloneset-volumeclaimtemplates": "[]"}
			}
			if diff := cmp.Diff(wanted, annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s\n%q", diff, k.named)
			}
			stored := map[bool]string{true: "replicasets", false: "controllerrevisions"}[k.kind == "Deployment"]
			for _, n := range []int{2, 3} {
				s.Delete(t, stored, fmt.Sprintf("web-%s-%d", strings.ReplaceAll(k.plural, ".", "-"), n))
			}
			results = append(results, run())
		}
		s.Change(t, "deployments", "web", func(o map[string]any) { o["spec"].(map[string]any)["paused"] = true })
		results = append(results, s.Run(t, command, "rollout", "undo", "deploy/web", "--to-revision=1"),
			s.Run(t, command, "rollout", "undo", "clone/none", "clone/web", "--to-revision=1"))
		golden.Compare(t, "undo-"+version, plugintest.Transcript(results...))
	}
}

// withoutEmpty is a document without the empty members that the encoding of Kubernetes 1.32 adds to a
// template.
func withoutEmpty(value any) any {
	if fields, ok := value.(map[string]any); ok {
		clean := map[string]any{}
		for key, member := range fields {
			if inner, ok := member.(map[string]any); !ok || len(inner) > 0 {
				clean[key] = withoutEmpty(member)
			}
		}
		return clean
	}
	list, ok := value.([]any)
	if !ok {
		return value
	}
	clean := []any{}
	for _, member := range list {
		clean = append(clean, withoutEmpty(member))
	}
	return clean
}

// CS-336 (part): the claim templates that the restored template of a CloneSet mounts come back if they are
// gone; others stay as they are.
func TestUndoBringsClaimsBack(t *testing.T) {
	k := kinds("v1beta1")[3]
	mounting := `{metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: 'nginx:1', volumeMounts: [
{name: data, mountPath: /data},
{name: here, mountPath: /here}], volumeDevices: [{name: disk, devicePath: /dev/disk}]}], volumes: [{name: here, emptyDir: {}}]}}`
	claims := `[{"metadata":{"name":"data","creationTimestamp":null},"spec":{"storageClassName":"old"}},` +
		`{"metadata":{"name":"disk"},"spec":{}},{"metadata":{"name":"here"},"spec":{}},{"metadata":{"name":"other"},"spec":{}}]`
	for name, tt := range map[string]struct{ now, remembered, want string }{
		"gone": {"", claims,
			`[{"metadata":{"name":"data"},"spec":{"storageClassName":"old"}},{"metadata":{"name":"disk"},"spec":{}}]`},
		"one is there": {`[{"metadata":{"name":"data"},"spec":{"storageClassName":"new"}}]`, claims,
			`[{"metadata":{"name":"data"},"spec":{"storageClassName":"new"}},{"metadata":{"name":"disk"},"spec":{}}]`},
		"none remembered": {"", "[]", "null"},
		"unreadable":      {"", "{", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			s := plugintest.New(t, "v1beta1", k.document(), k.stored(t, 1, mounting,
				"{apps.kruise.io/cloneset-volumeclaimtemplates: '"+tt.remembered+"'}"),
				k.stored(t, 2, past(2), "{}"))
			if tt.now != "" {
				s.Change(t, "clonesets", "web", func(o map[string]any) {
					var value any
					if err := yaml.Unmarshal([]byte(tt.now), &value); err != nil {
						t.Errorf("reading the claim templates of now: %v", err)
					}
					o["spec"].(map[string]any)["volumeClaimTemplates"] = value
				})
			}
			result := s.Run(t, command, "rollout", "undo", "clone/web", "--to-revision=1")
			value, _, _ := unstructured.NestedFieldNoCopy(s.Get(t, "clonesets", "web").Object, "spec", "volumeClaimTemplates")
			got, err := yaml.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "error" {
				if result.Err == nil {
					t.Errorf("error: got nil, want an error\n%v", result)
				} else if got := len(s.Requests()); got > 0 {
					t.Errorf("requests: got %d, want none\n%v", got, result)
				}
				return
			}
			if result.Err != nil {
				t.Errorf("history: %v", result)
			}
			if flow := asFlow(t, string(got)); flow != tt.want {
				t.Errorf("patch: got %s, want %s", flow, tt.want)
			}
		})
	}
}

// What anybody writes as a cause neither steers the terminal nor makes a line of its own.
func TestCausesDoNotSteerTheTerminal(t *testing.T) {
	s := server(t, "v1beta1")
	s.Put(t, `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: evil, uid: evil}, spec: {selector: {matchLabels: {app: evil}}}}`)
	s.Put(t, `{apiVersion: apps/v1, kind: ControllerRevision, revision: 1, metadata: {name: evil-1, labels: {app: evil},
ownerReferences: [{uid: evil, controller: true}], annotations: {kubernetes.io/change-cause: "a\e[2J\n7  b"}},
data: {spec: {template: {$patch: replace, spec: {containers: [{name: app, image: "nginx:0"}]}}}}}`)
	result := s.Run(t, command, "rollout", "history", "clone/evil")
	if !strings.HasSuffix(result.Out, "CHANGE-CAUSE\n1         a\ufffd[2J 7  b\n") {
		t.Errorf("output: got %q, want it to end with %q", result.Out, "CHANGE-CAUSE\n1         a\ufffd[2J 7  b\n")
	}
	if result.Err != nil {
		t.Errorf("error: unexpected error: %v", result.Err)
	}
}
